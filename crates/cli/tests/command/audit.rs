//! `bathyal audit`.

use crate::harness::{bathyal, copy};

#[test]
fn the_recall_of_searches_is_audited() {
    let folder = copy();
    let run = |line: &str| bathyal(folder.path(), line);
    let report = run("audit idx queries.fbin --recall 0.5,0.9 --json").json();
    let found = run("search idx queries.fbin --recall 0.9 --groundtruth gt.ibin --json").json();
    let of_90 = &report["recalls"][1];
    assert!((of_90["found"].as_f64().unwrap() - found["recall"].as_f64().unwrap()).abs() < 1e-6, "{report}");
    assert_eq!(of_90["asked"], 0.9);
    assert!(of_90["low"].as_f64() <= of_90["found"].as_f64() && of_90["reached"] == true, "{report}");
    let text = run("audit idx queries.fbin --recall 0.9 --queries 5").good();
    assert!(text.starts_with("idx: 5 queries, k 10, answered exactly in "), "{text}");
    assert!(text.contains("\nrecall        asked for 0.9: found "), "{text}");
    assert!(text.contains("\nnote          5 queries say little about others"), "{text}");
    run("audit idx queries.fbin --recall 1.5").fails(1, &["recall is 1.5"]);
    run("audit idx queries.fbin --calibration image").fails(1, &["\"image\"", "it has build"]);
    run("audit missing queries.fbin").fails(1, &["missing"]);
}
