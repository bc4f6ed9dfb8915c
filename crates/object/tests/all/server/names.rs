//! Tests of keys on a real server: byte for byte as typed, also for another client.

use crate::server::service::{MARK, Place, content, service};
use bathyal_object::{BucketStore, ObjectUrl};
use bathyal_store::{DraftExt, GenerationExt, Replace, Store, StoreError};
use object_store::ObjectStoreExt;
use object_store::path::Path as Key;
use std::path::Path;

/// Names with characters that a client encodes in a request, that have a meaning in a shell or an address, or
/// that XML escapes in a response.
const ODD: &[&str] = &[
    "café",
    "日本",
    "a~b",
    "a%b",
    "a%7Eb",
    "a%20b",
    "a?region=x",
    "a#b",
    "a*b",
    "a[b]",
    "a|b",
    "a\"b",
    "a b",
    "a+b",
    "a&b=c",
    "a;b",
    "a<b>",
    "a'b",
    "a@b",
    "~",
    " a",
    "a ",
];

fn store(place: &Place, name: &str) -> BucketStore {
    let url = ObjectUrl::parse(Path::new(&place.address(name))).expect(name);
    BucketStore::new(&url, &place.options(&place.service.endpoint, &[]), MARK).unwrap()
}

fn publish(store: &BucketStore, name: &str, data: &[u8]) -> Result<(), StoreError> {
    let draft = store.begin(name, Replace::Never)?;
    draft.put("data", data)?;
    draft.put(MARK, b"mark")?;
    draft.publish(&["data", MARK], "note")
}

#[test]
fn keys_are_as_typed() {
    let Some(service) = service() else { return };
    let place = service.place("typed");
    let raw = place.raw();
    for name in ODD {
        let store = store(&place, &format!("{name}/{name}"));
        publish(&store, name, &content(700_000, 1)).expect(name);
        assert_eq!(
            (store.list().unwrap(), store.names().unwrap()),
            (vec![(*name).into()], vec![(*name).into()]),
            "{name}"
        );
        assert!(store.open(name).unwrap().read("data").unwrap() == content(700_000, 1), "{name}");
        let prefix = Key::parse(format!("{}/{name}/{name}", place.folder)).unwrap();
        let keys = raw.list_key(&prefix);
        assert_eq!(keys.len(), 3, "the record, its copy and the object: {keys:?}");
    }
    let mut sorted: Vec<&str> = ODD.to_vec();
    sorted.sort_unstable();
    assert_eq!(store(&place, "x").names().unwrap(), sorted);
}

#[test]
fn a_backslash_is_not_taken_for_a_slash() {
    let Some(service) = service() else { return };
    let place = service.place("backslash");
    publish(&store(&place, "a/x"), "b", &content(700_000, 4)).unwrap();
    // SeaweedFS keeps it as a/b, and lists that.
    let outside = store(&place, "x");
    assert!(matches!(outside.open("a\\b"), Err(StoreError::Missing { .. })));
    let refused = publish(&outside, "a\\b", b"2").unwrap_err();
    assert!(refused.to_string().contains("backslash"), "{refused}");
}

#[test]
fn a_multipart_object_has_the_plain_key() {
    let Some(service) = service() else { return };
    let place = service.place("parts");
    let store = store(&place, "café #1/x");
    publish(&store, "a~b?", &content(20 << 20, 2)).unwrap();
    assert!(store.open("a~b?").unwrap().read("data").unwrap() == content(20 << 20, 2));
    let keys = place.raw().list_key(&Key::parse(format!("{}/café #1/a~b?", place.folder)).unwrap());
    assert_eq!(keys.len(), 3, "{keys:?}");
}

#[test]
fn indexes_copied_by_another_client_or_written_by_an_earlier_version_are_found() {
    let Some(service) = service() else { return };
    let place = service.place("copied");
    let earlier = store(&place, "caf%C3%A9/x");
    publish(&earlier, "y.index", &content(700_000, 3)).unwrap();
    let typed = store(&place, "café/x");
    assert_eq!(typed.list().unwrap(), ["y.index"]);
    assert!(typed.open("y.index").unwrap().read("data").unwrap() == content(700_000, 3));
    assert!(matches!(publish(&typed, "y.index", b"2"), Err(StoreError::Exists { .. })));
    // Another client moves it to the plain key.
    let raw = place.raw();
    for from in raw.list_key(&Key::parse(format!("{}/caf%C3%A9", place.folder)).unwrap()) {
        let to = Key::parse(from.as_ref().replace("caf%C3%A9", "café")).unwrap();
        raw.put(&to, raw.get(&from));
        raw.runtime.block_on(raw.store.delete(&from)).unwrap();
    }
    assert_eq!(typed.list().unwrap(), ["y.index"]);
    let moved = typed.open("y.index").unwrap();
    assert_eq!(moved.address(), Path::new(&place.address("café/y.index")));
    assert!(moved.read("data").unwrap() == content(700_000, 3));
    assert!(matches!(earlier.open("y.index"), Err(StoreError::Missing { .. })));
}

#[test]
fn an_emptied_folder_contains_no_generation() {
    let Some(service) = service() else { return };
    let place = service.place("emptied");
    let (inside, outside) = (store(&place, "collection/x"), store(&place, "x"));
    publish(&inside, "v-1", b"1").unwrap();
    assert!(outside.any_published_in(Some("collection"), &["v-1".into()]).unwrap());
    inside.erase("v-1").unwrap();
    // SeaweedFS keeps the empty folders, and lists them as if keys began with them.
    let names = outside.names_in("collection").unwrap();
    assert!(!outside.any_published_in(Some("collection"), &names).unwrap());
    assert!(!inside.any_published_in(None, &inside.names().unwrap()).unwrap());
}
