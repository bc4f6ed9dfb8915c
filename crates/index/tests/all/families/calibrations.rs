//! Calibrations of a finished index with queries of its user, in every family.

use super::kinds::{KINDS, Kind, Shared};
use crate::cases::all_cases_run;
use crate::files;
use bathyal_index::{
    CalibrateOptions, CalibrationChoice, CopyOptions, Effort, Index, IndexError, OpenOptions, SearchOptions,
    copy, inspect, verify,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::{exact_neighbors, recall};
use bathyal_vectors::progress::Silent;
use rand::{Rng, SeedableRng};
use std::fs::OpenOptions as FileOptions;
use std::io::Write;
use std::path::Path;

/// Returns `count` queries that are spread evenly over all values, far from the clusters of the data.
pub fn queries_unlike_the_data(count: usize, seed: u64) -> VectorFile {
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let rows = (0..count * 32).map(|_| random.random_range(0..=u8::MAX)).collect();
    VectorFile::from_rows(Element::U8, 32, rows).unwrap()
}

fn open(path: &Path) -> Index {
    Index::open(path, &OpenOptions::default()).unwrap()
}

fn named(name: &str) -> CalibrateOptions {
    CalibrateOptions { name: name.into(), ..CalibrateOptions::default() }
}

fn asked(k: usize, recall: f32, calibration: CalibrationChoice) -> SearchOptions {
    SearchOptions { k, effort: Effort::Recall(recall), calibration, ..SearchOptions::default() }
}

#[test]
fn recall_is_kept_for_queries_like_those_of_a_calibration() {
    let (measured, other) = (queries_unlike_the_data(300, 5), queries_unlike_the_data(300, 6));
    let all = Shared::get();
    let truth = exact_neighbors(&all.data, &other, Metric::L2, 100, None, &Silent).unwrap();
    let mut missed_before = 0;
    // Layouts of one family find the same.
    let others = ["page_local", "csr", "decoupled", "grouped"];
    let measures = |kind: &Kind| !kind.reads_all() && (all_cases_run() || !others.contains(&kind.name));
    for (number, kind) in KINDS.into_iter().enumerate().filter(|(_, kind)| measures(kind)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        files::copy(&all.path(number), &path);
        let index = open(&path);
        let found = |k: usize, wanted: f32, choice: CalibrationChoice| {
            let result = index.search(&other, &asked(k, wanted, choice), Control::default()).unwrap();
            (recall(&truth, &result.ids, k, other.count()).unwrap(), result)
        };
        let report = index.calibrate(&measured, &CalibrateOptions::default(), &Silent).unwrap();
        assert_eq!(report.measured.calibration.queries, 300, "{}", kind.name);
        for k in [1, 10, 100] {
            for wanted in [0.5, 0.9, 0.95] {
                let (before, _) = found(k, wanted, CalibrationChoice::Build);
                missed_before += usize::from(before < f64::from(wanted) - 0.02);
                let (after, result) = found(k, wanted, CalibrationChoice::Usual);
                // 300 queries know a mean to about 0.02, twice.
                let what = format!("{}: recall@{k} {after} for {wanted}, {before} before", kind.name);
                assert!(after > f64::from(wanted) - 0.04, "{what}");
                assert!(result.notes.is_empty(), "{what}: {:?}", result.notes);
            }
        }
        // Another handle of the same index finds the calibration, too.
        let again = open(&path).search(&other, &asked(10, 0.9, CalibrationChoice::Usual), Control::default());
        assert_eq!(again.unwrap().ids, found(10, 0.9, CalibrationChoice::Usual).1.ids, "{}", kind.name);
        let report = verify(&path, &Silent).unwrap();
        assert!(report.sound, "{}: {report:?}", kind.name);
    }
    assert!(missed_before > 10, "the queries are too easy for this test: {missed_before} misses");
}

#[test]
fn calibrations_are_chosen_replaced_and_removed_by_their_names() {
    let all = Shared::get();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    // A graph: a cluster index of so few vectors scans all groups.
    files::copy(&all.path(1), &path);
    let index = open(&path);
    let hard = queries_unlike_the_data(200, 7);
    let list = |choice: CalibrationChoice| {
        let found = index.search(&hard, &asked(10, 0.95, choice), Control::default()).unwrap();
        (found.totals.code_distances, found.search_list)
    };
    let build = list(CalibrationChoice::Usual);
    index.calibrate(&hard, &named("hard"), &Silent).unwrap();
    index.calibrate(&all.queries, &named("easy"), &Silent).unwrap();
    let [by_hard, by_easy] = ["hard", "easy"].map(|name| list(index.calibration(name).unwrap()));
    assert!(by_hard > by_easy, "{by_hard:?} {by_easy:?}");
    // Without a name, the hardest counts.
    assert_eq!(list(CalibrationChoice::Usual), by_hard);
    assert_eq!(list(index.calibration("build").unwrap()), build);
    index.calibrate(&all.queries, &named("default"), &Silent).unwrap();
    assert_eq!(list(CalibrationChoice::Usual), by_easy);
    let names = |index: &Index| -> Vec<String> {
        index.calibrations().unwrap().into_iter().map(|one| one.name).collect()
    };
    assert_eq!(names(&index), ["default", "easy", "hard"]);
    let inspected = inspect(&path, &Silent).unwrap().calibrations;
    assert_eq!(inspected, index.calibrations().unwrap());
    let copied = folder.path().join("copy");
    let report = copy(&path, &copied, &CopyOptions::default(), &Silent).unwrap();
    assert_eq!((report.calibrations.copied, names(&open(&copied)).len()), (3, 3));
    let chosen = index.calibration("easy").unwrap();
    assert!(index.remove_calibration("easy").unwrap() && !index.remove_calibration("easy").unwrap());
    let removed = index.search(&hard, &asked(10, 0.95, chosen), Control::default()).unwrap_err();
    assert!(removed.to_string().contains("was removed"), "{removed}");
    let unknown = index.calibration("easy").unwrap_err().to_string();
    assert!(unknown.contains("it has build, default, hard"), "{unknown}");
    assert_eq!(names(&open(&path)), ["default", "hard"]);
    index.remove_calibration("default").unwrap();
    index.remove_calibration("hard").unwrap();
    assert_eq!(list(CalibrationChoice::Usual), build);
}

#[test]
fn handles_see_calibrations_of_others_and_say_once_that_they_were_replaced() {
    let all = Shared::get();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    files::copy(&all.path(1), &path);
    let notes = |index: &Index| {
        let found = index.search(&all.queries, &asked(10, 0.9, Default::default()), Control::default());
        found.unwrap().notes.into_iter().filter(|note| note.contains("another index")).count()
    };
    // Both read that there is no calibration.
    let (index, other) = (open(&path), open(&path));
    assert_eq!((notes(&index), notes(&other)), (0, 0));
    index.calibrate(&all.queries, &named("theirs"), &Silent).unwrap();
    let theirs = other.calibration("theirs").unwrap();
    other.search(&all.queries, &asked(10, 0.9, theirs), Control::default()).unwrap();

    let unread = open(&path);
    let overwrite = CopyOptions { overwrite: true, ..CopyOptions::default() };
    copy(all.path(1), &path, &overwrite, &Silent).unwrap();
    assert_eq!([notes(&unread), notes(&unread), notes(&unread)], [1, 0, 0]);
    // What was read before is still known.
    assert_eq!((notes(&other), other.calibrations().unwrap().len()), (0, 1));
    assert!(other.remove_calibration("theirs").is_err() && other.calibrations().unwrap().len() == 1);
    assert!(unread.calibrate(&all.queries, &named("x"), &Silent).is_err());
}

#[test]
fn a_damaged_calibration_is_never_used() {
    let all = Shared::get();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    files::copy(&all.path(0), &path);
    for name in ["a", "b"] {
        open(&path).calibrate(&all.queries, &named(name), &Silent).unwrap();
    }
    let log = path.join("calibrations.log");
    let bytes = std::fs::read(&log).unwrap();
    // A writer that was killed leaves a part of a record, which the next one replaces.
    FileOptions::new().append(true).open(&log).unwrap().write_all(&bytes[..30]).unwrap();
    assert_eq!(open(&path).calibrations().unwrap().len(), 2);
    open(&path).calibrate(&all.queries, &named("c"), &Silent).unwrap();
    assert_eq!(open(&path).calibrations().unwrap().len(), 3);
    let mut damaged = bytes;
    damaged[20] ^= 1;
    std::fs::write(&log, &damaged).unwrap();
    let refused = open(&path)
        .search(&all.queries, &asked(10, 0.9, CalibrationChoice::Usual), Control::default())
        .unwrap_err();
    assert!(matches!(refused, IndexError::Damaged { .. }), "{refused}");
    assert!(!verify(&path, &Silent).unwrap().sound);
    // A search that gives its effort does not need it.
    let options = SearchOptions { effort: Effort::SearchList(50), ..SearchOptions::default() };
    open(&path).search(&all.queries, &options, Control::default()).unwrap();
}

#[test]
fn calibrations_that_make_no_sense_are_refused() {
    let all = Shared::get();
    let index = open(&all.path(0));
    let refused = |queries: &VectorFile, options: &CalibrateOptions| {
        let error = index.calibrate(queries, options, &Silent).unwrap_err();
        assert!(matches!(error, IndexError::Parameter(_)), "{error}");
        error.to_string()
    };
    let none = CalibrateOptions { queries: 0, ..CalibrateOptions::default() };
    assert!(refused(&all.queries, &none).contains("at least one query"));
    assert!(refused(&all.queries, &named("a b")).contains("cannot name a calibration"));
    assert!(refused(&all.queries, &named("build")).contains("that of the build"));
    let truth = Some(all.truth.slice(0..7).unwrap());
    let few = CalibrateOptions { truth, ..CalibrateOptions::default() };
    assert!(refused(&all.queries, &few).contains("those of 7 queries"));
    let flat = KINDS.iter().position(|kind| kind.reads_all()).unwrap();
    let error = open(&all.path(flat)).calibrate(&all.queries, &CalibrateOptions::default(), &Silent);
    assert!(error.unwrap_err().to_string().contains("nothing to calibrate"));
}
