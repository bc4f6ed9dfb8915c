//! The conformance suite that every store passes.

use crate::contract::{Draft, Durability, Generation, Replace, Store};
use crate::error::StoreError;
use crate::extension::{DraftExt, GenerationExt, ObjectExt, StoreExt};
use bathyal_tier::backend::file::FileOptions;

/// Runs the suite on an empty store whose generations are known by their object `mark`.
///
/// # Panics
/// If the store breaks the contract.
pub fn check(store: &dyn Store, mark: &str) {
    check_unchangeable(store, mark);
    a_log_has_one_writer(store, mark);
    leftovers_are_listed_and_erased(store);
    assert_eq!(store.list().expect("lists"), [""; 0], "every check ends with an empty store");
}

/// Runs the suite without the checks of logs, for a store whose generations accept no changes.
///
/// # Panics
/// As [`check`].
pub fn check_unchangeable(store: &dyn Store, mark: &str) {
    objects_read_back_as_written(store, mark);
    drafts_are_invisible(store, mark);
    generations_are_replaced_only_on_request(store, mark);
    abandoned_drafts_are_continued(store, mark);
    only_named_objects_are_published(store, mark);
    names_that_are_paths_are_refused(store);
    names_are_kept_byte_for_byte(store, mark);
    generations_are_deleted(store, mark);
    names_are_erased(store, mark);
    assert_eq!(store.list().expect("lists"), [""; 0], "every check ends with an empty store");
}

/// Publishes a generation of two objects: `data` and the mark.
fn publish(store: &dyn Store, mark: &str, name: &str, replace: Replace, bytes: &[u8]) {
    let draft = store.begin(name, replace).expect("begins");
    draft.put("data", bytes).expect("writes");
    draft.put(mark, bytes).expect("writes");
    draft.publish(&["data", mark], "").expect("publishes");
}

fn read(generation: &dyn Generation, name: &str) -> Vec<u8> {
    generation.read(name).expect("reads")
}

fn objects_read_back_as_written(store: &dyn Store, mark: &str) {
    let bytes: Vec<u8> = (0..100_000_u32).map(|i| ((i * 31) >> 3) as u8).collect();
    let draft = store.begin("objects", Replace::Never).expect("begins");
    let mut object = draft.append("data", 0).expect("begins an object");
    bytes.chunks(777).for_each(|part| object.append(part).expect("appends"));
    object.sync().expect("syncs");
    drop(object);
    draft.replace(mark, b"first").expect("replaces");
    draft.replace(mark, b"mark").expect("replaces again");
    draft.put("empty", &[]).expect("writes");
    draft.put("gone", &[1]).expect("writes");
    draft.delete("gone").expect("deletes");
    draft.delete("gone").expect("deletes what is not there");
    assert_eq!(read(draft.as_ref(), "data"), bytes, "a draft can be read");
    draft.publish(&["data", "empty", mark], "note").expect("publishes");

    let found = store.open("objects").expect("opens");
    let mut names = vec!["data".to_string(), "empty".to_string(), mark.to_string()];
    names.sort();
    assert_eq!(found.list().expect("lists"), names);
    assert_eq!((read(found.as_ref(), mark).as_slice(), found.len_of("empty")), (&b"mark"[..], Some(0)));
    let data = found.get("data").expect("is there");
    assert_eq!((data.len(), data.is_empty()), (100_000, false));
    assert_eq!(data.read_all().expect("reads"), bytes);
    let mut part = [0; 1000];
    data.read_at(98_999, &mut part).expect("reads a range");
    assert_eq!(part, bytes[98_999..99_999]);
    data.read_at(100_000, &mut []).expect("reads nothing");
    for offset in [99_001, 100_000, u64::MAX - 10] {
        let error = data.read_at(offset, &mut part).expect_err("is beyond the end");
        assert!(matches!(error, StoreError::Short { len: 100_000, .. }), "{error}");
    }
    assert_eq!(data.tier(FileOptions::default()).expect("is a tier").len(), 100_000);
    let error = found.get("none").expect_err("is not there");
    assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    store.delete("objects").expect("deletes");
    assert_eq!(data.read_all().expect("reads"), bytes, "open objects stay readable");
}

