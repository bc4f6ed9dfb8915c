//! The folders that must pass the strict checks.
//!
//! The strict checks are [`words`](crate::words) and the limit
//! [`MAX_FINISHED_LINES`](crate::functions::MAX_FINISHED_LINES) of [`functions`](crate::functions). Files
//! outside of these folders do not all pass them yet.

use crate::tree::SourceFile;

/// Finished folders and files, as paths from the root of the repository. Add a folder when all its files
/// pass.
pub const FINISHED: &[&str] = &[
    "bench/suites",
    "crates/bathyal",
    "crates/cli",
    "crates/collection",
    "crates/console",
    "crates/gpu",
    "crates/index/benches",
    "crates/index/examples",
    "crates/index/src/allocate.rs",
    "crates/index/src/audit",
    "crates/index/src/build",
    "crates/index/src/calibrate",
    "crates/index/src/cost",
    "crates/index/src/error.rs",
    "crates/index/src/exact.rs",
    "crates/index/src/extent.rs",
    "crates/index/src/families/cluster/among.rs",
    "crates/index/src/families/cluster/build.rs",
    "crates/index/src/families/cluster/calibrate.rs",
    "crates/index/src/families/cluster/centroids",
    "crates/index/src/families/cluster/codes.rs",
    "crates/index/src/families/cluster/cost.rs",
    "crates/index/src/families/cluster/early.rs",
    "crates/index/src/families/cluster/effort.rs",
    "crates/index/src/families/cluster/encode.rs",
    "crates/index/src/families/cluster/inspect.rs",
    "crates/index/src/families/cluster/mod.rs",
    "crates/index/src/families/cluster/on_card.rs",
    "crates/index/src/families/cluster/options.rs",
    "crates/index/src/families/cluster/place.rs",
    "crates/index/src/families/cluster/plan.rs",
    "crates/index/src/families/cluster/search.rs",
    "crates/index/src/families/cluster/section.rs",
    "crates/index/src/families/cluster/shorter.rs",
    "crates/index/src/families/cluster/sizes.rs",
    "crates/index/src/families/cluster/verify.rs",
    "crates/index/src/families/flat",
    "crates/index/src/families/graph",
    "crates/index/src/families/lsh",
    "crates/index/src/families/mod.rs",
    "crates/index/src/families/spann",
    "crates/index/src/family/answers.rs",
    "crates/index/src/family/capabilities.rs",
    "crates/index/src/family/in_place.rs",
    "crates/index/src/family/loaded.rs",
    "crates/index/src/family/mod.rs",
    "crates/index/src/family/pages.rs",
    "crates/index/src/family/reports.rs",
    "crates/index/src/family/rows.rs",
    "crates/index/src/form",
    "crates/index/src/format",
    "crates/index/src/lib.rs",
    "crates/index/src/locate",
    "crates/index/src/open",
    "crates/index/src/partition",
    "crates/index/src/proximity",
    "crates/index/src/query",
    "crates/index/src/ranges.rs",
    "crates/index/src/removal.rs",
    "crates/index/tests",
    "crates/kernels",
    "crates/object",
    "crates/py",
    "crates/remote",
    "crates/repro",
    "crates/simt",
    "crates/store",
    "crates/tidy",
    "crates/tier",
    "crates/vectors",
];

/// Returns the files in [`FINISHED`] folders.
pub fn files(files: &[SourceFile]) -> Vec<SourceFile> {
    let is_finished = |file: &&SourceFile| FINISHED.iter().any(|folder| is_in(&file.name, folder));
    files.iter().filter(is_finished).cloned().collect()
}

/// Finds the entries of [`FINISHED`] that match no file, such as folders that were renamed.
pub fn missing_folders(files: &[SourceFile]) -> Vec<String> {
    let is_missing = |folder: &&&str| !files.iter().any(|file| is_in(&file.name, folder));
    let complaint = |folder: &&str| format!("crates/tidy/src/finished.rs:1: '{folder}' has no files");
    FINISHED.iter().filter(is_missing).map(complaint).collect()
}

/// Returns true if the file `name` is in `folder`, or is the file `folder`.
fn is_in(name: &str, folder: &str) -> bool {
    name.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> SourceFile {
        SourceFile { name: name.to_owned(), bytes: 0, text: Some(String::new()) }
    }

    #[test]
    fn only_files_in_the_folders_are_finished() {
        let all = [file("crates/tidy/src/lib.rs"), file("crates/tidy2/src/lib.rs"), file("tidy.rs")];
        let finished: Vec<String> = files(&all).into_iter().map(|file| file.name).collect();
        assert_eq!(finished, ["crates/tidy/src/lib.rs"]);
        assert!(is_in("a/b.rs", "a/b.rs") && !is_in("a/b.rs", "a/b"));
    }

    #[test]
    fn folders_without_files_are_found() {
        assert_eq!(missing_folders(&[]).len(), FINISHED.len());
        let all: Vec<SourceFile> = FINISHED.iter().map(|folder| file(&format!("{folder}/a.rs"))).collect();
        assert_eq!(missing_folders(&all), Vec::<String>::new());
    }
}
