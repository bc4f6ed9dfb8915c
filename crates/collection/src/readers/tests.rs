//! Runs every parser on damaged files, as for indexes. `BATHYAL_MUTATIONS` sets the rounds of each parser.

use super::{READERS, Reader};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

#[path = "../../../index/tests/mutations/mutate.rs"]
mod mutate;

/// Default number of rounds for each parser.
const ROUNDS: u64 = 1500;

fn rounds() -> u64 {
    std::env::var("BATHYAL_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS)
}

fn panics(reader: &Reader, bytes: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| (reader.read)(bytes))).is_err()
}

#[test]
fn valid_and_truncated_files_cause_no_panic() {
    for reader in &READERS {
        for seed in (reader.seeds)() {
            assert!(!panics(reader, &seed), "{}", reader.name);
            for len in (0..seed.len()).step_by(1 + seed.len() / 100) {
                assert!(!panics(reader, &seed[..len]), "{} cut to {len}", reader.name);
            }
        }
    }
}

#[test]
fn damaged_files_cause_no_panic() {
    for (index, reader) in READERS.iter().enumerate() {
        let seeds = (reader.seeds)();
        for round in 0..rounds() {
            let mut rng = StdRng::seed_from_u64(round << 8 | index as u64);
            let bytes = mutate::mutated(&seeds, &mut rng);
            let start = &bytes[..bytes.len().min(256)];
            assert!(!panics(reader, &bytes), "{} panics in round {round}: {start:02x?}", reader.name);
        }
    }
}

/// Regression test: `found/READER/*` are files on which fuzzing once found a fault.
#[test]
fn files_that_fuzzing_found_cause_no_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/found");
    for entry in folder.read_dir().into_iter().flatten().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let reader = READERS.iter().find(|reader| reader.name == name).expect("a folder of a reader");
        for file in entry.path().read_dir().unwrap().map(|file| file.unwrap().path()) {
            assert!(!panics(reader, &std::fs::read(&file).unwrap()), "{}", file.display());
        }
    }
}
