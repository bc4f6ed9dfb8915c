//! Conformance suites of tiers and stores, for a node's memory over TCP and as shared memory.

use crate::test_node::{MARK, TestNode, tier};
use bathyal_store::Store;
use bathyal_tier::Tier;
use bathyal_tier::conformance::{Capabilities, check};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub const CAPACITY: u64 = 256 << 20;

/// Checks tiers over generations of a node that are opened with `options`, and for writing if `write`.
pub fn check_tiers(options: &[(&str, &str)], write: bool) {
    let node = TestNode::new(CAPACITY);
    let store = node.store(options);
    let store = if write { store.for_writing() } else { store };
    let made = AtomicU32::new(0);
    let make = |bytes: Vec<u8>| -> Arc<dyn Tier> {
        let name = format!("tier-{}", made.fetch_add(1, Ordering::Relaxed));
        node.put(&name, &bytes);
        let tier = tier(store.open(&name).unwrap().as_ref());
        assert_eq!(tier.writable().is_some() || tier.is_empty(), write || tier.is_empty());
        tier
    };
    if let Err(failure) = check(&make, Capabilities::default()) {
        panic!("{failure}");
    }
}

#[test]
fn tiers_over_tcp_conform() {
    check_tiers(&[("transport", "tcp")], false);
}

#[test]
fn writable_tiers_over_tcp_conform() {
    check_tiers(&[("transport", "tcp")], true);
}

#[test]
fn tiers_in_shared_memory_conform() {
    check_tiers(&[("transport", "shm")], false);
}

#[test]
fn writable_tiers_in_shared_memory_conform() {
    check_tiers(&[("transport", "shm")], true);
}

/// Checks the store of a node that is reached by `transport`.
pub fn check_store(transport: &str) {
    let node = TestNode::new(CAPACITY);
    bathyal_store::conformance::check_unchangeable(&node.store(&[("transport", transport)]), MARK);
}

#[test]
fn stores_of_one_node_conform() {
    check_store("tcp");
    check_store("shm");
}
