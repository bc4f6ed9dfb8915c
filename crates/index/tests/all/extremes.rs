//! Values whose squares overflow or underflow in f32. Under cosine they are searched like others. Under other
//! metrics every family refuses them in data and in queries, and names the row.

use crate::cases::{CaseSelection, quick_build};
use crate::clustered::vectors;
use bathyal_index::families::flat::FlatOptions;
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, FamilyOptions, GraphLayoutChoice, GraphOptions, Index, IndexError,
    OpenOptions, PostingLayout, SearchOptions, SpannOptions, TierChoice, build,
};
use bathyal_kernels::quantize::CodeKind;
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::path::Path;

const DIM: usize = 16;

fn kinds() -> Vec<(&'static str, BuildOptions)> {
    let options = |family: FamilyOptions| BuildOptions { threads: 1, ..quick_build(family) };
    let graph = |layout| {
        let (max_degree, search_list) = (16, 40);
        options(GraphOptions { layout, max_degree, search_list, ..GraphOptions::default() }.into())
    };
    let lists = |layout, code_kind| {
        let replicas = Some(4);
        options(SpannOptions { layout, code_kind, replicas, ..SpannOptions::default() }.into())
    };
    let groups = ClusterOptions { group_vectors: 20, ..ClusterOptions::default() };
    vec![
        ("cluster", options(groups.into())),
        ("padded", graph(GraphLayoutChoice::Padded)),
        ("page_local", graph(GraphLayoutChoice::PageLocal)),
        ("csr", graph(GraphLayoutChoice::Csr)),
        ("coupled", lists(PostingLayout::Coupled, None)),
        ("codes", lists(PostingLayout::Coupled, Some(CodeKind::Axes))),
        ("decoupled", lists(PostingLayout::Decoupled, None)),
        ("grouped", lists(PostingLayout::Grouped, None)),
        ("flat", options(FlatOptions::default().into())),
        ("lsh", options(LshOptions::default().into())),
        ("flat_codes", options(FlatOptions { code_bytes: Some(16), ..FlatOptions::default() }.into())),
    ]
}

/// Returns the vectors with each value multiplied by `factor`.
fn scaled(vectors: &VectorFile, factor: f32) -> VectorFile {
    let values = (0..vectors.count()).flat_map(|row| vectors.row(row).as_chunks::<4>().0);
    let values = values.flat_map(|b| (f32::from_le_bytes(*b) * factor).to_le_bytes());
    VectorFile::from_rows(Element::F32, vectors.dim(), values.collect()).unwrap()
}

/// Returns the vectors with one value of a row replaced.
fn with_value(vectors: &VectorFile, row: usize, value: f32) -> VectorFile {
    let mut bytes = vectors.rows(0..vectors.count()).unwrap().to_vec();
    bytes[row * DIM * 4 + 8..][..4].copy_from_slice(&value.to_le_bytes());
    VectorFile::from_rows(Element::F32, DIM, bytes).unwrap()
}

fn answers(path: &Path, queries: &VectorFile) -> Result<Vec<u32>, IndexError> {
    let mut ids = Vec::new();
    for tier in [TierChoice::File, TierChoice::Dram] {
        let index = Index::open(path, &OpenOptions { tier, ..OpenOptions::default() })?;
        let options = SearchOptions { effort: Effort::Recall(0.95), threads: 1, ..SearchOptions::default() };
        ids.extend(index.search(queries, &options, Control::default())?.ids);
    }
    Ok(ids)
}

/// Builds and searches with all values multiplied by a power of two, which needs no rounding.
fn answers_at(options: &BuildOptions, data: &VectorFile, queries: &VectorFile, power: i32) -> Vec<u32> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let factor = 2_f32.powi(power);
    build(&scaled(data, factor), &path, options, &Silent).unwrap();
    answers(&path, &scaled(queries, factor)).unwrap()
}

#[test]
fn scaling_by_a_power_of_two_changes_no_answer() {
    let (data, queries) = (vectors(Element::F32, 300, DIM, 1), vectors(Element::F32, 20, DIM, 2));
    let mut cases = CaseSelection::one_in(2);
    for metric in [Metric::L2, Metric::InnerProduct, Metric::Cosine] {
        // Values are up to 58, so these are the extreme powers that are accepted. Cosine accepts all.
        let powers = if metric == Metric::Cosine { [-100, 100] } else { [-45, 43] };
        for (name, options) in kinds() {
            if !cases.next_runs() {
                continue;
            }
            let options = BuildOptions { metric, ..options };
            let expected = answers_at(&options, &data, &queries, 0);
            for power in powers {
                let found = answers_at(&options, &data, &queries, power);
                assert_eq!(found, expected, "{name} {metric}, all by 2^{power}");
            }
        }
    }
}

/// Checks that an outcome is an error that names a row.
fn check_refused<T>(outcome: Result<T, IndexError>, what: &str, row: usize) {
    match outcome.map(|_| ()) {
        Err(IndexError::Parameter(message)) => {
            assert!(message.contains(&format!("row {row} ")), "{what}: {message}");
        }
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn values_whose_squares_do_not_fit_are_refused_with_their_row() {
    let (data, queries) = (vectors(Element::F32, 300, DIM, 1), vectors(Element::F32, 5, DIM, 2));
    for metric in [Metric::L2, Metric::InnerProduct] {
        for (name, options) in kinds() {
            let options = BuildOptions { metric, ..options };
            let what = format!("{name} {metric}");
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("index");
            for (bad, row) in [(with_value(&data, 77, 1e19), 77), (with_value(&data, 299, -2e30), 299)] {
                check_refused(build(&bad, &path, &options, &Silent), &what, row);
            }
            let tiny = with_value(&scaled(&data, 1e-32), 123, 1e-30);
            check_refused(build(&tiny, &path, &options, &Silent), &what, 123);
            let given = BuildOptions { calibration: Some(with_value(&queries, 3, 1e19)), ..options.clone() };
            check_refused(build(&data, &path, &given, &Silent), &what, 3);
            assert!(!path.exists());

            build(&data, &path, &options, &Silent).unwrap();
            check_refused(answers(&path, &with_value(&queries, 2, 1e19)), &what, 2);
            let tiny = scaled(&queries, 1e-30);
            if metric == Metric::InnerProduct {
                check_refused(answers(&path, &tiny), &what, 0);
            } else {
                // The nearest vectors of such a query are those that are nearest to zero.
                assert_eq!(answers(&path, &tiny).unwrap(), answers(&path, &scaled(&queries, 0.0)).unwrap());
            }
        }
    }
}

#[test]
fn only_zeros_have_no_direction() {
    let data = vectors(Element::F32, 300, DIM, 1);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let options = BuildOptions { metric: Metric::Cosine, ..kinds().remove(0).1 };
    build(&data, &path, &options, &Silent).unwrap();
    let queries = vectors(Element::F32, 5, DIM, 2);
    let expected = answers(&path, &queries).unwrap();
    for power in [-100, 100] {
        assert_eq!(answers(&path, &scaled(&queries, 2_f32.powi(power))).unwrap(), expected, "2^{power}");
    }
    for zero in [0.0, -0.0] {
        let error = answers(&path, &scaled(&queries, zero)).unwrap_err().to_string();
        assert!(error.contains("all zeros"), "{error}");
    }
}
