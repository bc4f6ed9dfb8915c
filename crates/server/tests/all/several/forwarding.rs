//! Changes that are sent to another server than the one that writes.

use super::{LONG, Remote, SharedData, count, record, writes};
use crate::harness::{ADMIN, Answer, EXPIRED, READER, TEAM, TestServer, row, schema};
use bathyal_server::{RequestLimits, ServerOptions, TlsFiles};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Servers of a folder, and servers of a bucket.
fn places() -> [SharedData; 2] {
    [SharedData::folder(), SharedData::memory()]
}

fn watched(options: ServerOptions) -> ServerOptions {
    ServerOptions { metrics: Some("127.0.0.1:0".parse().unwrap()), ..options }
}

#[test]
fn every_server_takes_changes_and_shows_them_at_once() {
    for data in places() {
        // Without the change of their own, the others would look for changes after an hour.
        let start =
            || data.serve_with(|options| watched(ServerOptions { refresh: LONG, lease: LONG, ..options }));
        let servers = [start(), start(), start()];
        let [first, second, third] = &servers;
        first.create("words");
        for (number, server) in servers.iter().enumerate() {
            let rows = json!({ "rows": [row(number as u64)] });
            assert_eq!(server.send("/v1/collections/words/add", rows).ok()["added"], 1);
            assert_eq!(count(server, "words"), number as u64 + 1);
        }
        assert_eq!(servers.each_ref().map(writes), [true, false, false]);
        let metrics = format!("http://{}/metrics", second.server.metrics_address().unwrap());
        let metrics = second.client.get(metrics).send().unwrap().text().unwrap();
        let forwarded = "bathyal_server_forwarded_requests_total{outcome=\"answered\"} 1\n";
        assert!(metrics.contains(forwarded), "{metrics}");
        for (operation, body) in [
            ("upsert", json!({ "rows": [row(1), row(7)] })),
            ("update", json!({ "rows": [{ "id": 1, "year": 1999 }] })),
            ("delete", json!({ "ids": [0] })),
            ("flush", json!({})),
            ("compact", json!({ "full": true })),
            ("copy", json!({ "to": "copied" })),
        ] {
            second.send(&format!("/v1/collections/words/{operation}"), body).ok();
        }
        let got = second.send("/v1/collections/words/get", json!({ "ids": [0, 1, 7] })).ok();
        assert_eq!((&got["missing"], &got["rows"][0]["year"]), (&json!([0]), &json!(1999)));
        assert_eq!(count(third, "copied"), 3);
        third.create("more");
        first.send("/v1/collections/more/add", json!({ "rows": [row(1)] })).ok();
        third.delete("/v1/collections/more").ok();
        first.get("/v1/collections/more").refused(404, "not_found");
        third.get("/v1/collections/more").refused(404, "not_found");
    }
}

#[test]
fn a_body_of_arrow_and_a_large_one_are_forwarded() {
    let data = SharedData::memory();
    let (first, second) = (data.serve(LONG), data.serve(LONG));
    first.create("words");
    let rows: Vec<_> = (0..5000).map(row).collect();
    assert_eq!(second.send("/v1/collections/words/add", json!({ "rows": rows })).ok()["added"], 5000);
    assert_eq!(count(&second, "words"), 5000);
    let limits = RequestLimits { body_bytes: 100, ..RequestLimits::default() };
    let third = data.serve_with(|options| ServerOptions { limits, lease: LONG, ..options });
    let refused = third.send("/v1/collections/words/add", json!({ "rows": rows[..10] }));
    assert!(refused.refused(413, "invalid_argument").contains("longer than 100 bytes"));
}

#[test]
fn rights_are_those_of_the_sender() {
    for data in places() {
        let (first, second) = (data.serve(LONG), data.serve(LONG));
        first.create("words");
        first.create("team-words");
        let send = |secret: &str, path: &str, body: serde_json::Value| {
            let request = second.client.post(second.url(path)).bearer_auth(secret);
            Answer::of(request.json(&body).send().unwrap())
        };
        let rows = || json!({ "rows": [row(1)] });
        for (secret, path, body, status) in [
            (READER, "/v1/collections/words/add", rows(), 403),
            (READER, "/v1/collections", json!({ "name": "more", "schema": schema() }), 403),
            (READER, "/v1/collections/words/copy", json!({ "to": "more" }), 403),
            (TEAM, "/v1/collections/words/add", rows(), 403),
            (TEAM, "/v1/collections/team-words/copy", json!({ "to": "words-2" }), 403),
            (EXPIRED, "/v1/collections/words/add", rows(), 401),
            ("unknown-0123456789abcdef", "/v1/collections/words/add", rows(), 401),
        ] {
            send(secret, path, body).refused(status, "permission");
        }
        send(TEAM, "/v1/collections/team-words/add", rows()).ok();
        assert_eq!((count(&second, "words"), count(&second, "team-words")), (0, 1));
    }
}

