//! Writers that are killed, get an error, or run out of space at any operation of the disk, and power
//! failures there. Acknowledged batches are kept, another batch is stored completely or not at all, and the
//! collection can be used afterwards.

use crate::model::cases::Case;
use crate::model::compare::{Recall, Search, check_all, check_search, holds};
use crate::model::program::{random_change, write};
use crate::model::truth::{Change, Truth};
use bathyal_collection::{
    Collection, CollectionError, CollectionLocation, CollectionOptions, CompactOptions,
};
use bathyal_store::disk::Disk;
use bathyal_store::faulty::{DiskFault, Faults, SimulatedDisk};
use bathyal_store::local::LocalStore;
use bathyal_vectors::progress::Silent;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::sync::Arc;

/// Environment variable: every fault strikes at every operation; this takes minutes.
const ALL_OPERATIONS: &str = "BATHYAL_ALL_OPERATIONS";
/// Otherwise, a kill and a power failure strike at one in this many operations.
const KILL_STRIDE: usize = 5;
/// Other faults strike at one in this many operations.
const STRIDE: usize = 17;
/// In a program whose batches are all large, faults strike at one in this many of those operations.
const LARGE_STRIDE: usize = 11;

/// A step of a writer.
#[derive(Debug, Clone)]
enum Step {
    Change(Change),
    Flush,
    Compact,
    /// Replaces the handle by a new one.
    Reopen,
}

/// A collection on a simulated disk with faults.
struct TestDisk {
    case: Case,
    platter: SimulatedDisk,
    faults: Faults,
    place: CollectionLocation,
    options: CollectionOptions,
}

impl TestDisk {
    /// Creates a disk. Batches of more than `direct` bytes count as large.
    fn new(direct: Option<u64>) -> TestDisk {
        let case = Case::small();
        let platter = SimulatedDisk::default();
        platter.create_folder(Path::new("/folder")).unwrap();
        platter.sync_folder(Path::new("/")).unwrap();
        let faults = Faults::new(Arc::new(platter.clone()));
        let store = LocalStore::on_disk(Arc::new(faults.clone()), "/folder", CollectionLocation::MARK);
        let options = CollectionOptions { direct_bytes: direct, ..case.options() };
        let place = CollectionLocation::in_store(Arc::new(store));
        TestDisk { case, platter, faults, place, options }
    }

    fn open(&self) -> Result<Collection, CollectionError> {
        Collection::open_in(self.place.clone(), &self.options)
    }

    /// Opens the collection, or creates it if it does not exist.
    fn open_or_create(&self) -> Result<Collection, CollectionError> {
        match self.open() {
            Err(CollectionError::NotACollection { .. }) => {
                Collection::create_in(self.place.clone(), self.case.schema.clone(), &self.options)
            }
            other => other,
        }
    }

    /// Does a step; an error means that it was not acknowledged.
    fn step(&self, collection: &mut Option<Collection>, step: &Step) -> Result<(), CollectionError> {
        if collection.is_none() || matches!(step, Step::Reopen) {
            *collection = None;
            *collection = Some(self.open_or_create()?);
        }
        let Some(open) = collection.as_ref() else { return Ok(()) };
        match step {
            Step::Change(change) => match write(&self.case, open, change) {
                Ok(_) | Err(CollectionError::Duplicate { .. }) => Ok(()),
                Err(error) => Err(error),
            },
            Step::Flush => open.flush(),
            Step::Compact => open.compact(&CompactOptions { full: true }, &Silent).map(|_| ()),
            Step::Reopen => Ok(()),
        }
    }

    /// Returns the expected content that the collection has, out of several possible ones.
    fn check(&self, collection: &Collection, may: &[&Truth], what: &str) -> Truth {
        let now = collection.snapshot();
        let content = holds(&self.case, &now);
        let found = may.iter().find(|truth| truth.rows == content.rows);
        let found =
            *found.unwrap_or_else(|| panic!("{what}: {content:?} is there, and should be one of {may:?}"));
        check_all(&self.case, &now, found, None, 50);
        self.check_neighbours(collection, found);
        found.clone()
    }

