//! Encrypted connections, and a certificate that is exchanged.

use crate::harness::{ADMIN, TestServer};
use bathyal_server::{Server, ServerOptions, TlsFiles};
use reqwest::Certificate;
use reqwest::blocking::Client;
use std::path::Path;
use std::time::{Duration, Instant};

/// Writes a new certificate of `localhost` and its key, and returns the certificate.
fn certify(folder: &Path) -> Certificate {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("server.key"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(folder.join("server.pem"), made.cert.pem()).unwrap();
    Certificate::from_pem(made.cert.pem().as_bytes()).unwrap()
}

fn status(server: &TestServer, trusted: &Certificate) -> Option<u16> {
    let client = Client::builder().no_proxy().tls_certs_only([trusted.clone()]).build().unwrap();
    let url = format!("https://localhost:{}/v1/collections", server.server.address().port());
    client.get(url).bearer_auth(ADMIN).send().ok().map(|response| response.status().as_u16())
}

#[test]
fn connections_are_encrypted_and_a_new_certificate_is_used_within_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let first = certify(folder.path());
    let files =
        TlsFiles { certificate: folder.path().join("server.pem"), key: folder.path().join("server.key") };
    let server = TestServer::with(|options| ServerOptions { tls: Some(files.clone()), ..options });
    assert_eq!(status(&server, &first), Some(200));
    // Plain HTTP is not answered.
    assert!(server.client.get(server.url("/health/live")).send().is_err());
    let second = certify(folder.path());
    let until = Instant::now() + Duration::from_secs(30);
    while status(&server, &second).is_none() {
        assert!(Instant::now() < until, "the new certificate is not used");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(status(&server, &first), None);
}

#[test]
fn files_that_are_no_certificate_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("text"), "no PEM").unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(path("other.key"), other.signing_key.serialize_pem()).unwrap();
    for (certificate, key, reason) in [
        ("text", "server.key", "text"),
        ("server.pem", "text", "is no private key"),
        ("server.pem", "other.key", "does not belong to the certificate"),
        ("none", "server.key", "none"),
    ] {
        let tls = Some(TlsFiles { certificate: path(certificate), key: path(key) });
        let options = ServerOptions { tls, ..ServerOptions::new(path("data"), path("keys.toml")) };
        let refused = Server::start(options).err().unwrap().to_string();
        assert!(refused.contains(reason), "{refused}");
    }
}
