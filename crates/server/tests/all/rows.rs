//! Writing and reading rows.

use crate::harness::{ARROW, Answer, TestServer, row};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type, UInt64Type};
use arrow_array::{ArrayRef, FixedSizeListArray, Int64Array, RecordBatch, UInt64Array};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use serde_json::{Value, json};
use std::io::Cursor;
use std::sync::Arc;

fn arrow_rows(ids: &[u64]) -> Vec<u8> {
    let vectors = ids.iter().map(|id| Some(vec![Some(*id as f32), Some(0.5)]));
    let vectors = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vectors, 2);
    let years = Int64Array::from(ids.iter().map(|id| *id as i64).collect::<Vec<_>>());
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(UInt64Array::from(ids.to_vec()))),
        ("v", Arc::new(vectors)),
        ("year", Arc::new(years)),
    ];
    let table = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &table.schema()).unwrap();
    writer.write(&table).unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn rows_are_added_replaced_changed_and_deleted() {
    let server = TestServer::start();
    server.create_filled("words", 10);
    let at = |operation: &str| format!("/v1/collections/words/{operation}");
    let twice = server.send(&at("add"), json!({ "rows": [row(3)] }));
    assert!(twice.refused(409, "exists").contains("nothing was written"));
    let written = server.send(&at("upsert"), json!({ "rows": [row(9), row(10)] })).ok();
    assert_eq!(written, json!({ "added": 1, "replaced": 1, "deleted": 0, "missing": 0 }));
    let changes = json!({ "rows": [{ "id": 1, "lang": "fr" }, { "id": 99, "lang": "fr" }] });
    let written = server.send(&at("update"), changes).ok();
    assert_eq!((&written["replaced"], &written["missing"]), (&json!(1), &json!(1)));
    let got = server.send(&at("get"), json!({ "ids": [1, 77, 2], "vectors": ["v"] })).ok();
    let expected = json!({
        "rows": [
            { "id": 1, "year": 2001, "lang": "fr", "v": [1.0, 0.0] },
            { "id": 2, "year": 2002, "lang": "de", "v": [2.0, 0.0] },
        ],
        "missing": [77],
    });
    assert_eq!(got, expected);
    assert_eq!(server.send(&at("delete"), json!({ "ids": [1, 77] })).ok()["deleted"], 1);
    let filter = json!({ "filter": { "lang": "de", "id": { "$lt": 5 } } });
    assert_eq!(server.send(&at("count"), filter.clone()).ok()["count"], 3);
    assert_eq!(server.send(&at("delete"), filter).ok()["deleted"], 3);
    let empty = server.send(&at("delete"), json!({ "filter": {} }));
    assert!(empty.refused(400, "invalid_argument").contains("would delete all rows"));
    assert_eq!(server.send(&at("delete"), json!({ "filter": "true" })).ok()["deleted"], 7);
    assert_eq!(server.send(&at("count"), json!({})).ok()["count"], 0);
}

#[test]
fn arrow_is_written_and_read_as_json_is() {
    let server = TestServer::start();
    server.create("words");
    let send = |operation: &str, body: Vec<u8>| {
        let request =
            server.post(&format!("/v1/collections/words/{operation}")).header("content-type", ARROW);
        Answer::of(request.body(body).send().unwrap())
    };
    assert_eq!(send("add", arrow_rows(&[5, 6, 7])).ok()["added"], 3);
    assert_eq!(send("upsert", arrow_rows(&[7, 8])).ok()["replaced"], 1);
    let got = server.send("/v1/collections/words/get", json!({ "ids": [8], "vectors": ["v"] })).ok();
    assert_eq!(got["rows"], json!([{ "id": 8, "year": 8, "lang": null, "v": [8.0, 0.5] }]));
    let scan = server.post("/v1/collections/words/scan").header("accept", ARROW);
    let response = scan.json(&json!({ "vectors": ["v"], "limit": 2 })).send().unwrap();
    assert_eq!(response.headers()["content-type"], ARROW);
    assert_eq!(response.headers()["bathyal-next"], "6");
    let bytes = response.bytes().unwrap();
    let table = StreamReader::try_new(Cursor::new(bytes), None).unwrap().next().unwrap().unwrap();
    assert_eq!(table["id"].as_primitive::<UInt64Type>().values(), &[5, 6]);
    assert_eq!(table["year"].as_primitive::<Int64Type>().values(), &[5, 6]);
    let values = table["v"].as_fixed_size_list().values().clone();
    assert_eq!(values.as_primitive::<Float32Type>().values(), &[5.0, 0.5, 6.0, 0.5]);
    // A stream that is cut off writes nothing.
    let mut cut = arrow_rows(&[20, 21]);
    cut.truncate(cut.len() / 2);
    send("add", cut).refused(400, "invalid_data");
    send("add", b"no arrow at all".to_vec()).refused(400, "invalid_data");
    assert_eq!(server.send("/v1/collections/words/count", json!({})).ok()["count"], 4);
}

