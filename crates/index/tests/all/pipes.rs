//! A pipe, a device or a folder in place of a file of an index. It is refused at once: no function waits for
//! it or reads from it without end.

use crate::cases::quick_build;
use crate::clustered::vectors;
use bathyal_index::families::flat::FlatOptions;
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{
    BuildOptions, ClusterOptions, FamilyOptions, GraphLayoutChoice, GraphOptions, Index, OpenOptions,
    PostingLayout, SpannOptions, TierChoice, build, convert_layout, inspect, verify,
};
use bathyal_kernels::Element;
use bathyal_vectors::progress::Silent;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Replaces a file by something that is not a regular file.
fn replace(path: &Path, replacement: &str) {
    std::fs::remove_file(path).unwrap();
    match replacement {
        "a pipe" => {
            let name = CString::new(path.as_os_str().as_bytes()).unwrap();
            // SAFETY: the name is a C string.
            assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        }
        "a folder" => std::fs::create_dir(path).unwrap(),
        _ => symlink("/dev/zero", path).unwrap(),
    }
}

fn restore(path: &Path, bytes: &[u8]) {
    let _ = std::fs::remove_file(path).or_else(|_| std::fs::remove_dir(path));
    std::fs::write(path, bytes).unwrap();
}

/// Replaces each file of an index, and checks that errors name the file and its replacement.
fn check(family: impl Into<FamilyOptions>) {
    let dir = tempfile::tempdir().unwrap();
    let (index, copy) = (dir.path().join("index"), dir.path().join("copy"));
    let options = BuildOptions { threads: 1, ..quick_build(family) };
    let family = options.family.family();
    build(&vectors(Element::F32, 60, 4, 1), &index, &options, &Silent).unwrap();
    let manifest = Manifest::read(&index).unwrap();
    let mut names: Vec<String> = manifest.files.iter().map(|file| file.name.clone()).collect();
    names.push("manifest.json".into());
    if family == "lsh" {
        let opened = Index::open(&index, &OpenOptions::default()).unwrap();
        opened.insert(&vectors(Element::F32, 5, 4, 2)).unwrap();
        names.push("changes.log".into());
    }
    for name in &names {
        let path = index.join(name);
        let bytes = std::fs::read(&path).unwrap();
        for replacement in ["a pipe", "a device", "a folder"] {
            replace(&path, replacement);
            let what = format!("{family}: {replacement} in place of {name}");
            let mut refusals = Vec::new();
            let mapped = "mapped".parse().unwrap();
            for tier in [TierChoice::File, TierChoice::Dram, mapped] {
                let options = OpenOptions { tier, ..OpenOptions::default() };
                // An index opens if the tier does not need the file.
                refusals.extend(Index::open(&index, &options).err().map(|error| error.to_string()));
            }
            match verify(&index, &Silent) {
                Ok(report) => {
                    assert!(!report.sound, "{what}");
                    refusals.extend(report.faults.first().cloned());
                }
                Err(error) => refusals.push(error.to_string()),
            }
            refusals.extend(inspect(&index, &Silent).err().map(|error| error.to_string()));
            if family == "graph" {
                let converted = convert_layout(&index, &copy, GraphLayoutChoice::Csr, 1, &Silent);
                refusals.push(converted.expect_err(&what).to_string());
            }
            assert!(!refusals.is_empty(), "{what}");
            for refusal in refusals {
                assert!(refusal.contains(replacement) && refusal.contains(name), "{what}: {refusal}");
            }
        }
        restore(&path, &bytes);
    }
    assert!(verify(&index, &Silent).unwrap().sound);
}

#[test]
fn files_of_graphs_must_be_regular_files() {
    check(GraphOptions { max_degree: 8, ..GraphOptions::default() });
}

#[test]
fn files_of_groups_must_be_regular_files() {
    check(ClusterOptions::default());
}

#[test]
fn files_of_flat_indexes_must_be_regular_files() {
    check(FlatOptions { code_bytes: Some(8), ..FlatOptions::default() });
}

#[test]
fn files_of_hash_tables_must_be_regular_files() {
    check(LshOptions { tables: 3, ..LshOptions::default() });
}

#[test]
fn files_of_posting_lists_must_be_regular_files() {
    check(SpannOptions { layout: PostingLayout::Grouped, ..SpannOptions::default() });
}
