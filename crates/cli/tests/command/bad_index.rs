//! Indexes that are damaged, of another version, in the way of an output, or cannot be written.

use std::path::Path;

use bathyal_index::format::manifest::Manifest;

use crate::harness::{INDEXES, Outcome, bathyal, command, copy, index_files, names, shared, write_vectors};

/// Bits that are flipped in each file, spread from its first to its last byte.
const FLIPS: usize = 12;

const SEARCH: &str = "search idx queries.fbin -k 10 --search-list 30 --output found.ibin";

/// Returns the line of `SEARCH` for another index.
fn search(index: &str) -> String {
    SEARCH.replace("idx", index)
}

#[test]
fn verify_finds_a_flipped_bit_and_searches_never_answer_from_it() {
    INDEXES.iter().for_each(|index| find_flipped_bits(index));
}

fn find_flipped_bits(index: &str) {
    let folder = copy();
    let (search, verify) = (search(index), format!("verify {index}"));
    let found = folder.path().join("found.ibin");
    bathyal(folder.path(), &search).good();
    let right = std::fs::read(&found).unwrap();
    for file in index_files(&folder.path().join(index)) {
        let content = std::fs::read(&file).unwrap();
        for flip in 0..FLIPS {
            let at = flip * (content.len() - 1) / (FLIPS - 1);
            let mut damaged = content.clone();
            damaged[at] ^= 1 << (flip % 8);
            std::fs::write(&file, &damaged).unwrap();
            let place = format!("{}, byte {at}", file.display());

            let verified = bathyal(folder.path(), &verify);
            assert_eq!(verified.code, Some(3), "{place}: {verified:?}");
            verified.mentions(&["damaged"]);

            std::fs::remove_file(&found).unwrap();
            let searched = bathyal(folder.path(), &search);
            match searched.code {
                Some(0) => assert_eq!(std::fs::read(&found).unwrap(), right, "{place}: wrong in silence"),
                Some(3) => searched.mentions(&["damaged"]),
                _ => panic!("{place}: {searched:?}"),
            }
            std::fs::write(&file, &content).unwrap();
            std::fs::write(&found, &right).unwrap();
        }
    }
    bathyal(folder.path(), &verify).good();
}

#[test]
fn files_that_are_cut_or_missing_are_found() {
    INDEXES.iter().for_each(|index| find_cut_files(index));
}

/// Returns true if searches do not read the file.
fn is_unused_by_searches(file: &Path) -> bool {
    ["places.bin", "positions.bin"].iter().any(|name| file.ends_with(name))
}

fn find_cut_files(index: &str) {
    let folder = copy();
    let (search, verify) = (search(index), format!("verify {index}"));
    for file in index_files(&folder.path().join(index)) {
        let content = std::fs::read(&file).unwrap();
        for length in [0, 1, content.len() / 2, content.len() - 1] {
            std::fs::write(&file, &content[..length]).unwrap();
            // Only `get` and `verify` read these files.
            let lines = [&search, &verify];
            for line in &lines[usize::from(is_unused_by_searches(&file))..] {
                let ran = bathyal(folder.path(), line);
                assert_eq!(ran.code, Some(3), "{line}, {} cut to {length}: {ran:?}", file.display());
                ran.mentions(&["idx"]);
            }
        }
        std::fs::remove_file(&file).unwrap();
        let ran = bathyal(folder.path(), if is_unused_by_searches(&file) { &verify } else { &search });
        assert!(matches!(ran.code, Some(1 | 3)), "{} missing: {ran:?}", file.display());
        ran.mentions(&["idx"]);
        std::fs::write(&file, &content).unwrap();
    }
}

#[test]
fn a_path_without_an_index_is_refused() {
    let folder = copy();
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    for command in ["inspect", "verify"] {
        let ran = |path: &str| bathyal(folder.path(), &format!("{command} {path}"));
        ran("empty").fails(3, &["empty: is not a Bathyal index", "manifest.json"]);
        ran("base.fbin").fails(3, &["base.fbin: is not a Bathyal index", "directory"]);
        ran("missing").fails(1, &["missing"]);
    }
    bathyal(folder.path(), "search empty queries.fbin").fails(3, &["is not a Bathyal index"]);
}