#[test]
fn a_write_with_a_key_is_done_once_whichever_server_gets_it() {
    let data = SharedData::memory();
    let servers = [data.serve(LONG), data.serve(LONG), data.serve(LONG)];
    servers[0].create("words");
    let send = |server: &TestServer, key: &str, id: u64| {
        let request = server.post("/v1/collections/words/add").header("Idempotency-Key", key);
        Answer::of(request.json(&json!({ "rows": [row(id)] })).send().unwrap())
    };
    for server in servers.iter().chain(servers.iter().rev()) {
        assert_eq!(send(server, "one", 1).ok()["added"], 1);
    }
    for server in &servers {
        send(server, "one", 2).refused(422, "invalid_argument");
    }
    assert_eq!(count(&servers[2], "words"), 1);
}

#[test]
fn a_forwarded_request_is_not_forwarded_again() {
    for data in places() {
        let (first, second) = (data.serve(LONG), data.serve(LONG));
        first.create("words");
        // The second server knows the first one by now.
        second.send("/v1/collections/words/add", json!({ "rows": [row(1)] })).ok();
        for server in [&first, &second] {
            let request = server.post("/v1/collections/words/add").header("Bathyal-Forwarded", "somebody");
            let refused = Answer::of(request.json(&json!({ "rows": [row(2)] })).send().unwrap());
            assert!(refused.refused(421, "busy").contains("Bathyal-Forwarded"));
        }
        assert_eq!(count(&first, "words"), 1);
    }
}

#[test]
fn servers_that_name_each_other_do_not_send_requests_in_circles() {
    let data = SharedData::memory();
    let server = data.serve(Duration::from_millis(400));
    // Another server that is gone had the address that this one has now.
    let address = format!("http://{}", server.server.address());
    assert!(data.claims().create(1, &record(&address, Duration::from_millis(400))).unwrap());
    // It is its own next holder once the time of the former one is over.
    server.create("words");
    assert_eq!(data.claims().numbers().unwrap(), [2]);
}

#[test]
fn a_server_that_runs_and_is_not_reached_is_named() {
    for data in places() {
        let advertise = Some("http://127.0.0.1:1".to_owned());
        let lease = Duration::from_millis(900);
        let first = data.serve_with(|options| ServerOptions { advertise, lease, ..options });
        let second = data.serve_with(|options| ServerOptions { lease, ..options });
        first.create("words");
        let refused = second.send("/v1/collections/words/add", json!({ "rows": [row(1)] }));
        let message = refused.refused(503, "busy");
        for part in ["http://127.0.0.1:1", "cannot be reached", "Nothing was done", "--advertise"] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(count(&first, "words"), 0);
    }
}

/// Holds the lease of a bucket, and answers every request by closing the connection. Returns the number of
/// requests that it has read.
fn silent_holder(data: &SharedData) -> Arc<AtomicUsize> {
    let (listener, read) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::<AtomicUsize>::default());
    let address = format!("http://{}", listener.local_addr().unwrap());
    assert!(data.claims().create(1, &record(&address, LONG)).unwrap());
    let counted = read.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            assert!(stream.read(&mut request).unwrap() > 0);
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = stream.write_all(b"HTTP/1.1 200");
        }
    });
    read
}

#[test]
fn a_write_whose_answer_is_lost_is_sent_again_only_with_a_key() {
    let data = SharedData::memory();
    let server = data.serve(LONG);
    let read = silent_holder(&data);
    let remote = Remote::new(&server.server.address().to_string());
    let send = |key: Option<&str>| {
        remote.send("/v1/collections/words/add", &json!({ "rows": [row(1)] }), key).unwrap()
    };
    let message = send(None).refused(502, "failed");
    assert!(message.contains("unknown") && message.contains("read the rows"), "{message}");
    assert_eq!(read.load(Ordering::SeqCst), 1);
    let message = send(Some("one")).refused(503, "cancelled");
    assert!(message.contains("unknown") && message.contains("same Idempotency-Key"), "{message}");
    assert_eq!(read.load(Ordering::SeqCst), 3);
}

#[test]
fn servers_with_certificates_forward_to_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(path("server.key"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(path("server.pem"), made.cert.pem()).unwrap();
    let tls = || Some(TlsFiles { certificate: path("server.pem"), key: path("server.key") });
    let data = SharedData::folder();
    // The port is not known before the server has started, so that it is chosen here.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let advertise = Some(format!("https://localhost:{port}"));
    let first = data.serve_with(|options| ServerOptions {
        tls: tls(),
        advertise,
        listen: format!("127.0.0.1:{port}").parse().unwrap(),
        ..options
    });
    let trusted = reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
    let client = reqwest::blocking::Client::builder().no_proxy().tls_certs_only([trusted]).build().unwrap();
    let url = format!("https://localhost:{port}/v1/collections");
    let body = json!({ "name": "words", "schema": schema() });
    Answer::of(client.post(url).bearer_auth(ADMIN).json(&body).send().unwrap()).ok();
    let second =
        data.serve_with(|options| ServerOptions { peer_certificates: Some(path("server.pem")), ..options });
    second.send("/v1/collections/words/add", json!({ "rows": [row(1)] })).ok();
    assert_eq!(count(&second, "words"), 1);
    // Without the certificate, the other server is not believed.
    let third = data.serve_with(|options| options);
    let refused = third.send("/v1/collections/words/add", json!({ "rows": [row(2)] }));
    assert!(refused.refused(503, "busy").contains("certificate"));
    drop(first);
}
