//! Tests of the store in memory, which has the interface of remote stores: conformance, publication, logs.

use bathyal_object::{BucketStore, ObjectUrl, PruneOptions, Shaper, Shaping, StoreOptions};
use bathyal_store::{
    Draft, DraftExt, Durability, GenerationExt, Replace, Store, StoreError, StoreExt, Traffic, conformance,
};
use bathyal_tier::Tier;
use bathyal_tier::backend::file::FileOptions;
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const MARK: &str = "manifest";

fn options(scratch: &Path) -> StoreOptions {
    StoreOptions::new([("scratch", scratch.to_str().unwrap())]).unwrap()
}

fn store(address: &str, options: &StoreOptions) -> BucketStore {
    BucketStore::new(&ObjectUrl::parse(Path::new(address)).unwrap(), options, MARK).unwrap()
}

#[test]
fn the_store_conforms() {
    let scratch = tempfile::tempdir().unwrap();
    conformance::check(&store("memory://conformance/x", &options(scratch.path())), MARK);
    let leftovers =
        scratch.path().read_dir().unwrap().flat_map(|folder| folder.unwrap().path().read_dir().unwrap());
    assert_eq!(leftovers.count(), 0, "nothing is left over");
}

/// Publishes the bytes as an object, and opens it as a tier.
fn tier_over(store: &BucketStore, bytes: Vec<u8>) -> (Arc<dyn Tier>, Arc<Traffic>) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = format!("tier{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let draft = store.begin(&name, Replace::Never).unwrap();
    draft.put("data", &bytes).unwrap();
    draft.put(MARK, b"mark").unwrap();
    draft.publish(&["data", MARK], "").unwrap();
    let found = store.open(&name).unwrap();
    (found.get("data").unwrap().tier(FileOptions::default()).unwrap(), found.traffic().unwrap())
}

#[test]
fn the_tier_conforms() {
    let scratch = tempfile::tempdir().unwrap();
    let store = store("memory://tiers/x", &options(scratch.path()));
    bathyal_tier::conformance::check(&|bytes| tier_over(&store, bytes).0, Default::default()).unwrap();
}

#[test]
fn the_tier_of_a_distant_store_conforms() {
    let scratch = tempfile::tempdir().unwrap();
    let shaping = Shaping { first_byte_ms: 1.5, spread: 0.8, requests_per_s: 20_000.0, bytes_per_s: 625e6 };
    let mut options = options(scratch.path());
    options.shaper = Some(Arc::new(Shaper::new(shaping, 7)));
    let store = store("memory://far/x", &options);
    let all = RefCell::new(Vec::new());
    let make = |bytes| {
        let (tier, traffic) = tier_over(&store, bytes);
        all.borrow_mut().push(traffic);
        tier
    };
    bathyal_tier::conformance::check_far(&make, Default::default()).unwrap();
    let hedged: u64 = all.take().iter().map(|traffic| traffic.now().hedges_won).sum();
    assert!(hedged > 0, "some second requests get the first response");
}

#[test]
fn small_objects_are_in_the_record_and_large_ones_in_parts() {
    let scratch = tempfile::tempdir().unwrap();
    let store = store("memory://sizes/x", &options(scratch.path()));
    let draft = store.begin("index", Replace::Never).unwrap();
    let large: Vec<u8> = (0..(40 << 20) + 5_u32).map(|i| ((i * 31) >> 4) as u8).collect();
    draft.put("large", &large).unwrap();
    let small: Vec<String> = (0..12).map(|i| format!("small{i}")).collect();
    small.iter().for_each(|name| draft.put(name, &vec![name.len() as u8; 200_000]).unwrap());
    draft.put(MARK, b"mark").unwrap();
    let names: Vec<&str> = small.iter().map(String::as_str).chain(["large", MARK]).collect();
    draft.publish(&names, "").unwrap();
    let found = store.open("index").unwrap();
    let before = found.traffic().unwrap().now();
    assert_eq!(
        (before.requests, found.read(MARK).unwrap()),
        (2, b"mark".to_vec()),
        "a listing, and the record"
    );
    small.iter().for_each(|name| assert_eq!(found.read(name).unwrap(), vec![name.len() as u8; 200_000]));
    assert!(found.read("large").unwrap() == large);
    let after = found.traffic().unwrap().now().since(&before);
    assert_eq!((after.requests, after.retries), (2 + 11, 0), "two small ones do not fit into the record");
}

