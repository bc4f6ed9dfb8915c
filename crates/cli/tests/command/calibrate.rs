//! `bathyal calibrate`, and searches by a calibration.

use crate::harness::{DIM, bathyal, copy};

#[test]
fn an_index_is_calibrated_with_given_queries() {
    let folder = copy();
    let run = |line: &str| bathyal(folder.path(), line);
    let text = run("calibrate idx queries.fbin --name text --groundtruth gt.ibin").good();
    assert!(text.starts_with("idx: calibration text with "), "{text}");
    assert!(text.contains("\nbefore        k 10: asked for 0.9, these queries found "), "{text}");
    let report = run("calibrate idx queries.fbin --queries 5 --json").json();
    assert_eq!((&report["name"], &report["queries"]), (&"default".into(), &5.into()), "{report}");
    assert!(report["notes"][0].as_str().is_some_and(|note| note.starts_with("5 queries: ")), "{report}");
    let inspected = run("inspect idx").good();
    assert!(inspected.contains("\ncalibrated    default: 5 queries, "), "{inspected}");
    for name in ["text", "default", "build"] {
        run(&format!("search idx queries.fbin --recall 0.9 --calibration {name}")).good();
    }
    run("search idx queries.fbin --calibration text --explain").good();
    run("search idx queries.fbin --calibration image")
        .fails(1, &["\"image\"", "it has build, default, text"]);
    run("search idx queries.fbin --calibration text --search-list 20").fails(2, &["--calibration"]);
    let removed = run("calibrate idx --remove text").good();
    assert_eq!(removed, "idx: removed the calibration text\n");
    run("calibrate idx --remove text").fails(1, &["there is no calibration \"text\""]);
    run("calibrate idx --remove build").fails(2, &["cannot be removed"]);
    run("calibrate idx").fails(2, &["<QUERIES>"]);
    run("calibrate idx queries.fbin --name build").fails(1, &["that of the build"]);
    run("calibrate missing queries.fbin").fails(1, &["missing"]);
}

#[test]
fn a_collection_is_calibrated_and_audited_with_given_queries() {
    let folder = copy();
    let run = |line: &str| bathyal(folder.path(), line);
    run(&format!("collection create c --id u64 --vector v:{DIM}")).good();
    run("collection add c base.fbin").good();
    run("collection compact c").good();
    let text = run("calibrate c queries.fbin --name text").good();
    assert!(text.starts_with("c: calibration text of v with "), "{text}");
    // So few rows are compared one by one.
    assert!(text.contains("\nexact         1 segments, whose searches compare all rows"), "{text}");
    let report = run("calibrate c queries.fbin --queries 5 --field v --json").json();
    assert_eq!((&report["collection"], &report["name"]), (&"c".into(), &"default".into()), "{report}");
    assert_eq!((&report["queries"], &report["exact_segments"]), (&5.into(), &1.into()), "{report}");
    let inspected = run("collection inspect c").good();
    let line = "\ncalibration   default of v: 5 queries, 0 segments measured, ";
    assert!(inspected.contains(line), "{inspected}");
    run("collection search c queries.fbin --recall 0.9 --calibration text").good();
    run("collection search c queries.fbin --calibration image").fails(1, &["there is build, default, text"]);
    let audited = run("audit c queries.fbin --recall 0.9,1.0 --filter id<100 --json").json();
    assert_eq!((&audited["collection"], &audited["recalls"][1]["found"]), (&"c".into(), &1.0.into()));
    let text = run("audit c queries.fbin").good();
    assert!(text.contains("\nrecall        asked for 0.95: found 1.000"), "{text}");
    assert_eq!(run("calibrate c --remove text").good(), "c: removed the calibration text\n");
    run("calibrate c --remove text").fails(2, &["there is default"]);
    run("calibrate c queries.fbin --groundtruth gt.ibin").fails(2, &["--groundtruth"]);
    run("calibrate c queries.fbin --field w").fails(1, &["\"w\""]);
    run("calibrate idx queries.fbin --field v").fails(2, &["--field"]);
    run("audit idx queries.fbin --filter id<3").fails(2, &["--filter"]);
}
