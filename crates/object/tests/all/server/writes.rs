//! Publishing on a way on which things go wrong: whatever is lost, an index is published once, whole, or not at all.

use crate::server::proxy::{Proxy, Request, Trouble};
use crate::server::service::{MARK, Place, Service, content, draft, publish, service};
use bathyal_store::{Draft, Durability, GenerationExt, LogWriter, Replace, Store, StoreError, StoreExt};
use std::time::Duration;

/// More than one part.
const LARGE: usize = (9 << 20) + 321;

/// One record, the objects of one generation, and the right bytes.
fn assert_published_once(place: &Place, data: &[u8], what: &str) {
    let keys = place.keys("index");
    let records = keys.iter().filter(|key| key.starts_with("records/")).count();
    assert_eq!((records, keys.len()), (1, 3), "{what}: {keys:?}");
    let found = place.store().open("index").unwrap();
    assert!(found.read("data").unwrap() == data, "{what}: a wrong byte");
    assert_eq!(found.read(MARK).unwrap(), b"mark");
}

fn published_in_spite_of(service: &Service, data: &[u8], at: fn(&Request) -> bool, troubles: &[Trouble]) {
    let (place, proxy) = (service.place("spite"), Proxy::new(&service.endpoint));
    proxy.plan(at, troubles);
    let store = place.store_through(&proxy.endpoint, &[("read_timeout", "1 second")]);
    let draft = draft(&store, Replace::Never, data);
    let what = format!("{troubles:?}");
    draft.publish(&["data", MARK], "note").unwrap_or_else(|e| panic!("{what}: {}", service.said(&e)));
    assert_eq!(proxy.release(), 0, "{what}: not all of them came");
    assert_published_once(&place, data, &what);
}

const LATE: Trouble = Trouble::Late(Duration::from_millis(1500));

#[test]
fn an_index_is_published_once_whatever_is_lost() {
    let Some(service) = service() else { return };
    let data = content(700_000, 8);
    let record: fn(&Request) -> bool = |request| request.is("PUT", "/records/");
    let object: fn(&Request) -> bool = |request| request.is("PUT", "/data");
    let lookup: fn(&Request) -> bool = |request| request.is("GET", "/records/");
    let listing: fn(&Request) -> bool = |request| request.is("GET", "list-type=2");
    for trouble in
        [Trouble::LosesAnswer, Trouble::Reset, Trouble::Says(503, "SlowDown"), Trouble::Says(500, "")]
    {
        for at in [record, object, listing] {
            published_in_spite_of(service, &data, at, &[trouble]);
        }
    }
    for troubles in [
        vec![LATE],
        vec![Trouble::Reset, Trouble::LosesAnswer],
        vec![Trouble::Says(412, "PreconditionFailed")],
        vec![Trouble::Says(409, "ConditionalRequestConflict")],
    ] {
        published_in_spite_of(service, &data, record, &troubles);
    }
    // The question what is there, which follows every creation.
    published_in_spite_of(service, &data, lookup, &[Trouble::EndsEarly, Trouble::Reset]);
}

#[test]
fn large_objects_are_brought_once_whatever_is_lost() {
    let Some(service) = service() else { return };
    let data = content(LARGE, 9);
    let begin: fn(&Request) -> bool = |request| request.is("POST", "?uploads");
    let part: fn(&Request) -> bool = |request| request.part() == Some(2);
    let complete: fn(&Request) -> bool = |request| request.is("POST", "uploadId=");
    for (at, troubles) in [
        (begin, [Trouble::LosesAnswer, Trouble::Says(503, "SlowDown")]),
        (part, [Trouble::LosesAnswer, Trouble::Reset]),
        (complete, [Trouble::LosesAnswer, Trouble::Says(500, "InternalError")]),
        (complete, [Trouble::Says(503, "SlowDown"), Trouble::LosesAnswer]),
    ] {
        published_in_spite_of(service, &data, at, &troubles);
    }
}

#[test]
fn what_the_store_has_forgotten_is_brought_again() {
    let Some(service) = service() else { return };
    // Of the fifth part the store is asked when it has the first four.
    let data = content((33 << 20) + 5, 12);
    let forgets = [Trouble::Says(404, "NoSuchUpload")];
    published_in_spite_of(service, &data, |request| request.part() == Some(5), &forgets);
    published_in_spite_of(service, &data[..LARGE], |request| request.is("POST", "uploadId="), &forgets);

    let (place, proxy) = (service.place("forgets"), Proxy::new(&service.endpoint));
    proxy.always(|request| request.is("POST", "uploadId="), forgets[0]);
    let store = place.store_through(&proxy.endpoint, &[]);
    let text = service.said(&publish(&store, Replace::Never, &data[..LARGE]).unwrap_err());
    assert!(text.contains("forgets parts") && text.contains(&place.address("index/data")), "{text}");
}

