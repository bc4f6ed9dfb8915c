//! Collections as a whole.

use crate::harness::{TestServer, ids, row, schema};
use bathyal_collection::{Collection, CollectionOptions, Ids};
use bathyal_server::ServerOptions;
use serde_json::json;
use std::time::Duration;

#[test]
fn a_collection_is_created_described_listed_copied_and_removed() {
    let server = TestServer::start();
    let created = server.create("words");
    assert_eq!((&created["name"], &created["rows"]), (&json!("words"), &json!(0)));
    assert_eq!(created["schema"]["vectors"][0]["family"], "cluster");
    server.create_filled("other", 5);
    let described = server.get("/v1/collections/other").ok();
    assert_eq!((&described["path"], &described["rows"]), (&json!("other"), &json!(5)));
    let again = server.send("/v1/collections", json!({ "name": "words", "schema": schema() }));
    assert!(again.refused(409, "exists").contains("words exists already"));
    assert_eq!(server.send("/v1/collections/other/copy", json!({ "to": "third" })).ok()["rows"], 5);
    server.send("/v1/collections/other/copy", json!({ "to": "third" })).refused(409, "exists");
    assert_eq!(server.get("/v1/collections").ok(), json!({ "names": ["other", "third", "words"] }));
    let page = server.get("/v1/collections?limit=1&after=other").ok();
    assert_eq!(page, json!({ "names": ["third"], "next": "third" }));
    assert_eq!(server.get("/v1/collections?prefix=w").ok(), json!({ "names": ["words"] }));
    assert_eq!(server.delete("/v1/collections/third").ok()["rows"], 5);
    server.get("/v1/collections/third").refused(404, "not_found");
    server.delete("/v1/collections/third").refused(404, "not_found");
    // The name is free again.
    server.create("third");
}

#[test]
fn maintenance_changes_no_row() {
    let server = TestServer::start();
    server.create_filled("words", 50);
    server.send("/v1/collections/words/flush", json!({})).ok();
    server.send("/v1/collections/words/delete", json!({ "ids": [3, 4] })).ok();
    let report = server.send("/v1/collections/words/compact", json!({ "full": true })).ok();
    assert_eq!(report["segments_after"], 1);
    assert_eq!(server.send("/v1/collections/words/verify", json!({})).ok(), json!({ "faults": [] }));
    server.send("/v1/collections/words/warm", json!({})).ok();
    assert_eq!(server.send("/v1/collections/words/count", json!({})).ok()["count"], 48);
    let queries: Vec<[u32; 2]> = (0..250).map(|i| [i % 50, 1]).collect();
    let calibrated = server.send("/v1/collections/words/calibrate", json!({ "queries": queries })).ok();
    assert_eq!((&calibrated["name"], &calibrated["queries"]), (&json!("default"), &json!(250)));
}

#[test]
fn names_and_schemas_that_cannot_be_are_refused() {
    let server = TestServer::start();
    for name in ["", "..", ".hidden", "a/b", "a b", "a\\b", "ü", &"x".repeat(129)] {
        let refused = server.send("/v1/collections", json!({ "name": name, "schema": schema() }));
        assert!(refused.refused(400, "invalid_argument").contains("is not a valid name"), "{name}");
    }
    for path in ["/v1/collections/..%2f..%2fetc", "/v1/collections/%2e%2e%2fx", "/v1/collections/a%00b"] {
        server.get(path).refused(400, "invalid_argument");
    }
    let wrong = [
        json!({ "id": "u64", "vectors": [] }),
        json!({ "id": "u64", "vectors": [{ "name": "v", "dim": 0, "element": "f32", "metric": "l2" }] }),
        json!({ "id": "u64", "vectors": [{ "name": "v", "dim": 2, "element": "f32", "metric": "cubic" }] }),
        json!({ "id": "uuid", "vectors": [{ "name": "v", "dim": 2, "element": "f32", "metric": "l2" }] }),
    ];
    for schema in wrong {
        server
            .send("/v1/collections", json!({ "name": "a", "schema": schema }))
            .refused(400, "invalid_argument");
    }
    let unknown = server.send("/v1/collections", json!({ "name": "a", "schema": schema(), "shards": 3 }));
    assert!(unknown.refused(400, "invalid_argument").contains("unknown field `shards`"));
    assert_eq!(server.get("/v1/collections").ok(), json!({ "names": [] }));
}

