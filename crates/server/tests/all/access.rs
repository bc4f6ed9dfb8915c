//! Keys: nothing is done without one, and nothing beyond its rights.

use crate::harness::{ADMIN, Answer, EXPIRED, READER, TEAM, TestServer, row, schema, write_keys};
use bathyal_server::{Server, ServerOptions};
use serde_json::json;
use std::time::{Duration, Instant};

fn as_key(server: &TestServer, secret: &str, path: &str, body: serde_json::Value) -> Answer {
    Answer::of(server.client.post(server.url(path)).bearer_auth(secret).json(&body).send().unwrap())
}

#[test]
fn every_operation_needs_a_key_before_anything_else_is_looked_at() {
    let server = TestServer::start();
    server.create_filled("words", 3);
    let document = server.client.get(server.url("/v1/openapi.json")).send().unwrap();
    let document: serde_json::Value = document.json().unwrap();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            let url = server.url(&path.replace("{name}", "words"));
            let method = method.to_uppercase().parse::<reqwest::Method>().unwrap();
            // The body is no JSON, but that is not what is said.
            let request = |secret: Option<&str>| {
                let request = server.client.request(method.clone(), &url).body("{");
                let request = request.header("content-type", "application/json");
                let request =
                    secret.map_or(request.try_clone().unwrap(), |secret| request.bearer_auth(secret));
                Answer::of(request.send().unwrap())
            };
            let without = request(None).refused(401, "permission");
            assert!(without.contains("Authorization: Bearer"), "{path}: {without}");
            assert!(request(Some("wrong-0123456789abcdef")).refused(401, "permission").contains("unknown"));
            assert!(request(Some(EXPIRED)).refused(401, "permission").contains("expired"));
            assert_ne!(request(Some(ADMIN)).status, 401, "{path}");
            if method == reqwest::Method::DELETE {
                server.create_filled("words", 3);
            }
        }
    }
    let basic = server.client.get(server.url("/v1/collections")).basic_auth("a", Some("b")).send().unwrap();
    assert!(basic.headers().contains_key("www-authenticate"));
    assert!(Answer::of(basic).refused(401, "permission").contains("Bearer SECRET"));
    for path in ["/health/live", "/health/ready"] {
        assert_eq!(server.client.get(server.url(path)).send().unwrap().status(), 200);
    }
}

#[test]
fn a_key_reaches_what_its_rights_and_its_prefix_allow() {
    let server = TestServer::start();
    server.create_filled("words", 3);
    let search = json!({ "vector": [0, 0], "k": 1 });
    as_key(&server, READER, "/v1/collections/words/search", search.clone()).ok();
    let refused = as_key(&server, READER, "/v1/collections/words/add", json!({ "rows": [row(9)] }));
    assert!(refused.refused(403, "permission").contains("no right to write to words"));
    as_key(&server, READER, "/v1/collections", json!({ "name": "more", "schema": schema() }))
        .refused(403, "permission");
    as_key(&server, READER, "/v1/collections/words/copy", json!({ "to": "more" })).refused(403, "permission");
    as_key(&server, TEAM, "/v1/collections/words/search", search.clone()).refused(403, "permission");
    as_key(&server, TEAM, "/v1/collections", json!({ "name": "team-a", "schema": schema() })).ok();
    as_key(&server, TEAM, "/v1/collections/team-a/add", json!({ "rows": [row(1)] })).ok();
    let listed = server.client.get(server.url("/v1/collections")).bearer_auth(TEAM).send().unwrap();
    assert_eq!(Answer::of(listed).ok()["names"], json!(["team-a"]));
    assert_eq!(server.get("/v1/collections").ok()["names"], json!(["team-a", "words"]));
    let refused = server.client.delete(server.url("/v1/collections/words")).bearer_auth(READER).send();
    Answer::of(refused.unwrap()).refused(403, "permission");
    assert_eq!(server.send("/v1/collections/words/count", json!({})).ok()["count"], 3);
}

#[test]
fn changed_keys_count_within_seconds_and_a_broken_file_changes_nothing() {
    let server = TestServer::start();
    let path = server.folder.path().join("keys.toml");
    let status = |secret: &str| {
        server.client.get(server.url("/v1/collections")).bearer_auth(secret).send().unwrap().status().as_u16()
    };
    assert_eq!(status("another-0123456789abcdef"), 401);
    write_keys(&path, "this is no TOML");
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(status(ADMIN), 200);
    write_keys(&path, "[[key]]\nname = \"b\"\nsecret = \"another-0123456789abcdef\"\nright = \"read\"\n");
    let until = Instant::now() + Duration::from_secs(30);
    while status("another-0123456789abcdef") == 401 {
        assert!(Instant::now() < until, "the changed keys are not read");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(status(ADMIN), 401);
}

#[test]
fn plain_http_beyond_this_machine_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = || ServerOptions::new(folder.path().join("data"), folder.path().join("keys.toml"));
    let everywhere = "0.0.0.0:0".parse().unwrap();
    let local = "127.0.0.1:0".parse().unwrap();
    for options in [
        ServerOptions { listen: everywhere, ..options() },
        ServerOptions { listen: local, metrics: Some(everywhere), ..options() },
    ] {
        let refused = Server::start(options).err().unwrap().to_string();
        assert!(refused.contains("--tls-certificate"), "{refused}");
    }
    // Nothing was made before the refusal.
    assert!(!folder.path().join("keys.toml").exists() && !folder.path().join("data").exists());
    let server = Server::start(ServerOptions { listen: everywhere, insecure: true, ..options() }).unwrap();
    assert!(server.made_keys() && folder.path().join("data").is_dir());
}
