//! `bathyal serve`.

use crate::harness::{bathyal, command, copy};
use reqwest::blocking::Client;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// A server that runs in a folder.
struct Serving {
    child: Child,
    address: String,
    key: String,
    client: Client,
}

impl Serving {
    /// Starts a server whose file of keys is `keys.toml`.
    fn new(folder: &Path, arguments: &str) -> Serving {
        Serving::with_environment(folder, arguments, &[])
    }

    fn with_environment(folder: &Path, arguments: &str, environment: &[(&str, &str)]) -> Serving {
        let line = format!("serve {arguments} --keys keys.toml --json");
        let mut command = command(folder, &line.split_whitespace().collect::<Vec<_>>());
        command.envs(environment.iter().copied());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut address = String::new();
        while address.is_empty() {
            let line = lines.next().expect("a message").unwrap();
            let found = line.split("http://").nth(1).and_then(|rest| rest.split(',').next());
            address = found.unwrap_or_default().to_owned();
        }
        // Nobody reads further messages; the pipe must not fill.
        std::thread::spawn(move || lines.for_each(drop));
        let keys = std::fs::read_to_string(folder.join("keys.toml")).unwrap();
        let key =
            keys.split("secret = \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().to_owned();
        // It has been chosen by another test already, or it is now.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Serving { child, address, key, client: Client::builder().no_proxy().build().unwrap() }
    }

    fn send(&self, path: &str, body: &Value) -> Option<(u16, Value)> {
        let url = format!("http://{}/v1/{path}", self.address);
        let sent = self.client.post(url).bearer_auth(&self.key).json(body).send().ok()?;
        let status = sent.status().as_u16();
        Some((status, sent.json().ok()?))
    }

    fn ok(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.send(path, body).expect("an answer");
        assert!((200..300).contains(&status), "{status}: {answer}");
        answer
    }

    fn signal(&self, signal: i32) {
        // SAFETY: sends a signal to a child of this process that nobody has waited for yet.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Stops the server as a service manager does; returns its last output.
    fn stop(mut self) -> Value {
        self.signal(libc::SIGTERM);
        let mut stdout = String::new();
        std::io::Read::read_to_string(&mut self.child.stdout.take().unwrap(), &mut stdout).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        serde_json::from_str(&stdout).unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn new_collection() -> Value {
    let vectors = json!([{ "name": "v", "dim": 2, "element": "f32", "metric": "l2" }]);
    json!({ "name": "rows", "schema": { "id": "u64", "vectors": vectors } })
}

#[test]
fn indexes_and_collections_of_a_folder_are_served() {
    let folder = copy();
    let folder = folder.path();
    let serving = Serving::new(folder, ". --listen 127.0.0.1:0");
    let mode = std::fs::metadata(folder.join("keys.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    serving.ok("collections", &new_collection());
    serving.ok("collections/rows/add", &json!({ "rows": [{ "id": 7, "v": [1, 2] }] }));
    let zeros = vec![0.0; crate::harness::DIM];
    let found = serving.ok("indexes/idx/search", &json!({ "vector": zeros, "k": 3 }));
    assert_eq!(found["results"][0]["neighbors"].as_array().unwrap().len(), 3);
    // Another process reads the collection meanwhile, and cannot write to it.
    let line = "collection get rows 7 --json";
    assert_eq!(bathyal(folder, line).json()["rows"][0]["id"], 7);
    bathyal(folder, "collection delete rows 7").fails(1, &["another process"]);
    let answer = serving.stop();
    assert!(answer["address"].as_str().unwrap().starts_with("127.0.0.1:"));
    bathyal(folder, "collection delete rows 7").good();
}

/// Acknowledged rows are there after the process was killed, and after every restart.
#[test]
fn acknowledged_rows_survive_kills() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let next = AtomicU64::new(0);
    let mut acknowledged: Vec<u64> = Vec::new();
    for round in 0..3 {
        let serving = Serving::new(folder, "data --listen 127.0.0.1:0");
        if round == 0 {
            serving.ok("collections", &new_collection());
        }
        let before = acknowledged.len();
        let written = AtomicU64::new(0);
        let new: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let write = || {
                let mut ids = Vec::new();
                loop {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    let rows = json!({ "rows": [{ "id": id, "v": [id, 1] }] });
                    match serving.send("collections/rows/add", &rows) {
                        Some((200, _)) => ids.push(id),
                        Some(refused) => panic!("{refused:?}"),
                        None => return ids,
                    }
                    written.fetch_add(1, Ordering::Relaxed);
                }
            };
            let writers: Vec<_> = (0..4).map(|_| scope.spawn(write)).collect();
            while written.load(Ordering::Relaxed) < 30 {
                std::thread::yield_now();
            }
            serving.signal(libc::SIGKILL);
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        acknowledged.extend(new.into_iter().flatten());
        assert!(acknowledged.len() >= before + 30);
        drop(serving);
        let serving = Serving::new(folder, "data --listen 127.0.0.1:0");
        let got = serving.ok("collections/rows/get", &json!({ "ids": acknowledged }));
        assert_eq!(got["missing"], json!([]), "round {round}");
        serving.stop();
    }
}

#[test]
fn options_come_from_the_command_line_the_environment_and_the_file_in_this_order() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let config = "data = \"from-file\"\nlisten = \"127.0.0.1:1\"\nmax-body = \"1kB\"\ninsecure = true\n\
                  store-option = []\nslow = 5\n";
    std::fs::write(folder.join("serve.toml"), config).unwrap();
    let environment = [("BATHYAL_SERVE_LISTEN", "127.0.0.1:0"), ("BATHYAL_SERVE_MAX_BODY", "1MB")];
    let serving = Serving::with_environment(folder, "--config serve.toml --max-body 50B", &environment);
    assert!(folder.join("from-file").is_dir());
    let (status, refused) = serving.send("collections", &new_collection()).unwrap();
    assert_eq!(status, 413);
    assert!(refused["error"]["message"].as_str().unwrap().contains("longer than 50 bytes"), "{refused}");
    serving.stop();
    let serving = Serving::with_environment(folder, "--config serve.toml", &environment[..1]);
    let long = json!({ "name": "x".repeat(1000) });
    assert_eq!(serving.send("collections", &long).unwrap().0, 413);
    serving.stop();
    for (config, reason) in [
        ("listn = \"x\"", "there is no option \"listn\""),
        ("listen = true", "expected a text or a number"),
        ("insecure = \"yes\"", "expected true or false"),
        ("config = \"other.toml\"", "there is no option \"config\""),
        ("= 3", "serve.toml"),
        ("open = 0", "--open"),
    ] {
        std::fs::write(folder.join("serve.toml"), config).unwrap();
        bathyal(folder, "serve data --config serve.toml").fails(2, &[reason]);
    }
    bathyal(folder, "serve data --config none.toml").fails(2, &["none.toml", "cannot read"]);
}

#[test]
fn what_cannot_be_served_is_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    bathyal(folder, "serve --keys k").fails(2, &["the folder to serve is missing"]);
    bathyal(folder, "serve data --keys k --listen 0.0.0.0:0").fails(2, &["--tls-certificate", "--insecure"]);
    bathyal(folder, "serve data --keys k --tls-key x").fails(2, &["--tls-certificate"]);
    bathyal(folder, "serve data --keys k --log-level loud").fails(2, &["is no level"]);
    for (options, reason) in [
        ("--store-option region=x", "DATA is a folder"),
        ("--insecure --tls-key x --tls-certificate y", "--insecure is for plain HTTP"),
        ("--slow 5 --log-level error", "--slow logs warnings"),
        ("--audit 0", "above 0 and at most 1"),
        ("--advertise example.com:7700", "expected http://HOST:PORT"),
        ("--advertise http://example.com:7700", "unencrypted"),
        ("--lease 0", "--lease"),
    ] {
        bathyal(folder, &format!("serve data --keys k {options}")).fails(2, &[reason]);
    }
    bathyal(folder, "serve data --keys k --tls-key x --tls-certificate y").fails(1, &["y"]);
    bathyal(folder, "serve data --keys k --peer-ca none.pem").fails(1, &["none.pem"]);
    assert!(!folder.join("k").exists() && !folder.join("data").exists());
    std::fs::write(folder.join("file"), "").unwrap();
    bathyal(folder, "serve file --keys k --listen 127.0.0.1:0").fails(1, &["cannot make the folder"]);
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let line = format!("serve data --keys k --listen {}", occupied.local_addr().unwrap());
    bathyal(folder, &line).fails(1, &["cannot listen at"]);
}
