//! Tests of writes with injected faults: whatever response or request is lost, an index is published exactly
//! once and complete, or not at all.

use crate::server::proxy::{Fault, Proxy, Request};
use crate::server::service::{MARK, Place, Service, content, draft, publish, service};
use bathyal_store::{Draft, Durability, GenerationExt, LogWriter, Replace, Store, StoreError, StoreExt};
use std::time::Duration;

/// The length of an object of more than one part.
const LARGE: usize = (9 << 20) + 321;

/// Asserts that there is one record, the objects of one generation, and the right bytes.
fn assert_published_once(place: &Place, data: &[u8], what: &str) {
    let keys = place.keys("index");
    let records = keys.iter().filter(|key| key.starts_with("records/")).count();
    assert_eq!((records, keys.len()), (1, 3), "{what}: {keys:?}");
    let found = place.store().open("index").unwrap();
    assert!(found.read("data").unwrap() == data, "{what}: a wrong byte");
    assert_eq!(found.read(MARK).unwrap(), b"mark");
}

fn assert_published_despite(service: &Service, data: &[u8], at: fn(&Request) -> bool, faults: &[Fault]) {
    let (place, proxy) = (service.place("spite"), Proxy::new(&service.endpoint));
    proxy.plan(at, faults);
    let store = place.store_through(&proxy.endpoint, &[("read_timeout", "1 second")]);
    let draft = draft(&store, Replace::Never, data);
    let what = format!("{faults:?}");
    draft.publish(&["data", MARK], "note").unwrap_or_else(|e| panic!("{what}: {}", service.message(&e)));
    assert_eq!(proxy.release(), 0, "{what}: some faults were not reached");
    assert_published_once(&place, data, &what);
}

const LATE: Fault = Fault::Delay(Duration::from_millis(1500));

#[test]
fn an_index_is_published_once_despite_faults() {
    let Some(service) = service() else { return };
    let data = content(700_000, 8);
    let record: fn(&Request) -> bool = |request| request.is("PUT", "/records/");
    let object: fn(&Request) -> bool = |request| request.is("PUT", "/data");
    let lookup: fn(&Request) -> bool = |request| request.is("GET", "/records/");
    let listing: fn(&Request) -> bool = |request| request.is("GET", "list-type=2");
    for fault in [Fault::LoseResponse, Fault::Reset, Fault::Respond(503, "SlowDown"), Fault::Respond(500, "")]
    {
        for at in [record, object, listing] {
            assert_published_despite(service, &data, at, &[fault]);
        }
    }
    for faults in [
        vec![LATE],
        vec![Fault::Reset, Fault::LoseResponse],
        vec![Fault::Respond(412, "PreconditionFailed")],
        vec![Fault::Respond(409, "ConditionalRequestConflict")],
    ] {
        assert_published_despite(service, &data, record, &faults);
    }
    // The read that follows every creation.
    assert_published_despite(service, &data, lookup, &[Fault::EndEarly, Fault::Reset]);
}

#[test]
fn large_objects_are_uploaded_once_despite_faults() {
    let Some(service) = service() else { return };
    let data = content(LARGE, 9);
    let begin: fn(&Request) -> bool = |request| request.is("POST", "?uploads");
    let part: fn(&Request) -> bool = |request| request.part() == Some(2);
    let complete: fn(&Request) -> bool = |request| request.is("POST", "uploadId=");
    for (at, faults) in [
        (begin, [Fault::LoseResponse, Fault::Respond(503, "SlowDown")]),
        (part, [Fault::LoseResponse, Fault::Reset]),
        (complete, [Fault::LoseResponse, Fault::Respond(500, "InternalError")]),
        (complete, [Fault::Respond(503, "SlowDown"), Fault::LoseResponse]),
    ] {
        assert_published_despite(service, &data, at, &faults);
    }
}

#[test]
fn a_dropped_multipart_upload_is_started_again() {
    let Some(service) = service() else { return };
    // The fifth part is sent after the first four are uploaded.
    let data = content((33 << 20) + 5, 12);
    let forgets = [Fault::Respond(404, "NoSuchUpload")];
    assert_published_despite(service, &data, |request| request.part() == Some(5), &forgets);
    assert_published_despite(service, &data[..LARGE], |request| request.is("POST", "uploadId="), &forgets);

    let (place, proxy) = (service.place("forgets"), Proxy::new(&service.endpoint));
    proxy.always(|request| request.is("POST", "uploadId="), forgets[0]);
    let store = place.store_through(&proxy.endpoint, &[]);
    let text = service.message(&publish(&store, Replace::Never, &data[..LARGE]).unwrap_err());
    assert!(text.contains("drops parts") && text.contains(&place.address("index/data")), "{text}");
}

