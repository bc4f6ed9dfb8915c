//! Audits of searches, in every family.

use super::calibrations::queries_unlike_the_data;
use super::kinds::{KINDS, Shared};
use crate::files;
use bathyal_index::{
    AuditRequest, CalibrateOptions, CalibrationChoice, Effort, Index, IndexError, OpenOptions, SearchOptions,
};
use bathyal_kernels::Metric;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::{exact_neighbors, recall};
use bathyal_vectors::progress::Silent;
use std::path::Path;

fn open(path: &Path) -> Index {
    Index::open(path, &OpenOptions::default()).unwrap()
}

/// Returns the recall that searches for a recall of 0.9 find, by the ground truth.
fn found_for_90(index: &Index, data: &VectorFile, queries: &VectorFile) -> f64 {
    let truth = exact_neighbors(data, queries, Metric::L2, 100, None, &Silent).unwrap();
    let options = SearchOptions { effort: Effort::Recall(0.9), ..SearchOptions::default() };
    let found = index.search(queries, &options, Control::default()).unwrap();
    recall(&truth, &found.ids, 10, queries.count()).unwrap()
}

#[test]
fn an_audit_finds_the_recall_of_the_ground_truth() {
    let (all, unlike) = (Shared::get(), queries_unlike_the_data(300, 8));
    let request = AuditRequest { recalls: vec![0.9], ..AuditRequest::default() };
    let mut missed = 0;
    for (number, kind) in KINDS.into_iter().enumerate() {
        let index = open(&all.path(number));
        for queries in [&all.queries, &unlike] {
            let report = match index.audit(queries, &request, &Silent) {
                Ok(report) => report,
                // It is changed in place, so no pass over a set of its rows is possible.
                Err(IndexError::Parameter(reason)) if reason.contains("in place") => continue,
                Err(error) => panic!("{}: {error}", kind.name),
            };
            let audited = &report.recalls[0];
            let expected = found_for_90(&index, &all.data, queries);
            let found = audited.estimate.found;
            assert!((found - expected).abs() < 1e-6, "{}: {found}, not {expected}", kind.name);
            assert!(audited.estimate.low <= found && found <= audited.estimate.high, "{audited:?}");
            assert_eq!(audited.reached, audited.estimate.high >= f64::from(0.9_f32), "{audited:?}");
            assert_eq!((report.queries, audited.estimate.queries), (queries.count(), queries.count() as u64));
            assert!(kind.reads_all() || report.exact_bytes >= all.data.count() as u64 * 32, "{report:?}");
            missed += usize::from(!audited.reached);
        }
    }
    assert!(missed > 3, "the queries are too easy for this test: {missed} misses");
}

#[test]
fn a_calibration_mends_what_an_audit_finds() {
    let (all, queries) = (Shared::get(), queries_unlike_the_data(300, 9));
    let request = AuditRequest { recalls: vec![0.9, 0.95], ..AuditRequest::default() };
    let misses = |number: &usize| {
        let report = open(&all.path(*number)).audit(&queries, &request, &Silent);
        report.is_ok_and(|report| report.recalls.iter().all(|one| !one.reached))
    };
    let missing = (0..KINDS.len()).find(misses).expect("the queries are too easy for this test");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    files::copy(&all.path(missing), &path);
    let index = open(&path);
    let reached = |calibration: CalibrationChoice| {
        let request = AuditRequest { calibration, ..request.clone() };
        let report = index.audit(&queries, &request, &Silent).unwrap();
        report.recalls.iter().map(|one| one.reached).collect::<Vec<_>>()
    };
    assert_eq!(reached(CalibrationChoice::Usual), [false, false]);
    index.calibrate(&queries_unlike_the_data(300, 10), &CalibrateOptions::default(), &Silent).unwrap();
    assert_eq!(reached(CalibrationChoice::Usual), [true, true]);
    assert_eq!(reached(CalibrationChoice::Build), [false, false]);
    for (request, reason) in [
        (AuditRequest { recalls: Vec::new(), ..request.clone() }, "at least one recall"),
        (AuditRequest { recalls: vec![0.9, 0.0], ..request.clone() }, "recall is 0"),
        (AuditRequest { queries: 0, ..request.clone() }, "at least one query"),
        (AuditRequest { k: 0, ..request.clone() }, "k is 0"),
    ] {
        let refusal = index.audit(&queries, &request, &Silent).unwrap_err().to_string();
        assert!(refusal.contains(reason), "{refusal}");
    }
    let few = index.audit(&queries, &AuditRequest { queries: 20, ..request }, &Silent).unwrap();
    assert_eq!((few.queries, few.notes.len()), (20, 1));
}
