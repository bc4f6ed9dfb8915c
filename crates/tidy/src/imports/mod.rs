//! Checks of imports within a crate: no circle between folders, no circle of many files within one folder,
//! and no import between members of folders that are kept apart.
//!
//! A folder is a module with files below it. `a/mod.rs`, or `a.rs` next to `a/`, belongs to the folder `a/`,
//! as does `a/b.rs`. An import is a `use`, or a path in the code that begins with `crate`, `super`, `self` or
//! a module of its own. It leads to the file that defines the named item, as far as the sources show it. A
//! name that a module only re-exports (`pub use child::Name`) leads to its definition, and a re-export from a
//! child module is not an import. Tests are ignored.

mod apart;
mod circles;
mod paths;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::SourceFile;
use circles::{Circle, Graph};
use tree::Tree;

/// Most files of one folder that may import each other in a circle: enough for a type and its parts.
pub const MAX_CIRCLE_FILES: usize = 6;

/// An import of one file from another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Import {
    /// The importing file.
    from: String,
    /// Line of the import in it.
    line: usize,
    /// The imported file.
    to: String,
}

/// Finds every circle between folders of a crate, every circle of more than [`MAX_CIRCLE_FILES`] files within
/// a folder, and every import of a member of a folder that is kept apart, in the crates of `files`. Returns
/// the name of the crate's folder with each complaint.
pub fn complaints(files: &[SourceFile]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (name, files) in crates(files) {
        let imports = match Tree::read(&name, &files) {
            Ok(tree) => tree.imports(),
            Err(error) => {
                found.push((name, error));
                continue;
            }
        };
        let folders = folders(&name, &files);
        let complaints = between_folders(&folders, &imports).into_iter();
        let complaints = complaints.chain(within_folders(&folders, &imports));
        for complaint in complaints.chain(apart::complaints(&imports)) {
            found.push((name.clone(), complaint));
        }
    }
    found
}

/// Returns the sources of each crate, by the folder of the crate, without tests and `src/bin/`.
fn crates(files: &[SourceFile]) -> BTreeMap<String, Vec<&SourceFile>> {
    let manifests = files.iter().filter_map(|file| file.name.strip_suffix("/Cargo.toml"));
    let sources = |krate: &str| -> Vec<&SourceFile> {
        let of_crate = |file: &&SourceFile| {
            let inner = file.name.strip_prefix(krate).and_then(|rest| rest.strip_prefix("/src/"));
            inner.is_some_and(|inner| !inner.starts_with("bin/"))
        };
        files.iter().filter(|file| file.has_extension(&["rs"]) && !file.is_test()).filter(of_crate).collect()
    };
    manifests.map(|krate| (krate.to_owned(), sources(krate))).collect()
}

/// Returns the folder of each file.
fn folders(krate: &str, files: &[&SourceFile]) -> BTreeMap<String, String> {
    let root = format!("{krate}/src");
    let parent = |name: &str| name.rsplit_once('/').map_or(root.clone(), |(folder, _)| folder.to_owned());
    let with_files: BTreeSet<String> = files.iter().map(|file| parent(&file.name)).collect();
    let folder = |file: &&SourceFile| {
        let below = file.name.trim_end_matches(".rs").to_owned();
        let folder = if with_files.contains(&below) { below } else { parent(&file.name) };
        (file.name.clone(), folder)
    };
    files.iter().map(folder).collect()
}

fn between_folders<'a>(folders: &'a BTreeMap<String, String>, imports: &'a [Import]) -> Vec<String> {
    // The root holds both the base of all parts (such as errors) and the modules on top of them, so each file
    // of the root is a node of its own.
    let node = |file: &'a str| if folders[file].ends_with("/src") { file } else { folders[file].as_str() };
    let mut graph = Graph::default();
    for import in imports {
        graph.add(node(&import.from), node(&import.to), import);
    }
    let complaint = |circle: Circle<'_>| {
        format!("{}: a circle of {} folders: {}", circle.location(), circle.members.len(), circle.describe())
    };
    // A circle of only files of the root is a circle within one folder.
    let has_folder = |circle: &Circle<'_>| circle.members.iter().any(|member| !member.ends_with(".rs"));
    graph.circles().into_iter().filter(has_folder).map(complaint).collect()
}

