//! Generations in a node's memory: its capacity, who holds what, and what is published at once.

use crate::place::{DATA, MARK, Place, bytes, tier};
use bathyal_store::{DraftExt, Replace, Store, StoreError};
use std::time::{Duration, Instant};

/// Waits until the node has let go of what nobody holds any more.
fn wait_for_used(place: &Place, wanted: impl Fn(u64) -> bool) {
    let began = Instant::now();
    while !wanted(place.node.status().used_bytes) {
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", place.node.status());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_node_takes_no_more_than_its_capacity_and_gives_all_of_it_back() {
    let place = Place::new(8 << 20);
    place.put("first", &vec![1; 5 << 20]);
    let used = place.node.status().used_bytes;
    assert!((5 << 20..=8 << 20).contains(&used), "{used}");
    let draft = place.store(&[]).begin("second", Replace::Never).unwrap();
    draft.put(DATA, &vec![2; 5 << 20]).unwrap();
    draft.put(MARK, b"{}").unwrap();
    let refused = draft.publish(&[DATA, MARK], "").unwrap_err().to_string();
    assert!(refused.contains("left of 8388608") && refused.contains("--capacity"), "{refused}");
    assert_eq!(place.node.status().indexes, ["first"]);
    wait_for_used(&place, |now| now == used);
    assert_eq!(bytes(place.store(&[]).open("first").unwrap().as_ref()), vec![1; 5 << 20]);
    place.store(&[]).delete("first").unwrap();
    wait_for_used(&place, |now| now == 0);
}

#[test]
fn a_generation_that_was_replaced_stays_for_those_who_have_it() {
    for transport in ["tcp", "shm"] {
        let place = Place::new(64 << 20);
        place.put("index", &[1; 100_000]);
        let one = place.node.status().used_bytes;
        let store = place.store(&[("transport", transport)]);
        let before = store.open("index").unwrap();
        let read = tier(before.as_ref());
        place.put("index", &[2; 100_000]);
        assert_eq!(bytes(before.as_ref()), vec![1; 100_000]);
        assert_eq!(bytes(store.open("index").unwrap().as_ref()), vec![2; 100_000]);
        drop((read, before));
        wait_for_used(&place, |now| now == one);
    }
}

#[test]
fn a_draft_goes_with_its_writer_and_is_seen_by_nobody() {
    let place = Place::new(64 << 20);
    let store = place.store(&[]);
    let draft = store.begin("index", Replace::Never).unwrap();
    draft.put(DATA, &[7; 1000]).unwrap();
    draft.put(MARK, b"{}").unwrap();
    draft.upload(&[DATA, MARK], "", &|_, _| true).unwrap();
    assert!(place.node.status().used_bytes > 0);
    assert!(matches!(store.open("index"), Err(StoreError::Missing { .. })));
    drop(draft);
    wait_for_used(&place, |now| now == 0);
    assert!(place.node.status().indexes.is_empty());
}

#[test]
fn of_two_who_publish_one_name_one_is_refused() {
    let place = Place::new(64 << 20);
    let drafts: Vec<_> = (0..2)
        .map(|i| {
            // On two machines, whose drafts do not meet.
            let scratch = place.folder.path().join(i.to_string());
            let store = place.store(&[("scratch", scratch.to_str().unwrap())]);
            let draft = store.begin("index", Replace::Never).unwrap();
            draft.put(DATA, &[i; 10]).unwrap();
            draft.put(MARK, b"{}").unwrap();
            draft
        })
        .collect();
    let mut results = drafts.into_iter().map(|draft| draft.publish(&[DATA, MARK], ""));
    assert!(results.next().unwrap().is_ok());
    assert!(matches!(results.next().unwrap(), Err(StoreError::Exists { .. })));
    assert_eq!(bytes(place.store(&[]).open("index").unwrap().as_ref()), vec![0; 10]);
}

#[test]
fn an_attended_push_is_told_and_ended() {
    let place = Place::new(64 << 20);
    place.put("from", &vec![3; 9 << 20]);
    let (store, from) = (place.store(&[("transport", "tcp")]), place.store(&[]).open("from").unwrap());
    let draft = store.begin("to", Replace::Never).unwrap();
    let told = std::sync::Mutex::new(Vec::new());
    let attend = |done: u64, all: u64| {
        told.lock().unwrap().push((done, all));
        done < 5 << 20
    };
    let ended = draft.adopt(from.as_ref(), &[DATA], &attend);
    assert!(matches!(ended, Err(StoreError::Cancelled)), "{ended:?}");
    let told = told.into_inner().unwrap();
    assert!(told.iter().all(|(_, all)| *all == 9 << 20) && told.len() >= 2, "{told:?}");
    let checksums = draft.adopt(from.as_ref(), &[DATA, MARK], &|_, _| true).unwrap();
    assert_eq!(checksums, [crc32c::crc32c(&vec![3; 9 << 20]), crc32c::crc32c(b"{}")]);
    draft.publish(&[DATA, MARK], "").unwrap();
    assert_eq!(bytes(store.open("to").unwrap().as_ref()), vec![3; 9 << 20]);
}
