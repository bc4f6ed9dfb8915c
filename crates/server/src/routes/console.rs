//! The console: pages for people who look at the data. The files hold no data, so they need no key; the pages
//! send the key of their user with every request for data.

use axum::Router;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::sync::LazyLock;

/// No code and no style but those of the files. Pictures of other hosts are permitted, since rows may have
/// addresses of pictures; the pages load them only if their user asks for it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' http: https: data:; frame-ancestors 'none'; base-uri 'none'; \
                      form-action 'none'";
/// Browsers ask each time whether a file has changed: it changes with the server, under the same name.
const CACHE: &str = "no-cache";

/// A file of the console.
struct ConsoleFile {
    kind: &'static str,
    content: &'static [u8],
    /// The hash of its content, in quotes.
    tag: String,
}

impl ConsoleFile {
    fn new(kind: &'static str, content: &'static [u8]) -> ConsoleFile {
        let mut tag = String::from("\"");
        for byte in &Sha256::digest(content)[..16] {
            // Writing to a string does not fail.
            let _ = write!(tag, "{byte:02x}");
        }
        ConsoleFile { kind, content, tag: tag + "\"" }
    }

    fn answer(&self, headers: &HeaderMap) -> Response {
        let has = |known: &str| known.trim().trim_start_matches("W/") == self.tag || known.trim() == "*";
        let known = headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
        let own: [(HeaderName, &str); 6] = [
            (header::ETAG, &self.tag),
            (header::CACHE_CONTROL, CACHE),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        ];
        if known.is_some_and(|tags| tags.split(',').any(has)) {
            return (StatusCode::NOT_MODIFIED, own).into_response();
        }
        (own, [(header::CONTENT_TYPE, self.kind)], self.content).into_response()
    }
}

macro_rules! file {
    ($kind:literal, $name:literal) => {{
        static FILE: LazyLock<ConsoleFile> =
            LazyLock::new(|| ConsoleFile::new($kind, include_bytes!(concat!("../../console/", $name))));
        get(|headers: HeaderMap| async move { FILE.answer(&headers) })
    }};
}

/// Returns the pages of the console.
pub(super) fn router() -> Router {
    Router::new()
        .route("/console", get(|| async { Redirect::permanent("/console/") }))
        .route("/console/", file!("text/html; charset=utf-8", "index.html"))
        .route("/console/console.js", file!("text/javascript; charset=utf-8", "console.js"))
        .route("/console/console.css", file!("text/css; charset=utf-8", "console.css"))
        .route("/console/icon.svg", file!("image/svg+xml", "icon.svg"))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    /// Adds the files below `folder` that the built files are made of.
    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            match name.to_str().unwrap() {
                "node_modules" | "tests" | "README.md" => {}
                _ if path.is_dir() => sources(&path, found),
                _ => found.push(path),
            }
        }
    }

    #[test]
    fn the_console_was_built_from_the_present_sources() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = own.join("../../console");
        let mut files = Vec::new();
        sources(&folder, &mut files);
        let name = |path: &PathBuf| path.strip_prefix(&folder).unwrap().to_str().unwrap().replace('\\', "/");
        files.sort_by_key(name);
        // FNV-1a over each name and content, as `console/build.mjs` computes it.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for file in &files {
            add(name(file).as_bytes());
            add(&[0]);
            add(&std::fs::read(file).unwrap());
            add(&[0]);
        }
        let recorded = std::fs::read_to_string(own.join("console/sources.hash")).unwrap();
        assert_eq!(recorded.trim(), format!("{hash:016x}"), "the console has changed: run `make console`");
    }

    #[test]
    fn built_files_are_as_they_were_built() {
        use sha2::{Digest, Sha256};
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("console");
        let listed = std::fs::read_to_string(own.join("built.sha256")).unwrap();
        let mut names: Vec<&str> = Vec::new();
        for line in listed.lines() {
            let (sum, name) = line.split_once("  ").unwrap();
            let hash = Sha256::digest(std::fs::read(own.join(name)).unwrap());
            let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hash, sum, "{name} was changed by hand: change console/, and run `make console`");
            names.push(name);
        }
        assert_eq!(names, ["console.css", "console.js", "icon.svg", "index.html"]);
    }
}
