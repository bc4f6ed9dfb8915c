//! The pages of the console: files without a key, headers that keep other code out.

use crate::harness::{READER, TestServer};
use reqwest::redirect::Policy;

const FILES: [(&str, &str); 4] = [
    ("/console/", "text/html; charset=utf-8"),
    ("/console/console.js", "text/javascript; charset=utf-8"),
    ("/console/console.css", "text/css; charset=utf-8"),
    ("/console/icon.svg", "image/svg+xml"),
];

#[test]
fn files_of_the_console_need_no_key_and_let_no_other_code_in() {
    let server = TestServer::start();
    for (path, kind) in FILES {
        let answer = server.client.get(server.url(path)).send().unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        let headers = answer.headers().clone();
        let header = |name: &str| headers[name].to_str().unwrap().to_owned();
        assert_eq!(header("content-type"), kind);
        let policy = header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"), "{policy}");
        for part in ["connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"]
        {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("referrer-policy"), "no-referrer");
        let body = answer.bytes().unwrap();
        assert!(!body.is_empty());

        // The same file is not sent twice.
        let tag = header("etag");
        let again =
            |tag: &str| server.client.get(server.url(path)).header("if-none-match", tag).send().unwrap();
        let known = again(&format!("\"other\", {tag}"));
        assert_eq!((known.status().as_u16(), known.headers()["etag"].to_str().unwrap()), (304, tag.as_str()));
        assert_eq!(known.headers()["content-security-policy"].to_str().unwrap(), policy);
        assert!(known.bytes().unwrap().is_empty());
        assert_eq!(again("\"other\"").bytes().unwrap(), body);

        let head = server.client.head(server.url(path)).send().unwrap();
        assert_eq!((head.status().as_u16(), head.headers()["etag"].to_str().unwrap()), (200, tag.as_str()));
    }
    let page = server.client.get(server.url("/console/")).send().unwrap().text().unwrap();
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("style="), "{page}");
}

#[test]
fn the_console_has_one_address_and_no_other_files() {
    let server = TestServer::start();
    let client = reqwest::blocking::Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
    let moved = client.get(server.url("/console")).send().unwrap();
    assert_eq!(moved.status(), 308);
    assert_eq!(moved.headers()["location"], "/console/");
    for path in [
        "/console/other.js",
        "/console/sources.hash",
        "/console/../keys.toml",
        "/console/%2e%2e/keys.toml",
        "/console/..%2f..%2fkeys.toml",
        "/console//console.js",
        "/console/console.js/",
    ] {
        let answer = client.get(server.url(path)).send().unwrap();
        assert_eq!(answer.status(), 404, "{path}");
    }
    assert_eq!(client.post(server.url("/console/")).send().unwrap().status(), 405);
    // A key does not change what there is.
    let answer = client.get(server.url("/console/other.js")).bearer_auth(READER).send().unwrap();
    assert_eq!(answer.status(), 404);
}
