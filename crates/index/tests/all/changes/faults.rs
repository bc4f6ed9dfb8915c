//! Changes of an index on a disk with faults.

use super::{DIM, Model, file, options, rows};
use crate::cases::{all_cases_run, quick_build};
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::format::manifest::MANIFEST_NAME;
use bathyal_index::open::compact_in;
use bathyal_index::{BuildOptions, CompactOptions, Index, IndexError, OpenOptions, build_in, verify_in};
use bathyal_kernels::Element;
use bathyal_store::Store;
use bathyal_store::disk::Disk;
use bathyal_store::faulty::{DiskFault, Faults, SimulatedDisk};
use bathyal_store::local::LocalStore;
use bathyal_tier::Control;
use bathyal_vectors::progress::Silent;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::path::Path;
use std::sync::Arc;

/// Number of changes that [`step`] makes, one after the other.
const STEPS: usize = 6;

fn step(store: &LocalStore, number: usize, model: &mut Model) -> Result<(), IndexError> {
    let mut random = StdRng::seed_from_u64(100 + number as u64);
    let opened = || Index::open_in(store.open("index")?.as_ref(), &OpenOptions::default(), &Silent);
    match number {
        0 | 2 | 4 => {
            let new = rows(Element::F32, 3 + 20 * number, &mut random);
            let index = opened();
            // The model changes first, because an insert that fails may still be complete.
            model.insert(&new);
            index?.insert(&file(Element::F32, &new)).map(|_| ())
        }
        1 | 5 => {
            let ids = [2 * number as u32, 20, 101];
            model.delete(&ids);
            opened()?.delete(&ids).map(|_| ())
        }
        _ => compact_in(
            store,
            "index",
            None,
            &CompactOptions { threads: 1, ..CompactOptions::default() },
            &Silent,
        )
        .map(|_| ()),
    }
}

/// Returns the ids in the index of a store, without their vectors.
fn content(store: &LocalStore) -> Model {
    let found = store.open("index").unwrap();
    let index = Index::open_in(found.as_ref(), &OpenOptions::default(), &Silent).unwrap();
    let report = verify_in(found.as_ref(), &Silent).unwrap();
    assert!(report.sound, "{:?}", report.faults);
    let query = file(Element::F32, &[vec![0; DIM * 4]]);
    let found = index.search(&query, &options(index.len()), Control::default()).unwrap();
    Model { vectors: found.ids.iter().map(|id| (*id, Vec::new())).collect(), next: index.next_id() }
}

/// Returns the model without its vectors.
fn ids_of(model: &Model) -> Model {
    Model { vectors: model.vectors.keys().map(|id| (*id, Vec::new())).collect(), next: model.next }
}

/// Returns a store on a disk, and the faults that tests inject into it.
fn store_on(disk: &SimulatedDisk) -> (LocalStore, Faults) {
    let faults = Faults::new(Arc::new(disk.clone()));
    (LocalStore::on_disk(Arc::new(faults.clone()), "/folder", MANIFEST_NAME), faults)
}

/// Returns a disk with an index of these vectors.
fn index_on_disk(vectors: &[Vec<u8>]) -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    disk.create_folder(Path::new("/folder")).unwrap();
    disk.sync_folder(Path::new("/")).unwrap();
    let own = LshOptions { tables: 2, block_bytes: 128, ..LshOptions::default() };
    let building = BuildOptions { threads: 1, ..quick_build(own) };
    build_in(&file(Element::F32, vectors), &store_on(&disk).0, "index", &building, &Silent).unwrap();
    disk
}

