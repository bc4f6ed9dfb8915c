//! Help, version, and errors of the command line.

use crate::harness::{folder, names, repro};

#[test]
fn help_and_version_are_printed() {
    let folder = folder();
    let help = repro(folder.path(), "--help").good();
    for paper in ["second-tier", "e2lsh", "cloud", "d-hnsw", "gustann", "Exit codes", "--json"] {
        assert!(help.contains(paper), "{paper} is missing in {help}");
    }
    let help = repro(folder.path(), "second-tier graph --help").good();
    assert!(
        help.contains("--sweep-degree") && help.contains("bathyal-repro second-tier graph base.u8bin"),
        "{help}"
    );
    assert!(repro(folder.path(), "--version").good().starts_with("bathyal-repro "));
}

#[test]
fn a_wrong_command_line_is_refused_in_text_and_in_json() {
    let folder = folder();
    repro(folder.path(), "").fails(2, &["Usage: bathyal-repro"]);
    repro(folder.path(), "polish --json").fails(2, &["polish"]);
    repro(folder.path(), "e2lsh base.fbin queries.fbin --quiet --verbose --json")
        .fails(2, &["--quiet and --verbose contradict each other"]);
    let missing = repro(folder.path(), "e2lsh nowhere.fbin queries.fbin --json");
    assert!(missing.stderr.starts_with("bathyal-repro: nowhere.fbin"), "{missing:?}");
    missing.fails(1, &["nowhere.fbin"]);
}

#[test]
fn a_run_prints_where_the_records_are_and_how_to_make_a_report() {
    let folder = folder();
    let line = "second-tier graph base.fbin queries.fbin --groundtruth gt.ibin --work graphs --output kept \
                --degrees 8 --layouts csr --devices nvm --repeats 1 --seconds 0 --sweep 1 --without-file";
    let printed = repro(folder.path(), line).good();
    assert_eq!(printed, "records: kept/records.jsonl\nreport:  make repro-report RECORDS=kept\n");
    assert_eq!(names(&folder.path().join("kept")), ["records.jsonl"]);
}
