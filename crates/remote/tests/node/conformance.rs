//! The node's memory by TCP and as shared memory, and as a store, does what every other tier and store does.

use crate::place::{MARK, Place, tier};
use bathyal_store::Store;
use bathyal_tier::Tier;
use bathyal_tier::conformance::{Capabilities, check};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub const CAPACITY: u64 = 256 << 20;

/// Checks tiers over generations of a node that are opened with `options`, to be changed or not.
pub fn check_tiers(options: &[(&str, &str)], write: bool) {
    let place = Place::new(CAPACITY);
    let store = place.store(options);
    let store = if write { store.for_writing() } else { store };
    let made = AtomicU32::new(0);
    let make = |bytes: Vec<u8>| -> Arc<dyn Tier> {
        let name = format!("tier-{}", made.fetch_add(1, Ordering::Relaxed));
        place.put(&name, &bytes);
        let tier = tier(store.open(&name).unwrap().as_ref());
        assert_eq!(tier.writable().is_some() || tier.is_empty(), write || tier.is_empty());
        tier
    };
    if let Err(failure) = check(&make, Capabilities::default()) {
        panic!("{failure}");
    }
}

#[test]
fn tcp() {
    check_tiers(&[("transport", "tcp")], false);
}

#[test]
fn tcp_that_can_be_changed() {
    check_tiers(&[("transport", "tcp")], true);
}

#[test]
fn shared_memory() {
    check_tiers(&[("transport", "shm")], false);
}

#[test]
fn shared_memory_that_can_be_changed() {
    check_tiers(&[("transport", "shm")], true);
}

/// Checks a node as a store that is reached by `transport`.
pub fn check_store(transport: &str) {
    let place = Place::new(CAPACITY);
    bathyal_store::conformance::check_unchangeable(&place.store(&[("transport", transport)]), MARK);
}

#[test]
fn the_store() {
    check_store("tcp");
    check_store("shm");
}
