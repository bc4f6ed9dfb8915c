//! Generations over several nodes: the node of each object, atomic publishing, and refused operations.

use crate::conformance::CAPACITY;
use crate::faults::{content, read_parts};
use crate::test_node::{DATA, MARK, TestNode, bytes, spread, tier};
use bathyal_remote::{Identity, Node, NodeOptions, SpreadStore};
use bathyal_store::{Backing, Draft, DraftExt, Replace, Store, StoreError, StoreExt};
use bathyal_tier::FaultKind;
use bathyal_tier::conformance::{Capabilities, check};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn start_nodes(count: usize) -> Vec<TestNode> {
    (0..count).map(|_| TestNode::new(CAPACITY)).collect()
}

/// Returns the store over all of `nodes`.
fn store_over(nodes: &[TestNode]) -> SpreadStore {
    spread(&nodes.iter().collect::<Vec<_>>(), &[])
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

fn read_data(store: &SpreadStore, name: &str) -> Result<Vec<u8>, StoreError> {
    Ok(bytes(store.open(name)?.as_ref()))
}

/// Returns the names of the generations on a node.
fn published(node: &TestNode) -> Vec<String> {
    node.server.status().indexes
}

/// Asserts that opening fails with a message that contains all of `words`.
#[track_caller]
fn assert_refused(store: &dyn Store, name: &str, words: &[&str]) {
    let error = store.open(name).map(drop).unwrap_err().to_string();
    assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
}

fn wait_for_nothing_used(node: &TestNode) {
    let began = Instant::now();
    while node.server.status().used_bytes > 0 {
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", node.server.status());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn stores_of_several_nodes_conform() {
    for transport in ["tcp", "shm"] {
        let nodes = start_nodes(3);
        let store = spread(&nodes.iter().collect::<Vec<_>>(), &[("transport", transport)]);
        bathyal_store::conformance::check_unchangeable(&store, MARK);
        assert!(nodes.iter().all(|node| published(node).is_empty()), "parts are left");
        nodes.iter().for_each(wait_for_nothing_used);
    }
}

#[test]
fn tiers_over_several_nodes_conform() {
    for transport in ["tcp", "shm"] {
        let nodes = start_nodes(2);
        let store = spread(&nodes.iter().collect::<Vec<_>>(), &[("transport", transport)]);
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
fn a_generation_and_its_copy_have_parts_on_all_nodes() {
    let nodes = start_nodes(3);
    let store = store_over(&nodes);
    put(&store, "index", &content());
    let [first, second, third] = [0, 1, 2].map(|number| published(&nodes[number]));
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
    assert!(read_data(&store, "copy").unwrap() == content());
    assert_eq!(store.list().unwrap(), ["copy", "index"]);
}

#[test]
fn a_replaced_generation_stays_valid_for_its_readers_and_is_freed_after_them() {
    let nodes = start_nodes(2);
    let store = store_over(&nodes);
    put(&store, "index", &content());
    let before = store.open("index").unwrap();
    put(&store, "index", &[2; 9000]);
    assert!(bytes(before.as_ref()) == content());
    assert!(read_data(&store, "index").unwrap() == [2; 9000]);
    assert_eq!((published(&nodes[0]).len(), published(&nodes[1]).len()), (2, 1));
    drop(before);
    store.delete("index").unwrap();
    nodes.iter().for_each(wait_for_nothing_used);
}

#[test]
fn other_orders_or_sets_of_nodes_are_refused() {
    let nodes = start_nodes(3);
    put(&store_over(&nodes), "index", &content());
    let [a, b, c] = [&nodes[0], &nodes[1], &nodes[2]];
    let hosts = [a, b, c].map(|node| node.server.address().to_string());
    let all = hosts.join(",");
    assert_refused(&spread(&[b, a, c], &[]), "index", &["not on the first of these nodes but on", &hosts[0]]);
    assert_refused(
        &spread(&[a, c, b], &[]),
        "index",
        &["part 2 of 3", &hosts[1], "order of the parts", &all],
    );
    assert_refused(&spread(&[a, b], &[]), "index", &["is on 3 nodes, and this address names 2", &all]);
    assert_refused(&a.store(&[]), "index", &["name all of them", &all]);
    assert_refused(&b.store(&[]), "index", &["no such index"]);
    a.put("whole", &[1; 100]);
    assert_refused(&spread(&[a, b], &[]), "whole", &["is on one node"]);
    // Replacing or deleting is refused if parts would be left over.
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
    assert!(read_data(&store_over(&nodes), "index").unwrap() == content());
}

#[test]
fn errors_name_missing_and_wrong_parts() {
    let nodes = [TestNode::new(CAPACITY), restartable_node()];
    let store = spread(&nodes.iter().collect::<Vec<_>>(), &[]);
    put(&store, "index", &content());
    put(&store, "other", &vec![7; content().len()]);
    let parts = ["index", "other"].map(|name| part_bytes(&store, name, 1));
    let part_name = published(&nodes[1]).into_iter().find(|name| name.starts_with("index-")).unwrap();
    let [first, second] = nodes;
    let second = restart(second);
    let store = spread(&[&first, &second], &[]);
    let (host, node) = (second.server.address().to_string(), second.store(&[]));
    assert_refused(&store, "index", &["part 2 of 2 is not there", &part_name, &host, "build it again"]);
    for (bytes, word) in [
        (parts[1].clone(), "another index or of another build"),
        (vec![0; 5000], "is no part of a striped index"),
        (Vec::new(), "is no part of a striped index"),
    ] {
        second.put(&part_name, &bytes);
        let error = store.open("index").and_then(|found| found.get(DATA).map(drop)).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains(&host) && error.contains(&part_name), "{error}");
    }
    second.put(&part_name, &parts[0]);
    assert!(read_data(&store, "index").unwrap() == content());
    node.delete(&part_name).unwrap();
    put(&store, "index", &[3; 10_000]);
    assert!(read_data(&store, "index").unwrap() == [3; 10_000]);
}

/// Returns the bytes of a part, including its header.
fn part_bytes(store: &SpreadStore, name: &str, part: usize) -> Vec<u8> {
    let found = store.open(name).unwrap().get(DATA).unwrap();
    let Backing::Parts(parts) = found.backing().unwrap() else { panic!("is whole") };
    let part = parts.parts().nth(part).unwrap();
    let mut bytes = vec![0; part.len() as usize];
    part.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Starts a node with an identity that survives a restart.
fn restartable_node() -> TestNode {
    start_at(SocketAddr::from(([127, 0, 0, 1], 0)), tempfile::tempdir().unwrap())
}

fn start_at(listen: SocketAddr, folder: tempfile::TempDir) -> TestNode {
    let identity = Identity::in_folder(&folder.path().join("keys")).unwrap();
    let node = Node::start(&NodeOptions { listen, capacity_bytes: CAPACITY }, identity).unwrap();
    TestNode { server: node, folder }
}

/// Restarts the node at the same address, with nothing in its memory.
fn restart(node: TestNode) -> TestNode {
    let TestNode { server: node, folder } = node;
    let address = node.address();
    drop(node);
    start_at(address, folder)
}

#[test]
fn a_killed_build_leaves_nothing_that_opens_and_can_be_resumed() {
    let nodes = start_nodes(2);
    let store = store_over(&nodes);
    write(&store, "index", &content()).leave().unwrap();
    assert!(nodes.iter().all(|node| published(node).is_empty()));
    assert!(matches!(store.open("index"), Err(StoreError::Missing { .. })));
    // A build for other nodes is not resumed.
    let turned = spread(&[&nodes[1], &nodes[0]], &[]);
    assert!(turned.abandoned("index", Replace::Never).unwrap().is_empty());
    let data_len = |draft: &dyn Draft| Some(draft.get(DATA).ok()?.len());
    let (draft, found) = store.resume("index", Replace::Never, data_len).unwrap();
    assert_eq!(found, Some(content().len() as u64));
    let mut object = draft.append(DATA, 150_000).unwrap();
    object.append(&content()[150_000..]).unwrap();
    object.sync().unwrap();
    draft.publish(&[DATA, MARK], "").unwrap();
    assert!(read_data(&store, "index").unwrap() == content());
}

#[test]
fn the_next_build_removes_unused_parts() {
    let nodes = [restartable_node(), TestNode::new(CAPACITY)];
    let store = spread(&nodes.iter().collect::<Vec<_>>(), &[]);
    put(&store, "index", &content());
    put(&store, "other", &content());
    let [first, second] = nodes;
    // The state after a writer was killed between publishing the parts and the table.
    let first = restart(first);
    let store = spread(&[&first, &second], &[]);
    assert_eq!(published(&second).len(), 2);
    assert!(matches!(store.open("index"), Err(StoreError::Missing { .. })));
    let elsewhere = spread(&[&second, &first], &[]);
    drop(elsewhere.begin("index", Replace::Never).unwrap());
    assert_eq!(published(&second).len(), 2, "parts of another address must stay");
    let draft = store.begin("index", Replace::Never).unwrap();
    let left = published(&second);
    assert!(left.len() == 1 && left[0].starts_with("other-"), "{left:?}");
    draft.put(DATA, &content()).unwrap();
    draft.put(MARK, b"{}").unwrap();
    draft.publish(&[DATA, MARK], "").unwrap();
    assert!(read_data(&store, "index").unwrap() == content());
}

/// Copies a folder with its content.
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
fn a_build_that_was_killed_while_publishing_can_be_resumed() {
    let nodes = [restartable_node(), TestNode::new(CAPACITY)];
    let scratches = tempfile::tempdir().unwrap();
    // The local files that the killed writer leaves.
    let left = scratches.path().join("left");
    let scratch = |number: u32| {
        let folder = scratches.path().join(number.to_string());
        if !folder.exists() && left.exists() {
            copy_folder(&left, &folder);
        }
        folder.to_str().unwrap().to_owned()
    };
    let data_len = |draft: &dyn Draft| Some(draft.get(DATA).ok()?.len());
    let store = spread(&[&nodes[0], &nodes[1]], &[("scratch", &scratch(0))]);
    write(&store, "index", &content()).leave().unwrap();
    copy_folder(Path::new(&scratch(0)), &left);
    let (draft, _) = store.resume("index", Replace::Never, data_len).unwrap();
    draft.publish(&[DATA, MARK], "").unwrap();

    // Killed after publishing the table: there is nothing to resume, and the generation does not replace
    // itself.
    let store = spread(&[&nodes[0], &nodes[1]], &[("scratch", &scratch(1))]);
    let (draft, found) = store.resume("index", Replace::Generation, data_len).unwrap();
    assert_eq!(found, None);
    drop(draft);
    assert!(read_data(&store, "index").unwrap() == content());

    // Killed before publishing the table: the parts with the same key are removed before they are pushed
    // again.
    let [first, second] = nodes;
    let first = restart(first);
    let store = spread(&[&first, &second], &[("scratch", &scratch(2))]);
    let (draft, found) = store.resume("index", Replace::Never, data_len).unwrap();
    assert_eq!((found, published(&second).len()), (Some(content().len() as u64), 0));
    draft.publish(&[DATA, MARK], "").unwrap();
    assert!(read_data(&store, "index").unwrap() == content());
}

#[test]
fn a_node_without_enough_memory_refuses_and_the_others_stay_unchanged() {
    let nodes = [TestNode::new(CAPACITY), TestNode::new(4 << 20)];
    let store = store_over(&nodes);
    put(&store, "index", &[1; 9000]);
    let before = [0, 1].map(|number| published(&nodes[number]));
    let draft = write(&store, "index", &vec![1; 20 << 20]);
    let error = draft.publish(&[DATA, MARK], "").unwrap_err().to_string();
    let host = nodes[1].server.address().to_string();
    assert!(
        error.contains(&host) && error.contains("--capacity") && error.contains("left of 4194304"),
        "{error}"
    );
    assert_eq!([0, 1].map(|number| published(&nodes[number])), before);
    assert!(read_data(&store, "index").unwrap() == [1; 9000]);
}

#[test]
fn the_error_names_a_node_that_is_down() {
    let mut nodes = start_nodes(2);
    let store = spread(&nodes.iter().collect::<Vec<_>>(), &[("timeout", "1")]);
    put(&store, "index", &content());
    let down = nodes.pop().unwrap();
    let host = down.server.address().to_string();
    drop(down);
    assert_refused(&store, "index", &[&host, "does not answer", "running there"]);
    for error in [
        store.check("other", Replace::Never).unwrap_err().to_string(),
        store.delete("index").unwrap_err().to_string(),
    ] {
        assert!(error.contains(&host), "{error}");
    }
    assert!(published(&nodes[0]).contains(&"index".to_owned()), "a failed delete must change nothing");
}

#[test]
fn reads_from_a_restarted_node_fail() {
    let (first, second) = (TestNode::new(CAPACITY), restartable_node());
    let store = spread(&[&first, &second], &[("transport", "tcp"), ("timeout", "1")]);
    put(&store, "index", &content());
    let found = store.open("index").unwrap();
    let mut queue = tier(found.as_ref()).open(64).unwrap();
    let second = restart(second);
    let address = second.server.address();
    let done = read_parts(queue.as_mut(), 50, &mut vec![0; 200_000]);
    let kinds = [FaultKind::Forgotten, FaultKind::LostPeer];
    let failed = done.iter().filter_map(|done| done.result.err());
    assert!(
        failed.clone().count() >= 25 && failed.clone().all(|fault| kinds.contains(&fault.kind)),
        "{done:?}"
    );
    assert_refused(&store, "index", &["part 2 of 2 is not there", &address.to_string(), "was restarted"]);
    let store = spread(&[&first, &second], &[]);
    put(&store, "index", &content());
    assert!(read_data(&store, "index").unwrap() == content());
}
