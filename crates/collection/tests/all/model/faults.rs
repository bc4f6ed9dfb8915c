//! Writers that are killed, refused or out of space at any operation of the disk, and machines that lose power there: whatever was
//! acknowledged is there afterwards, the batch that was not is there whole or not at all, and everything goes on working.

use crate::model::cases::Case;
use crate::model::compare::{Recall, Search, check_all, check_search, holds};
use crate::model::program::{random_change, write};
use crate::model::truth::{Change, Truth};
use bathyal_collection::{Collection, CollectionError, CollectionOptions, CompactOptions, Place};
use bathyal_store::disk::Disk;
use bathyal_store::faulty::{Fault, Faults, SimulatedDisk};
use bathyal_store::local::LocalStore;
use bathyal_vectors::progress::Silent;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::sync::Arc;

/// Set where every operation is to be struck by every fault: minutes.
const ALL_OPERATIONS: &str = "BATHYAL_ALL_OPERATIONS";
/// Otherwise a kill and a loss of power strike at one in so many.
const KILL_STRIDE: usize = 5;
/// Other faults strike at one in so many.
const STRIDE: usize = 17;
/// Of these, those at which it strikes a program all of whose batches are large.
const LARGE_STRIDE: usize = 11;

/// What a writer does.
#[derive(Debug, Clone)]
enum Step {
    Change(Change),
    Flush,
    Compact,
    /// The handle is given up, and another one opened.
    Reopen,
}

/// A collection on a disk with faults.
struct Bench {
    case: Case,
    platter: SimulatedDisk,
    faults: Faults,
    place: Place,
    options: CollectionOptions,
}

impl Bench {
    /// Batches of more than `direct` bytes are written as segments at once.
    fn new(direct: Option<u64>) -> Bench {
        let case = Case::small();
        let platter = SimulatedDisk::default();
        platter.create_folder(Path::new("/folder")).unwrap();
        platter.sync_folder(Path::new("/")).unwrap();
        let faults = Faults::new(Arc::new(platter.clone()));
        let store = LocalStore::on_disk(Arc::new(faults.clone()), "/folder", Place::MARK);
        let options = CollectionOptions { direct_bytes: direct, ..case.options() };
        let place = Place::in_store(Arc::new(store));
        Bench { case, platter, faults, place, options }
    }

    fn open(&self) -> Result<Collection, CollectionError> {
        Collection::open_in(self.place.clone(), &self.options)
    }

    /// The collection, which is begun if it is not there.
    fn open_or_create(&self) -> Result<Collection, CollectionError> {
        match self.open() {
            Err(CollectionError::NotACollection { .. }) => {
                Collection::create_in(self.place.clone(), self.case.schema.clone(), &self.options)
            }
            other => other,
        }
    }

    /// Does a step; `Err` says why it was not acknowledged.
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

    /// Which of what may be there is there, all of it.
    fn examine(&self, collection: &Collection, may: &[&Truth], what: &str) -> Truth {
        let now = collection.snapshot();
        let there = holds(&self.case, &now);
        let found = may.iter().find(|truth| truth.rows == there.rows);
        let found =
            *found.unwrap_or_else(|| panic!("{what}: {there:?} is there, and should be one of {may:?}"));
        check_all(&self.case, &now, found, None, 50);
        self.examine_neighbours(collection, found);
        found.clone()
    }

    /// Every row is found by its own vector.
    fn examine_neighbours(&self, collection: &Collection, truth: &Truth) {
        let queries: Vec<&[u8]> = truth.rows.values().map(|row| &row.vectors[0][..]).collect();
        let search = Search { field: 0, k: 3, recall: 0.9, condition: None };
        if !queries.is_empty() {
            let mut recall = Recall::default();
            check_search(&self.case, &collection.snapshot(), truth, &search, &queries, &mut recall);
        }
    }

