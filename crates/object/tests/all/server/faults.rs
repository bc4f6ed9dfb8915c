//! Tests of reads with injected faults: transient faults are retried, permanent ones are reported, and no
//! byte is ever wrong.

use crate::server::proxy::{Fault, Proxy};
use crate::server::service::{MARK, Service, content, publish, service};
use bathyal_object::{BucketStore, ObjectUrl};
use bathyal_store::{Generation, Object, Replace, Requests, Store, StoreError};
use bathyal_tier::backend::file::FileOptions;
use bathyal_tier::{Control, Cx, Engine, EngineOptions, FaultKind, ReadError, Span, Tier};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const LEN: usize = 700_000;
/// A range within the object.
const SPAN: std::ops::Range<usize> = 123_457..345_678;

/// Reads a range through the engine, as a query does.
pub fn read_tier(tier: Arc<dyn Tier>, span: &std::ops::Range<usize>) -> Result<Vec<u8>, ReadError> {
    let mut engine = Engine::new(tier, EngineOptions::default()).unwrap();
    let (mut left, mut found) = (1, None);
    let next = |cx: &Cx| {
        let (cx, span) = (cx.clone(), Span::at(span.start as u64, span.len() as u32));
        left -= 1;
        (left >= 0).then_some(async move { cx.read(&[span]).await.map(|batch| batch.bytes(0).to_vec()) })
    };
    engine.run(1, next, |answer| found = Some(answer), Control::default()).unwrap();
    found.unwrap()
}

pub fn read_object(object: &dyn Object, span: &std::ops::Range<usize>) -> Result<Vec<u8>, StoreError> {
    let mut out = vec![0; span.len()];
    object.read_at(span.start as u64, &mut out).map(|()| out)
}

/// An index behind a proxy, and its contents.
struct ProxiedIndex {
    proxy: Proxy,
    generation: Arc<dyn Generation>,
    data: Vec<u8>,
    path: String,
}

fn proxied(service: &Service, test: &str, more: &[(&str, &str)]) -> ProxiedIndex {
    let place = service.place(test);
    let data = content(LEN, 5);
    publish(&place.store(), Replace::Never, &data).unwrap();
    let proxy = Proxy::new(&service.endpoint);
    let generation = place.store_through(&proxy.endpoint, more).open("index").unwrap();
    ProxiedIndex { proxy, generation, data, path: format!("{}/data", place.address("index")) }
}

impl ProxiedIndex {
    fn object(&self) -> Arc<dyn Object> {
        self.generation.get("data").unwrap()
    }

    /// Runs `operation`, and returns its result and the requests that it sent.
    fn count_requests<T>(&self, operation: impl FnOnce() -> T) -> (T, Requests) {
        let traffic = self.generation.traffic().unwrap();
        let before = traffic.now();
        let result = operation();
        (result, traffic.now().since(&before))
    }

    /// Injects `faults` into reads, reads as a caller and as a query, and returns the requests of both.
    fn read_despite(&self, faults: &[Fault]) -> [Requests; 2] {
        [false, true].map(|as_query| {
            self.proxy.plan(|request| request.is("GET", "/data"), faults);
            let (read, requests) = self.count_requests(|| match as_query {
                true => read_tier(self.object().tier(FileOptions::default()).unwrap(), &SPAN).unwrap(),
                false => read_object(self.object().as_ref(), &SPAN).unwrap(),
            });
            assert!(read == self.data[SPAN], "{faults:?}: a wrong byte");
            assert_eq!(self.proxy.release(), 0, "{faults:?}: some faults were not reached");
            requests
        })
    }
}

#[test]
fn transient_faults_are_retried_and_counted() {
    let Some(service) = service() else { return };
    let proxied = proxied(service, "transient", &[("read_timeout", "1 second")]);
    for fault in [
        Fault::Respond(503, "SlowDown"),
        Fault::Respond(429, "TooManyRequests"),
        Fault::Respond(500, "InternalError"),
        Fault::Respond(502, ""),
        Fault::Reset,
        Fault::LoseResponse,
        Fault::ResetInBody,
        Fault::EndEarly,
        Fault::Shorter,
        Fault::OtherRange,
        Fault::Delay(Duration::from_millis(1500)),
    ] {
        for requests in proxied.read_despite(&[fault]) {
            let throttled = matches!(fault, Fault::Respond(503 | 429, _));
            let counted = (requests.requests, requests.retries, requests.throttled);
            assert_eq!(counted, (2, 1, u64::from(throttled)), "{fault:?}");
        }
    }
    // A byte too many after the requested ones may be ignored.
    for requests in proxied.read_despite(&[Fault::Longer]) {
        assert!(requests.retries <= 1);
    }
    let all = [Fault::Reset, Fault::Respond(503, "SlowDown"), Fault::EndEarly, Fault::Respond(500, "")];
    for requests in proxied.read_despite(&all) {
        assert_eq!((requests.requests, requests.retries, requests.throttled), (5, 4, 1));
    }
}

