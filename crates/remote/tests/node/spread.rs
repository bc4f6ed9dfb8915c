//! Generations that lie over several nodes: what stands where, what is published at once, and what is refused.

use crate::conformance::CAPACITY;
use crate::faults::{content, read_parts};
use crate::place::{DATA, MARK, Place, bytes, spread, tier};
use bathyal_remote::{Identity, Node, NodeOptions, SpreadStore};
use bathyal_store::{Backing, Draft, DraftExt, Replace, Store, StoreError, StoreExt};
use bathyal_tier::FaultKind;
use bathyal_tier::conformance::{Capabilities, check};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn places(count: usize) -> Vec<Place> {
    (0..count).map(|_| Place::new(CAPACITY)).collect()
}

/// The store over all of these.
fn over(places: &[Place]) -> SpreadStore {
    spread(&places.iter().collect::<Vec<_>>(), &[])
}

fn write(store: &SpreadStore, name: &str, bytes: &[u8]) -> Box<dyn Draft> {
    let draft = store.begin(name, Replace::Generation).unwrap();
    draft.put(DATA, bytes).unwrap();
    draft.put(MARK, b"{}").unwrap();
    draft
}

fn put(store: &SpreadStore, name: &str, bytes: &[u8]) {
    write(store, name, bytes).publish(&[DATA, MARK], "").unwrap();
}

fn opened(store: &SpreadStore, name: &str) -> Result<Vec<u8>, StoreError> {
    Ok(bytes(store.open(name)?.as_ref()))
}

/// What stands on a node.
fn standing(place: &Place) -> Vec<String> {
    place.node.status().indexes
}

/// Opening is refused with all of `words`.
#[track_caller]
fn refused(store: &dyn Store, name: &str, words: &[&str]) {
    let error = store.open(name).map(drop).unwrap_err().to_string();
    assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
}

