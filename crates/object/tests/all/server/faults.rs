//! Reads on a way on which things go wrong: what may pass is tried again, what does not is said, and no byte is ever wrong.

use crate::server::proxy::{Proxy, Trouble};
use crate::server::service::{MARK, Service, content, publish, service};
use bathyal_object::{BucketStore, ObjectUrl};
use bathyal_store::{Generation, Object, Replace, Requests, Store, StoreError};
use bathyal_tier::backend::file::FileOptions;
use bathyal_tier::{Control, Cx, Engine, EngineOptions, FaultKind, ReadError, Span, Tier};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const LEN: usize = 700_000;
/// Somewhere in the object.
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

/// An index behind a proxy: what reads it, and what it holds.
struct Behind {
    proxy: Proxy,
    generation: Arc<dyn Generation>,
    data: Vec<u8>,
    path: String,
}

fn behind(service: &Service, test: &str, more: &[(&str, &str)]) -> Behind {
    let place = service.place(test);
    let data = content(LEN, 5);
    publish(&place.store(), Replace::Never, &data).unwrap();
    let proxy = Proxy::new(&service.endpoint);
    let generation = place.store_through(&proxy.endpoint, more).open("index").unwrap();
    Behind { proxy, generation, data, path: format!("{}/data", place.address("index")) }
}

impl Behind {
    fn object(&self) -> Arc<dyn Object> {
        self.generation.get("data").unwrap()
    }

    /// What was asked while `work` was done.
    fn asked<T>(&self, work: impl FnOnce() -> T) -> (T, Requests) {
        let traffic = self.generation.traffic().unwrap();
        let before = traffic.now();
        let done = work();
        (done, traffic.now().since(&before))
    }

    /// Plans `troubles` for reads, and reads as a caller and as a query.
    fn right_in_spite_of(&self, troubles: &[Trouble]) -> [Requests; 2] {
        [false, true].map(|as_query| {
            self.proxy.plan(|request| request.is("GET", "/data"), troubles);
            let (read, asked) = self.asked(|| match as_query {
                true => read_tier(self.object().tier(FileOptions::default()).unwrap(), &SPAN).unwrap(),
                false => read_object(self.object().as_ref(), &SPAN).unwrap(),
            });
            assert!(read == self.data[SPAN], "{troubles:?}: a wrong byte");
            assert_eq!(self.proxy.release(), 0, "{troubles:?}: not all of them came");
            asked
        })
    }
}

#[test]
fn what_may_pass_is_tried_again_and_counted() {
    let Some(service) = service() else { return };
    let behind = behind(service, "transient", &[("read_timeout", "1 second")]);
    for trouble in [
        Trouble::Says(503, "SlowDown"),
        Trouble::Says(429, "TooManyRequests"),
        Trouble::Says(500, "InternalError"),
        Trouble::Says(502, ""),
        Trouble::Reset,
        Trouble::LosesAnswer,
        Trouble::ResetInBody,
        Trouble::EndsEarly,
        Trouble::Shorter,
        Trouble::OtherRange,
        Trouble::Late(Duration::from_millis(1500)),
    ] {
        for asked in behind.right_in_spite_of(&[trouble]) {
            let throttled = matches!(trouble, Trouble::Says(503 | 429, _));
            let counted = (asked.requests, asked.retries, asked.throttled);
            assert_eq!(counted, (2, 1, u64::from(throttled)), "{trouble:?}");
        }
    }
    // Where a byte too many follows those that were asked for, these may be taken.
    for asked in behind.right_in_spite_of(&[Trouble::Longer]) {
        assert!(asked.retries <= 1);
    }
    let all = [Trouble::Reset, Trouble::Says(503, "SlowDown"), Trouble::EndsEarly, Trouble::Says(500, "")];
    for asked in behind.right_in_spite_of(&all) {
        assert_eq!((asked.requests, asked.retries, asked.throttled), (5, 4, 1));
    }
}

#[test]
fn what_does_not_pass_is_said_at_once() {
    let Some(service) = service() else { return };
    let behind = behind(service, "permanent", &[]);
    let said = |status, code| {
        behind.proxy.always(|request| request.is("GET", "/data"), Trouble::Says(status, code));
        let (read, asked) = behind.asked(|| read_object(behind.object().as_ref(), &SPAN));
        let error = read.map(drop).unwrap_err();
        assert_eq!(asked.retries, 0, "{error}");
        let tier = behind.object().tier(FileOptions::default()).unwrap();
        let ReadError::Device { kind, .. } = read_tier(tier, &SPAN).map(drop).unwrap_err() else {
            panic!("{error}")
        };
        behind.proxy.release();
        let text = service.said(&error);
        assert!(text.contains(&behind.path), "{text}");
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
        let (error, text, kind) = said(status, code);
        assert!(matches!(error, StoreError::Denied { .. }), "{error:?}");
        assert!(text.contains("access is denied") && text.contains(part) && text.contains(code), "{text}");
        assert_eq!(kind, FaultKind::Denied);
    }
    let (error, _, kind) = said(404, "NoSuchKey");
    assert!(matches!(error, StoreError::Missing { .. }) && kind == FaultKind::Gone, "{error}");
    let (error, _, kind) = said(412, "PreconditionFailed");
    assert!(matches!(error, StoreError::Changed { .. }) && kind == FaultKind::Changed, "{error}");
    let (error, text, _) = said(400, "InvalidArgument");
    assert!(matches!(error, StoreError::Remote { .. }) && text.contains("As planned."), "{text}");
    // Nothing of that stays.
    assert!(read_object(behind.object().as_ref(), &SPAN).unwrap() == behind.data[SPAN]);
}

#[test]
fn a_store_that_stays_away_is_given_up() {
    let Some(service) = service() else { return };
    let behind = behind(service, "away", &[]);
    behind.proxy.always(|request| request.is("GET", "/data"), Trouble::Says(500, "InternalError"));
    let (read, asked) = behind.asked(|| read_object(behind.object().as_ref(), &SPAN));
    let text = service.said(&read.map(drop).unwrap_err());
    assert!(text.contains("after 8 tries") && text.contains(&behind.path), "{text}");
    assert_eq!((asked.requests, asked.retries), (8, 7));
}

#[test]
fn a_store_that_is_not_there_is_said_to_be_away() {
    let Some(service) = service() else { return };
    let place = service.place("nowhere");
    let nobody = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let endpoint = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let error = place.store_through(&endpoint, &[]).open("index").unwrap_err();
    let text = service.said(&error);
    assert!(text.contains(&place.address("index")), "{text}");
}

#[test]
fn a_bucket_that_is_not_there_is_said_to_be_missing() {
    let Some(service) = service() else { return };
    let place = service.place("bucketless");
    let url = ObjectUrl::parse(Path::new("s3://bathyal-none-of-this-name/index")).unwrap();
    let store = BucketStore::new(&url, &place.options(&service.endpoint, &[]), MARK).unwrap();
    let text = service.said(&store.open("index").map(drop).unwrap_err());
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
            let text = service.said(&error);
            assert!(matches!(error, StoreError::Denied { .. }), "{error:?}");
            assert!(text.contains("credentials"), "{text}");
            assert!(!format!("{text} {error:?} {store:?}").contains(hidden), "{text}");
        }
    }
}