    /// Checks that every row is found by its own vector.
    fn check_neighbours(&self, collection: &Collection, truth: &Truth) {
        let queries: Vec<&[u8]> = truth.rows.values().map(|row| &row.vectors[0][..]).collect();
        let search = Search { field: 0, k: 3, recall: 0.9, condition: None };
        if !queries.is_empty() {
            let mut recall = Recall::default();
            check_search(&self.case, &collection.snapshot(), truth, &search, &queries, &mut recall);
        }
    }

    /// Checks that all rows exist after the collection is opened several times, and that nothing unfinished
    /// is left.
    fn finish(&self, mut collection: Option<Collection>, truth: &Truth, what: &str) {
        for step in [Step::Reopen, Step::Flush, Step::Compact, Step::Reopen] {
            self.step(&mut collection, &step).unwrap_or_else(|error| panic!("{what}: {step:?}: {error}"));
            self.check(collection.as_ref().unwrap(), &[truth], what);
        }
        let collection = collection.unwrap();
        assert_eq!(collection.verify(&Silent).unwrap(), Vec::<String>::new(), "{what}");
        let segments: Vec<String> =
            collection.describe().segments.into_iter().map(|segment| segment.name).collect();
        let strays = self.platter.paths().into_iter().filter(|path| {
            let named = |segment: &String| path.starts_with(&format!("/folder/{segment}-"));
            let part = |prefix: &str| path.starts_with(&format!("/folder/{prefix}-"));
            path != "/folder" && !part("v") && !part("l") && !segments.iter().any(named)
        });
        assert_eq!(strays.collect::<Vec<_>>(), Vec::<String>::new(), "{what}: something is left over");
    }
}

/// Returns a short program with every kind of step.
fn program(case: &Case) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(7);
    let mut rows = |count: usize| case.rows(count, true, &mut random);
    let (first, second, third) = (rows(6), rows(3), rows(2));
    let owned_rows = |rows: &[(bathyal_collection::Id, Arc<crate::model::cases::Row>)]| {
        rows.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>()
    };
    let year = vec![(0, vec![crate::model::cases::Value::Whole(7), crate::model::cases::Value::Null])];
    vec![
        Step::Change(Change::Add(first.clone())),
        Step::Flush,
        Step::Change(Change::Upsert(second.clone())),
        Step::Change(Change::Delete(owned_rows(&first[..2]))),
        Step::Reopen,
        Step::Change(Change::Update(owned_rows(&first[2..4]), year)),
        Step::Flush,
        Step::Change(Change::Delete(owned_rows(&second[..1]))),
        Step::Compact,
        Step::Change(Change::Upsert(third)),
    ]
}

/// Runs the program with `fault` at operation `number`; returns false if it has fewer operations. With
/// `go_on` the handle stays in use after an error. Without it another handle is opened, after a power failure
/// if there is a seed for it.
fn struck_at(number: usize, fault: DiskFault, go_on: bool, power: Option<u64>, direct: Option<u64>) -> bool {
    let disk = TestDisk::new(direct);
    let steps = program(&disk.case);
    disk.faults.inject(number, fault);
    let (mut collection, mut truth) = (None, Truth::default());
    let mut healed = false;
    for (at, step) in steps.iter().enumerate() {
        let mut after = truth.clone();
        if let Step::Change(change) = step {
            after.apply(change);
        }
        let done = disk.step(&mut collection, step);
        let Err(error) = done else {
            truth = after;
            continue;
        };
        let what = format!("{:?}, step {at}, going on: {go_on}, {power:?}: {error}", disk.faults.injected());
        assert!(!healed, "{what}: nothing is wrong any more");
        assert!(disk.faults.injected().is_some(), "{what}");
        if !go_on {
            collection = None;
        }
        disk.faults.clear();
        healed = true;
        if let Some(seed) = power {
            disk.platter.lose_power(seed ^ number as u64);
        }
        // The next writer finds out what is stored.
        let look = if go_on { Step::Flush } else { Step::Reopen };
        disk.step(&mut collection, &look).unwrap_or_else(|error| panic!("{what}: {error}"));
        truth = disk.check(collection.as_ref().unwrap(), &[&after, &truth], &what);
    }
    let struck = disk.faults.injected();
    disk.faults.clear();
    let what = format!("{struck:?}, operation {number}, going on: {go_on}, {power:?}");
    disk.finish(collection, &truth, &what);
    healed || struck.is_some()
}