#[test]
fn a_failed_publication_is_reported_and_leaves_nothing_visible() {
    let Some(service) = service() else { return };
    let data = content(700_000, 10);
    for (at, fault, part) in [
        ("/records/", Fault::Respond(403, "ExpiredToken"), "renew the credentials"),
        ("/data", Fault::Respond(403, "ExpiredToken"), "renew the credentials"),
        ("/data", Fault::Respond(403, "RequestTimeTooSkewed"), "set this machine's clock"),
        // A store that reports success without writing.
        ("/records/", Fault::Respond(200, ""), "reported success, but does not have the object"),
    ] {
        let (place, proxy) = (service.place("refused"), Proxy::new(&service.endpoint));
        proxy.always(move |request| request.is("PUT", at), fault);
        let store = place.store_through(&proxy.endpoint, &[]);
        let error = publish(&store, Replace::Never, &data).unwrap_err();
        let text = service.message(&error);
        assert!(text.contains(part) && text.contains(&place.address("index")), "{text}");
        let denied = matches!(fault, Fault::Respond(403, _));
        assert_eq!(matches!(error, StoreError::Denied { .. }), denied, "{error:?}");
        assert!(matches!(place.store().open("index"), Err(StoreError::Missing { .. })), "{text}");
        // Leftovers do not hinder the next publication.
        proxy.release();
        publish(&store, Replace::Never, &data).unwrap();
        assert!(store.open("index").unwrap().read("data").unwrap() == data);
    }
}

#[test]
fn objects_uploaded_before_access_was_denied_are_not_uploaded_again() {
    let Some(service) = service() else { return };
    let (place, proxy) = (service.place("renewed"), Proxy::new(&service.endpoint));
    let (data, store) = (content(700_000, 11), place.store_through(&proxy.endpoint, &[]));
    proxy.always(|request| request.is("PUT", "/records/"), Fault::Respond(403, "ExpiredToken"));
    let begun = draft(&store, Replace::Never, &data);
    let error = begun.publish(&["data", MARK], "note").unwrap_err();
    assert!(matches!(error, StoreError::Denied { .. }), "{}", service.message(&error));
    proxy.release();
    proxy.seen();
    // Continues with renewed credentials.
    let sealed = |draft: &dyn Draft| draft.publication_note().map(str::to_owned);
    let (again, note) = store.resume("index", Replace::Never, sealed).unwrap();
    assert_eq!(note.as_deref(), Some("note"), "the draft is kept");
    again.publish(&["data", MARK], "note").unwrap();
    assert!(!proxy.seen().iter().any(|request| request.is("PUT", "/data")), "the object is already uploaded");
    assert_published_once(&place, &data, "renewed");
}

#[test]
fn a_log_holds_each_append_once_despite_faults() {
    let Some(service) = service() else { return };
    let (place, proxy) = (service.place("log"), Proxy::new(&service.endpoint));
    publish(&place.store(), Replace::Never, b"data").unwrap();
    let store = place.store_through(&proxy.endpoint, &[("read_timeout", "1 second")]);
    let log = store.open("index").unwrap().log("log").unwrap();
    let mut writer: Box<dyn LogWriter> = log.write().unwrap();
    let mut expected = Vec::new();
    for (i, fault) in
        [Fault::LoseResponse, Fault::Reset, Fault::Respond(503, "SlowDown"), LATE].into_iter().enumerate()
    {
        proxy.plan(|request| request.is("PUT", "/changes/"), &[fault]);
        let bytes = content(1000 + i, i as u64);
        writer
            .append(expected.len() as u64, &[&bytes], Durability::Disk)
            .unwrap_or_else(|e| panic!("{}", service.message(&e)));
        expected.extend(bytes);
        assert_eq!(proxy.release(), 0, "{fault:?}");
        assert!(log.read(0).unwrap() == expected, "{fault:?}");
    }
    // After a refused append, the writer continues at the same offset.
    proxy.always(|request| request.is("PUT", "/changes/"), Fault::Respond(403, "ExpiredToken"));
    proxy.seen();
    let error = writer.append(expected.len() as u64, &[b"refused"], Durability::Disk).unwrap_err();
    let text = service.message(&error);
    assert!(matches!(error, StoreError::Denied { .. }) && text.contains("renew the credentials"), "{text}");
    let requests = proxy.seen().iter().filter(|request| request.is("PUT", "/changes/")).count();
    assert_eq!(requests, 1, "a denied request is not retried");
    proxy.release();
    writer.append(expected.len() as u64, &[b"in the end"], Durability::Disk).unwrap();
    expected.extend(b"in the end");
    assert!(log.read(0).unwrap() == expected);
}
