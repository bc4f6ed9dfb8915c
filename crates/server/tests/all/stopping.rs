//! A server that stops: requests end, and what it has acknowledged is there at the next start.

use crate::harness::{TestServer, row};
use bathyal_server::{Server, ServerOptions};
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn acknowledged_rows_are_there_after_a_stop_among_writes() {
    let server = TestServer::start();
    server.create("words");
    let TestServer { folder, server, client } = server;
    let url = format!("http://{}/v1/collections/words/add", server.address());
    let acknowledged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u64)
            .map(|writer| {
                let (client, url, acknowledged) = (client.clone(), url.clone(), &acknowledged);
                scope.spawn(move || {
                    let mut written = Vec::new();
                    for i in 0.. {
                        let id = writer * 1_000_000 + i;
                        let request = client.post(&url).bearer_auth(crate::harness::ADMIN);
                        let sent = request.json(&json!({ "rows": [row(id)] })).send();
                        match sent {
                            Ok(answer) if answer.status() == 200 => {
                                acknowledged.fetch_add(1, Ordering::Relaxed);
                                written.push(id);
                            }
                            // Stopped.
                            _ => break,
                        }
                    }
                    written
                })
            })
            .collect();
        while acknowledged.load(Ordering::Relaxed) < 20 {
            std::thread::yield_now();
        }
        server.stop();
        let written: Vec<u64> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        let options = ServerOptions::new(folder.path().join("data"), folder.path().join("keys.toml"));
        let again = ServerOptions { listen: "127.0.0.1:0".parse().unwrap(), ..options };
        let again = TestServer { folder, server: Server::start(again).unwrap(), client: client.clone() };
        for ids in written.chunks(1000) {
            let got = again.send("/v1/collections/words/get", json!({ "ids": ids, "columns": [] })).ok();
            assert_eq!(got["missing"], json!([]));
        }
    });
}
