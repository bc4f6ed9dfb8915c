//! Collections are compared with a model: random programs, disks that fail, processes that are killed.

mod bugs;
pub(crate) mod cases;
pub(crate) mod columns;
pub(crate) mod compare;
pub(crate) mod conditions;
mod faults;
mod large;
mod processes;
pub(crate) mod program;
#[allow(dead_code)]
#[path = "../../../src/log/tests/scheduler.rs"]
mod scheduler;
#[allow(dead_code)]
#[path = "../../../src/log/tests/shared.rs"]
mod shared;
pub(crate) mod truth;

use bathyal_collection::CollectionLocation;
use bathyal_store::Store;
use bathyal_store::local::LocalStore;
use bathyal_store::memory::MemoryStore;
use cases::Case;
use compare::Recall;
use program::Program;
use std::sync::Arc;

/// Environment variable: steps of all programs together, for longer runs than in continuous integration.
const STEPS: &str = "BATHYAL_COLLECTION_STEPS";
/// Environment variable: number of programs of each test to skip, because an earlier run had them.
const SKIPPED: &str = "BATHYAL_COLLECTION_SKIPPED";
/// Default for the steps of each of the five tests of random programs.
const DEFAULT_STEPS: usize = 6000;
const TESTS: usize = 5;
/// Steps of one program.
const PROGRAM_STEPS: usize = 2_000;
/// Interval of progress messages of a long run, in programs.
const SAID_EVERY: u64 = 50;
/// The least recall of searches that ask for 0.9; it is lower since there are few searches, in small
/// segments.
const LEAST_RECALL: f64 = 0.87;

/// Runs programs over one kind of collection, each in a store of its own.
fn run(case: &Case, store: impl Fn() -> Arc<dyn Store>) {
    let steps = std::env::var(STEPS).map_or(DEFAULT_STEPS, |steps| steps.parse::<usize>().unwrap() / TESTS);
    let skipped = std::env::var(SKIPPED).map_or(0, |skipped| skipped.parse::<u64>().unwrap());
    let mut recall = Recall::default();
    for number in 0..steps.div_ceil(PROGRAM_STEPS) as u64 {
        let mut program = Program::new(case, CollectionLocation::in_store(store()), skipped + number);
        program.run(PROGRAM_STEPS.min(steps - number as usize * PROGRAM_STEPS));
        if (number + 1) % SAID_EVERY == 0 {
            println!("{}: {} of {steps} steps", case.name, (number + 1) * PROGRAM_STEPS as u64);
        }
        let Recall { found, wanted, exact } = program.recall;
        recall = Recall {
            found: recall.found + found,
            wanted: recall.wanted + wanted,
            exact: recall.exact + exact,
        };
    }
    println!("{}: {recall:?}", case.name);
    assert!(recall.exact > 0 && recall.wanted > 0, "{recall:?}");
    assert!(recall.found as f64 >= LEAST_RECALL * recall.wanted as f64, "{recall:?}");
}

fn in_memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new("model"))
}

#[test]
fn programs_over_numbers() {
    run(&Case::numbers(), in_memory);
}

#[test]
fn programs_over_texts() {
    run(&Case::texts(), in_memory);
}

#[test]
fn programs_over_two_fields() {
    run(&Case::two_fields(), in_memory);
}

#[test]
fn programs_over_bits() {
    run(&Case::bits(), in_memory);
}

#[test]
fn programs_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let number = std::cell::Cell::new(0);
    run(&Case::numbers(), || {
        number.set(number.get() + 1);
        Arc::new(LocalStore::new(folder.path().join(number.get().to_string()), CollectionLocation::MARK))
    });
}
