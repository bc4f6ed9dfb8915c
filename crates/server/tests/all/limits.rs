//! Limits: a request beyond them is refused with what would do, and the server goes on.

use crate::harness::{ADMIN, Answer, TestServer, row};
use bathyal_server::{RequestLimits, ServerOptions};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn bodies_that_are_too_large_or_of_another_kind_are_refused() {
    let limits = RequestLimits { body_bytes: 4096, ..RequestLimits::default() };
    let server = TestServer::limited(limits);
    server.create("words");
    let at = "/v1/collections/words/add";
    let rows: Vec<_> = (0..200).map(row).collect();
    let refused = server.send(at, json!({ "rows": rows }));
    assert!(refused.refused(413, "invalid_argument").contains("longer than 4096 bytes"));
    // Without a length, the body is read until it is too long.
    let endless = std::io::repeat(b' ').take(1 << 20);
    let request = server.post(at).header("content-type", "application/json");
    let response = request.body(reqwest::blocking::Body::new(endless)).send();
    // The server may close the connection before the client has sent everything.
    assert!(response.map_or(true, |response| response.status() == 413));
    let request = server.post(at).header("content-type", "text/plain").body("{}");
    Answer::of(request.send().unwrap()).refused(415, "invalid_argument");
    for body in ["", "{", "[]", "null", "{\"rows\": 3}", "\u{0}"] {
        let request = server.post(at).header("content-type", "application/json").body(body);
        Answer::of(request.send().unwrap()).refused(400, "invalid_argument");
    }
    let deep = "[".repeat(2000);
    let request = server.post(at).header("content-type", "application/json").body(deep);
    Answer::of(request.send().unwrap()).refused(400, "invalid_argument");
    assert_eq!(server.send("/v1/collections/words/count", json!({})).ok()["count"], 0);
}

#[test]
fn bodies_that_never_fit_in_the_memory_are_refused() {
    let limits = RequestLimits { memory_bytes: 16 << 10, ..RequestLimits::default() };
    let server = TestServer::limited(limits);
    let rows: Vec<_> = (0..200).map(row).collect();
    let refused = server.send("/v1/collections/words/add", json!({ "rows": rows }));
    assert!(refused.refused(413, "memory").contains("--request-memory"));
}

#[test]
fn unknown_addresses_and_methods_are_named() {
    let server = TestServer::start();
    assert!(server.get("/v2/collections").refused(404, "not_found").contains("/v1/openapi.json"));
    assert!(server.get("/").refused(404, "not_found").contains("/v1/openapi.json"));
    let response = server.client.put(server.url("/v1/collections")).bearer_auth(ADMIN).send().unwrap();
    Answer::of(response).refused(405, "invalid_argument");
    let page = server.get("/v1/collections?limt=3").refused(400, "invalid_argument");
    assert!(page.contains("limt"), "{page}");
}

#[test]
fn a_client_that_sends_nothing_more_is_told_so_and_others_are_served() {
    let limits = RequestLimits { idle: Duration::from_secs(1), ..RequestLimits::default() };
    let server = TestServer::limited(limits);
    server.create("words");
    let mut slow = TcpStream::connect(server.server.address()).unwrap();
    let head = format!(
        "POST /v1/collections/words/add HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\n\
         Content-Length: 100\r\n\r\n{{"
    );
    slow.write_all(head.as_bytes()).unwrap();
    let mut silent = TcpStream::connect(server.server.address()).unwrap();
    silent.write_all(b"POST /v1/coll").unwrap();
    server.send("/v1/collections/words/add", json!({ "rows": [row(1)] })).ok();
    let mut answer = String::new();
    slow.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    slow.read_to_string(&mut answer).unwrap_or_default();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    // The connection whose headers do not arrive is closed.
    silent.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    silent.read_to_string(&mut answer).unwrap_or_default();
}

#[test]
fn requests_beyond_the_connections_wait_for_a_place() {
    let limits = RequestLimits { connections: 2, ..RequestLimits::default() };
    let server = TestServer::limited(limits);
    server.create_filled("words", 10);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let server = &server;
            scope.spawn(move || {
                // A client of its own, whose connection is closed after the request.
                let client = crate::harness::client();
                let request = client.post(server.url("/v1/collections/words/count")).bearer_auth(ADMIN);
                let response = request.header("connection", "close").json(&json!({})).send().unwrap();
                assert_eq!(Answer::of(response).ok()["count"], 10);
            });
        }
    });
}

#[test]
fn collections_beyond_the_open_ones_are_closed_and_opened_again() {
    let server = TestServer::with(|options| ServerOptions { open: 2, ..options });
    for i in 0..6 {
        server.create_filled(&format!("c{i}"), i + 1);
    }
    for round in 0..2 {
        for i in 0..6 {
            let rows = json!({ "rows": [row(100 + round)] });
            server.send(&format!("/v1/collections/c{i}/add"), rows).ok();
            let count = server.send(&format!("/v1/collections/c{i}/count"), json!({})).ok();
            assert_eq!(count["count"], i + 2 + round);
        }
    }
}

#[test]
fn counters_are_offered_at_their_own_address() {
    let server = TestServer::with(|options| ServerOptions { metrics: "127.0.0.1:0".parse().ok(), ..options });
    server.create_filled("words", 3);
    server.create_filled("others", 4);
    server.send("/v1/collections/words/search", json!({ "vector": [0, 0] })).ok();
    server.get("/v1/collections/none").refused(404, "not_found");
    let address = server.server.metrics_address().unwrap();
    let text = server.client.get(format!("http://{address}/metrics")).send().unwrap().text().unwrap();
    let has = |row: &str| assert!(text.lines().any(|line| line == row), "{row} is not in\n{text}");
    has("bathyal_collection_rows{collection=\"words\"} 3");
    has("bathyal_collection_rows{collection=\"others\"} 4");
    has("bathyal_collection_queries_total{collection=\"words\"} 1");
    let operation = "method=\"POST\",path=\"/v1/collections/{name}/search\",status=\"200\"";
    has(&format!("bathyal_server_request_seconds_count{{{operation}}} 1"));
    let operation = "method=\"GET\",path=\"/v1/collections/{name}\",status=\"404\"";
    has(&format!("bathyal_server_request_seconds_count{{{operation}}} 1"));
    assert_eq!(text.matches("# HELP bathyal_collection_rows ").count(), 1);
    // The API is not at this address, and the counters are not at that of the API.
    assert_eq!(server.client.get(format!("http://{address}/v1/collections")).send().unwrap().status(), 404);
    server.get("/metrics").refused(404, "not_found");
}
