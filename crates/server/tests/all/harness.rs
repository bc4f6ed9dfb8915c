//! A server over a folder of its own, and a client.

use bathyal_server::{RequestLimits, Server, ServerOptions};
use reqwest::blocking::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Secrets of the keys in [`KEYS`].
pub const ADMIN: &str = "admin-0123456789abcdef";
pub const READER: &str = "reader-0123456789abcdef";
pub const TEAM: &str = "team-0123456789abcdef";
pub const EXPIRED: &str = "expired-0123456789abcdef";

const KEYS: &str = "\
[[key]]\nname = \"admin\"\nsecret = \"admin-0123456789abcdef\"\nright = \"write\"\n\
[[key]]\nname = \"reader\"\nsecret = \"reader-0123456789abcdef\"\nright = \"read\"\n\
[[key]]\nname = \"team\"\nsecret = \"team-0123456789abcdef\"\nright = \"write\"\nprefix = \"team-\"\n\
[[key]]\nname = \"expired\"\nsecret = \"expired-0123456789abcdef\"\nright = \"write\"\nexpires = 1000\n";

/// Type of a stream of Arrow IPC.
pub const ARROW: &str = "application/vnd.apache.arrow.stream";

/// A server for one test.
pub struct TestServer {
    pub folder: TempDir,
    pub server: Server,
    pub client: Client,
}

/// An answer: its status and its JSON.
pub struct Answer {
    pub status: u16,
    pub json: Value,
}

impl Answer {
    /// Reads an answer.
    pub fn of(response: Response) -> Answer {
        let status = response.status().as_u16();
        let text = response.text().unwrap();
        let json = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}: no JSON: {text}"));
        Answer { status, json }
    }

    /// Returns the JSON of a successful answer.
    pub fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{}: {}", self.status, self.json);
        self.json
    }

    /// Returns the message of an error of this status and kind.
    pub fn refused(self, status: u16, kind: &str) -> String {
        let found = (self.status, self.json["error"]["kind"].as_str().unwrap_or_default());
        assert_eq!(found, (status, kind), "{}", self.json);
        self.json["error"]["message"].as_str().unwrap().to_owned()
    }
}

/// Writes a file that only its owner can read.
pub fn write_keys(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// Chooses the library that encrypts connections of clients.
pub fn encrypt() {
    // It has been chosen by another test already, or it is now.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Returns a client that waits long, since a test machine may be busy.
pub fn client() -> Client {
    encrypt();
    Client::builder().no_proxy().timeout(Duration::from_secs(120)).build().unwrap()
}

impl TestServer {
    /// Starts a server with the usual limits.
    pub fn start() -> TestServer {
        TestServer::with(|options| options)
    }

    /// Starts a server with other limits.
    pub fn limited(limits: RequestLimits) -> TestServer {
        TestServer::with(|options| ServerOptions { limits, ..options })
    }

    /// Starts a server with options that `change` makes of the usual ones.
    pub fn with(change: impl FnOnce(ServerOptions) -> ServerOptions) -> TestServer {
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("keys.toml");
        write_keys(&keys, KEYS);
        let options = ServerOptions::new(folder.path().join("data"), keys);
        let options = change(ServerOptions { listen: "127.0.0.1:0".parse().unwrap(), ..options });
        let server = Server::start(options).unwrap();
        TestServer { folder, server, client: client() }
    }

    /// Returns the folder that is served.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Returns the address of an operation.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address())
    }

    /// Returns a request of the administrator.
    pub fn post(&self, path: &str) -> RequestBuilder {
        self.client.post(self.url(path)).bearer_auth(ADMIN)
    }

    /// Sends JSON as the administrator.
    pub fn send(&self, path: &str, body: Value) -> Answer {
        Answer::of(self.post(path).json(&body).send().unwrap())
    }

    /// Gets an answer as the administrator.
    pub fn get(&self, path: &str) -> Answer {
        Answer::of(self.client.get(self.url(path)).bearer_auth(ADMIN).send().unwrap())
    }

    /// Deletes as the administrator.
    pub fn delete(&self, path: &str) -> Answer {
        Answer::of(self.client.delete(self.url(path)).bearer_auth(ADMIN).send().unwrap())
    }

    /// Creates a collection of vectors with two components, a year and a language.
    pub fn create(&self, name: &str) -> Value {
        self.send("/v1/collections", json!({ "name": name, "schema": schema() })).ok()
    }

    /// Creates a collection with `count` rows. The vector of row `i` is `[i, 0]`.
    pub fn create_filled(&self, name: &str, count: u64) {
        self.create(name);
        let rows: Vec<Value> = (0..count).map(row).collect();
        let written = self.send(&format!("/v1/collections/{name}/add"), json!({ "rows": rows })).ok();
        assert_eq!(written["added"], count);
    }
}

/// Returns the schema of the tests.
pub fn schema() -> Value {
    json!({
        "id": "u64",
        "vectors": [{ "name": "v", "dim": 2, "element": "f32", "metric": "l2" }],
        "columns": [{ "name": "year", "type": "int64" }, { "name": "lang", "type": "string" }],
    })
}

/// Returns row `i` of the tests.
pub fn row(i: u64) -> Value {
    let lang = if i.is_multiple_of(2) { "de" } else { "en" };
    json!({ "id": i, "v": [i, 0], "year": 2000 + i % 20, "lang": lang })
}

/// Returns the ids of the neighbours of a query.
pub fn ids(answer: &Value, query: usize) -> Vec<u64> {
    let neighbors = answer["results"][query]["neighbors"].as_array().unwrap();
    neighbors.iter().map(|row| row["id"].as_u64().unwrap()).collect()
}
