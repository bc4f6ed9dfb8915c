//! `insert`, `delete` and `compact`.

use crate::harness::{bathyal, write_vectors};
use serde_json::json;
use tempfile::TempDir;

/// A folder with 2000 vectors, 500 more, and an index of the former.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    write_vectors(folder.path(), "base.fbin", 2000, 24, 1);
    write_vectors(folder.path(), "more.fbin", 500, 24, 2);
    bathyal(folder.path(), "build base.fbin index --metric l2 --family lsh --tables 4 --threads 2").good();
    folder
}

#[test]
fn a_build_prints_the_promise() {
    let folder = folder();
    let report =
        bathyal(folder.path(), "build base.fbin second --metric l2 --family lsh --tables 4 --json").json();
    let promises = report["promises"].as_array().unwrap();
    assert_eq!(promises.len(), 3);
    let within_4 = report["promises_within_4"].as_array().unwrap();
    assert!(within_4[0]["from"].as_f64() < within_4[0]["to"].as_f64(), "{within_4:?}");
    assert_eq!(report["promises"], bathyal(folder.path(), "inspect second --json").json()["promises"]);
    let printed =
        bathyal(folder.path(), "build base.fbin third --metric cosine --family lsh --tables 4").good();
    for part in [
        "promised: a vector within twice the nearest distance",
        "promised: a vector within four times the nearest distance",
        "if the nearest is from",
        "vectors of length 1",
    ] {
        assert!(printed.contains(part), "{printed}");
    }
}

#[test]
fn inserts_deletes_and_compactions_are_reported_and_searched() {
    let folder = folder();
    let run = |line: &str| bathyal(folder.path(), line);
    let printed = run("insert index more.fbin").good();
    assert!(
        printed.contains("500 vectors inserted with the ids 2000 to 2499; 2500 in the index"),
        "{printed}"
    );
    let answer = run("insert index more.fbin --json").json();
    assert_eq!(
        (&answer["first_id"], &answer["vectors"], &answer["compactions"]),
        (&json!(2500), &json!(3000), &json!(0))
    );
    // Every inserted vector is in the index twice.
    let search = "search index more.fbin -k 2 --search-list 3000 --probes 1000 --json";
    run(&format!("{search} --output found.ibin")).good();
    let found = bathyal_vectors::IdFile::open(folder.path().join("found.ibin")).unwrap();
    assert_eq!((found.ids(0), found.ids(499)), (&[2000, 2500][..], &[2499, 2999][..]));
    let printed = run("delete index --ids 2000,5,17").good();
    assert!(printed.contains("3 vectors deleted, 2997 remain"), "{printed}");
    assert_eq!(run("delete index --ids 2000,6 --json").json()["deleted"], 1);
    let report = run("inspect index").good();
    assert!(report.contains("1000 vectors inserted, 4 deleted since"), "{report}");
    assert_eq!(run("inspect index --json").json()["changed"]["deleted"], 4);
    assert!(run("verify index").good().contains("sound: 2996 vectors"));
    // The bytes on disk include the log.
    let index_bytes = |line: &str| run(line).json()["index_bytes"].as_u64().unwrap();
    let log = run("inspect index --json").json()["changed"]["log_bytes"].as_u64().unwrap();
    let manifest = folder.path().join("index/manifest.json").metadata().unwrap().len();
    assert_eq!(index_bytes("inspect index --json") - index_bytes(search), manifest);
    assert!(log > 1000 * 24 * 4, "{log}");
    let printed = run("compact index").good();
    assert!(
        printed.contains("2996 vectors, with 1000 that were inserted and without 4 that were deleted"),
        "{printed}"
    );
    assert!(run("compact index").good().contains("has no changes"));
    assert!(run("compact index --json").json().get("build").is_none());
    run(&format!("{search} --output found.ibin")).good();
    let found = bathyal_vectors::IdFile::open(folder.path().join("found.ibin")).unwrap();
    assert_eq!((found.ids(0)[0], found.ids(499)), (2500, &[2499, 2999][..]), "ids stay");
    // Delete all ids of a file.
    let answer = run("delete index --file found.ibin --json").json();
    assert!(answer["deleted"].as_u64().unwrap() >= 999, "{answer}");
}

#[test]
fn changes_that_are_not_possible_are_refused() {
    let folder = folder();
    let run = |line: &str| bathyal(folder.path(), line);
    write_vectors(folder.path(), "short.fbin", 5, 8, 3);
    run("insert index short.fbin").fails(1, &["have 8 dimensions, the index has 24"]);
    run("insert index nothing.fbin").fails(1, &["nothing.fbin"]);
    run("insert nothing more.fbin").fails(1, &["nothing"]);
    run("delete index --ids 1,2000").fails(1, &["there is no vector 2000", "nothing was deleted"]);
    run("delete index").fails(2, &["--ids"]);
    run("delete index --ids 1,x").fails(2, &["--ids"]);
    run("build base.fbin clusters --metric l2 --threads 2").good();
    for line in ["insert clusters more.fbin", "delete clusters --ids 1", "compact clusters"] {
        run(line).fails(1, &["of the family cluster does not change"]);
    }
    assert!(!folder.path().join("index/changes.log").exists(), "nothing was written");
    run("delete index --ids 1").good();
    std::fs::create_dir(folder.path().join("a")).unwrap();
    std::fs::create_dir(folder.path().join("b")).unwrap();
    run("convert-stripes index striped --stripe a,b")
        .fails(1, &["was changed since it was built", "compact"]);
    run("compact index").good();
    run("convert-stripes index striped --stripe a,b").good();
    run("delete striped --ids 2").fails(1, &["is striped", "convert-stripes"]);
    run("compact striped").fails(1, &["is striped"]);
    run("search striped more.fbin -k 3").good();
}

#[test]
fn a_compaction_stays_below_its_budget() {
    let folder = TempDir::new().unwrap();
    write_vectors(folder.path(), "base.fbin", 60_000, 96, 7);
    write_vectors(folder.path(), "more.fbin", 30_000, 96, 8);
    write_vectors(folder.path(), "queries.fbin", 20, 96, 9);
    let build = "build base.fbin index --metric l2 --family lsh --threads 2 --calibration queries.fbin";
    bathyal(folder.path(), build).good();
    bathyal(folder.path(), "insert index more.fbin").good();
    // The first refusal names the memory for opening the index, the second that for the build.
    let mut needed = 30_000_000;
    for _ in 0..2 {
        let refused = bathyal(folder.path(), &format!("compact index --threads 2 --memory {needed}"));
        let printed = refused.stderr.split(" needs ").nth(1).unwrap_or_else(|| panic!("{refused:?}"));
        needed = printed.split(' ').next().unwrap().parse().unwrap();
    }
    let done = bathyal(folder.path(), &format!("compact index --threads 2 --memory {needed} --json")).json();
    assert!(done["peak_rss_bytes"].as_u64().unwrap() <= needed, "{needed}: {done}");
    assert_eq!(done["build"]["vectors"], 90_000);
    bathyal(folder.path(), "verify index").good();
}
