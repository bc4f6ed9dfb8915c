//! The server under test, and stores that reach it.

use crate::server::seaweed::{self, Running};
use bathyal_object::{BucketStore, ObjectUrl, StoreOptions};
use bathyal_store::{Draft, DraftExt, Replace, Store, StoreError};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt, RetryConfig};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub const MARK: &str = "manifest";

/// A server with a bucket.
#[derive(Debug, Clone)]
pub struct Service {
    pub endpoint: String,
    pub bucket: String,
    pub region: String,
    pub access_key: String,
    pub secret: String,
    /// The folder that all tests write below.
    pub folder: String,
}

/// Returns the server of all tests. Without one, prints that the test is skipped, and returns `None`.
pub fn service() -> Option<&'static Service> {
    static STARTED: OnceLock<Result<(Service, Option<Running>), String>> = OnceLock::new();
    let started = STARTED.get_or_init(|| match from_environment() {
        Some(from_environment) => Ok((from_environment, None)),
        None => seaweed::program().map(|program| {
            let (service, running) = seaweed::start(&program);
            (service, Some(running))
        }),
    });
    match started {
        Ok((service, _)) => Some(service),
        Err(why) if std::env::var_os("BATHYAL_REQUIRE_SERVER").is_some() => {
            panic!("BATHYAL_REQUIRE_SERVER is set, but there is {why}")
        }
        Err(why) => {
            // Not by `eprintln!`, whose output is captured in tests that pass.
            let test = std::thread::current().name().unwrap_or("?").to_owned();
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("SKIPPED {test}: there is {why}\n").as_bytes(),
            );
            None
        }
    }
}

/// Returns the server that environment variables describe, if any.
fn from_environment() -> Option<Service> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let endpoint = variable("BATHYAL_S3_ENDPOINT")?;
    let needed = |name: &str| variable(name).unwrap_or_else(|| panic!("BATHYAL_S3_ENDPOINT needs {name}"));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Some(Service {
        endpoint,
        bucket: needed("BATHYAL_S3_BUCKET"),
        region: variable("AWS_REGION").unwrap_or_else(|| "us-east-1".into()),
        access_key: needed("AWS_ACCESS_KEY_ID"),
        secret: needed("AWS_SECRET_ACCESS_KEY"),
        folder: format!("bathyal-tests/{}-{}", now.as_secs(), std::process::id()),
    })
}

impl Service {
    /// Returns true if the server lists its bucket.
    pub fn has_bucket(&self) -> bool {
        let address = self.endpoint.trim_start_matches("http://").parse().unwrap();
        seaweed::responds(address) && {
            let raw = Raw::new(self);
            raw.runtime.block_on(raw.store.list_with_delimiter(None)).is_ok()
        }
    }

    /// Makes a folder for a test, in the bucket and on this machine.
    pub fn place(&self, test: &str) -> Place {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let folder = format!("{}/{test}{}", self.folder, NUMBER.fetch_add(1, Ordering::Relaxed));
        Place { service: self.clone(), folder, scratch: tempfile::tempdir().unwrap() }
    }

    /// Returns the message of `error`, after asserting that it contains no secret.
    pub fn message(&self, error: &StoreError) -> String {
        let text = error.to_string();
        self.assert_no_secret(&text);
        self.assert_no_secret(&format!("{error:?}"));
        text
    }

    pub fn assert_no_secret(&self, text: &str) {
        assert!(!text.contains(&self.secret), "the secret is in: {text}");
    }
}

/// A test's folder in the bucket, and its scratch folder.
#[derive(Debug)]
pub struct Place {
    pub service: Service,
    pub folder: String,
    pub scratch: TempDir,
}

impl Place {
    /// Returns the address of an index.
    pub fn address(&self, name: &str) -> String {
        format!("s3://{}/{}/{name}", self.service.bucket, self.folder)
    }

