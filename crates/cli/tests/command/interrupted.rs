//! Ctrl-C.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::harness::{command, names, write_vectors};

/// Runs the command with progress, sends SIGINT at the first line of progress, and checks the exit code 130.
#[cfg(unix)]
fn interrupt(folder: &std::path::Path, arguments: &[&str]) {
    let mut command = command(folder, arguments);
    let mut child =
        command.args(["--progress", "--json"]).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.next().expect("progress is shown").unwrap();
    assert!(first.contains("% after"), "{first}");
    // SAFETY: sends a signal to a child of this process that nobody has waited for yet.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    assert!(rest.last().is_some_and(|line| line.contains("cancelled")), "{rest:?}");
    let report: serde_json::Value = serde_json::from_reader(child.stdout.take().unwrap()).unwrap();
    assert_eq!((&report["error"]["kind"], &report["error"]["exit_code"]), (&"cancelled".into(), &130.into()));
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_long_work_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // Each would take minutes.
    write_vectors(folder.path(), "base.fbin", 60_000, 64, 1);
    interrupt(folder.path(), &["build", "base.fbin", "idx", "--metric", "l2"]);
    interrupt(folder.path(), &["groundtruth", "base.fbin", "base.fbin", "gt.ibin"]);
    assert_eq!(names(folder.path()), ["base.fbin"]);
}