fn drafts_are_invisible(store: &dyn Store, mark: &str) {
    let draft = store.begin("draft", Replace::Never).expect("begins");
    draft.put(mark, b"mark").expect("writes");
    assert!(matches!(store.open("draft"), Err(StoreError::Missing { .. })));
    assert_eq!(store.list().expect("lists"), [""; 0]);
    let other = store.begin("draft", Replace::Never).expect("a second draft of the name is allowed");
    assert_eq!(other.list().expect("lists"), [""; 0], "drafts share no objects");
    drop((draft, other));
    assert!(
        store.abandoned("draft", Replace::Never).expect("looks").is_empty(),
        "a dropped draft is removed"
    );
    assert_eq!(store.list().expect("lists"), [""; 0]);
}

fn generations_are_replaced_only_on_request(store: &dyn Store, mark: &str) {
    publish(store, mark, "index", Replace::Never, b"one");
    for refused in [
        store.check("index", Replace::Never).expect_err("is refused"),
        store.begin("index", Replace::Never).map(drop).expect_err("is refused"),
        store.abandoned("index", Replace::Never).map(drop).expect_err("is refused"),
    ] {
        assert!(matches!(refused, StoreError::Exists { .. }), "{refused}");
    }
    store.check("index", Replace::Generation).expect("may be replaced");
    store.check("other", Replace::Never).expect("is not there");
    let late = store.begin("other", Replace::Never).expect("begins");
    late.put(mark, b"late").expect("writes");
    publish(store, mark, "other", Replace::Never, b"early");
    let refused = late.publish(&[mark], "").expect_err("came too late");
    assert!(matches!(refused, StoreError::Exists { .. }), "{refused}");
    assert_eq!(read(store.open("other").expect("opens").as_ref(), "data"), b"early");

    let old = store.open("index").expect("opens");
    let open_object = old.get("data").expect("is there");
    publish(store, mark, "index", Replace::Generation, b"two");
    publish(store, mark, "index", Replace::Generation, b"three");
    assert_eq!(read(store.open("index").expect("opens").as_ref(), "data"), b"three");
    assert_eq!(open_object.read_all().expect("reads"), b"one", "open objects stay readable");
    match old.read("data") {
        Ok(bytes) => assert_eq!(bytes, b"one", "a generation does not become another"),
        Err(error) => assert!(matches!(error, StoreError::Replaced { .. }), "{error}"),
    }
    assert_eq!(store.list().expect("lists"), ["index", "other"]);
    store.delete("index").expect("deletes");
    store.delete("other").expect("deletes");
}

fn abandoned_drafts_are_continued(store: &dyn Store, mark: &str) {
    let draft = store.begin("draft", Replace::Never).expect("begins");
    let mut object = draft.append("data", 0).expect("begins");
    object.append(b"kept, not kept").expect("appends");
    object.sync().expect("syncs");
    drop(object);
    draft.put("stray", b"stray").expect("writes");
    assert!(store.abandoned("draft", Replace::Never).expect("looks").is_empty(), "its writer is at work");
    draft.leave().expect("leaves");
    assert!(
        store.abandoned("drafts", Replace::Never).expect("looks").is_empty(),
        "the draft has another name"
    );

    let state = |draft: &dyn Draft| draft.read("data").ok();
    let (draft, found) = store.resume("draft", Replace::Never, state).expect("continues");
    assert_eq!((found.as_deref(), draft.publication_note()), (Some(&b"kept, not kept"[..]), None));
    assert!(store.abandoned("draft", Replace::Never).expect("looks").is_empty(), "it is taken over once");
    let short = draft.append("data", 100).expect_err("the object is shorter");
    assert!(matches!(short, StoreError::Short { len: 14, .. }), "{short}");
    let mut object = draft.append("data", 4).expect("continues");
    object.append(b" too").expect("appends");
    object.sync().expect("syncs");
    draft.put(mark, b"mark").expect("writes");
    draft.publish(&["data", mark], "").expect("publishes");
    let found = store.open("draft").expect("opens");
    assert_eq!((read(found.as_ref(), "data").as_slice(), found.len_of("stray")), (&b"kept too"[..], None));

    let draft = store.begin("draft", Replace::Generation).expect("begins");
    draft.put("data", b"useless").expect("writes");
    draft.leave().expect("leaves");
    let (draft, none) = store.resume("draft", Replace::Generation, |_| None::<()>).expect("begins anew");
    assert_eq!((none, draft.list().expect("lists").len()), (None, 0));
    drop(draft);
    assert!(store.abandoned("draft", Replace::Generation).expect("looks").is_empty());
    store.delete("draft").expect("deletes");
}