/// Runs the program with a fault at one operation after the other.
fn sweep(fault: DiskFault, go_on: bool, power: Option<u64>, stride: usize) {
    for (direct, share) in [(None, 1), (Some(0), LARGE_STRIDE)] {
        sweep_over(fault, go_on, power, stride * share, direct);
    }
}

fn sweep_over(fault: DiskFault, go_on: bool, power: Option<u64>, stride: usize, direct: Option<u64>) {
    let stride = if std::env::var_os(ALL_OPERATIONS).is_some() { 1 } else { stride };
    let mut number = 0;
    while struck_at(number, fault, go_on, power, direct) {
        number += stride;
    }
    assert!(number > 150, "the program has {number} operations");
}

#[test]
fn a_writer_may_be_killed_at_every_operation() {
    sweep(DiskFault::Kill, false, None, KILL_STRIDE);
}

#[test]
fn the_power_may_fail_at_every_operation() {
    sweep(DiskFault::Kill, false, Some(3 << 20), KILL_STRIDE);
    sweep(DiskFault::Kill, false, Some(4 << 20), STRIDE);
}

#[test]
fn an_operation_that_is_refused_loses_nothing() {
    for fault in [DiskFault::Once(libc::EIO), DiskFault::Once(libc::ENOSPC), DiskFault::Twice(libc::EACCES)] {
        for go_on in [true, false] {
            sweep(fault, go_on, None, STRIDE);
        }
    }
}

#[test]
fn a_disk_that_is_full_loses_nothing() {
    sweep(DiskFault::Full, true, None, STRIDE);
    sweep(DiskFault::Full, false, None, STRIDE);
}

#[test]
fn random_programs_survive_random_faults() {
    for seed in 0..6 {
        survive(seed, 40);
    }
}

/// Runs a random program with many faults.
fn survive(seed: u64, rounds: usize) {
    let disk = TestDisk::new([None, Some(60)][(seed % 2) as usize]);
    let mut random = StdRng::seed_from_u64(seed);
    let (mut collection, mut truth) = (None, Truth::default());
    disk.step(&mut collection, &Step::Reopen).unwrap();
    for round in 0..rounds {
        let fault = match random.random_range(0..5) {
            0 => DiskFault::Once(libc::EIO),
            1 => DiskFault::Full,
            2 => DiskFault::Twice(libc::EIO),
            _ => DiskFault::Kill,
        };
        disk.faults.inject(random.random_range(0..200), fault);
        // Some faults have no effect.
        for _ in 0..30 {
            let step = match random.random_range(0..20) {
                0..2 => Step::Flush,
                2 => Step::Compact,
                3 => Step::Reopen,
                _ => Step::Change(random_change(&disk.case, &truth, &mut random)),
            };
            let mut after = truth.clone();
            if let Step::Change(change) = &step {
                after.apply(change);
            }
            if let Err(error) = disk.step(&mut collection, &step) {
                let struck = disk.faults.injected();
                let what = format!("seed {seed}, round {round}, {struck:?}, {step:.200?}: {error}");
                assert!(struck.is_some(), "{what}");
                let goes_on = fault != DiskFault::Kill && random.random() && collection.is_some();
                if !goes_on {
                    collection = None;
                }
                disk.faults.clear();
                if fault == DiskFault::Kill && random.random() {
                    disk.platter.lose_power(random.random());
                }
                let look = if goes_on { Step::Flush } else { Step::Reopen };
                disk.step(&mut collection, &look).unwrap_or_else(|error| panic!("{what}: {error}"));
                truth = disk.check(collection.as_ref().unwrap(), &[&after, &truth], &what);
                break;
            }
            truth = after;
        }
        disk.faults.clear();
    }
    disk.finish(collection, &truth, &format!("seed {seed}"));
}
