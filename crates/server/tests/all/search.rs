//! Search of collections: the answers are those of the library, however many ask at once.

use crate::harness::{ARROW, TestServer, ids, row};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt32Type, UInt64Type};
use arrow_array::{FixedSizeListArray, RecordBatch};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use serde_json::json;
use std::io::Cursor;
use std::sync::Arc;

#[test]
fn a_search_finds_the_nearest_rows_with_their_columns() {
    let server = TestServer::start();
    server.create_filled("words", 100);
    let at = "/v1/collections/words/search";
    let found = server.send(at, json!({ "vector": [41.4, 0], "k": 3 })).ok();
    assert_eq!((ids(&found, 0), &found["k"], &found["matches"]), (vec![41, 42, 40], &json!(3), &json!(100)));
    let first = &found["results"][0]["neighbors"][0];
    assert_eq!((&first["year"], &first["lang"]), (&json!(2001), &json!("en")));
    assert!((first["distance"].as_f64().unwrap() - 0.16).abs() < 1e-4);
    let several = json!({ "vectors": [[0, 0], [99, 0]], "k": 2, "columns": [], "with_vectors": true });
    let found = server.send(at, several).ok();
    assert_eq!((ids(&found, 0), ids(&found, 1)), (vec![0, 1], vec![99, 98]));
    assert_eq!(found["results"][1]["neighbors"][0], json!({ "id": 99, "distance": 0.0, "v": [99.0, 0.0] }));
    let found = server.send(at, json!({ "like": 50, "k": 1 })).ok();
    assert_eq!(ids(&found, 0), [50]);
    let filtered = json!({ "vector": [10, 0], "k": 3, "filter": { "lang": "en" }, "explain": true });
    let found = server.send(at, filtered).ok();
    assert_eq!((ids(&found, 0).len(), &found["matches"]), (3, &json!(50)));
    assert_eq!(found["plans"][0]["part"], "memory");
    let few = server.send(at, json!({ "vector": [0, 0], "k": 9, "filter": "id < 4" })).ok();
    assert_eq!(ids(&few, 0), [0, 1, 2, 3]);
    assert!(few["notes"][0].as_str().unwrap().contains("only 4 rows match"));
}

#[test]
fn searches_that_arrive_together_get_their_own_answers() {
    let server = TestServer::start();
    server.create_filled("words", 300);
    server.send("/v1/collections/words/flush", json!({})).ok();
    let rows: Vec<_> = (300..400).map(row).collect();
    server.send("/v1/collections/words/add", json!({ "rows": rows })).ok();
    std::thread::scope(|scope| {
        for caller in 0..16_u64 {
            let server = &server;
            scope.spawn(move || {
                for i in 0..25 {
                    let (at, k) = ((caller * 25 + i) % 400, 1 + caller % 2);
                    let query = json!({ "vectors": [[at, 0], [399 - at, 0]], "k": k });
                    let found = server.send("/v1/collections/words/search", query).ok();
                    assert_eq!((ids(&found, 0)[0], ids(&found, 1)[0]), (at, 399 - at));
                    assert_eq!(ids(&found, 0).len() as u64, k);
                    assert_eq!(found["results"][0]["neighbors"][0]["year"], json!(2000 + at % 20));
                }
            });
        }
    });
}

#[test]
fn a_search_that_is_refused_does_not_refuse_those_beside_it() {
    let server = TestServer::start();
    server.create_filled("words", 300);
    std::thread::scope(|scope| {
        for caller in 0..16_u64 {
            let server = &server;
            scope.spawn(move || {
                for i in 0..20 {
                    let at = (caller * 20 + i) % 300;
                    let is_wrong = caller % 4 == 0;
                    // The first number is too large for f32.
                    let vector = if is_wrong { json!([1e39, 0]) } else { json!([at, 0]) };
                    let answer =
                        server.send("/v1/collections/words/search", json!({ "vector": vector, "k": 1 }));
                    if is_wrong {
                        assert_eq!(answer.status, 400, "{}", answer.json);
                    } else {
                        assert_eq!(ids(&answer.ok(), 0), [at]);
                    }
                }
            });
        }
    });
}

#[test]
fn queries_and_answers_can_be_arrow() {
    let server = TestServer::start();
    server.create_filled("words", 50);
    let vectors = [Some(vec![Some(7.0), Some(0.0)]), Some(vec![Some(30.0), Some(0.0)])];
    let vectors = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vectors, 2);
    let table = RecordBatch::try_from_iter([("vector", Arc::new(vectors) as _)]).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &table.schema()).unwrap();
    writer.write(&table).unwrap();
    let request = server.post("/v1/collections/words/search").header("content-type", ARROW);
    let request =
        request.header("accept", ARROW).header("bathyal-search", "{\"k\": 2, \"columns\": [\"year\"]}");
    let response = request.body(writer.into_inner().unwrap()).send().unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(
        (&response.headers()["bathyal-k"], &response.headers()["bathyal-notes"]),
        (&"2".parse().unwrap(), &"[]".parse().unwrap())
    );
    let bytes = response.bytes().unwrap();
    let table = StreamReader::try_new(Cursor::new(bytes), None).unwrap().next().unwrap().unwrap();
    assert_eq!(table["query"].as_primitive::<UInt32Type>().values(), &[0, 0, 1, 1]);
    let found = table["id"].as_primitive::<UInt64Type>();
    assert_eq!((found.value(0), found.value(2)), (7, 30));
    assert_eq!(table["distance"].as_primitive::<Float32Type>().value(0), 0.0);
    assert_eq!(table.num_columns(), 4);
}

#[test]
fn searches_that_cannot_be_are_refused() {
    let server = TestServer::start();
    server.create_filled("words", 10);
    let refused = |body: serde_json::Value| {
        server.send("/v1/collections/words/search", body).refused(400, "invalid_argument")
    };
    assert!(refused(json!({})).contains("send `vector`, `vectors` or `like`"));
    assert!(refused(json!({ "vector": [1, 2], "vectors": [[1, 2]] })).contains("not both"));
    assert!(refused(json!({ "vector": [1, 2], "like": 3 })).contains("once"));
    assert!(refused(json!({ "vectors": [] })).contains("empty"));
    assert!(refused(json!({ "vectors": [[1, 2], [1]] })).contains("query 1: has 1 components"));
    assert!(refused(json!({ "vector": [1, 2], "k": 0 })).contains("k"));
    assert!(refused(json!({ "vector": [1, 2], "recall": 1.5 })).contains("recall is 1.5"));
    assert!(refused(json!({ "vector": [1, 2], "recall": 0.9, "search_list": 9 })).contains("search_list"));
    assert!(refused(json!({ "vector": [1, 2], "nprobe": 9 })).contains("unknown field `nprobe`"));
    assert!(refused(json!({ "vector": [1, 2], "field": "w" })).contains("no field of vectors \"w\""));
    assert!(refused(json!({ "vector": [1, 2], "columns": ["yeer"] })).contains("no column \"yeer\""));
    assert!(refused(json!({ "vector": [1, 2], "filter": "lang = 3" })).contains("lang"));
    assert!(refused(json!({ "vector": [1, 2], "k": 2_000_000 })).contains("too many"));
    assert!(refused(json!({ "vector": ["a", 2] })).contains("line 1"));
    server.send("/v1/collections/words/search", json!({ "like": 99 })).refused(404, "not_found");
    server.send("/v1/collections/none/search", json!({ "vector": [1, 2] })).refused(404, "not_found");
}
