//! Builds and searches that are refused, and builds that are cancelled: nothing is left behind.

use super::sweep::{TestIndex, data, options};
use super::{cluster, graph};
use crate::clustered::vectors;
use crate::progress::CancelAfter;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, FamilyOptions, GraphLayoutChoice, GraphOptions, Index, IndexError,
    OpenOptions, SearchOptions, build,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;

fn families() -> [FamilyOptions; 2] {
    [graph(GraphLayoutChoice::Padded), cluster()]
}

#[test]
fn existing_targets_are_kept_without_overwrite() {
    let TestIndex { folder, path, .. } = TestIndex::build(graph(GraphLayoutChoice::Padded));
    let options = || options(graph(GraphLayoutChoice::Padded));
    let data = vectors(Element::U8, 100, 16, 5);
    assert!(matches!(build(&data, &path, &options(), &Silent), Err(IndexError::Exists { .. })));
    assert_eq!(Manifest::read(&path).unwrap().vectors, 300);
    build(&data, &path, &BuildOptions { overwrite: true, ..options() }, &Silent).unwrap();
    assert_eq!(Manifest::read(&path).unwrap().vectors, 100);
    let precious = folder.path().join("precious");
    std::fs::create_dir(&precious).unwrap();
    std::fs::write(precious.join("thesis.txt"), "years of work").unwrap();
    let refused = build(&data, &precious, &BuildOptions { overwrite: true, ..options() }, &Silent);
    assert!(matches!(refused, Err(IndexError::NotAnIndex { .. })));
    assert!(precious.join("thesis.txt").exists());
}

#[test]
fn bad_data_and_small_budgets_are_refused_and_leave_nothing() {
    let invalid: [FamilyOptions; 2] = [
        GraphOptions { max_degree: 0, ..GraphOptions::default() }.into(),
        ClusterOptions { group_vectors: 0, ..ClusterOptions::default() }.into(),
    ];
    for (family, invalid) in families().into_iter().zip(invalid) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index");
        let options = options(family);
        let mut rows = vec![1.0_f32; 40];
        rows[17] = f32::NAN;
        let bytes = |rows: &[f32]| rows.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let floats = |rows: &[f32]| VectorFile::from_rows(Element::F32, 4, bytes(rows)).unwrap();
        let error = build(&floats(&rows), &path, &options, &Silent).unwrap_err().to_string();
        assert!(error.contains("row 4"), "{error}");
        rows[17] = 1.0;
        rows[8..12].fill(0.0);
        let cosine = BuildOptions { metric: Metric::Cosine, ..options.clone() };
        match build(&floats(&rows), &path, &cosine, &Silent) {
            Err(IndexError::ZeroVectors { count: 1, rows }) => assert_eq!(rows, [2]),
            other => panic!("{other:?}"),
        }
        let small = BuildOptions { memory_bytes: Some(1000), ..options.clone() };
        match build(&data(), &path, &small, &Silent) {
            Err(IndexError::Memory { needed, given: 1000, .. }) => assert!(needed > 1000),
            other => panic!("{other:?}"),
        }
        let invalid = BuildOptions { family: invalid, ..options };
        assert!(matches!(build(&floats(&rows), &path, &invalid, &Silent), Err(IndexError::Parameter(_))));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "a part of a build was left behind");
    }
}

#[test]
fn cancelled_builds_leave_nothing() {
    let data = vectors(Element::F32, 2000, 8, 1);
    for family in families() {
        let dir = tempfile::tempdir().unwrap();
        for checks in [0, 5, 50, 150] {
            let cancel = CancelAfter::checks(checks);
            let outcome = build(&data, &dir.path().join("index"), &options(family.clone()), &cancel);
            assert!(matches!(outcome, Err(IndexError::Cancelled)), "{checks}: {outcome:?}");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}

#[test]
fn queries_that_do_not_fit_are_refused() {
    let TestIndex { folder: _folder, path, queries } = TestIndex::build(graph(GraphLayoutChoice::Padded));
    let index = Index::open(&path, &OpenOptions::default()).unwrap();
    let refused = |queries: &VectorFile, change: fn(&mut SearchOptions)| {
        let mut options = SearchOptions::default();
        change(&mut options);
        match index.search(queries, &options, Control::default()) {
            Err(IndexError::Parameter(message)) => message,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(&vectors(Element::U8, 3, 15, 1), |_| ()).contains("15 dimensions"));
    assert!(refused(&vectors(Element::I8, 3, 16, 1), |_| ()).contains("i8"));
    assert!(refused(&queries, |o| o.k = 0).contains("k is 0"));
    assert!(refused(&queries, |o| o.effort = Effort::Recall(1.5)).contains("recall"));
    assert!(refused(&queries, |o| o.effort = Effort::Recall(f32::NAN)).contains("recall"));
    assert!(refused(&queries, |o| o.effort = Effort::SearchList(3)).contains("at least k"));
    assert!(refused(&queries, |o| o.beam_width = Some(0)).contains("beam_width"));
    let small = OpenOptions { memory_bytes: Some(100), ..OpenOptions::default() };
    assert!(matches!(Index::open(&path, &small), Err(IndexError::Memory { .. })));
}