#[cfg(unix)]
#[test]
fn links_out_of_the_data_are_not_followed() {
    let server = TestServer::start();
    let outside = tempfile::tempdir().unwrap();
    server.create_filled("words", 2);
    drop(std::fs::rename(server.data().join("words"), outside.path().join("words")));
    std::os::unix::fs::symlink(outside.path().join("words"), server.data().join("linked")).unwrap();
    let refused = server.send("/v1/collections/linked/count", json!({}));
    assert!(refused.refused(404, "not_found").contains("is a link"));
    server.delete("/v1/collections/linked").refused(404, "not_found");
    assert!(outside.path().join("words").is_dir());
}

#[test]
fn collections_in_a_bucket_are_served() {
    let address = "memory://served/folder";
    let server = TestServer::with(|options| ServerOptions { data: address.into(), ..options });
    server.create_filled("words", 20);
    server.send("/v1/collections/words/flush", json!({})).ok();
    assert_eq!(server.get("/v1/collections").ok(), json!({ "names": ["words"] }));
    let found = server.send("/v1/collections/words/search", json!({ "vector": [7, 0], "k": 1 })).ok();
    assert_eq!(found["results"][0]["neighbors"][0]["id"], 7);
    assert_eq!(server.send("/v1/collections/words/copy", json!({ "to": "copied" })).ok()["rows"], 20);
    assert_eq!(server.delete("/v1/collections/copied").ok()["rows"], 20);
    let refused = server.get("/v1/collections/copied").refused(404, "not_found");
    assert_eq!(refused, "there is no collection copied");
}

#[test]
fn a_server_beside_the_writing_one_reads_what_was_written() {
    let address = "memory://shared/folder";
    let start = |refresh: Duration| {
        TestServer::with(|options| ServerOptions { data: address.into(), refresh, ..options })
    };
    let (writer, reader, late) =
        (start(Duration::from_secs(1)), start(Duration::ZERO), start(Duration::from_millis(200)));
    writer.create_filled("words", 20);
    let count = |server: &TestServer| {
        server.send("/v1/collections/words/count", json!({})).ok()["count"].as_u64().unwrap()
    };
    assert_eq!((count(&reader), count(&late)), (20, 20));
    for round in 0..3 {
        writer.send("/v1/collections/words/add", json!({ "rows": [row(100 + round)] })).ok();
        assert_eq!(count(&reader), 21 + round);
    }
    writer.send("/v1/collections/words/flush", json!({})).ok();
    writer.send("/v1/collections/words/delete", json!({ "ids": [0] })).ok();
    let found = reader.send("/v1/collections/words/search", json!({ "vector": [0, 0], "k": 1 })).ok();
    assert_eq!(ids(&found, 0), [1]);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(count(&late), 22);
}

#[test]
fn rows_that_another_process_writes_are_not_written_here() {
    let server = TestServer::start();
    server.create_filled("words", 3);
    let options = CollectionOptions::default();
    let path = server.data().join("others");
    let other = Collection::create(&path, serde_json::from_value(schema()).unwrap(), &options).unwrap();
    other.delete(Ids::Numbers(vec![1].into())).unwrap();
    let rows = json!({ "rows": [row(1)] });
    let refused = server.send("/v1/collections/others/add", rows.clone()).refused(503, "busy");
    assert!(refused.starts_with("others: another process"), "{refused}");
    server.delete("/v1/collections/others").refused(503, "busy");
    drop(other);
    server.send("/v1/collections/others/add", rows).ok();
}
