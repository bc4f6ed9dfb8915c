//! Tests of the names of indexes: keys that are byte for byte as typed, and indexes of earlier versions under
//! encoded keys.

use bathyal_object::{BucketStore, ObjectUrl, PruneOptions, StoreOptions};
use bathyal_store::{DraftExt, GenerationExt, Replace, Store, StoreError, StoreExt};
use std::path::Path;
use std::time::Duration;

const MARK: &str = "manifest";
/// Names with characters that have a special meaning in some store, library or shell.
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
    "a{b}",
    "a+b",
    "a&b=c",
    "a^b",
    "a`b",
    "a<b>",
    "~",
    "%",
];

fn store(address: &str, scratch: &Path) -> (BucketStore, String) {
    let url = ObjectUrl::parse(Path::new(address)).expect(address);
    let options = StoreOptions::new([("scratch", scratch.to_str().unwrap())]).unwrap();
    (BucketStore::new(&url, &options, MARK).unwrap(), url.name)
}

fn publish(address: &str, scratch: &Path, replace: Replace, data: &[u8]) -> Result<(), StoreError> {
    let (store, name) = store(address, scratch);
    let draft = store.begin(&name, replace)?;
    draft.put("data", &[data, &[7; 700_000]].concat())?;
    draft.put(MARK, b"mark")?;
    draft.publish(&["data", MARK], "note")
}

fn read(address: &str, scratch: &Path) -> Result<u8, StoreError> {
    let (store, name) = store(address, scratch);
    Ok(store.open(&name)?.read("data")?[0])
}

/// Returns the address under which an earlier version wrote, with special characters as `%` and two digits.
fn encoded(address: &str) -> String {
    let (root, names) = address.split_once("://").unwrap();
    let names: Vec<String> = names.split('/').map(encoded_name).collect();
    format!("{root}://{}", names.join("/"))
}

fn encoded_name(name: &str) -> String {
    let plain =
        |byte: &u8| byte.is_ascii_graphic() && !b"\\{^}%`]\"><[~#|*?/".contains(byte) || *byte == b' ';
    let characters = name
        .bytes()
        .map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    characters.collect()
}

#[test]
fn names_are_listed_and_opened_as_typed() {
    let scratch = tempfile::tempdir().unwrap();
    for name in ODD {
        let address = format!("memory://typed/{name}/{name}");
        publish(&address, scratch.path(), Replace::Never, b"1").expect(name);
        let (store, last) = store(&address, scratch.path());
        assert_eq!(
            (store.list().unwrap(), store.names().unwrap()),
            (vec![last.clone()], vec![last]),
            "{name}"
        );
        assert_eq!(store.open(name).unwrap().address(), Path::new(&address));
        assert_eq!(read(&address, scratch.path()).unwrap(), b'1');
    }
    let (folders, _) = store("memory://typed/x", scratch.path());
    let mut sorted: Vec<&str> = ODD.to_vec();
    sorted.sort_unstable();
    assert_eq!(folders.names().unwrap(), sorted, "each name has a key of its own");
}

