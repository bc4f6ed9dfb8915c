//! Tests of cases that only a local folder has: links, pipes, foreign folders, concurrent builds.

use bathyal_store::local::LocalStore;
use bathyal_store::{Backing, DraftExt, GenerationExt, Replace, Store, StoreError, StoreExt};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

const MARK: &str = "manifest";

fn publish(store: &LocalStore, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let draft = store.begin(name, Replace::Generation)?;
    draft.put("data", bytes)?;
    draft.put(MARK, bytes)?;
    draft.publish(&["data", MARK], "")
}

fn make_pipe(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name is a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

#[test]
fn entries_that_are_no_files_are_refused_without_blocking() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::new(folder.path(), MARK);
    publish(&store, "index", b"bytes").unwrap();
    let index = folder.path().join("index");
    std::fs::remove_file(index.join("data")).unwrap();
    make_pipe(&index.join("data"));
    symlink("/dev/zero", index.join("device")).unwrap();
    std::fs::create_dir(index.join("folder")).unwrap();
    symlink(index.join(MARK), index.join("link")).unwrap();
    let found = store.open("index").unwrap();
    for (name, what) in [("data", "a pipe"), ("device", "a device"), ("folder", "a folder")] {
        let error = found.get(name).unwrap_err();
        assert!(matches!(error, StoreError::Irregular { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    assert_eq!(found.read("link").unwrap(), b"bytes");
    assert!(matches!(found.get(MARK).unwrap().backing().unwrap(), Backing::File(_)));

    let draft = store.begin("other", Replace::Never).unwrap();
    make_pipe(&draft.address().join("pipe"));
    assert!(draft.append("pipe", 0).unwrap_err().to_string().contains("a pipe"));
}

#[test]
fn entries_that_are_no_generations_are_neither_opened_nor_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::new(folder.path(), MARK);
    std::fs::write(folder.path().join("file"), b"mine").unwrap();
    std::fs::create_dir(folder.path().join("full")).unwrap();
    std::fs::write(folder.path().join("full/file"), b"mine").unwrap();
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    make_pipe(&folder.path().join("pipe"));
    for name in ["file", "full", "pipe"] {
        let error = store.open(name).unwrap_err();
        assert!(matches!(error, StoreError::NoGeneration { .. }), "{error}");
        let error = store.check(name, Replace::Generation).unwrap_err();
        assert!(matches!(error, StoreError::NoGeneration { .. }), "{error}");
        let error = store.begin(name, Replace::Generation).unwrap_err();
        assert!(
            matches!(error, StoreError::NoGeneration { .. }),
            "refused before anything is built: {error}"
        );
        let error = store.begin(name, Replace::Never).unwrap_err();
        assert!(matches!(error, StoreError::Exists { .. }), "{error}");
    }
    assert_eq!(names(folder.path()), ["empty", "file", "full", "pipe"]);
    publish(&store, "empty", b"bytes").unwrap();
    assert_eq!(store.list().unwrap(), ["empty"]);
    assert_eq!(std::fs::read(folder.path().join("full/file")).unwrap(), b"mine");
}

#[test]
fn a_link_is_followed_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (real, link) = (folder.path().join("shelf/index-3"), folder.path().join("current"));
    std::fs::create_dir(folder.path().join("shelf")).unwrap();
    symlink(&real, &link).unwrap();
    let error = LocalStore::holding(&link, MARK).unwrap_err();
    assert!(error.to_string().contains("leads nowhere"), "{error}");
    let (store, name) = LocalStore::holding(&real, MARK).unwrap();
    publish(&store, &name, b"one").unwrap();
    let (store, name) = LocalStore::holding(&link, MARK).unwrap();
    publish(&store, &name, b"two").unwrap();
    assert_eq!(LocalStore::open_at(&link, MARK).unwrap().read("data").unwrap(), b"two");
    assert_eq!(
        (names(folder.path()), names(&folder.path().join("shelf"))),
        (vec!["current".to_string(), "shelf".to_string()], vec!["index-3".to_string()])
    );
    assert!(link.is_symlink());
    for path in ["..", "/"] {
        assert!(matches!(LocalStore::holding(Path::new(path), MARK), Err(StoreError::Irregular { .. })));
    }
}

#[test]
fn targets_of_links_are_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (store, outside) = (LocalStore::new(folder.path(), MARK), folder.path().join("outside"));
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("file"), b"mine").unwrap();
    publish(&store, "index", b"one").unwrap();
    symlink(&outside, folder.path().join("index/link")).unwrap();
    std::fs::create_dir(folder.path().join("index/inner")).unwrap();
    publish(&store, "index", b"two").unwrap();
    assert_eq!(names(folder.path()), ["index", "outside"]);
    assert_eq!(std::fs::read(outside.join("file")).unwrap(), b"mine");
}

#[test]
fn only_abandoned_drafts_are_taken_over_and_only_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::new(folder.path(), MARK);
    let at_work = store.begin("index", Replace::Never).unwrap();
    at_work.put("state", b"half").unwrap();
    let state = |draft: &dyn bathyal_store::Draft| draft.read("state").ok();
    let (second, none) = store.resume("index", Replace::Never, state).unwrap();
    assert_eq!(
        (none, second.address() == at_work.address()),
        (None, false),
        "the first draft still has a writer"
    );
    drop(second);

    let abandoned = at_work.address().to_path_buf();
    at_work.leave().unwrap();
    // A foreign folder, and one whose writer was killed before it had a lock.
    std::fs::create_dir(folder.path().join("index.building-7")).unwrap();
    std::fs::write(folder.path().join("index.building-7/file"), b"mine").unwrap();
    std::fs::create_dir(folder.path().join("index.building-8")).unwrap();
    // Folders of other names, and a leftover of an older version.
    std::fs::create_dir(folder.path().join("index.building-x")).unwrap();
    std::fs::create_dir(folder.path().join("index.replaced")).unwrap();
    std::fs::create_dir(folder.path().join("index.building-9")).unwrap();
    std::fs::write(folder.path().join("index.building-9/lock"), b"").unwrap();
    std::fs::write(folder.path().join("index.building-9/graph.bin"), b"old").unwrap();
    let (resumed, found) = store.resume("index", Replace::Never, state).unwrap();
    assert_eq!((found.as_deref(), resumed.address()), (Some(&b"half"[..]), abandoned.as_path()));
    resumed.put(MARK, b"mark").unwrap();
    resumed.publish(&[MARK], "").unwrap();
    publish(&store, "index", b"again").unwrap();
    assert_eq!(names(folder.path()), ["index", "index.building-7", "index.building-x", "index.replaced"]);
}

#[test]
fn reading_a_truncated_object_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::new(folder.path(), MARK);
    publish(&store, "index", b"ten bytes.").unwrap();
    let data = store.open("index").unwrap().get("data").unwrap();
    std::fs::write(folder.path().join("index/data"), b"cut").unwrap();
    let error = data.read_at(0, &mut [0; 10]).unwrap_err();
    assert!(matches!(error, StoreError::Short { len: 3, .. }), "{error}");
}