fn wait_for_nothing_used(place: &Place) {
    let began = Instant::now();
    while place.node.status().used_bytes > 0 {
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", place.node.status());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_store() {
    for transport in ["tcp", "shm"] {
        let places = places(3);
        let store = spread(&places.iter().collect::<Vec<_>>(), &[("transport", transport)]);
        bathyal_store::conformance::check_unchangeable(&store, MARK);
        assert!(places.iter().all(|place| standing(place).is_empty()), "no part is left");
        places.iter().for_each(wait_for_nothing_used);
    }
}

#[test]
fn tiers() {
    for transport in ["tcp", "shm"] {
        let places = places(2);
        let store = spread(&places.iter().collect::<Vec<_>>(), &[("transport", transport)]);
        let made = AtomicU32::new(0);
        let make = |bytes: Vec<u8>| {
            let name = format!("tier-{}", made.fetch_add(1, Ordering::Relaxed));
            put(&store, &name, &bytes);
            tier(store.open(&name).unwrap().as_ref())
        };
        if let Err(failure) = check(&make, Capabilities::default()) {
            panic!("{transport}: {failure}");
        }
    }
}

#[test]
fn parts_lie_on_all_nodes_and_a_copy_of_them_does_too() {
    let places = places(3);
    let store = over(&places);
    put(&store, "index", &content());
    let [first, second, third] = [0, 1, 2].map(|number| standing(&places[number]));
    assert_eq!((first.len(), second.len(), third.len()), (2, 1, 1), "{first:?} {second:?} {third:?}");
    assert!(first.contains(&"index".to_owned()) && third[0].starts_with("index-"), "{first:?} {third:?}");
    let found = store.open("index").unwrap();
    let Backing::Parts(parts) = found.get(DATA).unwrap().backing().unwrap() else { panic!("is whole") };
    assert_eq!(parts.lengths().sum::<u64>(), content().len() as u64);
    assert!(parts.lengths().all(|len| len > 60_000), "{:?}", parts.lengths().collect::<Vec<_>>());
    let draft = store.begin("copy", Replace::Never).unwrap();
    let checksums = draft.adopt(found.as_ref(), &[DATA, MARK], &|_, _| true).unwrap();
    assert_eq!(checksums, [crc32c::crc32c(&content()), crc32c::crc32c(b"{}")]);
    let Backing::Parts(copied) = draft.get(DATA).unwrap().backing().unwrap() else { panic!("is whole") };
    assert_eq!(copied.checksums().unwrap(), parts.checksums().unwrap());
    assert_ne!(copied.key(), parts.key());
    draft.publish(&[DATA, MARK], "").unwrap();
    assert!(opened(&store, "copy").unwrap() == content());
    assert_eq!(store.list().unwrap(), ["copy", "index"]);
}

#[test]
fn a_generation_that_was_replaced_stays_for_those_who_have_it_and_goes_with_them() {
    let places = places(2);
    let store = over(&places);
    put(&store, "index", &content());
    let before = store.open("index").unwrap();
    put(&store, "index", &[2; 9000]);
    assert!(bytes(before.as_ref()) == content());
    assert!(opened(&store, "index").unwrap() == [2; 9000]);
    assert_eq!((standing(&places[0]).len(), standing(&places[1]).len()), (2, 1));
    drop(before);
    store.delete("index").unwrap();
    places.iter().for_each(wait_for_nothing_used);
}

#[test]
fn the_nodes_are_named_as_they_were() {
    let places = places(3);
    put(&over(&places), "index", &content());
    let [a, b, c] = [&places[0], &places[1], &places[2]];
    let hosts = [a, b, c].map(|place| place.node.address().to_string());
    let all = hosts.join(",");
    refused(&spread(&[b, a, c], &[]), "index", &["not on the first of these nodes but on", &hosts[0]]);
    refused(&spread(&[a, c, b], &[]), "index", &["part 2 of 3", &hosts[1], "order of the parts", &all]);
    refused(&spread(&[a, b], &[]), "index", &["lies over 3 nodes, and 2 are named", &all]);
    refused(&a.store(&[]), "index", &["name all of them", &all]);
    refused(&b.store(&[]), "index", &["no such index"]);
    a.put("whole", &[1; 100]);
    refused(&spread(&[a, b], &[]), "whole", &["lies on one node"]);
    // Nothing is replaced or deleted whose parts would be left.
    for error in [
        a.store(&[]).delete("index").unwrap_err(),
        a.store(&[]).check("index", Replace::Generation).unwrap_err(),
        spread(&[a, b], &[]).check("index", Replace::Generation).unwrap_err(),
    ] {
        assert!(
            matches!(error, StoreError::Irreplaceable { .. }) && error.to_string().contains(&all),
            "{error}"
        );
    }
    assert!(opened(&over(&places), "index").unwrap() == content());
}

#[test]
fn parts_that_are_missing_or_of_another_index_are_named() {
    let places = [Place::new(CAPACITY), lasting()];
    let store = spread(&places.iter().collect::<Vec<_>>(), &[]);
    put(&store, "index", &content());
    put(&store, "other", &vec![7; content().len()]);
    let parts = ["index", "other"].map(|name| part_bytes(&store, name, 1));
    let own = standing(&places[1]).into_iter().find(|name| name.starts_with("index-")).unwrap();
    let [first, second] = places;
    let second = restarted(second);
    let store = spread(&[&first, &second], &[]);
    let (host, node) = (second.node.address().to_string(), second.store(&[]));
    refused(&store, "index", &["part 2 of 2 is not there", &own, &host, "build it again"]);
    for (bytes, word) in [
        (parts[1].clone(), "another index or of another build"),
        (vec![0; 5000], "is no part of a striped index"),
        (Vec::new(), "is no part of a striped index"),
    ] {
        second.put(&own, &bytes);
        let error = store.open("index").and_then(|found| found.get(DATA).map(drop)).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains(&host) && error.contains(&own), "{error}");
    }
    second.put(&own, &parts[0]);
    assert!(opened(&store, "index").unwrap() == content());
    node.delete(&own).unwrap();
    put(&store, "index", &[3; 10_000]);
    assert!(opened(&store, "index").unwrap() == [3; 10_000]);
}

