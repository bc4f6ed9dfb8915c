//! Memory that two threads touch without a barrier between, whatever order they happened to run in: launches are recorded and run once
//! more under ThreadSanitizer, to which every thread of a block is one.

use super::groups::Groups;
use super::losses::Grouped;
use super::mutants::{MUTANTS, all_are_tried, compiler, source, write_sources};
use super::pages::Paged;
use super::pairs::Pairs;
use super::walks::Walks;
use bathyal_gpu::nearest::Cells;
use bathyal_kernels::{Element, Metric};
use bathyal_simt::{EmulatedCard, EmulatedOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Launches of each kernel that are looked at as it is: the first, and others that are as far apart.
fn sound() -> usize {
    if super::is_whole() { 4 } else { 2 }
}

/// Mutants that are races, and the launches in which they are.
const LEFT_OUT: [(&str, &str); 11] = [
    ("loss: no barrier before coordinates are taken", "losses"),
    ("loss: no barrier behind the squares", "losses"),
    ("nearest: no barrier before cells are taken", "pairs"),
    ("nearest: no barrier behind the cells", "pairs"),
    ("no barrier before a merge", "hops"),
    ("no barrier before the list is stored", "hops"),
    ("no barrier between reading and writing in a sort", "hops"),
    ("scan: no barrier behind a merge", "scans"),
    ("walk: no barrier after the next were chosen", "walks"),
    ("walk: no barrier behind distances", "walks"),
    ("pages: no barrier before near pages are looked at", "pages"),
];

/// A race that changes no answer: a lane marks a candidate of which another one still asks the page, which a mark leaves as it is.
const UNSEEN: (&str, &str, &str, &str) = (
    "pages: lanes mark while others look",
    "pages.cu",
    "looked at by the lane that marks it.\n    __syncwarp(ALL_LANES);",
    "looked at by the lane that marks it.",
);

/// Compiles what replays launches; `None` where the compiler has no ThreadSanitizer.
fn replayer(folder: &Path, changed: Option<(&str, &str)>) -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("cpp");
    write_sources(folder, changed);
    let mut steps = vec![
        (own.join("simt.cpp"), "simt.o", vec!["-O1", "-DSIMT_RACES", "-c"]),
        (own.join("replay.cpp"), "replay.o", vec!["-O1", "-c"]),
        (folder.join("kernels.cpp"), "kernels.o", vec!["-O1", "-g", "-fsanitize=thread", "-c"]),
    ];
    for (from, to, flags) in steps.drain(..) {
        let made = compiler()
            .args(flags)
            .arg("-I")
            .arg(folder)
            .arg(from)
            .arg("-o")
            .arg(folder.join(to))
            .output()
            .unwrap();
        assert!(made.status.success(), "{to}: {}", String::from_utf8_lossy(&made.stderr));
    }
    let program = folder.join("replay");
    let objects = ["simt.o", "replay.o", "kernels.o"].map(|name| folder.join(name));
    let linked = compiler().arg("-fsanitize=thread").args(objects).arg("-o").arg(&program).output().unwrap();
    linked.status.success().then_some(program)
}

/// What is said of a launch; nothing if it is sound.
fn replay(program: &Path, record: &Path) -> Option<String> {
    // A race is enough.
    let ran = Command::new(program)
        .arg(record)
        .env("TSAN_OPTIONS", "halt_on_error=1:atexit_sleep_ms=0")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_ne!(ran.status.code(), Some(4), "{said}");
    (!ran.status.success()).then_some(said)
}

#[test]
fn no_two_threads_touch_the_same_without_a_barrier() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("records");
    std::fs::create_dir(&records).unwrap();
    let mut all: Vec<(&str, Vec<PathBuf>)> = Vec::new();
    let mut record = |name: &'static str, check: &dyn Fn(&EmulatedCard)| {
        let to = records.join(name);
        std::fs::create_dir(&to).unwrap();
        let card =
            EmulatedCard::new(EmulatedOptions { record: Some(to.clone()), ..EmulatedOptions::default() });
        check(&card);
        // In the first, queries begin; in later ones lists are full, and what is left to expand is far down.
        all.push((name, (1..=card.launches()).map(|number| to.join(number.to_string())).collect()));
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
    let program = folder.path().join("sound");
    std::fs::create_dir(&program).unwrap();
    let Some(program) = replayer(&program, None) else {
        println!("skipped: the compiler has no ThreadSanitizer");
        return;
    };
    for (_, launches) in &all {
        for record in launches.iter().step_by(launches.len().div_ceil(sound())) {
            assert_eq!(replay(&program, record), None, "{}", record.display());
        }
    }
    // A barrier that is left out is seen at once, and not only where the order of threads is an unlucky one.
    let tried = if all_are_tried() { LEFT_OUT.len() } else { 1 };
    let named = LEFT_OUT
        .iter()
        .take(tried)
        .map(|(left_out, of)| (MUTANTS.iter().find(|(what, ..)| what == left_out), *of));
    for (mutant, of) in named.chain([(Some(&UNSEEN), "pages")].into_iter().filter(|_| all_are_tried())) {
        let (left_out, name, from, to) = mutant.expect("a mutant");
        assert_eq!(source(name).matches(from).count(), 1, "{left_out}: the kernel has changed");
        let folder = tempfile::tempdir().unwrap();
        let program = replayer(folder.path(), Some((*name, &source(name).replace(from, to)))).unwrap();
        let launches = all.iter().filter(|(name, _)| *name == of).flat_map(|(_, launches)| launches);
        let found = launches.rev().find_map(|record| replay(&program, record));
        // What is read in between may lead anywhere before it is told of.
        let told = |said: &String| said.contains("data race") || said.contains("SEGV");
        assert!(found.as_ref().is_some_and(told), "{left_out}: {found:?}");
    }
}