fn only_named_objects_are_published(store: &dyn Store, mark: &str) {
    let draft = store.begin("index", Replace::Never).expect("begins");
    draft.put(mark, b"mark").expect("writes");
    let missing = draft.publish(&["data", mark], "").expect_err("is not there");
    assert!(matches!(missing, StoreError::Missing { .. }), "{missing}");
    assert!(matches!(store.open("index"), Err(StoreError::Missing { .. })));
    let draft = store.begin("index", Replace::Never).expect("begins");
    for name in ["journal", "stray", mark] {
        draft.put(name, b"bytes").expect("writes");
    }
    draft.publish(&[mark], "").expect("publishes");
    assert_eq!(store.open("index").expect("opens").list().expect("lists"), [mark]);
    store.delete("index").expect("deletes");
}

fn names_that_are_paths_are_refused(store: &dyn Store) {
    let draft = store.begin("index", Replace::Never).expect("begins");
    for name in ["", ".", "..", ".hidden", "a/b", "/a", "../a", "a\0b"] {
        assert!(matches!(draft.get(name), Err(StoreError::Name { .. })), "{name:?}");
        assert!(matches!(draft.append(name, 0), Err(StoreError::Name { .. })), "{name:?}");
        assert!(matches!(draft.replace(name, b""), Err(StoreError::Name { .. })), "{name:?}");
        assert!(matches!(draft.delete(name), Err(StoreError::Name { .. })), "{name:?}");
        assert!(matches!(store.open(name), Err(StoreError::Name { .. })), "{name:?}");
        assert!(matches!(store.begin(name, Replace::Never), Err(StoreError::Name { .. })), "{name:?}");
    }
}

/// Names with characters that have a meaning in a shell, an address, a request or a percent-encoded name.
/// (Some stores treat a backslash as a slash and refuse such names.)
const ODD_NAMES: [&str; 15] = [
    "a b",
    "a\"b",
    "a#b",
    "a%41",
    "a%b",
    "a&b=c",
    "a*b",
    "a+b",
    "a;b",
    "a<b>",
    "a?b=c",
    "a[b]",
    "a|b",
    "a~b",
    "caf\u{e9}",
];

fn names_are_kept_byte_for_byte(store: &dyn Store, mark: &str) {
    for name in ODD_NAMES {
        publish(store, mark, name, Replace::Never, name.as_bytes());
    }
    assert_eq!(store.list().expect("lists"), ODD_NAMES, "sorted, each as it was given");
    // The same letter, decomposed into e and an accent, is another name.
    assert!(matches!(store.open("cafe\u{301}"), Err(StoreError::Missing { .. })));
    for name in ODD_NAMES {
        let found = store.open(name).expect(name);
        assert_eq!(read(found.as_ref(), "data"), name.as_bytes(), "{name}");
        assert!(
            found.address().ends_with(name),
            "{}: addresses in messages end with the name",
            found.address().display()
        );
        store.delete(name).expect(name);
    }
    assert_eq!(store.list().expect("lists"), [""; 0]);
}

fn generations_are_deleted(store: &dyn Store, mark: &str) {
    assert!(matches!(store.delete("index"), Err(StoreError::Missing { .. })));
    publish(store, mark, "index", Replace::Never, b"bytes");
    store.delete("index").expect("deletes");
    assert!(matches!(store.open("index"), Err(StoreError::Missing { .. })));
    publish(store, mark, "index", Replace::Never, b"again");
    store.delete("index").expect("deletes");
}