#[test]
fn an_index_under_an_encoded_key_is_found_and_replaced_there() {
    let scratch = tempfile::tempdir().unwrap();
    let scratch = scratch.path();
    for name in ODD.iter().filter(|name| encoded_name(name) != **name) {
        let address = format!("memory://earlier/{name}/{name}");
        let earlier = encoded(&address);
        publish(&earlier, scratch, Replace::Never, b"1").expect(name);
        // It is found and listed, under a name that opens it.
        assert_eq!(read(&address, scratch).unwrap(), b'1', "{name}");
        let (typed, last) = store(&address, scratch);
        assert_eq!((typed.list().unwrap(), typed.names().unwrap()), (vec![last.clone()], vec![last.clone()]));
        assert_eq!(typed.open(&last).unwrap().address(), Path::new(&earlier), "messages show the key");
        // No second index appears: the draft is refused, or replaces the index under its key.
        let refused = publish(&address, scratch, Replace::Never, b"2").unwrap_err();
        assert!(matches!(&refused, StoreError::Exists { path } if path == Path::new(&earlier)), "{refused}");
        publish(&address, scratch, Replace::Generation, b"2").unwrap();
        assert_eq!((read(&address, scratch).unwrap(), read(&earlier, scratch).unwrap()), (b'2', b'2'));
        let all = PruneOptions { kept: Duration::ZERO, ..PruneOptions::default() };
        assert_eq!(typed.prune(&last, &all).unwrap().generations, 1);
        // If there is an index under each key, the plain key is looked up first, and both can be opened.
        let (plain, _) = store(&format!("memory://earlier/{name}/x"), scratch);
        typed.delete(&last).unwrap();
        assert!(matches!(read(&address, scratch), Err(StoreError::Missing { .. })));
        assert!(matches!(read(&earlier, scratch), Err(StoreError::Missing { .. })));
        publish(&address, scratch, Replace::Never, b"3").unwrap();
        publish(&earlier, scratch, Replace::Never, b"4").unwrap();
        assert_eq!((read(&address, scratch).unwrap(), read(&earlier, scratch).unwrap()), (b'3', b'4'));
        assert_eq!(plain.list().unwrap(), std::slice::from_ref(&last), "the name is listed once");
        typed.erase(&last).unwrap();
        assert!(typed.leftovers().unwrap().is_empty() && typed.list().unwrap().is_empty());
    }
}

#[test]
fn a_name_with_a_backslash_is_found_but_cannot_be_new() {
    let scratch = tempfile::tempdir().unwrap();
    let typed = "memory://back/a\\b";
    let error = publish(typed, scratch.path(), Replace::Never, b"1").unwrap_err();
    assert!(error.to_string().contains("backslash"), "{error}");
    publish("memory://back/a%5Cb", scratch.path(), Replace::Never, b"1").unwrap();
    publish(typed, scratch.path(), Replace::Generation, b"2").unwrap();
    assert_eq!(read(typed, scratch.path()).unwrap(), b'2');
}

#[test]
fn a_name_in_a_plain_folder_is_listed_as_its_key() {
    let scratch = tempfile::tempdir().unwrap();
    publish("memory://mixed/my%7Eindex", scratch.path(), Replace::Never, b"1").unwrap();
    let (store, _) = store("memory://mixed/x", scratch.path());
    assert_eq!(store.list().unwrap(), ["my%7Eindex"]);
    for typed in ["my%7Eindex", "my~index"] {
        assert_eq!(read(&format!("memory://mixed/{typed}"), scratch.path()).unwrap(), b'1');
    }
}

#[test]
fn a_store_of_one_collection_keeps_its_spelling() {
    let scratch = tempfile::tempdir().unwrap();
    let settled = || store("memory://settled/café/x", scratch.path()).0.with_one_spelling().unwrap();
    let begin = |store: &BucketStore, name: &str| {
        let draft = store.begin(name, Replace::Never).unwrap();
        draft.put(MARK, b"mark").unwrap();
        draft.publish(&[MARK], "").unwrap();
    };
    publish("memory://settled/caf%C3%A9/v-1", scratch.path(), Replace::Never, b"1").unwrap();
    begin(&settled(), "v-2");
    let (earlier, _) = store("memory://settled/caf%C3%A9/x", scratch.path());
    assert_eq!(
        (settled().list().unwrap(), earlier.list().unwrap()),
        (vec!["v-1".into(), "v-2".into()], vec!["v-1".to_string(), "v-2".into()])
    );
    let (outside, _) = store("memory://settled/x", scratch.path());
    assert_eq!(outside.names().unwrap(), ["caf%C3%A9"]);
    assert!(outside.any_published_in(Some("café"), &["v-2".into()]).unwrap());
    assert!(!outside.any_published_in(Some("café"), &["v-3".into()]).unwrap());
    earlier.erase("v-1").unwrap();
    earlier.erase("v-2").unwrap();
    begin(&settled(), "v-3");
    assert_eq!(outside.names().unwrap(), ["café"], "a new collection has plain keys");
}