#[test]
fn what_cannot_be_published_is_said_and_nothing_is_seen_of_it() {
    let Some(service) = service() else { return };
    let data = content(700_000, 10);
    for (at, trouble, part) in [
        ("/records/", Trouble::Says(403, "ExpiredToken"), "renew the credentials"),
        ("/data", Trouble::Says(403, "ExpiredToken"), "renew the credentials"),
        ("/data", Trouble::Says(403, "RequestTimeTooSkewed"), "set this machine's clock"),
        // A store that says that it did what it did not.
        ("/records/", Trouble::Says(200, ""), "does not have what it was just given"),
    ] {
        let (place, proxy) = (service.place("refused"), Proxy::new(&service.endpoint));
        proxy.always(move |request| request.is("PUT", at), trouble);
        let store = place.store_through(&proxy.endpoint, &[]);
        let error = publish(&store, Replace::Never, &data).unwrap_err();
        let text = service.said(&error);
        assert!(text.contains(part) && text.contains(&place.address("index")), "{text}");
        let denied = matches!(trouble, Trouble::Says(403, _));
        assert_eq!(matches!(error, StoreError::Denied { .. }), denied, "{error:?}");
        assert!(matches!(place.store().open("index"), Err(StoreError::Missing { .. })), "{text}");
        // The next one is not hindered by what is left.
        proxy.release();
        publish(&store, Replace::Never, &data).unwrap();
        assert!(store.open("index").unwrap().read("data").unwrap() == data);
    }
}

#[test]
fn what_was_brought_before_access_was_denied_is_not_brought_again() {
    let Some(service) = service() else { return };
    let (place, proxy) = (service.place("renewed"), Proxy::new(&service.endpoint));
    let (data, store) = (content(700_000, 11), place.store_through(&proxy.endpoint, &[]));
    proxy.always(|request| request.is("PUT", "/records/"), Trouble::Says(403, "ExpiredToken"));
    let begun = draft(&store, Replace::Never, &data);
    let error = begun.publish(&["data", MARK], "note").unwrap_err();
    assert!(matches!(error, StoreError::Denied { .. }), "{}", service.said(&error));
    proxy.release();
    proxy.seen();
    // With credentials that were renewed.
    let sealed = |draft: &dyn Draft| draft.sealed().map(str::to_owned);
    let (again, note) = store.resume("index", Replace::Never, sealed).unwrap();
    assert_eq!(note.as_deref(), Some("note"), "the draft is kept");
    again.publish(&["data", MARK], "note").unwrap();
    assert!(!proxy.seen().iter().any(|request| request.is("PUT", "/data")), "it is there already");
    assert_published_once(&place, &data, "renewed");
}

#[test]
fn a_log_holds_what_was_appended_once_whatever_is_lost() {
    let Some(service) = service() else { return };
    let (place, proxy) = (service.place("log"), Proxy::new(&service.endpoint));
    publish(&place.store(), Replace::Never, b"data").unwrap();
    let store = place.store_through(&proxy.endpoint, &[("read_timeout", "1 second")]);
    let log = store.open("index").unwrap().log("log").unwrap();
    let mut writer: Box<dyn LogWriter> = log.write().unwrap();
    let mut expected = Vec::new();
    for (i, trouble) in
        [Trouble::LosesAnswer, Trouble::Reset, Trouble::Says(503, "SlowDown"), LATE].into_iter().enumerate()
    {
        proxy.plan(|request| request.is("PUT", "/changes/"), &[trouble]);
        let bytes = content(1000 + i, i as u64);
        writer
            .append(expected.len() as u64, &[&bytes], Durability::Disk)
            .unwrap_or_else(|e| panic!("{}", service.said(&e)));
        expected.extend(bytes);
        assert_eq!(proxy.release(), 0, "{trouble:?}");
        assert!(log.read(0).unwrap() == expected, "{trouble:?}");
    }
    // A writer that was refused goes on where it was.
    proxy.always(|request| request.is("PUT", "/changes/"), Trouble::Says(403, "ExpiredToken"));
    proxy.seen();
    let error = writer.append(expected.len() as u64, &[b"refused"], Durability::Disk).unwrap_err();
    let text = service.said(&error);
    assert!(matches!(error, StoreError::Denied { .. }) && text.contains("renew the credentials"), "{text}");
    let asked = proxy.seen().iter().filter(|request| request.is("PUT", "/changes/")).count();
    assert_eq!(asked, 1, "it is not asked again");
    proxy.release();
    writer.append(expected.len() as u64, &[b"in the end"], Durability::Disk).unwrap();
    expected.extend(b"in the end");
    assert!(log.read(0).unwrap() == expected);
}
