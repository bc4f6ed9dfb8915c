//! Tests of versions of objects, with the store in memory.

use crate::client::{Cause, Version};
use crate::connect::{ObjectUrl, StoreOptions, connect};
use crate::runtime::wait_for;
use bathyal_store::Traffic;
use object_store::path::Path as Key;
use std::path::Path;

#[test]
fn a_copied_object_is_read_and_a_replaced_one_is_refused() {
    let url = ObjectUrl::parse(Path::new("memory://versions/x")).unwrap();
    let client = connect(&url, &StoreOptions::default()).unwrap();
    let (key, traffic) = (Key::from("versions/object"), Traffic::default());
    let put = |bytes: &'static [u8]| wait_for(client.put(&key, bytes.into(), &traffic)).unwrap().unwrap();
    let read = |version: &Version| {
        let before = traffic.now();
        let found = wait_for(client.range(&key, 1..3, version, &traffic)).unwrap();
        (found.map_err(|fault| fault.cause), traffic.now().since(&before).requests)
    };
    let first = put(b"abcd");
    let known = Version::recorded(first.clone(), 4);
    assert_eq!((known.etag(), read(&known)), (first.as_deref(), (Ok("bc".into()), 1)));
    let second = put(b"abcd");
    assert_eq!(read(&known), (Err(Cause::Changed), 1), "the recorded version was read before");
    let copied = Version::recorded(first.clone(), 4);
    assert_eq!(
        read(&copied),
        (Ok("bc".into()), 3),
        "one refused read, one for the metadata, and a second read"
    );
    assert_eq!((copied.etag(), read(&copied)), (second.as_deref(), (Ok("bc".into()), 1)));
    put(b"abcde");
    assert_eq!(read(&copied).0, Err(Cause::Changed));
    assert_eq!(
        read(&Version::recorded(first, 4)),
        (Err(Cause::Changed), 2),
        "another length is another object"
    );
    let unknown = Version::default();
    assert_eq!((unknown.etag(), read(&unknown)), (None, (Ok("bc".into()), 1)));
    put(b"abcd!");
    assert_eq!(read(&unknown), (Err(Cause::Changed), 1));
}
