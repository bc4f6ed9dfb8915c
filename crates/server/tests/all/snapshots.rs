//! Snapshots that a server holds for its clients.

use crate::harness::{READER, TestServer, ids, row};
use serde_json::{Value, json};

fn at(operation: &str) -> String {
    format!("/v1/collections/words/{operation}")
}

/// Holds a snapshot and returns its name.
fn hold(server: &TestServer) -> String {
    server.send(&at("snapshot"), json!({})).ok()["snapshot"].as_str().unwrap().to_owned()
}

#[test]
fn every_read_may_be_of_a_snapshot() {
    let server = TestServer::start();
    server.create_filled("words", 20);
    let name = hold(&server);
    server.send(&at("delete"), json!({ "filter": "id < 15" })).ok();
    server.send(&at("upsert"), json!({ "rows": [row(99)] })).ok();
    server.send(&at("compact"), json!({ "full": true })).ok();
    let count = |body: Value| server.send(&at("count"), body).ok()["count"].clone();
    assert_eq!((count(json!({})), count(json!({ "snapshot": name }))), (json!(6), json!(20)));
    assert_eq!(count(json!({ "snapshot": name, "filter": "lang = 'de'" })), 10);
    let found = server.send(&at("search"), json!({ "vector": [0, 0], "k": 3, "snapshot": name })).ok();
    assert_eq!(ids(&found, 0), [0, 1, 2]);
    let found = server.send(&at("search"), json!({ "like": 3, "k": 1, "snapshot": name })).ok();
    assert_eq!(ids(&found, 0), [3]);
    let got = server.send(&at("get"), json!({ "ids": [1, 99], "snapshot": name })).ok();
    assert_eq!((got["rows"].as_array().unwrap().len(), &got["missing"]), (1, &json!([99])));
    let mut pages = Vec::new();
    let mut after = Value::Null;
    loop {
        let body = json!({ "limit": 7, "after": after, "columns": [], "snapshot": name });
        let page = server.send(&at("scan"), body).ok();
        pages.push(page["rows"].as_array().unwrap().len());
        after = page["next"].clone();
        if after.is_null() {
            break;
        }
    }
    assert_eq!(pages, [7, 7, 6]);
    server
        .send(&at("explain"), json!({ "vector": [0, 0], "snapshot": name }))
        .refused(400, "invalid_argument");
    server.send(&at("release"), json!({ "snapshot": name })).ok();
    let gone = server.send(&at("count"), json!({ "snapshot": name })).refused(404, "not_found");
    assert!(gone.contains("make a new one"), "{gone}");
}

#[test]
fn snapshots_end_with_their_time_and_with_their_collection_and_have_a_limit() {
    let server = TestServer::start();
    server.create_filled("words", 3);
    server.create_filled("other", 3);
    let name = hold(&server);
    server.send("/v1/collections/other/count", json!({ "snapshot": name })).refused(404, "not_found");
    for seconds in [json!(0), json!(-1), json!(0.5), json!(86_401), json!(1e30)] {
        let refused =
            server.send(&at("snapshot"), json!({ "seconds": seconds })).refused(400, "invalid_argument");
        assert!(refused.contains("1 to 86400 s"), "{refused}");
    }
    let short = server.send(&at("snapshot"), json!({ "seconds": 1 })).ok()["snapshot"].clone();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    server.send(&at("count"), json!({ "snapshot": short })).refused(404, "not_found");
    let more: Vec<String> = (1..64).map(|_| hold(&server)).collect();
    let full = server.send(&at("snapshot"), json!({})).refused(503, "busy");
    assert!(full.contains("holds 64 snapshots"), "{full}");
    // A key that may only read may hold and release.
    let read = server.client.post(server.url(&at("release"))).bearer_auth(READER);
    assert_eq!(read.json(&json!({ "snapshot": more[0] })).send().unwrap().status(), 200);
    server.delete("/v1/collections/words").ok();
    server.create_filled("words", 1);
    server.send(&at("count"), json!({ "snapshot": name })).refused(404, "not_found");
}