#[test]
fn objects_pruned_before_publication_are_uploaded_again() {
    let scratch = tempfile::tempdir().unwrap();
    let store = store("memory://pruned/x", &options(scratch.path()));
    let draft = store.begin("index", Replace::Never).unwrap();
    draft.put("data", &vec![7; 700_000]).unwrap();
    draft.put(MARK, b"mark").unwrap();
    draft.upload(&["data", MARK], "note", &|_, _| true).unwrap();
    let all = PruneOptions { kept: Duration::ZERO, ..PruneOptions::default() };
    assert_eq!(store.prune("index", &all).unwrap().unfinished, 1);
    let error = draft.publish(&["data", MARK], "note").unwrap_err();
    assert!(error.to_string().contains("removed before it was published"), "{error}");
    assert!(matches!(store.open("index"), Err(StoreError::Missing { .. })));
    let sealed = |draft: &dyn Draft| draft.publication_note().map(str::to_owned);
    let (draft, note) = store.resume("index", Replace::Never, sealed).unwrap();
    assert_eq!(note.as_deref(), Some("note"));
    draft.publish(&["data", MARK], "note").unwrap();
    assert_eq!(store.open("index").unwrap().read("data").unwrap(), vec![7; 700_000]);
}

#[test]
fn leftovers_of_a_name_are_listed_and_erased() {
    let scratch = tempfile::tempdir().unwrap();
    let store = store("memory://erased/x", &options(scratch.path()));
    let begin = || {
        let draft = store.begin("index", Replace::Never).unwrap();
        draft.put("data", &vec![7; 700_000]).unwrap();
        draft.put(MARK, b"mark").unwrap();
        draft
    };
    // Uploaded and never published, by a machine that does not come back.
    let draft = begin();
    draft.upload(&["data", MARK], "note", &|_, _| true).unwrap();
    draft.leave().unwrap();
    std::fs::remove_dir_all(store.scratch()).unwrap();
    assert_eq!((store.list().unwrap(), store.leftovers().unwrap()), (vec![], vec!["index".to_string()]));
    store.erase("index").unwrap();
    assert_eq!(store.leftovers().unwrap(), [""; 0]);

    // A deleted index leaves a record, objects and a log.
    begin().publish(&["data", MARK], "").unwrap();
    let log = store.open("index").unwrap().log("log").unwrap();
    let mut writer = log.write().unwrap();
    writer.append(0, &[b"bytes"], Durability::System).unwrap();
    store.delete("index").unwrap();
    assert_eq!((store.list().unwrap(), store.leftovers().unwrap()), (vec![], vec!["index".to_string()]));
    store.erase("index").unwrap();
    assert_eq!(store.leftovers().unwrap(), [""; 0]);

    // A writer that has not noticed the removal leaves a piece of the log, and gets an error.
    let late = writer.append(5, &[b"late"], Durability::Disk).unwrap_err();
    assert!(matches!(late, StoreError::Replaced { .. }), "{late}");
    assert_eq!(store.leftovers().unwrap(), ["index"]);
    store.erase("index").unwrap();
    assert_eq!(store.leftovers().unwrap(), [""; 0]);
}

#[test]
fn reading_on_in_a_log_requests_only_new_pieces() {
    let scratch = tempfile::tempdir().unwrap();
    let store = store("memory://pieces/x", &options(scratch.path()));
    let draft = store.begin("index", Replace::Never).unwrap();
    draft.put(MARK, b"mark").unwrap();
    draft.publish(&[MARK], "").unwrap();
    let found = store.open("index").unwrap();
    let reader = found.log("log").unwrap();
    let mut writer = store.open("index").unwrap().log("log").unwrap().write().unwrap();
    let mut whole = Vec::new();
    for (at, bytes) in [(0, b"first".to_vec()), (5, b", second".to_vec()), (13, b"?".to_vec())] {
        writer.append(at, &[&bytes], Durability::Disk).unwrap();
        whole.extend(bytes);
    }
    assert_eq!(reader.read(0).unwrap(), whole);
    // The last piece is dropped again, and the one before it in part.
    writer.append(8, &[b"nd third"], Durability::Disk).unwrap();
    for from in [16, 99, 13, 9, 8, 5, 3, 0] {
        let rest = b"first, snd third".get(from..).unwrap_or_default();
        assert_eq!(reader.read(from as u64).unwrap(), rest, "from {from}");
    }
    let before = found.traffic().unwrap().now();
    writer.append(16, &[b", fourth"], Durability::Disk).unwrap();
    assert_eq!(reader.read(16).unwrap(), b", fourth");
    let requests = found.traffic().unwrap().now().since(&before).requests;
    assert_eq!(requests, 3, "two listings, and the new piece");
}
