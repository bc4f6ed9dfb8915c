//! Data races, which are accesses of two threads to the same memory without a barrier between them. Launches
//! are recorded and repeated under ThreadSanitizer, to which each thread of a block is a thread of its own.
//! It detects races in any order of threads.

use super::groups::Groups;
use super::losses::Grouped;
use super::mutants::{MUTANTS, Mutant, all_are_tested, compiler, write_sources};
use super::pages::Paged;
use super::pairs::Pairs;
use super::walks::Walks;
use bathyal_gpu::nearest::Cells;
use bathyal_kernels::{Element, Metric};
use bathyal_simt::{EmulatedCard, EmulatedOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the number of launches of each unchanged kernel that are checked, at equal intervals from the
/// first on.
fn checked_launches() -> usize {
    if super::is_whole() { 4 } else { 2 }
}

/// Names of mutants with a race, each with the name of its launches.
const RACES: [(&str, &str); 11] = [
    ("loss: no barrier before coordinates are loaded", "losses"),
    ("loss: no barrier after squares are computed", "losses"),
    ("nearest: no barrier before cells are loaded", "pairs"),
    ("nearest: no barrier after cells are loaded", "pairs"),
    ("no barrier before a merge", "hops"),
    ("hop: no barrier before the list is stored", "hops"),
    ("no barrier between reading and writing in a sort", "hops"),
    ("scan: no barrier after a merge", "scans"),
    ("walk: no barrier after the next vectors are chosen", "walks"),
    ("walk: no barrier after distances are computed", "walks"),
    ("pages: no barrier before near pages are scored", "pages"),
];

/// A race that changes no result: a lane marks a candidate while another lane still reads the candidate's
/// page, which the mark does not change.
const HARMLESS_RACE: Mutant = Mutant::new(
    "pages: no barrier before lanes mark candidates",
    "pages.cu",
    "read by the lane that marks it.\n    __syncwarp(ALL_LANES);",
    "read by the lane that marks it.",
);

/// Compiles the program that repeats launches. Returns `None` if the compiler has no ThreadSanitizer.
fn compile_replay(folder: &Path, mutant: Option<&Mutant>) -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("cpp");
    write_sources(folder, mutant);
    let steps = [
        (own.join("simt.cpp"), "simt.o", vec!["-O1", "-DSIMT_RACES", "-c"]),
        (own.join("replay.cpp"), "replay.o", vec!["-O1", "-c"]),
        (folder.join("kernels.cpp"), "kernels.o", vec!["-O1", "-g", "-fsanitize=thread", "-c"]),
    ];
    for (from, to, flags) in steps {
        let output = compiler()
            .args(flags)
            .arg("-I")
            .arg(folder)
            .arg(from)
            .arg("-o")
            .arg(folder.join(to))
            .output()
            .unwrap();
        assert!(output.status.success(), "{to}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let program = folder.join("replay");
    let objects = ["simt.o", "replay.o", "kernels.o"].map(|name| folder.join(name));
    let linked = compiler().arg("-fsanitize=thread").args(objects).arg("-o").arg(&program).output().unwrap();
    linked.status.success().then_some(program)
}

/// Repeats a recorded launch. Returns the complaint of ThreadSanitizer or of the emulated card; `None` if
/// there is none.
fn replay(program: &Path, record: &Path) -> Option<String> {
    // The first race ends the program.
    let output = Command::new(program)
        .arg(record)
        .env("TSAN_OPTIONS", "halt_on_error=1:atexit_sleep_ms=0")
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_ne!(output.status.code(), Some(4), "{complaint}");
    (!output.status.success()).then_some(complaint)
}

/// The recorded launches of a kernel.
struct Records {
    name: &'static str,
    /// The file of each launch, in order.
    launches: Vec<PathBuf>,
}

/// Records launches of all kernels in `folder`.
fn record_launches(folder: &Path) -> Vec<Records> {
    let mut all = Vec::new();
    let mut record = |name: &'static str, check: &dyn Fn(&EmulatedCard)| {
        let to = folder.join(name);
        std::fs::create_dir(&to).unwrap();
        let card =
            EmulatedCard::new(EmulatedOptions { record: Some(to.clone()), ..EmulatedOptions::default() });
        check(&card);
        let launches = (1..=card.launches()).map(|number| to.join(number.to_string())).collect();
        all.push(Records { name, launches });
    };
    let (walks, groups) =
        (Walks::new("axes", 32, 128, 90, (150, 4)), Groups::new("axes", 33, 60, 300, 150, Metric::L2));
    record("hops", &|card| walks.check(card).unwrap());
    record("scans", &|card| groups.check(card).unwrap());
    let small = Walks::new("axes", 24, 16, 20, (12, 3));
    let form = (Element::I8, false, Metric::L2);
    record("walks", &|card| small.check_resident(card, &small.stored(form, 37)).unwrap());
    record("reranks", &|card| groups.check_resident(card, &groups.stored(form, 37)).unwrap());
    let pages = Paged::new(("axes", 32, 128), (5, 200, 150), (60, 4));
    record("pages", &|card| pages.check(card).unwrap());
    let pairs = Pairs::new(Cells::Floats, 37, 130, 300);
    record("pairs", &|card| pairs.check(card).unwrap());
    let grouped = Grouped::new(37, 70 * 3 + 5, 70, 3);
    record("losses", &|card| grouped.check(card).unwrap());
    all
}

#[test]
fn threads_access_the_same_memory_only_with_a_barrier_between() {
    let folder = tempfile::tempdir().unwrap();
    let (records, program) = (folder.path().join("records"), folder.path().join("program"));
    std::fs::create_dir(&records).unwrap();
    std::fs::create_dir(&program).unwrap();
    let records = record_launches(&records);
    let Some(program) = compile_replay(&program, None) else {
        println!("skipped: the compiler has no ThreadSanitizer");
        return;
    };
    for Records { launches, .. } in &records {
        for record in launches.iter().step_by(launches.len().div_ceil(checked_launches())) {
            assert_eq!(replay(&program, record), None, "{}", record.display());
        }
    }
    // A missing barrier is detected in any order of threads.
    let tested = if all_are_tested() { RACES.len() } else { 1 };
    let named = |(name, kernel): &(&str, &'static str)| {
        (MUTANTS.iter().find(|mutant| mutant.name == *name).expect("a mutant"), *kernel)
    };
    let mutants = RACES.iter().take(tested).map(named);
    for (mutant, kernel) in mutants.chain(all_are_tested().then_some((&HARMLESS_RACE, "pages"))) {
        let folder = tempfile::tempdir().unwrap();
        let program = compile_replay(folder.path(), Some(mutant)).unwrap();
        let launches =
            records.iter().filter(|records| records.name == kernel).flat_map(|records| &records.launches);
        // In later launches lists are full, and the next candidates to expand are far from their beginning.
        let found = launches.rev().find_map(|record| replay(&program, record));
        // The racing threads may read an invalid address before the race is reported.
        let is_race = |complaint: &String| complaint.contains("data race") || complaint.contains("SEGV");
        assert!(found.as_ref().is_some_and(is_race), "{}: {found:?}", mutant.name);
    }
}