#[test]
fn an_index_of_a_later_version_is_refused_with_advice() {
    let folder = copy();
    let index = folder.path().join("idx");
    let mut manifest = Manifest::read(&index).unwrap();
    manifest.format_version = 99;
    std::fs::write(index.join("manifest.json"), manifest.to_bytes().unwrap()).unwrap();
    for line in [SEARCH, "verify idx", "inspect idx"] {
        bathyal(folder.path(), line).fails(1, &["format version 99", "upgrade Bathyal or rebuild"]);
    }
}

#[test]
fn an_existing_index_is_replaced_only_when_told() {
    let folder = copy();
    let before = std::fs::read(folder.path().join("idx/manifest.json")).unwrap();
    let refused = bathyal(folder.path(), "build base.fbin idx --metric ip");
    refused.fails(1, &["idx: already exists", "--overwrite"]);
    assert_eq!(std::fs::read(folder.path().join("idx/manifest.json")).unwrap(), before);
    bathyal(folder.path(), "build base.fbin idx --metric ip --overwrite").good();
    assert_eq!(bathyal(folder.path(), "inspect idx --json").json()["manifest"]["metric"], "ip");
    assert_eq!(names(folder.path()), names(shared()));
}

#[test]
fn overwrite_does_not_delete_other_folders() {
    let folder = copy();
    std::fs::create_dir(folder.path().join("photos")).unwrap();
    std::fs::write(folder.path().join("photos/one.jpg"), "picture").unwrap();
    let refused = bathyal(folder.path(), "build base.fbin photos --metric l2 --overwrite");
    assert_ne!(refused.code, Some(0));
    refused.mentions(&["photos", "will not delete"]);
    assert!(folder.path().join("photos/one.jpg").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_written_is_named() {
    // Not even the superuser can make files in /proc.
    let folder = shared();
    bathyal(folder, "build base.fbin /proc/made --metric l2").fails(1, &["cannot create", "/proc/made"]);
    bathyal(folder, "convert base.fbin /proc/made.fbin").fails(1, &["/proc/made.fbin: cannot create"]);
    bathyal(folder, "groundtruth base.fbin queries.fbin /proc/made.ibin").fails(1, &["/proc/made.ibin"]);
    let bench = "bench idx queries.fbin --groundtruth gt.ibin --output /proc/made";
    bathyal(folder, bench).fails(1, &["/proc/made.jsonl: cannot write"]);
    bathyal(folder, "probe /proc").fails(1, &["/proc"]);
}

/// Runs `line` with a limit on the length of files, so that writes fail in the middle as on a full disk.
#[cfg(target_os = "linux")]
pub fn with_little_room(folder: &Path, kilobytes: u32, line: &str) -> Outcome {
    let script = format!("trap '' XFSZ; ulimit -f {kilobytes}; exec \"$0\" {line}");
    let program = command::<&str>(folder, &[]).get_program().to_owned();
    let mut shell = std::process::Command::new("bash");
    shell.current_dir(folder).arg("-c").arg(script).arg(program);
    Outcome::of(shell.output().expect("bash starts"))
}

#[cfg(target_os = "linux")]
#[test]
fn a_write_that_fails_in_the_middle_leaves_no_index() {
    let folder = tempfile::tempdir().unwrap();
    write_vectors(folder.path(), "base.fbin", 1000, 16, 1);
    // The graph alone takes more than 100 kB.
    let ran =
        with_little_room(folder.path(), 50, "build base.fbin idx --metric l2 --family graph --max-degree 16");
    ran.fails(1, &["idx", "File too large"]);
    let ran = with_little_room(folder.path(), 20, "convert base.fbin made.fvecs");
    ran.fails(1, &["made.fvecs", "File too large"]);
    assert_eq!(names(folder.path()), ["base.fbin"]);
}

#[cfg(target_os = "linux")]
#[test]
fn an_answer_that_cannot_be_written_is_a_failure() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = command(shared(), &["inspect", "idx", "--json"]);
    let ran = Outcome::of(command.stdout(full).output().unwrap());
    ran.fails(1, &["standard output", "No space left"]);
}
