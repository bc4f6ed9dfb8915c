//! `bathyal remove`: the question, what is refused, and what stays.

use crate::harness::{VECTORS, bathyal, command, copy, names};
use serde_json::{Value, json};
use std::fs;

#[test]
fn an_index_is_removed_and_files_of_others_stay() {
    let folder = copy();
    let here = folder.path();
    bathyal(here, "remove idx").fails(2, &["an index (cluster) of 400 vectors", "--yes"]);
    let refused = bathyal(here, "remove idx --json");
    let report: Value = serde_json::from_str(&refused.stdout).unwrap();
    assert_eq!((&report["removed"], &report["vectors"]), (&json!(false), &json!(VECTORS)), "{report}");
    refused.fails(2, &["nothing was removed"]);
    let bytes = bathyal(here, "inspect idx --json").json()["index_bytes"].clone();
    let expected = json!({
        "removed": true, "path": "idx", "kind": "index", "family": "cluster", "vectors": VECTORS,
        "index_bytes": bytes,
    });
    assert_eq!(bathyal(here, "remove idx --yes --json").json(), expected);
    assert!(!here.join("idx").exists());
    bathyal(here, "remove idx --yes").fails(1, &["idx: there is no such index"]);

    fs::write(here.join("graph.idx/notes.txt"), b"mine").unwrap();
    let text = bathyal(here, "remove graph.idx -y").good();
    assert!(text.contains("removed; its folder stays with other files: notes.txt"), "{text}");
    assert_eq!(names(&here.join("graph.idx")), ["notes.txt"]);
    bathyal(here, "remove graph.idx --yes").fails(3, &["is not a Bathyal index", "no collection either"]);
    assert_eq!(names(here), ["base.fbin", "graph.idx", "gt.ibin", "queries.fbin"]);
}

#[test]
fn nothing_but_indexes_and_collections_is_removed() {
    let folder = copy();
    let here = folder.path();
    fs::create_dir(here.join("website")).unwrap();
    fs::write(here.join("website/manifest.json"), r#"{"name": "a web application"}"#).unwrap();
    bathyal(here, "remove website --yes").fails(3, &["damaged at the manifest"]);
    bathyal(here, "remove base.fbin --yes").fails(3, &["it is not a directory", "nothing else is removed"]);
    bathyal(here, "remove . --yes").fails(3, &["the path of an index ends with a name"]);
    bathyal(here, "remove memory://nothing/here --yes").fails(1, &["there is no such index"]);
    bathyal(here, "remove idx --yes --store-option region=moon").fails(1, &["takes no store options"]);
    assert!(here.join("website/manifest.json").exists() && here.join("base.fbin").exists());
}

#[test]
fn collections_and_what_is_left_of_builds_are_removed() {
    let folder = copy();
    let here = folder.path();
    bathyal(here, "collection create rows --id u64 --vector embedding:12").good();
    bathyal(here, "collection add rows base.fbin -q").good();
    let report = bathyal(here, "remove rows --yes --json").json();
    assert_eq!((&report["kind"], &report["rows"]), (&json!("collection"), &json!(VECTORS)), "{report}");
    assert!(!here.join("rows").exists());
    // What a killed build leaves beside the index.
    fs::create_dir_all(here.join("new.idx.building-7/objects")).unwrap();
    fs::write(here.join("new.idx.building-7/lock"), b"").unwrap();
    let report = bathyal(here, "remove new.idx --yes --json").json();
    assert_eq!(report, json!({"removed": true, "path": "new.idx", "kind": "leftovers"}));
    assert!(!here.join("new.idx.building-7").exists());
}

#[test]
fn all_parts_of_a_striped_index_are_removed() {
    let folder = copy();
    let here = folder.path();
    for disk in ["a", "b"] {
        fs::create_dir(here.join(disk)).unwrap();
    }
    bathyal(here, "build base.fbin wide --metric l2 --stripe a,b -q").good();
    assert!(!names(&here.join("a")).is_empty());
    bathyal(here, "remove wide --yes").good();
    assert_eq!((names(&here.join("a")), names(&here.join("b"))), (Vec::new(), Vec::new()));
    assert!(!here.join("wide").exists());
}

/// Runs the command at a terminal that answers `answer`; returns the exit code.
#[cfg(target_os = "linux")]
fn at_a_terminal(folder: &std::path::Path, arguments: &[&str], answer: &str) -> Option<i32> {
    use std::io::Write;
    use std::os::fd::FromRawFd;
    let (mut ours, mut theirs) = (0, 0);
    // SAFETY: both numbers are written, and the other arguments may be null.
    let opened = unsafe {
        libc::openpty(&mut ours, &mut theirs, std::ptr::null_mut(), std::ptr::null(), std::ptr::null())
    };
    assert_eq!(opened, 0);
    // SAFETY: the call above has opened both, and nobody else owns them.
    let (mut ours, theirs) = unsafe { (fs::File::from_raw_fd(ours), fs::File::from_raw_fd(theirs)) };
    let mut command = command(folder, arguments);
    command.stdin(theirs.try_clone().unwrap()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    // The terminal keeps the answer until the command asks.
    ours.write_all(answer.as_bytes()).unwrap();
    let code = child.wait().unwrap().code();
    drop(ours);
    code
}

#[test]
#[cfg(target_os = "linux")]
fn the_question_is_answered_at_a_terminal() {
    let folder = copy();
    let here = folder.path();
    for answer in ["n\n", "\n", "maybe\n"] {
        assert_eq!(at_a_terminal(here, &["remove", "idx"], answer), Some(130), "{answer}");
        assert!(here.join("idx").exists());
    }
    assert_eq!(at_a_terminal(here, &["remove", "idx"], "y\n"), Some(0));
    assert!(!here.join("idx").exists());
}
