//! Checks of names and lines.

use std::path::Path;

use crate::tree::SourceFile;

/// Lines of source from which a file is a defect: it wants a redesign.
pub const MAX_FILE_LINES: usize = 800;

/// Lines of source from which a file is worth a look.
pub const LONG_FILE_LINES: usize = 600;

/// Bytes from which a file has to stand in [`LARGE_FILES`]: a clone should stay quick.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// The files that may be larger, by the start of their names, with the bytes allowed to each.
pub const LARGE_FILES: [(&str, u64); 1] = [("testdata/glove-words/", 12 << 20)];

/// Names that say nothing about what a module is for.
const VAGUE_NAMES: [&str; 8] = ["utils", "util", "common", "helpers", "helper", "misc", "v2", "stuff"];

/// Words that mean unfinished work, and calls that do. Cut in two so that this file does not hold them.
const UNFINISHED: [&str; 8] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("todo", "!"),
    concat!("unimplemented", "!"),
    concat!("dbg", "!"),
    concat!("#[ign", "ore"),
    concat!("pytest.mark.", "skip("),
];

/// Where people keep their own things: a path below one of these works on one machine only.
const PRIVATE_ROOTS: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];

/// Where tests may write, and nothing else: not every machine has it, and not every user a right to it.
const SCRATCH_ROOT: &str = concat!("/t", "mp/");

const SOURCE: [&str; 7] = ["rs", "py", "pyi", "sh", "c", "h", "cu"];
const PROSE: [&str; 5] = ["md", "toml", "yml", "yaml", "txt"];

/// Everything that names and lines of `files` are blamed for, one sentence each.
pub fn complaints(files: &[SourceFile]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        check_name(file, &mut found);
        check_size(file, &mut found);
        let Some(text) = &file.text else { continue };
        let source = file.has_extension(&SOURCE);
        // Data that other people made (word lists) is not ours to tidy.
        if file.name.starts_with("testdata/") && !source && !file.has_extension(&["md"]) {
            continue;
        }
        if source || file.has_extension(&PROSE) || is_script(text) || file.name == "Makefile" {
            check_lines(file, text, &mut found);
        }
        if source && text.lines().count() > MAX_FILE_LINES {
            let lines = text.lines().count();
            found.push(format!("{}:{lines}: over {MAX_FILE_LINES} lines: redesign it", file.name));
        }
        if file.name.starts_with("crates/") && file.name.ends_with("/Cargo.toml") {
            check_manifest(file, text, &mut found);
        }
    }
    found
}

/// Files that are long without being a defect yet: `(name, lines)`.
pub fn long_files(files: &[SourceFile]) -> Vec<(String, usize)> {
    let sources = files.iter().filter(|file| file.has_extension(&SOURCE));
    let lines = |file: &SourceFile| file.text.as_ref().map_or(0, |text| text.lines().count());
    sources
        .map(|file| (file.name.clone(), lines(file)))
        .filter(|(_, lines)| (LONG_FILE_LINES..=MAX_FILE_LINES).contains(lines))
        .collect()
}

fn is_script(text: &str) -> bool {
    text.starts_with("#!")
}

fn check_name(file: &SourceFile, found: &mut Vec<String>) {
    for part in file.name.split('/') {
        let stem = Path::new(part).file_stem().and_then(|stem| stem.to_str()).unwrap_or(part);
        let history = stem.starts_with("new_") || stem.ends_with("_new") || stem.ends_with("_old");
        if VAGUE_NAMES.contains(&stem) || history || stem.ends_with("_impl") || stem.ends_with("_v2") {
            found.push(format!("{}:1: '{part}' does not say what is in it", file.name));
        }
    }
}

fn check_size(file: &SourceFile, found: &mut Vec<String>) {
    let allowed = LARGE_FILES.iter().find(|(start, _)| file.name.starts_with(start));
    let allowed = allowed.map_or(MAX_FILE_BYTES, |&(_, bytes)| bytes);
    if file.bytes > allowed {
        found.push(format!("{}:1: {} bytes, at most {allowed} here", file.name, file.bytes));
    }
}

