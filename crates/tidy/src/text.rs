//! Checks of file names, file sizes and lines.

use std::path::Path;

use crate::tree::SourceFile;

/// Most lines of a source file. A longer file needs a redesign.
pub const MAX_FILE_LINES: usize = 800;

/// Lines of a source file from which it is reported as long.
pub const LONG_FILE_LINES: usize = 600;

/// Most bytes of a file that is not in [`LARGE_FILES`], so that a clone of the repository stays quick.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// Files that may be larger: the start of their names, and the most bytes of each.
pub const LARGE_FILES: [(&str, u64); 1] = [("testdata/glove-words/", 12 << 20)];

/// File names that do not describe the purpose of a module.
const VAGUE_NAMES: [&str; 8] = ["utils", "util", "common", "helpers", "helper", "misc", "v2", "stuff"];

/// Words and calls that mark unfinished work. They are cut in two so that this file does not contain them.
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

/// Folders with personal files. A path below one of these works only on one machine.
const PRIVATE_ROOTS: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];

/// Folder that only tests may name. Not every machine has it, and not every user may write to it.
const SCRATCH_ROOT: &str = concat!("/t", "mp/");

const SOURCE: [&str; 7] = ["rs", "py", "pyi", "sh", "c", "h", "cu"];
const PROSE: [&str; 5] = ["md", "toml", "yml", "yaml", "txt"];

/// Checks the names, sizes and lines of `files`. Returns one sentence for each violation.
pub fn complaints(files: &[SourceFile]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        check_name(file, &mut found);
        check_size(file, &mut found);
        let Some(text) = &file.text else { continue };
        let source = file.has_extension(&SOURCE);
        // Data from other people (word lists) does not have to follow our style.
        if file.name.starts_with("testdata/") && !source && !file.has_extension(&["md"]) {
            continue;
        }
        if source || file.has_extension(&PROSE) || is_script(text) || file.name == "Makefile" {
            check_lines(file, text, &mut found);
        }
        if source && text.lines().count() > MAX_FILE_LINES {
            let lines = text.lines().count();
            found.push(format!(
                "{}:{lines}: the file has over {MAX_FILE_LINES} lines: redesign it",
                file.name
            ));
        }
        if file.name.starts_with("crates/") && file.name.ends_with("/Cargo.toml") {
            check_manifest(file, text, &mut found);
        }
    }
    found
}

/// Returns the files that are long but not yet too long: `(name, lines)`.
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
            found.push(format!("{}:1: the name '{part}' does not describe its content", file.name));
        }
    }
}

fn check_size(file: &SourceFile, found: &mut Vec<String>) {
    let allowed = LARGE_FILES.iter().find(|(start, _)| file.name.starts_with(start));
    let allowed = allowed.map_or(MAX_FILE_BYTES, |&(_, bytes)| bytes);
    if file.bytes > allowed {
        found.push(format!(
            "{}:1: the file has {} bytes, at most {allowed} are allowed",
            file.name, file.bytes
        ));
    }
}

fn check_lines(file: &SourceFile, text: &str, found: &mut Vec<String>) {
    let roots = PRIVATE_ROOTS.into_iter().chain((!file.is_test()).then_some(SCRATCH_ROOT));
    let may_have_tabs = file.name == "Makefile";
    // `lines()` would hide a carriage return.
    for (number, line) in text.trim_end_matches('\n').split('\n').enumerate() {
        let mut complain = |what: String| found.push(format!("{}:{}: {what}", file.name, number + 1));
        if line.ends_with([' ', '\t', '\r']) {
            complain("the line ends with white space".to_owned());
        }
        if line.contains('\t') && !may_have_tabs {
            complain("the line contains a tab".to_owned());
        }
        if ["<<<<<<< ", ">>>>>>> "].iter().any(|marker| line.starts_with(marker)) || line == "=======" {
            complain("the line is a conflict marker of an unfinished merge".to_owned());
        }
        for word in UNFINISHED.iter().filter(|word| contains_word(line, word)) {
            complain(format!("'{word}' marks unfinished work: finish it or open an issue"));
        }
        for root in roots.clone().filter(|root| names_path_below(line, root)) {
            complain(format!("a path below {root} exists only on one machine"));
        }
    }
    if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
        found.push(format!("{}:{}: the file must end with one line break", file.name, text.lines().count()));
    }
}

