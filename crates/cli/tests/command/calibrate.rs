//! `bathyal calibrate`, and searches by a calibration.

use crate::harness::{bathyal, copy};

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