    /// All rows are there when the collection is opened again and again, and nothing of what was begun is left.
    fn finish(&self, mut collection: Option<Collection>, truth: &Truth, what: &str) {
        for step in [Step::Reopen, Step::Flush, Step::Compact, Step::Reopen] {
            self.step(&mut collection, &step).unwrap_or_else(|error| panic!("{what}: {step:?}: {error}"));
            self.examine(collection.as_ref().unwrap(), &[truth], what);
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

/// A short program in which everything happens once.
fn program(case: &Case) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(7);
    let mut rows = |count: usize| case.rows(count, true, &mut random);
    let (first, second, third) = (rows(6), rows(3), rows(2));
    let own = |rows: &[(bathyal_collection::Id, Arc<crate::model::cases::Row>)]| {
        rows.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>()
    };
    let year = vec![(0, vec![crate::model::cases::Value::Whole(7), crate::model::cases::Value::Null])];
    vec![
        Step::Change(Change::Add(first.clone())),
        Step::Flush,
        Step::Change(Change::Upsert(second.clone())),
        Step::Change(Change::Delete(own(&first[..2]))),
        Step::Reopen,
        Step::Change(Change::Update(own(&first[2..4]), year)),
        Step::Flush,
        Step::Change(Change::Delete(own(&second[..1]))),
        Step::Compact,
        Step::Change(Change::Upsert(third)),
    ]
}

/// Lets `fault` strike at operation `number` of the program; false if it has fewer. With `go_on` the handle stays in use after an
/// error, without it another one is opened, and the power is lost in between if there is a seed for it.
fn struck_at(number: usize, fault: Fault, go_on: bool, power: Option<u64>, direct: Option<u64>) -> bool {
    let bench = Bench::new(direct);
    let steps = program(&bench.case);
    bench.faults.inject(number, fault);
    let (mut collection, mut truth) = (None, Truth::default());
    let mut healed = false;
    for (at, step) in steps.iter().enumerate() {
        let mut after = truth.clone();
        if let Step::Change(change) = step {
            after.apply(change);
        }
        let done = bench.step(&mut collection, step);
        let Err(error) = done else {
            truth = after;
            continue;
        };
        let what = format!("{:?}, step {at}, going on: {go_on}, {power:?}: {error}", bench.faults.injected());
        assert!(!healed, "{what}: nothing is wrong any more");
        assert!(bench.faults.injected().is_some(), "{what}");
        if !go_on {
            collection = None;
        }
        bench.faults.clear();
        healed = true;
        if let Some(seed) = power {
            bench.platter.lose_power(seed ^ number as u64);
        }
        // Whoever writes next looks at what is there.
        let look = if go_on { Step::Flush } else { Step::Reopen };
        bench.step(&mut collection, &look).unwrap_or_else(|error| panic!("{what}: {error}"));
        truth = bench.examine(collection.as_ref().unwrap(), &[&after, &truth], &what);
    }
    let struck = bench.faults.injected();
    bench.faults.clear();
    let what = format!("{struck:?}, operation {number}, going on: {go_on}, {power:?}");
    bench.finish(collection, &truth, &what);
    healed || struck.is_some()
}

/// One operation after the other is struck.
fn sweep(fault: Fault, go_on: bool, power: Option<u64>, stride: usize) {
    for (direct, share) in [(None, 1), (Some(0), LARGE_STRIDE)] {
        sweep_over(fault, go_on, power, stride * share, direct);
    }
}

fn sweep_over(fault: Fault, go_on: bool, power: Option<u64>, stride: usize, direct: Option<u64>) {
    let stride = if std::env::var_os(ALL_OPERATIONS).is_some() { 1 } else { stride };
    let mut number = 0;
    while struck_at(number, fault, go_on, power, direct) {
        number += stride;
    }
    assert!(number > 150, "the program has {number} operations");
}

#[test]
fn a_writer_may_be_killed_at_every_operation() {
    sweep(Fault::Kill, false, None, KILL_STRIDE);
}

#[test]
fn the_power_may_fail_at_every_operation() {
    sweep(Fault::Kill, false, Some(3 << 20), KILL_STRIDE);
    sweep(Fault::Kill, false, Some(4 << 20), STRIDE);
}

#[test]
fn an_operation_that_is_refused_loses_nothing() {
    for fault in [Fault::Once(libc::EIO), Fault::Once(libc::ENOSPC), Fault::Twice(libc::EACCES)] {
        for go_on in [true, false] {
            sweep(fault, go_on, None, STRIDE);
        }
    }
}

#[test]
fn a_disk_that_is_full_loses_nothing() {
    sweep(Fault::Full, true, None, STRIDE);
    sweep(Fault::Full, false, None, STRIDE);
}

#[test]
fn random_programs_survive_random_faults() {
    for seed in 0..6 {
        survive(seed, 40);
    }
}

/// A random program that is struck again and again.
fn survive(seed: u64, rounds: usize) {
    let bench = Bench::new([None, Some(60)][(seed % 2) as usize]);
    let mut random = StdRng::seed_from_u64(seed);
    let (mut collection, mut truth) = (None, Truth::default());
    bench.step(&mut collection, &Step::Reopen).unwrap();
    for round in 0..rounds {
        let fault = match random.random_range(0..5) {
            0 => Fault::Once(libc::EIO),
            1 => Fault::Full,
            2 => Fault::Twice(libc::EIO),
            _ => Fault::Kill,
        };
        bench.faults.inject(random.random_range(0..200), fault);
        // Some faults strike where nobody minds.
        for _ in 0..30 {
            let step = match random.random_range(0..20) {
                0..2 => Step::Flush,
                2 => Step::Compact,
                3 => Step::Reopen,
                _ => Step::Change(random_change(&bench.case, &truth, &mut random)),
            };
            let mut after = truth.clone();
            if let Step::Change(change) = &step {
                after.apply(change);
            }
            if let Err(error) = bench.step(&mut collection, &step) {
                let struck = bench.faults.injected();
                let what = format!("seed {seed}, round {round}, {struck:?}, {step:.200?}: {error}");
                assert!(struck.is_some(), "{what}");
                let goes_on = fault != Fault::Kill && random.random() && collection.is_some();
                if !goes_on {
                    collection = None;
                }
                bench.faults.clear();
                if fault == Fault::Kill && random.random() {
                    bench.platter.lose_power(random.random());
                }
                let look = if goes_on { Step::Flush } else { Step::Reopen };
                bench.step(&mut collection, &look).unwrap_or_else(|error| panic!("{what}: {error}"));
                truth = bench.examine(collection.as_ref().unwrap(), &[&after, &truth], &what);
                break;
            }
            truth = after;
        }
        bench.faults.clear();
    }
    bench.finish(collection, &truth, &format!("seed {seed}"));
}