/// The bytes of a part, its header too.
fn part_bytes(store: &SpreadStore, name: &str, part: usize) -> Vec<u8> {
    let found = store.open(name).unwrap().get(DATA).unwrap();
    let Backing::Parts(parts) = found.backing().unwrap() else { panic!("is whole") };
    let part = parts.parts().nth(part).unwrap();
    let mut bytes = vec![0; part.len() as usize];
    part.read_at(0, &mut bytes).unwrap();
    bytes
}

/// A node that is the same again when it is started again.
fn lasting() -> Place {
    started(SocketAddr::from(([127, 0, 0, 1], 0)), tempfile::tempdir().unwrap())
}

fn started(listen: SocketAddr, folder: tempfile::TempDir) -> Place {
    let identity = Identity::in_folder(&folder.path().join("keys")).unwrap();
    let node = Node::start(&NodeOptions { listen, capacity_bytes: CAPACITY }, identity).unwrap();
    Place { node, folder }
}

/// The node after another start, with nothing in its memory.
fn restarted(place: Place) -> Place {
    let Place { node, folder } = place;
    let address = node.address();
    drop(node);
    started(address, folder)
}

#[test]
fn a_build_that_was_killed_leaves_nothing_that_opens_and_is_gone_on_with() {
    let places = places(2);
    let store = over(&places);
    write(&store, "index", &content()).leave().unwrap();
    assert!(places.iter().all(|place| standing(place).is_empty()));
    assert!(matches!(store.open("index"), Err(StoreError::Missing { .. })));
    // One that is of other nodes is not gone on with.
    let turned = spread(&[&places[1], &places[0]], &[]);
    assert!(turned.abandoned("index", Replace::Never).unwrap().is_empty());
    let judge = |draft: &dyn Draft| Some(draft.get(DATA).ok()?.len());
    let (draft, found) = store.resume("index", Replace::Never, judge).unwrap();
    assert_eq!(found, Some(content().len() as u64));
    let mut object = draft.append(DATA, 150_000).unwrap();
    object.append(&content()[150_000..]).unwrap();
    object.sync().unwrap();
    draft.publish(&[DATA, MARK], "").unwrap();
    assert!(opened(&store, "index").unwrap() == content());
}

#[test]
fn parts_that_nothing_names_any_more_are_removed_by_the_next_build() {
    let places = [lasting(), Place::new(CAPACITY)];
    let store = spread(&places.iter().collect::<Vec<_>>(), &[]);
    put(&store, "index", &content());
    put(&store, "other", &content());
    let [first, second] = places;
    // As if a writer had been killed after he gave the parts their names.
    let first = restarted(first);
    let store = spread(&[&first, &second], &[]);
    assert_eq!(standing(&second).len(), 2);
    assert!(matches!(store.open("index"), Err(StoreError::Missing { .. })));
    let elsewhere = spread(&[&second, &first], &[]);
    drop(elsewhere.begin("index", Replace::Never).unwrap());
    assert_eq!(standing(&second).len(), 2, "they are of an index of another address");
    let draft = store.begin("index", Replace::Never).unwrap();
    let left = standing(&second);
    assert!(left.len() == 1 && left[0].starts_with("other-"), "{left:?}");
    draft.put(DATA, &content()).unwrap();
    draft.put(MARK, b"{}").unwrap();
    draft.publish(&[DATA, MARK], "").unwrap();
    assert!(opened(&store, "index").unwrap() == content());
}