/// Returns true if `line` contains `word` without a letter, digit or underscore directly before or after it.
fn contains_word(line: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(joins);
        let after = line[at + word.len()..].chars().next().is_some_and(joins);
        !(before || after && word.ends_with(char::is_alphanumeric))
    })
}

/// Returns true if `line` contains an absolute path that begins with `root`, which ends in `/`.
pub fn names_path_below(line: &str, root: &str) -> bool {
    line.match_indices(root).any(|(at, _)| {
        // `target/tmp/` and `https://host/tmp/` are not absolute paths.
        !line[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || "_-.}~".contains(c))
    })
}

fn check_manifest(file: &SourceFile, text: &str, found: &mut Vec<String>) {
    let parsed: Result<toml::Table, _> = text.parse();
    let Ok(manifest) = parsed else {
        found.push(format!("{}:1: the file is not valid TOML", file.name));
        return;
    };
    let lints = manifest.get("lints").and_then(|lints| lints.get("workspace"));
    if lints.and_then(toml::Value::as_bool) != Some(true) {
        found.push(format!("{}:1: the manifest needs `[lints] workspace = true`", file.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints_about(name: &str, text: &str) -> Vec<String> {
        let file = SourceFile { name: name.into(), bytes: text.len() as u64, text: Some(text.into()) };
        complaints(&[file])
    }

    #[test]
    fn good_files_pass() {
        assert_eq!(complaints_about("crates/a/src/lib.rs", "//! Fine.\nfn f() {}\n"), Vec::<String>::new());
        assert_eq!(complaints_about("Makefile", "all:\n\tcargo build\n"), Vec::<String>::new());
        assert_eq!(complaints_about("a/newest.rs", "// autodoc, XXXL\n"), Vec::<String>::new());
    }

    #[test]
    fn every_kind_of_bad_line_is_found() {
        let unfinished = UNFINISHED.map(|word| format!("x {word}\n"));
        let paths = PRIVATE_ROOTS.map(|root| format!("open(\"{root}a\")\n"));
        let spaces = ["x \n", "\tx\n", "x", "x\n\n", "x\r\n"].map(str::to_owned);
        let merges = ["<<<<<<< a\n", "=======\n", ">>>>>>> b\n"].map(str::to_owned);
        for line in unfinished.into_iter().chain(paths).chain(spaces).chain(merges) {
            assert_eq!(complaints_about("a/b.rs", &line).len(), 1, "{line:?}");
        }
    }

    #[test]
    fn vague_and_historic_names_are_found() {
        for name in ["a/utils.rs", "a/common/mod.rs", "a/new_graph.rs", "a/graph_impl.rs", "a/v2/mod.rs"] {
            assert_eq!(complaints_about(name, "").len(), 1, "{name}");
        }
    }

    #[test]
    fn long_and_large_files_are_found() {
        assert_eq!(complaints_about("a/b.rs", &"x\n".repeat(MAX_FILE_LINES)).len(), 0);
        assert_eq!(complaints_about("a/b.rs", &"x\n".repeat(MAX_FILE_LINES + 1)).len(), 1);
        let large = SourceFile { name: "a.bin".into(), bytes: MAX_FILE_BYTES + 1, text: None };
        assert_eq!(complaints(&[large]).len(), 1);
    }

    #[test]
    fn manifests_without_the_lints_are_found() {
        assert_eq!(complaints_about("crates/a/Cargo.toml", "[package]\n").len(), 1);
        assert_eq!(complaints_about("crates/a/Cargo.toml", "[lints]\nworkspace = true\n").len(), 0);
    }
}
