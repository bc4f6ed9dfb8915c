//! Several servers of the same data: one writes, and the others forward changes to it.

mod forwarding;
mod history;
mod leases;
mod processes;
mod s3_vectors;
mod soak;

use crate::harness::{ADMIN, Answer, EXPIRED, TestServer, client};
use bathyal_object::{Claims, ObjectUrl};
use bathyal_server::ServerOptions;
use reqwest::blocking::{Client, RequestBuilder};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// A lease that does not end during a test.
const LONG: Duration = Duration::from_secs(3600);
/// A lease that ends during a test.
const SHORT: Duration = Duration::from_millis(600);

/// Data of several servers.
struct SharedData {
    path: PathBuf,
    _folder: TempDir,
}

impl SharedData {
    fn folder() -> SharedData {
        let folder = tempfile::tempdir().unwrap();
        SharedData { path: folder.path().join("data"), _folder: folder }
    }

    /// A bucket in the memory of this process.
    fn memory() -> SharedData {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let path = format!("memory://several-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        SharedData { path: path.into(), _folder: tempfile::tempdir().unwrap() }
    }

    /// Starts a server of this data.
    fn serve(&self, lease: Duration) -> TestServer {
        self.serve_with(|options| ServerOptions { lease, ..options })
    }

    fn serve_with(&self, change: impl FnOnce(ServerOptions) -> ServerOptions) -> TestServer {
        TestServer::with(|options| change(ServerOptions { data: self.path.clone(), ..options }))
    }

    /// Returns the lease of a bucket.
    fn claims(&self) -> Claims {
        let url = ObjectUrl::parse(&self.path.join(".bathyal/lease")).unwrap();
        Claims::new(&url, &Default::default()).unwrap()
    }
}

/// Returns the record of a server that holds a lease.
fn record(address: &str, duration: Duration) -> Vec<u8> {
    let record = json!({
        "bathyal_lease": 1, "holder": "somebody", "address": address,
        "duration_ms": duration.as_millis() as u64, "renewal": 1,
    });
    record.to_string().into_bytes()
}

/// Returns true if a server writes.
fn writes(server: &TestServer) -> bool {
    let url = format!("http://{}/metrics", server.server.metrics_address().unwrap());
    server.client.get(url).send().unwrap().text().unwrap().contains("\nbathyal_server_writes 1\n")
}

/// Returns the number of rows of a collection.
fn count(server: &TestServer, name: &str) -> u64 {
    let answer = server.send(&format!("/v1/collections/{name}/count"), json!({})).ok();
    answer["count"].as_u64().unwrap_or_else(|| panic!("{answer}"))
}

/// A server, as its clients know it.
#[derive(Clone)]
struct Remote {
    address: String,
    client: Client,
}

impl Remote {
    fn new(address: &str) -> Remote {
        Remote { address: address.to_owned(), client: client() }
    }

    /// Sends JSON as the administrator; `None` if there is no answer.
    fn send(&self, path: &str, body: &Value, key: Option<&str>) -> Option<Answer> {
        let request = self.request(ADMIN, path);
        answer_of(key.into_iter().fold(request, |request, key| request.header("Idempotency-Key", key)), body)
    }

    /// Sends JSON with a key; `None` if there is no answer.
    fn send_as(&self, secret: &str, path: &str, body: &Value) -> Option<Answer> {
        answer_of(self.request(secret, path), body)
    }

    fn request(&self, secret: &str, path: &str) -> RequestBuilder {
        self.client.post(format!("http://{}{path}", self.address)).bearer_auth(secret)
    }
}

fn answer_of(request: RequestBuilder, body: &Value) -> Option<Answer> {
    let response = request.json(body).send().ok()?;
    let (status, text) = (response.status().as_u16(), response.text().ok()?);
    Some(Answer { status, json: serde_json::from_str(&text).unwrap() })
}

/// Returns the path of a file of keys for processes.
fn keys_in(folder: &Path) -> PathBuf {
    let path = folder.join("keys.toml");
    crate::harness::write_keys(
        &path,
        "[[key]]\nname = \"admin\"\nsecret = \"admin-0123456789abcdef\"\nright = \"write\"\n\
         [[key]]\nname = \"expired\"\nsecret = \"expired-0123456789abcdef\"\nright = \"write\"\n\
         expires = 1000\n",
    );
    path
}
