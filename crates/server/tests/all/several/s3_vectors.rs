//! Clients of the API of S3 Vectors, with their signatures, at several servers.

use super::{LONG, SharedData};
use crate::harness::{ADMIN, READER, TestServer};
use chrono::Utc;
use ring::hmac;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write;

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Sends a signed request; `path` has no characters that are encoded.
fn send(server: &TestServer, (key, secret): (&str, &str), path: &str, body: &Value) -> (u16, Value) {
    let (host, body) = (server.server.address().to_string(), body.to_string());
    let time = Utc::now().format("%Y%m%dT%H%M%SZ").to_string();
    let scope = format!("{}/local/s3vectors/aws4_request", &time[..8]);
    let hash = hexadecimal(&Sha256::digest(&body));
    let canonical = format!("POST\n{path}\n\nhost:{host}\nx-amz-date:{time}\n\nhost;x-amz-date\n{hash}");
    let hashed = hexadecimal(&Sha256::digest(canonical));
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashed}");
    let sign = |key: &[u8], text: &str| {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
    };
    let steps = [&time[..8], "local", "s3vectors", "aws4_request", &text];
    let signature = steps.iter().fold(format!("AWS4{secret}").into_bytes(), |key, step| sign(&key, step));
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders=host;x-amz-date, Signature={}",
        hexadecimal(&signature)
    );
    let request = server.client.post(server.url(path)).header("x-amz-date", time);
    let answer = request.header("authorization", authorization).body(body).send().unwrap();
    let status = answer.status().as_u16();
    (status, answer.json().unwrap_or_default())
}

fn ok(server: &TestServer, path: &str, body: &Value) -> Value {
    let (status, answer) = send(server, ("admin", ADMIN), path, body);
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

#[test]
fn buckets_indexes_and_vectors_are_made_at_any_server() {
    for data in [SharedData::folder(), SharedData::memory()] {
        let servers = [data.serve(LONG), data.serve(LONG), data.serve(LONG)];
        let index = json!({ "vectorBucketName": "media", "indexName": "movies" });
        let with = |more: Value| {
            let mut body = index.clone();
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        ok(&servers[0], "/CreateVectorBucket", &json!({ "vectorBucketName": "media" }));
        let made = with(json!({ "dataType": "float32", "dimension": 2, "distanceMetric": "euclidean" }));
        ok(&servers[1], "/CreateIndex", &made);
        for (number, server) in servers.iter().enumerate() {
            let vector = json!({ "key": number.to_string(), "data": { "float32": [number, 0] } });
            ok(server, "/PutVectors", &with(json!({ "vectors": [vector] })));
            // What a client has written at a server it reads there at once.
            let got = ok(server, "/GetVectors", &with(json!({ "keys": [number.to_string()] })));
            assert_eq!(got["vectors"].as_array().unwrap().len(), 1);
        }
        let query = json!({ "topK": 3, "queryVector": { "float32": [2, 0] } });
        let found = ok(&servers[2], "/QueryVectors", &with(query));
        let keys: Vec<&str> =
            found["vectors"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
        assert_eq!(keys, ["2", "1", "0"]);
        for (who, status) in [(("admin", "another-secret-of-16"), 403), (("reader", READER), 403)] {
            let body = with(json!({ "keys": ["0"] }));
            assert_eq!(send(&servers[1], who, "/DeleteVectors", &body).0, status);
        }
        let (status, refused) = send(&servers[1], ("nobody", ADMIN), "/DeleteVectors", &index);
        assert_eq!(status, 403, "{refused}");
        ok(&servers[2], "/DeleteVectors", &with(json!({ "keys": ["0"] })));
        ok(&servers[1], "/DeleteIndex", &index);
        ok(&servers[2], "/DeleteVectorBucket", &json!({ "vectorBucketName": "media" }));
    }
}
