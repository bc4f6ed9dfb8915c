//! What the documentation points at is there.

use std::collections::BTreeSet;

use crate::tree::SourceFile;

/// Folders whose files the documentation names in backticks.
const NAMED_FOLDERS: [&str; 6] = ["crates/", "docs/", "python/", "scripts/", "testdata/", "bench/"];

/// Every link and every path in backticks of the Markdown files among `files` that leads nowhere.
pub fn complaints(files: &[SourceFile]) -> Vec<String> {
    let mut places: BTreeSet<&str> = BTreeSet::new();
    for file in files {
        places.insert(&file.name);
        places.extend(file.name.match_indices('/').map(|(at, _)| &file.name[..at]));
    }
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.has_extension(&["md"])) {
        for (number, line) in file.text.iter().flat_map(|text| text.lines()).enumerate() {
            for target in targets(&file.name, line) {
                if !places.contains(target.as_str()) {
                    found.push(format!("{}:{}: '{target}' is not there", file.name, number + 1));
                }
            }
        }
    }
    found
}

/// The places within the repository that `line` of the file `name` points at.
fn targets(name: &str, line: &str) -> Vec<String> {
    let links = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = links.filter(|link| !link.contains("://") && !link.starts_with('#'));
    let mut targets: Vec<String> = local.map(|link| resolve(name, link)).collect();
    let quoted = line.split('`').skip(1).step_by(2);
    let is_path = |text: &&str| {
        let plain = text.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
        // Hidden folders are where things are made.
        plain && !text.contains("/.") && NAMED_FOLDERS.iter().any(|folder| text.starts_with(folder))
    };
    targets.extend(quoted.filter(is_path).map(|path| path.trim_end_matches('/').to_owned()));
    targets
}

/// The path from the root of `link`, which stands in the file `name`.
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
    fn dead_ends_are_found() {
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