fn check_lines(file: &SourceFile, text: &str, found: &mut Vec<String>) {
    let roots = PRIVATE_ROOTS.into_iter().chain((!file.is_test()).then_some(SCRATCH_ROOT));
    let tabs_belong = file.name == "Makefile";
    // Not `lines()`, which hides a carriage return.
    for (number, line) in text.trim_end_matches('\n').split('\n').enumerate() {
        let mut blame = |what: String| found.push(format!("{}:{}: {what}", file.name, number + 1));
        if line.ends_with([' ', '\t', '\r']) {
            blame("white space at the end of the line".to_owned());
        }
        if line.contains('\t') && !tabs_belong {
            blame("a tab".to_owned());
        }
        if ["<<<<<<< ", ">>>>>>> "].iter().any(|marker| line.starts_with(marker)) || line == "=======" {
            blame("a mark of a merge that was not finished".to_owned());
        }
        for word in UNFINISHED.iter().filter(|word| contains_word(line, word)) {
            blame(format!("'{word}': finish it or open an issue"));
        }
        for root in roots.clone().filter(|root| names_path_below(line, root)) {
            blame(format!("a path below {root} exists on one machine only"));
        }
    }
    if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
        found.push(format!("{}:{}: has to end in one line break", file.name, text.lines().count()));
    }
}

/// Whether `line` holds `word` with no letter, digit or underscore at either end of it.
fn contains_word(line: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(joins);
        let after = line[at + word.len()..].chars().next().is_some_and(joins);
        !(before || after && word.ends_with(char::is_alphanumeric))
    })
}

/// Whether `line` holds an absolute path that begins with `root`, which ends in `/`.
pub fn names_path_below(line: &str, root: &str) -> bool {
    line.match_indices(root).any(|(at, _)| {
        // `target/tmp/` or `https://host/tmp/` are no such paths.
        !line[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || "_-.}~".contains(c))
    })
}

fn check_manifest(file: &SourceFile, text: &str, found: &mut Vec<String>) {
    let parsed: Result<toml::Table, _> = text.parse();
    let Ok(manifest) = parsed else {
        found.push(format!("{}:1: is not TOML", file.name));
        return;
    };
    let lints = manifest.get("lints").and_then(|lints| lints.get("workspace"));
    if lints.and_then(toml::Value::as_bool) != Some(true) {
        found.push(format!("{}:1: needs `[lints] workspace = true`", file.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blamed(name: &str, text: &str) -> Vec<String> {
        let file = SourceFile { name: name.into(), bytes: text.len() as u64, text: Some(text.into()) };
        complaints(&[file])
    }

    #[test]
    fn good_files_pass() {
        assert_eq!(blamed("crates/a/src/lib.rs", "//! Fine.\nfn f() {}\n"), Vec::<String>::new());
        assert_eq!(blamed("Makefile", "all:\n\tcargo build\n"), Vec::<String>::new());
        assert_eq!(blamed("a/newest.rs", "// autodoc, XXXL\n"), Vec::<String>::new());
    }

    #[test]
    fn every_kind_of_bad_line_is_blamed() {
        let unfinished = UNFINISHED.map(|word| format!("x {word}\n"));
        let paths = PRIVATE_ROOTS.map(|root| format!("open(\"{root}a\")\n"));
        let spaces = ["x \n", "\tx\n", "x", "x\n\n", "x\r\n"].map(str::to_owned);
        let merges = ["<<<<<<< a\n", "=======\n", ">>>>>>> b\n"].map(str::to_owned);
        for line in unfinished.into_iter().chain(paths).chain(spaces).chain(merges) {
            assert_eq!(blamed("a/b.rs", &line).len(), 1, "{line:?}");
        }
    }

    #[test]
    fn vague_and_historic_names_are_blamed() {
        for name in ["a/utils.rs", "a/common/mod.rs", "a/new_graph.rs", "a/graph_impl.rs", "a/v2/mod.rs"] {
            assert_eq!(blamed(name, "").len(), 1, "{name}");
        }
    }

    #[test]
    fn long_and_large_files_are_blamed() {
        assert_eq!(blamed("a/b.rs", &"x\n".repeat(MAX_FILE_LINES)).len(), 0);
        assert_eq!(blamed("a/b.rs", &"x\n".repeat(MAX_FILE_LINES + 1)).len(), 1);
        let large = SourceFile { name: "a.bin".into(), bytes: MAX_FILE_BYTES + 1, text: None };
        assert_eq!(complaints(&[large]).len(), 1);
    }

    #[test]
    fn manifests_without_the_lints_are_blamed() {
        assert_eq!(blamed("crates/a/Cargo.toml", "[package]\n").len(), 1);
        assert_eq!(blamed("crates/a/Cargo.toml", "[lints]\nworkspace = true\n").len(), 0);
    }
}
