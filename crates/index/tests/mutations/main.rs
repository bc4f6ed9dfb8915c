//! Every reader reads thousands of damaged files. No reader may panic, accept a contradiction, or allocate
//! much more memory than its input has bytes.
//!
//! Mutations are seeded: a failure names its target and round, and is repeated by the next run.
//! `BATHYAL_MUTATIONS=1000000` sets the rounds per target. `make fuzz` searches further, guided by coverage.

mod memory;
mod mutate;
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use rand::SeedableRng;
use rand::rngs::StdRng;

use memory::{PeakAllocator, peak_of};
use targets::{TARGETS, Target};

#[global_allocator]
static ALLOCATOR: PeakAllocator = PeakAllocator;

/// Rounds per target by default. They take about a second for all targets.
const ROUNDS: u64 = 4000;

/// Returns the largest single allocation that a reader may make for `len` bytes of input. The limit is
/// generous, because a reader that trusts a damaged header allocates gigabytes.
const fn allowed_bytes(len: usize) -> usize {
    64 * len + (1 << 20)
}

fn rounds() -> u64 {
    std::env::var("BATHYAL_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS)
}

/// Reads `bytes`, and describes the failure, if there is one.
fn complaint(target: &Target, bytes: &[u8]) -> Option<String> {
    let mut panicked = false;
    let peak = peak_of(|| panicked = catch_unwind(AssertUnwindSafe(|| (target.read)(bytes))).is_err());
    if panicked {
        return Some("panicked".to_string());
    }
    (peak > allowed_bytes(bytes.len())).then(|| format!("allocated {peak} bytes at once"))
}

#[test]
fn valid_files_are_read() {
    for target in &TARGETS {
        for seed in (target.seeds)() {
            assert_eq!(complaint(target, &seed), None, "{}", target.name);
        }
    }
}

/// Each file `found/READER/*` made the reader fail once.
#[test]
fn files_that_once_broke_a_reader_are_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mutations/found");
    for entry in folder.read_dir().unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let target = TARGETS.iter().find(|target| target.name == name).expect("a folder of a reader");
        for file in entry.path().read_dir().unwrap().map(|file| file.unwrap().path()) {
            let bytes = std::fs::read(&file).unwrap();
            assert_eq!(complaint(target, &bytes), None, "{}", file.display());
        }
    }
}

#[test]
fn damaged_files_break_no_reader() {
    for (index, target) in TARGETS.iter().enumerate() {
        let seeds = (target.seeds)();
        for round in 0..rounds() {
            let mut rng = StdRng::seed_from_u64(round << 8 | index as u64);
            let bytes = mutate::mutated(&seeds, &mut rng);
            if let Some(what) = complaint(target, &bytes) {
                let start = &bytes[..bytes.len().min(256)];
                panic!("{} {what} in round {round} on {} bytes: {start:02x?}", target.name, bytes.len());
            }
        }
    }
}

#[test]
fn truncated_files_break_no_reader() {
    for target in &TARGETS {
        for seed in (target.seeds)() {
            for len in 0..seed.len().min(2048) {
                assert_eq!(complaint(target, &seed[..len]), None, "{} cut to {len}", target.name);
            }
        }
    }
}