/// Copies a folder and all in it.
fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in from.read_dir().unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn a_writer_that_was_killed_as_he_gave_names_is_followed_by_one_who_does_so() {
    let places = [lasting(), Place::new(CAPACITY)];
    let scratches = tempfile::tempdir().unwrap();
    // What the writer who is killed leaves on his own disk.
    let left = scratches.path().join("left");
    let scratch = |number: u32| {
        let folder = scratches.path().join(number.to_string());
        if !folder.exists() && left.exists() {
            copy_folder(&left, &folder);
        }
        folder.to_str().unwrap().to_owned()
    };
    let judge = |draft: &dyn Draft| Some(draft.get(DATA).ok()?.len());
    let store = spread(&[&places[0], &places[1]], &[("scratch", &scratch(0))]);
    write(&store, "index", &content()).leave().unwrap();
    copy_folder(Path::new(&scratch(0)), &left);
    let (draft, _) = store.resume("index", Replace::Never, judge).unwrap();
    draft.publish(&[DATA, MARK], "").unwrap();

    // Killed after the last name was given: there is nothing to go on with, and what stands is not replaced by itself.
    let store = spread(&[&places[0], &places[1]], &[("scratch", &scratch(1))]);
    let (draft, found) = store.resume("index", Replace::Generation, judge).unwrap();
    assert_eq!(found, None);
    drop(draft);
    assert!(opened(&store, "index").unwrap() == content());

    // Killed before the last one: the parts of the same key make room for those that are brought again.
    let [first, second] = places;
    let first = restarted(first);
    let store = spread(&[&first, &second], &[("scratch", &scratch(2))]);
    let (draft, found) = store.resume("index", Replace::Never, judge).unwrap();
    assert_eq!((found, standing(&second).len()), (Some(content().len() as u64), 0));
    draft.publish(&[DATA, MARK], "").unwrap();
    assert!(opened(&store, "index").unwrap() == content());
}

#[test]
fn a_node_that_is_too_small_refuses_and_leaves_nothing_on_the_others() {
    let places = [Place::new(CAPACITY), Place::new(4 << 20)];
    let store = over(&places);
    put(&store, "index", &[1; 9000]);
    let before = [0, 1].map(|number| standing(&places[number]));
    let draft = write(&store, "index", &vec![1; 20 << 20]);
    let error = draft.publish(&[DATA, MARK], "").unwrap_err().to_string();
    let host = places[1].node.address().to_string();
    assert!(
        error.contains(&host) && error.contains("--capacity") && error.contains("left of 4194304"),
        "{error}"
    );
    assert_eq!([0, 1].map(|number| standing(&places[number])), before);
    assert!(opened(&store, "index").unwrap() == [1; 9000]);
}

#[test]
fn a_node_that_is_down_is_named() {
    let mut places = places(2);
    let store = spread(&places.iter().collect::<Vec<_>>(), &[("timeout", "1")]);
    put(&store, "index", &content());
    let down = places.pop().unwrap();
    let host = down.node.address().to_string();
    drop(down);
    refused(&store, "index", &[&host, "does not answer", "running there"]);
    for error in [
        store.check("other", Replace::Never).unwrap_err().to_string(),
        store.delete("index").unwrap_err().to_string(),
    ] {
        assert!(error.contains(&host), "{error}");
    }
    assert!(standing(&places[0]).contains(&"index".to_owned()), "nothing was deleted by half");
}

#[test]
fn a_node_that_was_started_anew_is_told_apart_from_the_one_before() {
    let (first, second) = (Place::new(CAPACITY), lasting());
    let store = spread(&[&first, &second], &[("transport", "tcp"), ("timeout", "1")]);
    put(&store, "index", &content());
    let found = store.open("index").unwrap();
    let mut queue = tier(found.as_ref()).open(64).unwrap();
    let second = restarted(second);
    let address = second.node.address();
    let done = read_parts(queue.as_mut(), 50, &mut vec![0; 200_000]);
    let kinds = [FaultKind::Changed, FaultKind::LostPeer];
    let failed = done.iter().filter_map(|done| done.result.err());
    assert!(
        failed.clone().count() >= 25 && failed.clone().all(|fault| kinds.contains(&fault.kind)),
        "{done:?}"
    );
    refused(&store, "index", &["part 2 of 2 is not there", &address.to_string(), "started anew"]);
    let store = spread(&[&first, &second], &[]);
    put(&store, "index", &content());
    assert!(opened(&store, "index").unwrap() == content());
}