    /// Returns the options for a store at `endpoint`, with the additional ones of `more`.
    pub fn options(&self, endpoint: &str, more: &[(&str, &str)]) -> StoreOptions {
        let Service { region, access_key, secret, .. } = &self.service;
        let scratch = self.scratch.path().to_str().unwrap();
        let all = [
            ("endpoint", endpoint),
            ("region", region),
            ("access_key_id", access_key),
            ("secret_access_key", secret),
            ("virtual_hosted_style_request", "false"),
            ("scratch", scratch),
        ];
        StoreOptions::new(all.iter().chain(more).copied()).unwrap()
    }

    pub fn store_by(&self, options: &StoreOptions) -> BucketStore {
        let url = ObjectUrl::parse(Path::new(&self.address("index"))).unwrap();
        let store = BucketStore::new(&url, options, MARK).unwrap();
        self.service.assert_no_secret(&format!("{store:?} {options:?} {:?}", store.client()));
        store
    }

    /// Opens a store that sends its requests directly to the server.
    pub fn store(&self) -> BucketStore {
        self.store_by(&self.options(&self.service.endpoint, &[]))
    }

    /// Opens a store at another endpoint, such as a proxy. Late requests are not hedged, so that requests can
    /// be counted.
    pub fn store_through(&self, endpoint: &str, more: &[(&str, &str)]) -> BucketStore {
        let more: Vec<_> = [("hedge", "off")].iter().chain(more).copied().collect();
        self.store_by(&self.options(endpoint, &more))
    }

    /// Returns a client that accesses the server's objects directly.
    pub fn raw(&self) -> Raw {
        Raw::new(&self.service)
    }

    /// Returns the keys below the index `name`, relative to it.
    pub fn keys(&self, name: &str) -> Vec<String> {
        let prefix = format!("{}/{name}", self.folder);
        let raw = self.raw();
        let listed = raw.list(&prefix).into_iter();
        listed.map(|key| key.as_ref().trim_start_matches(&format!("{prefix}/")).to_owned()).collect()
    }
}

/// A client for direct access to the objects of the bucket.
pub struct Raw {
    pub store: AmazonS3,
    pub runtime: Runtime,
}

impl Raw {
    fn new(service: &Service) -> Raw {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let _inside = runtime.enter();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let store = AmazonS3Builder::new()
            .with_endpoint(&service.endpoint)
            .with_allow_http(service.endpoint.starts_with("http://"))
            .with_bucket_name(&service.bucket)
            .with_region(&service.region)
            .with_access_key_id(&service.access_key)
            .with_secret_access_key(&service.secret)
            .with_retry(RetryConfig { max_retries: 2, ..RetryConfig::default() })
            .build()
            .unwrap();
        drop(_inside);
        Raw { store, runtime }
    }

    pub fn list(&self, prefix: &str) -> Vec<Key> {
        self.list_key(&Key::from(prefix))
    }

    pub fn list_key(&self, prefix: &Key) -> Vec<Key> {
        use futures_util::TryStreamExt;
        let listed: Vec<_> = self.runtime.block_on(self.store.list(Some(prefix)).try_collect()).unwrap();
        let mut keys: Vec<Key> = listed.into_iter().map(|found| found.location).collect();
        keys.sort();
        keys
    }

    pub fn get(&self, key: &Key) -> Vec<u8> {
        let got = async { self.store.get(key).await.unwrap().bytes().await.unwrap() };
        self.runtime.block_on(got).to_vec()
    }

    pub fn put(&self, key: &Key, bytes: Vec<u8>) {
        self.runtime.block_on(self.store.put(key, bytes.into())).unwrap();
    }
}

/// Returns pseudorandom bytes.
pub fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..len).map(next).collect()
}

/// Makes a draft of an index with one object and a mark.
pub fn draft(store: &dyn Store, replace: Replace, data: &[u8]) -> Box<dyn Draft> {
    let draft = store.begin("index", replace).unwrap();
    draft.put("data", data).unwrap();
    draft.put(MARK, b"mark").unwrap();
    draft
}

pub fn publish(store: &dyn Store, replace: Replace, data: &[u8]) -> Result<(), StoreError> {
    draft(store, replace, data).publish(&["data", MARK], "note")
}
