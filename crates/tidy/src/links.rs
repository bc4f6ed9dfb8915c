//! Checks of links and paths in the documentation.

use std::collections::BTreeSet;

use crate::tree::SourceFile;

/// Top folders of the paths that the documentation names in backticks.
const NAMED_FOLDERS: [&str; 6] = ["crates/", "docs/", "python/", "scripts/", "testdata/", "bench/"];

/// Finds every link and every path in backticks, in the Markdown files among `files`, whose target does not
/// exist.
pub fn complaints(files: &[SourceFile]) -> Vec<String> {
    let mut paths: BTreeSet<&str> = BTreeSet::new();
    for file in files {
        paths.insert(&file.name);
        paths.extend(file.name.match_indices('/').map(|(at, _)| &file.name[..at]));
    }
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.has_extension(&["md"])) {
        for (number, line) in file.text.iter().flat_map(|text| text.lines()).enumerate() {
            for target in targets(&file.name, line) {
                if !paths.contains(target.as_str()) {
                    found.push(format!("{}:{}: '{target}' does not exist", file.name, number + 1));
                }
            }
        }
    }
    found
}

/// Returns the paths in the repository that `line` of the file `name` links to or names.
fn targets(name: &str, line: &str) -> Vec<String> {
    let links = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = links.filter(|link| !link.contains("://") && !link.starts_with('#'));
    let mut targets: Vec<String> = local.map(|link| resolve(name, link)).collect();
    let quoted = line.split('`').skip(1).step_by(2);
    let is_path = |text: &&str| {
        let plain = text.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
        // Hidden folders hold generated files, which may be missing.
        plain && !text.contains("/.") && NAMED_FOLDERS.iter().any(|folder| text.starts_with(folder))
    };
    targets.extend(quoted.filter(is_path).map(|path| path.trim_end_matches('/').to_owned()));
    targets
}

/// Returns the path from the root of the repository for `link` in the file `name`.
fn resolve(name: &str, link: &str) -> String {
    let mut parts: Vec<&str> = name.split('/').collect();
    parts.pop();
    for part in link.split('#').next().unwrap_or_default().split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_without_a_target_are_found() {
        let file = |name: &str, text: &str| SourceFile {
            name: name.into(),
            bytes: text.len() as u64,
            text: Some(text.into()),
        };
        let good =
            "[a](../src/a.rs#L3) [b](https://x.org) [c](#here) `crates/a/` `crates/*/x` `src/none.rs`\n";
        let bad = "[a](a.rs) [b](../src) `crates/none.rs`\n";
        let source = file("crates/a/src/a.rs", "");
        assert_eq!(complaints(&[source.clone(), file("crates/a/docs/x.md", good)]), Vec::<String>::new());
        assert_eq!(complaints(&[source, file("crates/a/docs/x.md", bad)]).len(), 2);
    }
}
