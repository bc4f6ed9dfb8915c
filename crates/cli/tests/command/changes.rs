//! `insert`, `delete` and `compact`.

use crate::workshop::{bathyal, write_vectors};
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
fn a_build_says_what_it_promises() {
    let folder = folder();
    let told =
        bathyal(folder.path(), "build base.fbin second --metric l2 --family lsh --tables 4 --json").json();
    let promises = told["promises"].as_array().unwrap();
    assert_eq!(promises.len(), 3);
    assert_eq!(told["promises"], bathyal(folder.path(), "inspect second --json").json()["promises"]);
    let said = bathyal(folder.path(), "build base.fbin third --metric cosine --family lsh --tables 4").good();
    for part in ["promised: a vector within twice the nearest distance", "is at most", "vectors of length 1"]
    {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn what_is_inserted_deleted_and_compacted_is_said_and_found() {
    let folder = folder();
    let run = |line: &str| bathyal(folder.path(), line);
    let said = run("insert index more.fbin").good();
    assert!(said.contains("500 vectors inserted as 2000 to 2499, 2500 are there"), "{said}");
    let answer = run("insert index more.fbin --json").json();
    assert_eq!(
        (&answer["first_id"], &answer["vectors"], &answer["compactions"]),
        (&json!(2500), &json!(3000), &json!(0))
    );
    // Each is there twice.
    let search = "search index more.fbin -k 2 --search-list 3000 --probes 1000 --json";
    run(&format!("{search} --output found.ibin")).good();
    let found = bathyal_vectors::IdFile::open(folder.path().join("found.ibin")).unwrap();
    assert_eq!((found.ids(0), found.ids(499)), (&[2000, 2500][..], &[2499, 2999][..]));
    let said = run("delete index --ids 2000,5,17").good();
    assert!(said.contains("3 vectors deleted, 2997 are left"), "{said}");
    assert_eq!(run("delete index --ids 2000,6 --json").json()["deleted"], 1);
    let told = run("inspect index").good();
    assert!(told.contains("1000 vectors inserted, 4 deleted since"), "{told}");
    assert_eq!(run("inspect index --json").json()["changed"]["deleted"], 4);
    assert!(run("verify index").good().contains("sound: 2996 vectors"));
    // The log is a part of what is on the disk.
    let of = |line: &str| run(line).json()["index_bytes"].as_u64().unwrap();
    let log = run("inspect index --json").json()["changed"]["log_bytes"].as_u64().unwrap();
    let manifest = folder.path().join("index/manifest.json").metadata().unwrap().len();
    assert_eq!(of("inspect index --json") - of(search), manifest);
    assert!(log > 1000 * 24 * 4, "{log}");
    let said = run("compact index").good();
    assert!(
        said.contains("2996 vectors, with 1000 that were inserted and without 4 that were deleted"),
        "{said}"
    );
    assert!(run("compact index").good().contains("had not changed"));
    assert!(run("compact index --json").json().get("build").is_none());
    run(&format!("{search} --output found.ibin")).good();
    let found = bathyal_vectors::IdFile::open(folder.path().join("found.ibin")).unwrap();
    assert_eq!((found.ids(0)[0], found.ids(499)), (2500, &[2499, 2999][..]), "ids stay");
    // All that a file of ids names.
    let answer = run("delete index --file found.ibin --json").json();
    assert!(answer["deleted"].as_u64().unwrap() >= 999, "{answer}");
}

#[test]
fn what_cannot_be_changed_is_refused() {
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
    // What opens the index first, then what it is built in.
    let mut needed = 30_000_000;
    for _ in 0..2 {
        let refused = bathyal(folder.path(), &format!("compact index --threads 2 --memory {needed}"));
        let said = refused.stderr.split(" needs ").nth(1).unwrap_or_else(|| panic!("{refused:?}"));
        needed = said.split(' ').next().unwrap().parse().unwrap();
    }
    let done = bathyal(folder.path(), &format!("compact index --threads 2 --memory {needed} --json")).json();
    assert!(done["peak_rss_bytes"].as_u64().unwrap() <= needed, "{needed}: {done}");
    assert_eq!(done["build"]["vectors"], 90_000);
    bathyal(folder.path(), "verify index").good();
}