fn names_are_erased(store: &dyn Store, mark: &str) {
    let leftovers = || store.leftovers().expect("looks");
    store.erase("nothing").expect("has nothing to do");
    assert!(matches!(store.erase("a/b"), Err(StoreError::Name { .. })));
    publish(store, mark, "gone", Replace::Never, b"one");
    publish(store, mark, "gone", Replace::Generation, b"two");
    publish(store, mark, "stays", Replace::Never, b"bytes");
    let draft = store.begin("gone", Replace::Generation).expect("begins");
    draft.put("data", b"three").expect("writes");
    draft.leave().expect("leaves");
    assert!(!leftovers().contains(&"stays".to_string()), "a published generation is no leftover");
    for _ in 0..2 {
        store.erase("gone").expect("erases");
        assert!(matches!(store.open("gone"), Err(StoreError::Missing { .. })));
        assert!(!leftovers().contains(&"gone".to_string()), "nothing is left");
        assert!(store.abandoned("gone", Replace::Never).expect("looks").is_empty(), "no draft either");
    }
    assert_eq!(read(store.open("stays").expect("opens").as_ref(), "data"), b"bytes");
    assert_eq!(store.list().expect("lists"), ["stays"]);
    store.erase("stays").expect("erases");
}

/// Checks that leftovers of drafts and of deleted generations are listed, and removed by `erase`.
fn leftovers_are_listed_and_erased(store: &dyn Store) {
    let draft = store.begin("draft", Replace::Never).expect("begins");
    draft.put("data", b"bytes").expect("writes");
    draft.leave().expect("leaves");
    let leftovers = store.leftovers().expect("looks");
    assert!(leftovers.contains(&"draft".to_string()), "{leftovers:?}");
    for name in &leftovers {
        store.erase(name).expect("erases");
    }
    assert_eq!(store.leftovers().expect("looks"), [""; 0]);
}

fn a_log_has_one_writer(store: &dyn Store, mark: &str) {
    let draft = store.begin("index", Replace::Never).expect("begins");
    draft.put(mark, b"mark").expect("writes");
    assert!(matches!(draft.log("log"), Err(StoreError::Unchangeable { .. })), "a draft has none");
    draft.publish(&[mark], "").expect("publishes");
    let found = store.open("index").expect("opens");
    assert!(matches!(found.log("../log"), Err(StoreError::Name { .. })));
    let log = found.log("log").expect("may begin");
    assert_eq!(log.read(0).expect("has not begun"), b"");
    let mut writer = log.write().expect("is ours");
    writer.append(0, &[b"one"], Durability::Disk).expect("appends");
    writer.append(3, &[b" and two"], Durability::System).expect("appends");
    writer.sync().expect("syncs");
    let other_handle = store.open("index").expect("opens").log("log").expect("is there");
    assert_eq!(other_handle.read(0).expect("reads"), b"one and two");
    assert_eq!(
        (other_handle.read(8).expect("reads"), other_handle.read(99).expect("reads")),
        (b"two".to_vec(), vec![])
    );
    assert!(matches!(other_handle.write(), Err(StoreError::Busy { .. })), "one at a time");
    writer.append(3, &[b" again"], Durability::Disk).expect("drops the bytes beyond");
    assert_eq!(log.read(0).expect("reads"), b"one again");
    let short = writer.append(100, &[b"x"], Durability::System).expect_err("the log is shorter");
    assert!(matches!(short, StoreError::Short { len: 9, .. }), "{short}");
    drop(writer);
    let mut writer = other_handle.write().expect("is free");
    assert_eq!(read(found.as_ref(), mark), b"mark", "the objects are unchanged");

    publish(store, mark, "index", Replace::Generation, b"two");
    let lost = writer.append(9, &[b"lost"], Durability::Disk).expect_err("the generation was replaced");
    assert!(matches!(lost, StoreError::Replaced { .. }), "{lost}");
    assert!(matches!(writer.sync(), Err(StoreError::Replaced { .. })), "sync fails, too");
    drop(writer);
    assert!(matches!(log.read(0), Err(StoreError::Replaced { .. })));
    let new = store.open("index").expect("opens").log("log").expect("may begin");
    assert_eq!(new.read(0).expect("has not begun"), b"", "a log goes with its generation");
    store.delete("index").expect("deletes");
}