#[test]
fn a_scan_returns_every_row_once_in_pages() {
    let server = TestServer::start();
    server.create_filled("words", 100);
    server.send("/v1/collections/words/flush", json!({})).ok();
    server.send("/v1/collections/words/add", json!({ "rows": [row(100), row(101)] })).ok();
    let mut ids = Vec::new();
    let mut page = json!({ "filter": "lang = 'en'", "columns": ["year"], "limit": 7 });
    loop {
        let answer = server.send("/v1/collections/words/scan", page.clone()).ok();
        let rows = answer["rows"].as_array().unwrap();
        assert!(rows.len() <= 7 && rows.iter().all(|row| row.as_object().unwrap().len() == 2));
        ids.extend(rows.iter().map(|row| row["id"].as_u64().unwrap()));
        let Some(next) = answer.get("next") else { break };
        page["after"] = next.clone();
    }
    assert_eq!(ids, (0..102).filter(|id| id % 2 == 1).collect::<Vec<_>>());
    server.send("/v1/collections/words/scan", json!({ "limit": 0 })).refused(400, "invalid_argument");
}

#[test]
fn rows_that_do_not_fit_are_refused_with_their_position() {
    let server = TestServer::start();
    server.create("words");
    let cases = [
        (json!({ "rows": [row(1), { "id": 2, "v": [1] }] }), "1"),
        (json!({ "rows": [row(1), { "id": -2, "v": [1, 2] }] }), "row 1"),
        (json!({ "rows": [row(1), { "v": [1, 2] }] }), "row 1"),
        (json!({ "rows": [{ "id": 1, "v": [1, 2], "color": "red" }] }), "color"),
        (json!({ "rows": [{ "id": 1, "v": [1, "x"] }] }), "row 0"),
        (json!({ "rows": [{ "id": 1, "v": [1, 2], "year": 1.5 }] }), "year"),
        (json!({ "rows": [{ "id": 1, "v": [1, 1e39] }] }), "v"),
        (json!({ "rows": [] }), "no rows"),
    ];
    for (body, reason) in cases {
        let refused = server.send("/v1/collections/words/add", body.clone());
        assert_eq!(refused.status, 400, "{body}: {}", refused.json);
        let message = refused.json["error"]["message"].as_str().unwrap();
        assert!(message.contains(reason), "{body}: {message}");
    }
    for body in [json!({}), json!({ "ids": [1], "filter": "true" }), json!({ "ids": ["a"] })] {
        server.send("/v1/collections/words/delete", body).refused(400, "invalid_argument");
    }
    let wrong = server.send("/v1/collections/words/count", json!({ "filter": "yeer > 3" }));
    assert!(wrong.refused(400, "invalid_argument").contains("yeer"));
    let update = json!({ "rows": [{ "id": 1, "v": [1, 2] }] });
    let refused = server.send("/v1/collections/words/update", update);
    assert!(refused.refused(400, "invalid_data").contains("upsert changes vectors"));
    assert_eq!(server.send("/v1/collections/words/count", json!({})).ok()["count"], 0);
}

#[test]
fn answers_with_too_many_vectors_are_refused() {
    let server = TestServer::start();
    let vectors = json!([{ "name": "v", "dim": 4096, "element": "f32", "metric": "l2" }]);
    let schema = json!({ "id": "u64", "vectors": vectors });
    server.send("/v1/collections", json!({ "name": "long", "schema": schema })).ok();
    let ids: Vec<u64> = (0..5000).collect();
    let get = |body: Value| server.send("/v1/collections/long/get", body);
    let refused = get(json!({ "ids": ids, "vectors": ["v"] })).refused(400, "invalid_argument");
    assert!(refused.contains("5000 vectors of 16384 bytes are too many"), "{refused}");
    assert_eq!(get(json!({ "ids": ids })).ok()["missing"].as_array().unwrap().len(), 5000);
    let search = json!({ "vector": vec![0; 4096], "k": 5000, "with_vectors": true });
    server.send("/v1/collections/long/search", search).refused(400, "invalid_argument");
}

#[test]
fn a_write_with_the_same_idempotency_key_is_done_once() {
    let server = TestServer::start();
    server.create("words");
    let send = |key: &str, rows: Value| {
        let request = server.post("/v1/collections/words/add").header("idempotency-key", key);
        Answer::of(request.json(&json!({ "rows": rows })).send().unwrap())
    };
    let first = send("k1", json!([row(1)])).ok();
    assert_eq!(send("k1", json!([row(1)])).ok(), first);
    send("k1", json!([row(2)])).refused(422, "invalid_argument");
    send("k2", json!([row(1)])).refused(409, "exists");
    assert_eq!(server.send("/v1/collections/words/count", json!({})).ok()["count"], 1);
}

#[test]
fn many_callers_write_to_one_collection_and_read_what_they_wrote() {
    let server = TestServer::start();
    server.create("words");
    std::thread::scope(|scope| {
        for caller in 0..16_u64 {
            let server = &server;
            scope.spawn(move || {
                for i in 0..10 {
                    let id = caller * 1000 + i;
                    let rows = json!({ "rows": [row(id)] });
                    assert_eq!(server.send("/v1/collections/words/add", rows).ok()["added"], 1);
                    let got = server.send("/v1/collections/words/get", json!({ "ids": [id] })).ok();
                    assert_eq!(got["missing"], json!([]), "{id}");
                }
            });
        }
    });
    assert_eq!(server.send("/v1/collections/words/count", json!({})).ok()["count"], 160);
}
