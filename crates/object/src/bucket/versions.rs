//! Versions of objects, against a store that has them.

use crate::client::{Version, Why};
use crate::connect::{ObjectUrl, StoreOptions, connect};
use crate::runtime::wait_for;
use bathyal_store::Traffic;
use object_store::path::Path as Key;
use std::path::Path;

#[test]
fn what_was_copied_by_other_tools_is_read_and_what_was_replaced_is_not() {
    let url = ObjectUrl::parse(Path::new("memory://versions/x")).unwrap();
    let client = connect(&url, &StoreOptions::default()).unwrap();
    let (key, traffic) = (Key::from("versions/object"), Traffic::default());
    let put = |bytes: &'static [u8]| wait_for(client.put(&key, bytes.into(), &traffic)).unwrap().unwrap();
    let read = |version: &Version| {
        let before = traffic.now();
        let found = wait_for(client.range(&key, 1..3, version, &traffic)).unwrap();
        (found.map_err(|fault| fault.why), traffic.now().since(&before).requests)
    };
    let first = put(b"abcd");
    let known = Version::recorded(first.clone(), 4);
    assert_eq!((known.etag(), read(&known)), (first.as_deref(), (Ok("bc".into()), 1)));
    let second = put(b"abcd");
    assert_eq!(read(&known), (Err(Why::Changed), 1), "it was read before");
    let copied = Version::recorded(first.clone(), 4);
    assert_eq!(read(&copied), (Ok("bc".into()), 3), "refused, asked, and read");
    assert_eq!((copied.etag(), read(&copied)), (second.as_deref(), (Ok("bc".into()), 1)));
    put(b"abcde");
    assert_eq!(read(&copied).0, Err(Why::Changed));
    assert_eq!(
        read(&Version::recorded(first, 4)),
        (Err(Why::Changed), 2),
        "another length is another object"
    );
    let unknown = Version::default();
    assert_eq!((unknown.etag(), read(&unknown)), (None, (Ok("bc".into()), 1)));
    put(b"abcd!");
    assert_eq!(read(&unknown), (Err(Why::Changed), 1));
}
