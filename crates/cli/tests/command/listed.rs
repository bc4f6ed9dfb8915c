//! `bathyal list`: the entries of a folder.

use crate::harness::{DIM, INDEXES, VECTORS, bathyal, copy};
use serde_json::{Value, json};
use std::fs;

/// Returns names and kinds in the order of the list.
fn kinds(report: &Value) -> Vec<(&str, &str)> {
    let found = report["found"].as_array().unwrap().iter();
    found.map(|one| (one["name"].as_str().unwrap(), one["kind"].as_str().unwrap())).collect()
}

#[test]
fn only_indexes_and_collections_are_listed() {
    let folder = copy();
    let here = folder.path();
    bathyal(here, "collection create rows --id u64 --vector embedding:3").good();
    fs::create_dir_all(here.join("pictures/2024")).unwrap();
    let report = bathyal(here, "list --json").json();
    assert_eq!(kinds(&report), [("graph.idx", "index"), ("idx", "index"), ("rows", "collection")]);
    let graph = &report["found"][0];
    let bytes = graph["index_bytes"].as_u64().unwrap();
    let expected = json!({
        "name": "graph.idx", "path": "./graph.idx", "kind": "index", "family": "graph",
        "vectors": VECTORS, "dim": DIM, "element": "f32", "metric": "l2", "index_bytes": bytes,
    });
    assert_eq!(*graph, expected);
    assert_eq!(bytes, bathyal(here, "inspect graph.idx --json").json()["index_bytes"].as_u64().unwrap());
    let text = bathyal(here, &format!("list {}", here.display())).good();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(
        lines[0].starts_with(&format!("graph.idx  graph, {VECTORS} vectors of {DIM} f32, l2, ")),
        "{text}"
    );
    assert_eq!(lines[2], "rows       a collection");
}

#[test]
fn an_unreadable_entry_hides_no_other() {
    let folder = copy();
    let here = folder.path();
    // A folder of another program, or an index without any valid file.
    fs::create_dir(here.join("website")).unwrap();
    fs::write(here.join("website/manifest.json"), r#"{"name": "a web application"}"#).unwrap();
    let manifest = here.join(INDEXES[0]).join("manifest.json");
    let mut bytes = fs::read(&manifest).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&manifest, bytes).unwrap();
    let report = bathyal(here, "list --json").json();
    assert_eq!(kinds(&report), [("graph.idx", "index"), ("idx", "unreadable"), ("website", "unreadable")]);
    let reason = report["found"][1]["reason"].as_str().unwrap();
    assert!(reason.contains("manifest.json"), "{reason}");
    assert!(bathyal(here, "list").good().contains("\nidx        cannot be read: "));
}

#[test]
fn places_that_cannot_be_listed_are_refused() {
    let folder = copy();
    let here = folder.path();
    fs::create_dir(here.join("empty")).unwrap();
    assert_eq!(bathyal(here, "list empty").good().trim_end(), "empty: holds no index and no collection");
    assert_eq!(
        bathyal(here, "list memory://").good().trim_end(),
        "memory://: holds no index and no collection"
    );
    bathyal(here, "list idx").fails(1, &["idx: is an index", "bathyal inspect idx"]);
    bathyal(here, "collection create rows --id u64 --vector embedding:3").good();
    bathyal(here, "list rows").fails(1, &["is a collection", "bathyal collection inspect rows"]);
    bathyal(here, "list nowhere").fails(1, &["nowhere", "No such file or directory"]);
    bathyal(here, "list base.fbin").fails(1, &["base.fbin", "Not a directory"]);
    bathyal(here, "list s3://").fails(1, &["has no bucket"]);
    bathyal(here, "list ftp://place").fails(1, &["not a known kind of store"]);
    bathyal(here, "list . --store-option region=moon").fails(1, &["takes no store options"]);
}
