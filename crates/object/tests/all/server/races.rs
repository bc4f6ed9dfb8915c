//! Tests of concurrent writers and of a killed one.

use crate::server::proxy::Proxy;
use crate::server::service::{MARK, content, draft, publish, service};
use bathyal_object::{BucketStore, ObjectUrl, StoreOptions};
use bathyal_store::{Draft, Durability, GenerationExt, Replace, Store, StoreError, StoreExt};
use object_store::path::Path as Key;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;

/// Publishes the drafts concurrently.
fn publish_concurrently(drafts: Vec<Box<dyn Draft>>) -> Vec<Result<(), StoreError>> {
    let barrier = &Barrier::new(drafts.len());
    std::thread::scope(|scope| {
        let publish = |draft: Box<dyn Draft>| {
            scope.spawn(move || {
                barrier.wait();
                draft.publish(&["data", MARK], "")
            })
        };
        let all: Vec<_> = drafts.into_iter().map(publish).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn of_concurrent_publications_without_replacement_one_succeeds() {
    let Some(service) = service() else { return };
    let contents: Vec<Vec<u8>> = (0..16).map(|i| content(700_000, 100 + i)).collect();
    for _ in 0..5 {
        let place = service.place("never");
        // The first eight drafts share a client, the others another one.
        let stores = [place.store(), place.store_through(&service.endpoint, &[])];
        let drafts = contents.iter().enumerate().map(|(i, data)| draft(&stores[i / 8], Replace::Never, data));
        let results = publish_concurrently(drafts.collect());
        let succeeded: Vec<usize> = (0..16).filter(|i| results[*i].is_ok()).collect();
        let [succeeded] = succeeded[..] else { panic!("{succeeded:?} succeeded") };
        for error in results.into_iter().filter_map(Result::err) {
            assert!(matches!(error, StoreError::Exists { .. }), "{error}");
            service.message(&error);
        }
        assert!(place.store().open("index").unwrap().read("data").unwrap() == contents[succeeded]);
        let keys = place.keys("index");
        assert_eq!(keys.len(), 3, "the uploads of the others are removed: {keys:?}");
    }
}

#[test]
fn concurrent_replacements_all_succeed() {
    let Some(service) = service() else { return };
    let place = service.place("replace");
    let store = place.store();
    let contents: Vec<Vec<u8>> = (0..8).map(|i| content(700_000, 200 + i)).collect();
    publish(&store, Replace::Never, b"first").unwrap();
    let drafts = contents.iter().map(|data| draft(&store, Replace::Generation, data)).collect();
    for result in publish_concurrently(drafts) {
        result.unwrap_or_else(|error| panic!("{}", service.message(&error)));
    }
    let found = store.open("index").unwrap().read("data").unwrap();
    assert_eq!(
        contents.iter().filter(|data| **data == found).count(),
        1,
        "the index is one of them, complete"
    );
    let records = place.keys("index").into_iter().filter(|key| key.starts_with("records/"));
    assert_eq!(records.count(), 9, "each publication has its own number");
}

#[test]
fn a_log_has_one_writer_across_clients_and_processes() {
    let Some(service) = service() else { return };
    let place = service.place("writers");
    let (store, other_store) = (place.store(), place.store_through(&service.endpoint, &[]));
    publish(&store, Replace::Never, b"data").unwrap();
    let log = store.open("index").unwrap().log("log").unwrap();
    let mut writer = log.write().unwrap();
    let busy = other_store.open("index").unwrap().log("log").unwrap().write().unwrap_err();
    assert!(matches!(busy, StoreError::Busy { .. }), "{busy}");
    writer.append(0, &[b"ours"], Durability::Disk).unwrap();

    // Creates the next piece, as a writer in another process would.
    let pieces: Vec<String> =
        place.keys("index").into_iter().filter(|key| key.contains("/changes/log/")).collect();
    let [first] = &pieces[..] else { panic!("{pieces:?}") };
    let key = |name: &str| Key::from(format!("{}/index/{name}", place.folder));
    let mut piece = place.raw().get(&key(first));
    piece.truncate(8);
    piece.extend([b'f'; 32]);
    piece.extend(4_u64.to_le_bytes());
    piece.extend(b" and theirs");
    let (pieces, _) = first.rsplit_once('/').unwrap();
    place.raw().put(&key(&format!("{pieces}/{:020}", 1)), piece);
    for _ in 0..2 {
        let busy = writer.append(4, &[b" lost"], Durability::Disk).unwrap_err();
        assert!(matches!(busy, StoreError::Busy { .. }), "{busy}");
        assert_eq!(log.read(0).unwrap(), b"ours and theirs");
    }
    drop(writer);
    log.write().unwrap().append(15, &[b", ours again"], Durability::Disk).unwrap();
    assert_eq!(log.read(0).unwrap(), b"ours and theirs, ours again");
}

/// The length of an object of eight parts of 8 MiB, the last of which is shorter.
const KILLED_BYTES: usize = 60 << 20;
/// Parts that are uploaded concurrently.
const CONCURRENT_PARTS: u32 = 4;

/// Not a test of its own: the next test starts it as a process and kills it. Lines of its input say where to
/// publish.
#[test]
fn killed_publisher() {
    if std::env::var_os("BATHYAL_KILLED_PUBLISHER").is_none() {
        return;
    }
    let lines: Vec<String> = std::io::stdin().lock().lines().map(Result::unwrap).collect();
    let (address, options) = lines.split_first().unwrap();
    let url = ObjectUrl::parse(Path::new(address)).unwrap();
    let store = BucketStore::new(&url, &StoreOptions::parse(options).unwrap(), MARK).unwrap();
    publish(&store, Replace::Never, &content(KILLED_BYTES, 77)).unwrap();
}

#[test]
fn an_upload_that_was_killed_is_continued() {
    let Some(service) = service() else { return };
    let (place, proxy) = (service.place("killed"), Proxy::new(&service.endpoint));
    proxy.always(
        |request| request.part().is_some_and(|part| part > CONCURRENT_PARTS),
        crate::server::proxy::Fault::NoResponse,
    );
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "server::races::killed_publisher", "--nocapture"])
        .env("BATHYAL_KILLED_PUBLISHER", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let input = [
        place.address("index"),
        format!("endpoint={}", proxy.endpoint),
        format!("region={}", service.region),
        format!("access_key_id={}", service.access_key),
        format!("secret_access_key={}", service.secret),
        format!("scratch={}", place.scratch.path().display()),
        String::new(),
    ];
    child.stdin.take().unwrap().write_all(input.join("\n").trim_end().as_bytes()).unwrap();
    proxy.wait_for(1, |request| request.part().is_some_and(|part| part > CONCURRENT_PARTS));
    child.kill().unwrap();
    child.wait().unwrap();

    assert!(matches!(place.store().open("index"), Err(StoreError::Missing { .. })));
    assert_eq!(place.store().list().unwrap(), [""; 0]);
    assert_eq!(place.keys("index"), [""; 0], "not even an object");
    assert_no_secret_below(service, place.scratch.path());
    let before = proxy.seen();
    assert_eq!(
        before.iter().filter(|request| request.part().is_some_and(|part| part <= CONCURRENT_PARTS)).count(),
        4
    );

    assert_eq!(proxy.release(), 0);
    let store = place.store_through(&proxy.endpoint, &[]);
    let (draft, note) =
        store.resume("index", Replace::Never, |draft| draft.publication_note().map(str::to_owned)).unwrap();
    assert_eq!(note.as_deref(), Some("note"));
    draft.publish(&["data", MARK], "note").unwrap();
    let mut parts: Vec<u32> = proxy.seen().iter().filter_map(|request| request.part()).collect();
    parts.sort_unstable();
    // A slow request is sent twice.
    parts.dedup();
    assert_eq!(parts, [5, 6, 7, 8], "uploaded parts are not sent again");
    assert!(store.open("index").unwrap().read("data").unwrap() == content(KILLED_BYTES, 77));
    assert_eq!(place.keys("index").len(), 3, "the record, its copy and the object");
    let raw = place.raw();
    for key in raw.list(&place.folder).iter().filter(|key| key.as_ref().contains("/records/")) {
        service.assert_no_secret(&String::from_utf8_lossy(&raw.get(key)));
    }
    assert_no_secret_below(service, place.scratch.path());
}

/// Asserts that no small file below `folder` (journals, locks, notes) contains a secret.
fn assert_no_secret_below(service: &crate::server::service::Service, folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            assert_no_secret_below(service, &entry.path());
        } else if entry.metadata().unwrap().len() < 1 << 20 {
            service.assert_no_secret(&String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap()));
        }
    }
}