/// Faults strike every operation of inserts, deletes and a compaction: a kill, an error, no space, or no
/// power. Acknowledged changes are there afterwards, and the other change is there as a whole or not at all.
/// The remaining steps then succeed.
#[test]
fn acknowledged_changes_survive_every_fault() {
    let built = rows(Element::F32, 100, &mut StdRng::seed_from_u64(9));
    let disk = index_on_disk(&built);
    let mut start = Model::default();
    start.insert(&built);
    for (fault, power_loss_seed) in [
        (DiskFault::Kill, None),
        (DiskFault::Kill, Some(3)),
        (DiskFault::Kill, Some(4)),
        (DiskFault::Full, None),
        (DiskFault::Once(libc::EIO), None),
        (DiskFault::Twice(libc::EIO), None),
    ] {
        // A kill strikes at every operation, and other faults at one of several.
        let kill = fault == DiskFault::Kill && power_loss_seed.is_none();
        let stride = if all_cases_run() || kill { 1 } else { 5 };
        for number in (0..).step_by(stride) {
            let disk = disk.copy();
            let (store, faults) = store_on(&disk);
            let mut model = start.clone();
            assert_eq!(content(&store), ids_of(&model), "the beginning");
            faults.inject(number, fault);
            let mut failed = None;
            for at in 0..STEPS {
                let before = model.clone();
                if let Err(error) = step(&store, at, &mut model) {
                    failed = Some((at, before, error.to_string()));
                    break;
                }
            }
            let struck = faults.injected();
            faults.clear();
            if struck.is_none() {
                assert!(failed.is_none() && number > 60, "{number}");
                assert_eq!(content(&store), ids_of(&model));
                break;
            }
            let reason = failed.as_ref().map(|(at, _, error)| format!("step {at}: {error}"));
            let what = format!("{fault:?} {power_loss_seed:?} at {struck:?}: {reason:?}");
            if let Some(seed) = power_loss_seed {
                disk.lose_power(seed ^ number as u64);
            }
            // As in a process that starts after the fault.
            let (store, _) = store_on(&disk);
            let found = content(&store);
            let Some((at, before, _)) = failed else {
                // The fault had no effect.
                assert_eq!(found, ids_of(&model), "{what}");
                continue;
            };
            assert!(
                found == ids_of(&before) || found == ids_of(&model),
                "{what}: {:?}",
                found.vectors.keys()
            );
            let again =
                if found == ids_of(&before) && before != model { at } else { at + usize::from(at != 3) };
            if again == at {
                model = before;
            }
            for at in again..STEPS {
                step(&store, at, &mut model).unwrap_or_else(|e| panic!("{what}: step {at}: {e}"));
            }
            assert_eq!(content(&store), ids_of(&model), "{what}: the rest");
        }
    }
}

/// The disk refuses an operation of an insert, and the process continues. It then sees the same index as
/// others.
#[test]
fn a_failed_change_does_not_affect_later_ones() {
    let mut random = StdRng::seed_from_u64(13);
    let disk = index_on_disk(&rows(Element::F32, 100, &mut random));
    let new = file(Element::F32, &rows(Element::F32, 30, &mut random));
    let mut refused = 0;
    for (number, fault) in
        (0..).zip([DiskFault::Once(libc::EIO), DiskFault::Twice(libc::ENOSPC)].into_iter().cycle()).take(24)
    {
        let disk = disk.copy();
        let (store, faults) = store_on(&disk);
        let open = |store: &LocalStore| {
            Index::open_in(store.open("index").unwrap().as_ref(), &OpenOptions::default(), &Silent).unwrap()
        };
        let (index, reader) = (open(&store), open(&store));
        faults.inject(number / 2, fault);
        let inserted = [0; 4].map(|_| index.insert(&new).map_err(|_| refused += 1).ok());
        faults.clear();
        assert!(reader.refresh().is_ok(), "{number}");
        let last = index.insert(&new).unwrap();
        assert_eq!((last.end, index.delete(&[100]).unwrap()), (index.next_id(), 1), "{number}");
        // No acknowledged vector is missing, and no two have the same id.
        let ids: Vec<_> = inserted.into_iter().flatten().chain([last]).collect();
        assert!(ids.windows(2).all(|pair| pair[0].end <= pair[1].start), "{number}: {ids:?}");
        assert!(index.len() >= 100 + 30 * ids.len() - 1);
        reader.refresh().unwrap();
        let next = index.next_id();
        assert_eq!((reader.len(), reader.next_id()), (index.len(), next), "{number}");
        drop((index, reader));
        assert_eq!(
            (content(&store).vectors.len(), content(&store).next),
            (next as usize - 1, next),
            "{number}"
        );
    }
    assert!(refused >= 4, "{refused}");
}