fn within_folders(folders: &BTreeMap<String, String>, imports: &[Import]) -> Vec<String> {
    let mut graph = Graph::default();
    for import in imports.iter().filter(|import| folders[&import.from] == folders[&import.to]) {
        graph.add(&import.from, &import.to, import);
    }
    let large = graph.circles().into_iter().filter(|circle| circle.members.len() > MAX_CIRCLE_FILES);
    let complaint = |circle: Circle<'_>| {
        format!(
            "{}: a circle of {} files in one folder, at most {MAX_CIRCLE_FILES}: {}",
            circle.location(),
            circle.members.len(),
            circle.describe()
        )
    };
    large.map(complaint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints_about(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(name, text): &(&str, &str)| SourceFile {
            name: format!("a/{name}"),
            bytes: text.len() as u64,
            text: Some((*text).to_owned()),
        };
        let mut all: Vec<SourceFile> = files.iter().map(file).collect();
        all.push(file(&("Cargo.toml", "")));
        complaints(&all).into_iter().map(|(_, complaint)| complaint).collect()
    }

    const ROOT: (&str, &str) = ("src/lib.rs", "pub mod low;\npub mod high;\n");

    #[test]
    fn imports_in_one_direction_are_allowed() {
        let files = [
            ROOT,
            ("src/low/mod.rs", "mod item;\npub use item::Item;\n"),
            ("src/low/item.rs", "pub struct Item;\n#[cfg(test)]\nmod tests { use crate::high::Top; }\n"),
            ("src/high/mod.rs", "use crate::low::Item;\npub struct Top(Item);\n"),
            ("src/high/tests.rs", "use crate::low::Item;\n"),
        ];
        assert_eq!(complaints_about(&files), Vec::<String>::new());
    }

    #[test]
    fn a_circle_of_folders_is_named_with_its_imports() {
        let files = [
            ROOT,
            ("src/low/mod.rs", "pub struct Low;\nfn f() -> u32 {\n    crate::high::part::number()\n}\n"),
            ("src/high/mod.rs", "pub mod part;\n"),
            ("src/high/part.rs", "use crate::low::{self, Low};\npub fn number() -> u32 { 1 }\n"),
        ];
        let found = complaints_about(&files);
        assert_eq!(found.len(), 1, "{found:?}");
        for part in ["2 folders", "a/src/low/mod.rs:3", "a/src/high/part.rs:1"] {
            assert!(found[0].contains(part), "{found:?}");
        }
    }

    #[test]
    fn every_form_of_import_is_found() {
        for way in [
            "use crate::high::Top;",
            "use super::high;",
            "use super::high::{Top as Other};",
            "use crate::Handed;",
            "fn f(_: super::high::Top) {}",
            "fn f() { crate::high::Top; }",
            "fn f() { assert!(crate::high::Top == 1); }",
            "mod inner { use super::super::high::Top; }",
            "use super::high as other; fn f() { other::x() }",
            "use crate::high::*;",
            "use super::Spread;",
        ] {
            let files = [
                (
                    "src/lib.rs",
                    "mod low;\npub mod high;\npub use high::Top as Handed;\npub use high::wide::*;\n",
                ),
                ("src/low/mod.rs", way),
                ("src/high/mod.rs", "pub mod wide;\nuse crate::low::Low;\npub struct Top;\n"),
                ("src/high/wide.rs", "use super::Top;\nuse crate::low::Low;\npub struct Spread;\n"),
            ];
            assert_eq!(complaints_about(&files).len(), 1, "{way}");
        }
    }

    #[test]
    fn a_re_exported_name_leads_to_its_definition() {
        // The root re-exports names of two folders. Using them does not import the root, so there is no
        // circle.
        let files = [
            ("src/lib.rs", "mod low;\nmod high;\npub use high::Top;\npub(crate) use low::Low;\n"),
            ("src/low/mod.rs", "pub struct Low;\n"),
            ("src/high/mod.rs", "mod part;\npub use part::Top;\n"),
            ("src/high/part.rs", "use crate::Low;\npub struct Top(Low);\n"),
        ];
        assert_eq!(complaints_about(&files), Vec::<String>::new());
    }

    #[test]
    fn a_file_next_to_its_folder_belongs_to_it() {
        let files = [
            ("src/lib.rs", "mod high;\nmod low;\n"),
            ("src/high.rs", "mod part;\nfn f() { part::g() }\npub struct Top;\n"),
            ("src/high/part.rs", "use super::Top;\npub fn g() {}\n"),
            ("src/low.rs", "use crate::high::Top;\n"),
        ];
        assert_eq!(complaints_about(&files), Vec::<String>::new());
    }

    #[test]
    fn files_of_the_root_are_nodes_of_their_own() {
        let lib = ("src/lib.rs", "mod error;\nmod low;\nfn main() { low::run() }\n");
        let low = ("src/low/mod.rs", "use crate::error::Error;\npub fn run() {}\n");
        assert_eq!(
            complaints_about(&[lib, low, ("src/error.rs", "pub struct Error;\n")]),
            Vec::<String>::new()
        );
        let found = complaints_about(&[lib, low, ("src/error.rs", "use crate::low;\npub struct Error;\n")]);
        assert!(found.len() == 1 && found[0].contains("a/src/error.rs, a/src/low"), "{found:?}");
    }

    #[test]
    fn few_files_may_form_a_circle_and_many_may_not() {
        for (count, complaints) in [(MAX_CIRCLE_FILES, 0), (MAX_CIRCLE_FILES + 1, 1)] {
            let names: Vec<String> = (0..count).map(|n| format!("src/m{n}.rs")).collect();
            let texts: Vec<String> = (0..count)
                .map(|n| format!("use crate::m{}::Next;\npub struct Next;\n", (n + 1) % count))
                .collect();
            let mut files: Vec<(&str, &str)> =
                names.iter().zip(&texts).map(|(name, text)| (name.as_str(), text.as_str())).collect();
            files.push(("src/lib.rs", ""));
            let found = complaints_about(&files);
            assert_eq!(found.len(), complaints, "{found:?}");
            let names_files =
                |complaint: &String| complaint.contains("7 files") && complaint.contains("a/src/m0.rs:1");
            assert!(found.iter().all(names_files), "{found:?}");
        }
    }

    #[test]
    fn a_file_that_is_not_rust_is_a_complaint() {
        assert!(complaints_about(&[("src/lib.rs", "fn (\n")])[0].starts_with("a/src/lib.rs:1: "));
    }
}
