//! Tests of objects that others overwrite, replace or remove while they are read.

use crate::server::faults::{read_object, read_tier};
use crate::server::service::{content, publish, service};
use bathyal_object::PruneOptions;
use bathyal_store::{GenerationExt, Replace, Store, StoreError};
use bathyal_tier::backend::file::FileOptions;
use bathyal_tier::{FaultKind, ReadError};
use object_store::ObjectStoreExt;
use object_store::path::Path as Key;
use std::time::Duration;

/// Longer than a read-ahead.
const LEN: usize = 5 << 20;

#[test]
fn an_overwritten_object_is_detected() {
    let Some(service) = service() else { return };
    let place = service.place("over");
    let store = place.store();
    let (before, after) = (content(LEN, 1), content(LEN, 2));
    publish(&store, Replace::Never, &before).unwrap();
    let generation = store.open("index").unwrap();
    let (object, tier_object) = (generation.get("data").unwrap(), generation.get("data").unwrap());
    let tier = tier_object.tier(FileOptions::default()).unwrap();
    let span = 1_000_000..1_050_000;
    assert!(read_object(object.as_ref(), &span).unwrap() == before[span.clone()]);
    assert!(read_tier(tier.clone(), &span).unwrap() == before[span.clone()]);

    let key = place.keys("index").into_iter().find(|key| key.ends_with("/data")).unwrap();
    let key = Key::from(format!("{}/index/{key}", place.folder));
    place.raw().put(&key, after);
    let beyond = 2_000_000..4_100_000;
    for span in [&beyond, &span] {
        let error = read_object(object.as_ref(), span).map(drop).unwrap_err();
        assert!(matches!(error, StoreError::Changed { .. }), "{error}");
        assert!(service.message(&error).contains(&place.address("index/data")), "{error}");
        let ReadError::Device { kind, .. } = read_tier(tier.clone(), span).map(drop).unwrap_err() else {
            panic!()
        };
        assert_eq!(kind, FaultKind::Changed);
    }
    let again = generation.get("data").unwrap();
    let error = read_object(again.as_ref(), &span).map(drop).unwrap_err();
    assert!(
        matches!(error, StoreError::Changed { .. }),
        "opened again through the generation that recorded the version: {error}"
    );
    place.raw().put(&key, content(LEN + 1, 2));
    let other = store.open("index").unwrap().get("data").unwrap();
    let error = read_object(other.as_ref(), &span).map(drop).unwrap_err();
    assert!(
        matches!(error, StoreError::Changed { .. }),
        "its length differs from the published one: {error}"
    );

    // A restored copy has the same bytes under another version.
    place.raw().put(&key, before.clone());
    assert!(store.open("index").unwrap().read("data").unwrap() == before);
    let raw = place.raw();
    raw.runtime.block_on(raw.store.delete(&key)).unwrap();
    let error = read_object(generation.get("data").unwrap().as_ref(), &span).map(drop).unwrap_err();
    assert!(matches!(error, StoreError::Missing { .. }), "it is lost, not replaced: {error}");
}

#[test]
fn a_pruned_generation_is_reported_as_replaced() {
    let Some(service) = service() else { return };
    let place = service.place("pruned");
    let store = place.store();
    let (first, second) = (content(LEN, 3), content(LEN, 4));
    publish(&store, Replace::Never, &first).unwrap();
    let old = store.open("index").unwrap();
    let object_before = old.get("data").unwrap();
    let span = 1_000_000..1_200_000;
    assert!(read_object(object_before.as_ref(), &span).unwrap() == first[span.clone()]);
    publish(&store, Replace::Generation, &second).unwrap();
    store.prune("index", &PruneOptions::default()).unwrap();
    assert!(old.read("data").unwrap() == first, "a replaced generation is kept for a while");
    let pruned = store.prune("index", &PruneOptions { kept: Duration::ZERO, dry_run: false }).unwrap();
    assert_eq!((pruned.generations, pruned.objects), (1, 1));
    for object in [object_before.clone(), old.get("data").unwrap()] {
        let error = read_object(object.as_ref(), &(3_000_000..3_100_000)).map(drop).unwrap_err();
        assert!(matches!(error, StoreError::Replaced { .. }), "{error}");
        service.message(&error);
    }
    let tier = object_before.tier(FileOptions::default()).unwrap();
    let ReadError::Device { kind, .. } = read_tier(tier, &(3_000_000..3_100_000)).map(drop).unwrap_err()
    else {
        panic!()
    };
    assert_eq!(kind, FaultKind::Gone);
    assert!(store.open("index").unwrap().read("data").unwrap() == second);
}
