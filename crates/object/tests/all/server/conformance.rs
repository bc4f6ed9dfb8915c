//! Conformance of the store and the tier on a real server.

use crate::server::service::{MARK, service};
use bathyal_object::BucketStore;
use bathyal_store::{DraftExt, Replace, Store, conformance};
use bathyal_tier::Tier;
use bathyal_tier::backend::file::FileOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn the_store_conforms() {
    let Some(service) = service() else { return };
    let place = service.place("store");
    conformance::check(&place.store(), MARK);
}

/// Publishes the bytes as an object, and opens it as a tier.
fn tier_over(store: &BucketStore, bytes: &[u8]) -> Arc<dyn Tier> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = format!("tier{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let draft = store.begin(&name, Replace::Never).unwrap();
    draft.put("data", bytes).unwrap();
    draft.put(MARK, b"mark").unwrap();
    draft.publish(&["data", MARK], "").unwrap();
    store.open(&name).unwrap().get("data").unwrap().tier(FileOptions::default()).unwrap()
}

#[test]
fn the_tier_conforms() {
    let Some(service) = service() else { return };
    let place = service.place("tier");
    let store = place.store();
    bathyal_tier::conformance::check_far(&|bytes| tier_over(&store, &bytes), Default::default()).unwrap();
}
