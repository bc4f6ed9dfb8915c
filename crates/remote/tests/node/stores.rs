//! Generations in a node's memory: capacity, lifetime of regions, and atomic publishing.

use crate::test_node::{DATA, MARK, TestNode, bytes, tier};
use bathyal_store::{DraftExt, Replace, Store, StoreError};
use std::time::{Duration, Instant};

/// Waits until the used bytes of the node satisfy `is_expected`.
fn wait_for_used(node: &TestNode, is_expected: impl Fn(u64) -> bool) {
    let began = Instant::now();
    while !is_expected(node.server.status().used_bytes) {
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", node.server.status());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_node_stays_within_its_capacity_and_frees_all_memory() {
    let node = TestNode::new(8 << 20);
    node.put("first", &vec![1; 5 << 20]);
    let used = node.server.status().used_bytes;
    assert!((5 << 20..=8 << 20).contains(&used), "{used}");
    let draft = node.store(&[]).begin("second", Replace::Never).unwrap();
    draft.put(DATA, &vec![2; 5 << 20]).unwrap();
    draft.put(MARK, b"{}").unwrap();
    let refused = draft.publish(&[DATA, MARK], "").unwrap_err().to_string();
    assert!(refused.contains("left of 8388608") && refused.contains("--capacity"), "{refused}");
    assert_eq!(node.server.status().indexes, ["first"]);
    wait_for_used(&node, |now| now == used);
    assert_eq!(bytes(node.store(&[]).open("first").unwrap().as_ref()), vec![1; 5 << 20]);
    node.store(&[]).delete("first").unwrap();
    wait_for_used(&node, |now| now == 0);
}

#[test]
fn a_replaced_generation_stays_valid_for_its_readers() {
    for transport in ["tcp", "shm"] {
        let node = TestNode::new(64 << 20);
        node.put("index", &[1; 100_000]);
        let one = node.server.status().used_bytes;
        let store = node.store(&[("transport", transport)]);
        let before = store.open("index").unwrap();
        let read = tier(before.as_ref());
        node.put("index", &[2; 100_000]);
        assert_eq!(bytes(before.as_ref()), vec![1; 100_000]);
        assert_eq!(bytes(store.open("index").unwrap().as_ref()), vec![2; 100_000]);
        drop((read, before));
        wait_for_used(&node, |now| now == one);
    }
}

#[test]
fn a_draft_is_invisible_and_freed_with_its_writer() {
    let node = TestNode::new(64 << 20);
    let store = node.store(&[]);
    let draft = store.begin("index", Replace::Never).unwrap();
    draft.put(DATA, &[7; 1000]).unwrap();
    draft.put(MARK, b"{}").unwrap();
    draft.upload(&[DATA, MARK], "", &|_, _| true).unwrap();
    assert!(node.server.status().used_bytes > 0);
    assert!(matches!(store.open("index"), Err(StoreError::Missing { .. })));
    drop(draft);
    wait_for_used(&node, |now| now == 0);
    assert!(node.server.status().indexes.is_empty());
}

#[test]
fn the_second_of_two_publishers_of_one_name_is_refused() {
    let node = TestNode::new(64 << 20);
    let drafts: Vec<_> = (0..2)
        .map(|i| {
            // Separate folders, as on two machines.
            let scratch = node.folder.path().join(i.to_string());
            let store = node.store(&[("scratch", scratch.to_str().unwrap())]);
            let draft = store.begin("index", Replace::Never).unwrap();
            draft.put(DATA, &[i; 10]).unwrap();
            draft.put(MARK, b"{}").unwrap();
            draft
        })
        .collect();
    let mut results = drafts.into_iter().map(|draft| draft.publish(&[DATA, MARK], ""));
    assert!(results.next().unwrap().is_ok());
    assert!(matches!(results.next().unwrap(), Err(StoreError::Exists { .. })));
    assert_eq!(bytes(node.store(&[]).open("index").unwrap().as_ref()), vec![0; 10]);
}

#[test]
fn a_push_reports_progress_and_can_be_cancelled() {
    let node = TestNode::new(64 << 20);
    node.put("from", &vec![3; 9 << 20]);
    let (store, from) = (node.store(&[("transport", "tcp")]), node.store(&[]).open("from").unwrap());
    let draft = store.begin("to", Replace::Never).unwrap();
    let reports = std::sync::Mutex::new(Vec::new());
    let attend = |done: u64, all: u64| {
        reports.lock().unwrap().push((done, all));
        done < 5 << 20
    };
    let ended = draft.adopt(from.as_ref(), &[DATA], &attend);
    assert!(matches!(ended, Err(StoreError::Cancelled)), "{ended:?}");
    let reports = reports.into_inner().unwrap();
    assert!(reports.iter().all(|(_, all)| *all == 9 << 20) && reports.len() >= 2, "{reports:?}");
    let checksums = draft.adopt(from.as_ref(), &[DATA, MARK], &|_, _| true).unwrap();
    assert_eq!(checksums, [crc32c::crc32c(&vec![3; 9 << 20]), crc32c::crc32c(b"{}")]);
    draft.publish(&[DATA, MARK], "").unwrap();
    assert_eq!(bytes(store.open("to").unwrap().as_ref()), vec![3; 9 << 20]);
}