#[test]
fn an_upload_begun_by_an_earlier_version_is_continued() {
    let scratch = tempfile::tempdir().unwrap();
    let earlier = store("memory://begun/caf%C3%A9", scratch.path()).0;
    let draft = earlier.begin("caf%C3%A9", Replace::Never).unwrap();
    draft.put("data", &vec![7; 700_000]).unwrap();
    draft.put(MARK, b"mark").unwrap();
    draft.upload(&["data", MARK], "note", &|_, _| true).unwrap();
    draft.leave().unwrap();
    // The draft of an earlier version had the typed name, and its journal had no field for the spelling.
    let folder = earlier.scratch().to_path_buf();
    for entry in folder.read_dir().unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().unwrap().to_str().unwrap().replace("caf%C3%A9", "café");
        std::fs::rename(&entry, folder.join(name)).unwrap();
    }
    let journals = find_journals(&folder);
    assert_eq!(journals.len(), 1, "{journals:?}");
    let text = std::fs::read_to_string(&journals[0]).unwrap().replace("\"typed\":true,", "");
    std::fs::write(&journals[0], text).unwrap();
    let typed = store("memory://begun/café", scratch.path()).0;
    let (draft, note) =
        typed.resume("café", Replace::Never, |draft| draft.publication_note().map(str::to_owned)).unwrap();
    assert_eq!(note.as_deref(), Some("note"));
    draft.publish(&["data", MARK], "note").unwrap();
    assert_eq!(typed.open("café").unwrap().read("data").unwrap(), vec![7; 700_000]);
    assert_eq!(typed.names().unwrap(), ["caf%C3%A9"], "uploaded objects are not uploaded again");
}

fn find_journals(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => find_journals(&path),
            false if path.file_name().is_some_and(|name| name == "upload") => vec![path],
            false => vec![],
        })
        .collect()
}

#[test]
fn invalid_keys_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let refused = |address: &str, why: &str| {
        let error = ObjectUrl::parse(Path::new(address)).expect_err(address).to_string();
        assert!(error.contains(why), "{address}: {error}");
    };
    refused("s3://bucket/a//b", "empty name");
    refused("s3://bucket/a/b//", "empty name");
    refused("s3://bucket/./b", "'.'");
    refused("s3://bucket/a/..", "'..'");
    refused("s3://bucket/a\u{1}/b", "control character");
    refused("s3://bucket/a\u{85}b", "control character");
    refused("s3://bucket/a\u{fffe}", "control character");
    refused("s3://bucket?region=x/a", "give store options separately");
    refused("s3://büro/a", "no 'ü'");
    refused("gs://a%62c/a", "no '%'");
    refused(&format!("s3://bucket/{}", "é".repeat(600)), "1200 bytes");
    let long = format!("memory://{}/x", "n".repeat(890));
    let error = publish(&format!("{long}yyyyyyyyy"), scratch.path(), Replace::Never, b"1").unwrap_err();
    assert!(error.to_string().contains("can have at most 896"), "{error}");
    publish(&long, scratch.path(), Replace::Never, b"1").unwrap();
    // Longer than a file name on this machine, where its draft is written first.
    let long = format!("memory://long/{}", "é".repeat(400));
    publish(&long, scratch.path(), Replace::Never, b"1").unwrap();
    assert_eq!(read(&long, scratch.path()).unwrap(), b'1');
}

#[cfg(unix)]
#[test]
fn an_address_that_is_not_utf8_is_not_taken_for_a_folder() {
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(std::ffi::OsStr::from_bytes(b"s3://bucket/caf\xe9/x"));
    assert!(ObjectUrl::is_url(path));
    assert!(ObjectUrl::parse(path).unwrap_err().to_string().contains("UTF-8"));
}
