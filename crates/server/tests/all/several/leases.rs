//! The lease of the data: who takes it, when it is given up, and what is refused.

use super::{LONG, SHORT, SharedData, count, record};
use crate::harness::{row, schema};
use bathyal_server::{Server, ServerOptions};
use serde_json::json;
use std::time::{Duration, Instant};

#[test]
fn a_server_that_stops_gives_up_the_lease_at_once() {
    for data in [SharedData::folder(), SharedData::memory()] {
        let (first, second, third) = (data.serve(LONG), data.serve(LONG), data.serve(LONG));
        first.create("words");
        second.send("/v1/collections/words/add", json!({ "rows": [row(1)] })).ok();
        first.server.stop();
        second.send("/v1/collections/words/add", json!({ "rows": [row(2)] })).ok();
        third.send("/v1/collections/words/add", json!({ "rows": [row(3)] })).ok();
        assert_eq!(count(&third, "words"), 3);
        second.server.stop();
        third.send("/v1/collections/words/add", json!({ "rows": [row(4)] })).ok();
        third.server.stop();
        let fourth = data.serve(LONG);
        fourth.send("/v1/collections/words/add", json!({ "rows": [row(5)] })).ok();
        assert_eq!(count(&fourth, "words"), 5);
    }
}

#[test]
fn a_server_that_only_reads_takes_no_lease() {
    let data = SharedData::folder();
    let first = data.serve(LONG);
    first.get("/v1/collections").ok();
    assert!(!data.path.join(".bathyal").exists());
    first.create("words");
    assert!(data.path.join(".bathyal/holder").exists());
    // The folder of the lease is no collection.
    assert_eq!(first.get("/v1/collections").ok()["names"], json!(["words"]));
    let memory = SharedData::memory();
    let second = memory.serve(LONG);
    second.get("/v1/collections").ok();
    assert!(memory.claims().numbers().unwrap().is_empty());
    second.create("words");
    assert_eq!(memory.claims().numbers().unwrap(), [1]);
    assert_eq!(second.get("/v1/collections").ok()["names"], json!(["words"]));
}

#[test]
fn a_lease_whose_holder_is_gone_is_taken_after_its_time() {
    let data = SharedData::memory();
    let former = record("http://127.0.0.1:1", SHORT);
    assert!(data.claims().create(3, &former).unwrap());
    let server = data.serve(SHORT);
    let began = Instant::now();
    server.create("words");
    assert!(began.elapsed() >= SHORT);
    assert_eq!(data.claims().numbers().unwrap(), [4]);
    // It is renewed, so that nobody else takes it.
    let other = data.serve(SHORT);
    std::thread::sleep(SHORT * 2);
    other.send("/v1/collections/words/add", json!({ "rows": [row(1)] })).ok();
    assert_eq!(data.claims().numbers().unwrap(), [4]);
}

#[test]
fn a_record_that_is_none_is_named_and_reads_go_on() {
    let data = SharedData::memory();
    let first = data.serve(SHORT);
    first.create("words");
    first.server.stop();
    assert!(data.claims().create(9, b"garbage").unwrap());
    let second = data.serve(SHORT);
    let refused = second.send("/v1/collections/words/add", json!({ "rows": [row(1)] }));
    let message = refused.refused(500, "damaged");
    let expected = ".bathyal/lease/00000000000000000009: is not the record";
    assert!(message.contains(expected) && message.contains("remove it"), "{message}");
    assert_eq!(count(&second, "words"), 0);

    let data = SharedData::folder();
    let (first, second) = (data.serve(LONG), data.serve(LONG));
    first.create("words");
    std::fs::write(data.path.join(".bathyal/holder"), "{}").unwrap();
    let refused = second.send("/v1/collections/words/add", json!({ "rows": [row(1)] }));
    assert!(refused.refused(500, "damaged").contains(".bathyal/holder"));
    assert_eq!(count(&second, "words"), 0);
}

#[test]
fn addresses_that_are_none_are_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let start = |advertise: &str, lease: Duration, insecure: bool| {
        let options = ServerOptions::new(folder.path().join("data"), folder.path().join("keys.toml"));
        let listen = "127.0.0.1:0".parse().unwrap();
        let advertise = Some(advertise.to_owned());
        Server::start(ServerOptions { advertise, lease, insecure, listen, ..options })
    };
    for (advertise, reason) in [
        ("example.com:7700", "--advertise"),
        ("ftp://example.com", "http://HOST:PORT"),
        ("https://example.com/path", "more than a scheme"),
        ("https://user@example.com", "more than a scheme"),
        ("https://example.com?x", "more than a scheme"),
        ("not an address", "it is no address"),
        ("http://example.com:7700", "unencrypted"),
    ] {
        let refused = start(advertise, LONG, false).err().unwrap().to_string();
        assert!(refused.contains(reason), "{advertise}: {refused}");
    }
    let refused = start("https://example.com", Duration::from_millis(5), false).err().unwrap().to_string();
    assert!(refused.contains("--lease is 5 ms"), "{refused}");
    start("http://example.com:7700", LONG, true).unwrap().stop();
    start("https://example.com", LONG, false).unwrap().stop();
}

#[test]
fn a_collection_that_was_made_again_is_another_one() {
    for (data, removed_by_second) in [(SharedData::folder(), false), (SharedData::memory(), true)] {
        let (first, second) = (data.serve(LONG), data.serve(LONG));
        first.create("words");
        second.send("/v1/collections/words/add", json!({ "rows": [row(1)] })).ok();
        assert_eq!(count(&second, "words"), 1);
        let server = if removed_by_second { &second } else { &first };
        server.delete("/v1/collections/words").ok();
        let schema = json!({ "id": "string", "vectors": schema()["vectors"], "columns": [] });
        first.send("/v1/collections", json!({ "name": "words", "schema": schema })).ok();
        let added = json!({ "rows": [{ "id": "a", "v": [1, 2] }] });
        second.send("/v1/collections/words/add", added).ok();
        let got = second.send("/v1/collections/words/get", json!({ "ids": ["a"] })).ok();
        assert_eq!(got["rows"][0]["id"], "a");
        // The next server that writes knows that others have removed what it has open.
        first.delete("/v1/collections/words").ok();
        first.server.stop();
        second.create("words");
        second.get("/v1/collections/words").ok();
    }
}
