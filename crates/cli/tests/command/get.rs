//! `bathyal get`.

use crate::harness::{bathyal, write_vectors};
use bathyal_vectors::{IdFile, VectorFile, write_ids};
use serde_json::json;
use tempfile::TempDir;

#[test]
fn vectors_come_back_by_their_ids() {
    let folder = TempDir::new().unwrap();
    let run = |line: &str| bathyal(folder.path(), line);
    let rows = |name: &str| VectorFile::open(folder.path().join(name)).unwrap();
    write_vectors(folder.path(), "base.fbin", 1000, 8, 1);
    run("build base.fbin index --metric l2 --threads 2").good();
    let base = rows("base.fbin");

    let printed = run("get index 17 4").good();
    let value = f32::from_le_bytes(*base.row(17).first_chunk().unwrap());
    assert!(printed.starts_with(&format!("17: {value} ")) && printed.contains("\n4: "), "{printed}");
    let report = run("get index 999 --json").json();
    assert_eq!(
        (&report["dim"], &report["element"], &report["vectors"][0]["id"]),
        (&json!(8), &json!("f32"), &json!(999))
    );
    assert_eq!(report["vectors"][0]["vector"].as_array().map(Vec::len), Some(8));

    let ids = IdFile::from_parts(3, vec![5, 999, 5, 0, 1, 2], None).unwrap();
    write_ids(folder.path().join("wanted.ibin"), &ids).unwrap();
    let report = run("get index 7 --ids wanted.ibin --output got.fbin --json").json();
    assert_eq!(report["vectors"], 7);
    let got = rows("got.fbin");
    for (row, id) in [7, 5, 999, 5, 0, 1, 2].into_iter().enumerate() {
        assert_eq!(got.row(row), base.row(id), "{id}");
    }
}

#[test]
fn vectors_that_cannot_be_read_are_named() {
    let folder = TempDir::new().unwrap();
    let run = |line: &str| bathyal(folder.path(), line);
    write_vectors(folder.path(), "base.fbin", 300, 8, 1);
    run("build base.fbin index --metric l2 --family lsh --tables 4").good();
    run("delete index --ids 5").good();
    run("get index 5").fails(1, &["there is no vector 5: it was deleted"]);
    run("get index 1 300").fails(1, &["there is no vector 300: ids are below 300"]);
    run("get index").fails(2, &["ID"]);
    run("get index minus").fails(2, &["minus"]);
    run("get index 1 --output got.u8bin").fails(1, &["got.u8bin"]);
    assert!(!folder.path().join("got.u8bin").exists());
}