#[test]
fn permanent_faults_are_reported_without_retries() {
    let Some(service) = service() else { return };
    let proxied = proxied(service, "permanent", &[]);
    let error_of = |status, code| {
        proxied.proxy.always(|request| request.is("GET", "/data"), Fault::Respond(status, code));
        let (read, requests) = proxied.count_requests(|| read_object(proxied.object().as_ref(), &SPAN));
        let error = read.map(drop).unwrap_err();
        assert_eq!(requests.retries, 0, "{error}");
        let tier = proxied.object().tier(FileOptions::default()).unwrap();
        let ReadError::Device { kind, .. } = read_tier(tier, &SPAN).map(drop).unwrap_err() else {
            panic!("{error}")
        };
        proxied.proxy.release();
        let text = service.message(&error);
        assert!(text.contains(&proxied.path), "{text}");
        (error, text, kind)
    };
    for (status, code, part) in [
        (403, "ExpiredToken", "renew the credentials"),
        (400, "ExpiredToken", "renew the credentials"),
        (403, "RequestTimeTooSkewed", "set this machine's clock"),
        (403, "AccessDenied", "check that the credentials"),
        (403, "SignatureDoesNotMatch", "check that the credentials"),
        (401, "", "check that the credentials"),
    ] {
        let (error, text, kind) = error_of(status, code);
        assert!(matches!(error, StoreError::Denied { .. }), "{error:?}");
        assert!(text.contains("access is denied") && text.contains(part) && text.contains(code), "{text}");
        assert_eq!(kind, FaultKind::Denied);
    }
    let (error, _, kind) = error_of(404, "NoSuchKey");
    assert!(matches!(error, StoreError::Missing { .. }) && kind == FaultKind::Gone, "{error}");
    let (error, _, kind) = error_of(412, "PreconditionFailed");
    assert!(matches!(error, StoreError::Changed { .. }) && kind == FaultKind::Changed, "{error}");
    let (error, text, _) = error_of(400, "InvalidArgument");
    assert!(matches!(error, StoreError::Remote { .. }) && text.contains("As planned."), "{text}");
    // Later reads succeed.
    assert!(read_object(proxied.object().as_ref(), &SPAN).unwrap() == proxied.data[SPAN]);
}

#[test]
fn a_store_that_keeps_failing_is_reported_after_8_attempts() {
    let Some(service) = service() else { return };
    let proxied = proxied(service, "away", &[]);
    proxied.proxy.always(|request| request.is("GET", "/data"), Fault::Respond(500, "InternalError"));
    let (read, requests) = proxied.count_requests(|| read_object(proxied.object().as_ref(), &SPAN));
    let text = service.message(&read.map(drop).unwrap_err());
    assert!(text.contains("after 8 tries") && text.contains(&proxied.path), "{text}");
    assert_eq!((requests.requests, requests.retries), (8, 7));
}

#[test]
fn an_unreachable_store_is_reported_with_the_address() {
    let Some(service) = service() else { return };
    let place = service.place("nowhere");
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = place.store_through(&endpoint, &[]).open("index").unwrap_err();
    let text = service.message(&error);
    assert!(text.contains(&place.address("index")), "{text}");
}

#[test]
fn a_missing_bucket_is_reported() {
    let Some(service) = service() else { return };
    let place = service.place("bucketless");
    let url = ObjectUrl::parse(Path::new("s3://bathyal-none-of-this-name/index")).unwrap();
    let store = BucketStore::new(&url, &place.options(&service.endpoint, &[]), MARK).unwrap();
    let text = service.message(&store.open("index").map(drop).unwrap_err());
    assert!(text.contains("create the bucket"), "{text}");
}

#[test]
fn wrong_credentials_are_refused_and_not_repeated() {
    let Some(service) = service() else { return };
    let place = service.place("strangers");
    let hidden = "NotTheRight/Secret";
    let wrong = [
        vec![("secret_access_key", hidden)],
        vec![("access_key_id", "NOBODYSKEY"), ("secret_access_key", hidden)],
        vec![("session_token", hidden), ("access_key_id", "NOBODYSKEY")],
    ];
    for more in wrong {
        let store = place.store_through(&service.endpoint, &more);
        for error in [
            store.open("index").map(drop).unwrap_err(),
            store.list().map(drop).unwrap_err(),
            store.begin("index", Replace::Never).map(drop).unwrap_err(),
        ] {
            let text = service.message(&error);
            assert!(matches!(error, StoreError::Denied { .. }), "{error:?}");
            assert!(text.contains("credentials"), "{text}");
            assert!(!format!("{text} {error:?} {store:?}").contains(hidden), "{text}");
        }
    }
}
