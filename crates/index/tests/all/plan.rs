//! Plans of builds of every family, compared with the memory, files and stages of the builds.

use crate::cases::{case_runs, quick_build};
use crate::progress::StageLog;
use bathyal_index::families;
use bathyal_index::{
    BuildOptions, BuildPlan, FamilyOptions, GivenOptions, IndexError, StoreAs, build, inspect, plan_build,
};
use bathyal_kernels::{Element, Metric};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use serde_json::{Value, json};

/// Largest ratio of the bounds of an index whose size depends on its shape and its codec alone.
const CLOSE: f64 = 1.1;
/// Largest ratio of the bounds of an index whose size depends on the number of links or copies.
const WIDE: f64 = 4.0;

fn family(name: &str, given: Value) -> FamilyOptions {
    let given: GivenOptions = given.as_object().unwrap().clone().into_iter().collect();
    families::options(name, &given).unwrap()
}

/// Returns every family in every layout, with the largest ratio of its bounds.
fn families() -> Vec<(FamilyOptions, f64)> {
    vec![
        (family("cluster", json!({})), CLOSE),
        (family("cluster", json!({"code_kind": "rabitq2", "code_bytes": 24})), CLOSE),
        (family("flat", json!({})), 1.0),
        (family("flat", json!({"code_kind": "axes"})), CLOSE),
        (family("lsh", json!({"tables": 3, "block_bytes": 256})), CLOSE),
        (family("graph", json!({"max_degree": 12})), CLOSE),
        (family("graph", json!({"max_degree": 12, "code_kind": "pq4", "code_bytes": 5})), CLOSE),
        (family("graph", json!({"max_degree": 12, "layout": "page_local"})), CLOSE),
        (family("graph", json!({"max_degree": 12, "layout": "csr"})), WIDE),
        (family("spann", json!({})), CLOSE),
        (family("spann", json!({"replicas": 3})), WIDE),
        (family("spann", json!({"layout": "decoupled", "replicas": 4})), WIDE),
        (family("spann", json!({"layout": "coupled", "replicas": 4})), WIDE + 1.0),
        (family("spann", json!({"layout": "coupled", "replicas": 2, "code_kind": "axes"})), WIDE),
        (family("partitioned", json!({"partition_vectors": 150})), WIDE),
        (
            family("partitioned", json!({"partition_vectors": 150, "pivots": "sampled", "replicas": 2})),
            2.0 * WIDE,
        ),
        (family("partitioned", json!({"partition_vectors": 150, "growth": 0.5})), 2.0 * WIDE),
    ]
}

/// Returns `count x dim` pseudorandom values in five clusters.
fn data(element: Element, count: usize, dim: usize) -> VectorFile {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32
    };
    let value = |row: usize, noise: f32| 20.0 * ((row % 5) as f32 + 1.0) + 10.0 * noise;
    let values = (0..count * dim).map(|at| value(at / dim, next()));
    let bytes: Vec<u8> = match element {
        Element::U8 => values.map(|value| value as u8).collect(),
        _ => values.flat_map(f32::to_le_bytes).collect(),
    };
    VectorFile::from_rows(element, dim, bytes).unwrap()
}

/// Plans a build, runs it, and compares memory, files and stages.
fn check(data: &VectorFile, options: &BuildOptions) -> BuildPlan {
    let plan = plan_build(data, options).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let stages = StageLog::default();
    let report = build(data, &path, options, &stages).unwrap();
    let what = format!("{:?}", options.family);
    assert_eq!(report.planned_memory_bytes, plan.memory.planned_bytes, "{what}");
    let bounds = plan.least_index_bytes..=plan.most_index_bytes;
    assert!(bounds.contains(&report.index_bytes), "{what}: {} of {bounds:?}", report.index_bytes);
    let files = inspect(&path, &Silent).unwrap().manifest.files;
    let names = |mut names: Vec<String>| {
        names.sort();
        names
    };
    assert_eq!(
        names(files.iter().map(|file| file.name.clone()).collect()),
        names(plan.files.iter().map(|file| file.name.to_owned()).collect()),
        "{what}"
    );
    for file in &files {
        let planned = plan.files.iter().find(|planned| planned.name == file.name).unwrap();
        let bounds = planned.least_bytes..=planned.most_bytes;
        assert!(bounds.contains(&file.bytes), "{what}: {} has {} of {bounds:?}", file.name, file.bytes);
    }
    let reported = stages.names();
    for stage in &plan.stages {
        assert!(reported.iter().any(|name| name == stage.name), "{what}: {} of {reported:?}", stage.name);
    }
    plan
}

#[test]
fn builds_of_every_family_match_their_plan() {
    let vectors = data(Element::F32, 1500, 20);
    for (family, largest_ratio) in families() {
        let options = BuildOptions { threads: 2, ..quick_build(family) };
        let plan = check(&vectors, &options);
        let ratio = plan.most_index_bytes as f64 / plan.least_index_bytes as f64;
        assert!(ratio <= largest_ratio, "{:?}: the ratio of the bounds is {ratio:.2}", options.family);
        assert!(plan.memory.fits && plan.memory.advice.is_none() && !plan.stages.is_empty());
    }
}

#[test]
fn builds_of_other_elements_metrics_and_stored_forms_match_their_plan() {
    let (bytes, floats) = (data(Element::U8, 700, 37), data(Element::F32, 700, 37));
    for (number, (family, _)) in families().into_iter().enumerate() {
        let plain = BuildOptions { threads: 2, ..quick_build(family) };
        let metrics = [Metric::InnerProduct, Metric::Cosine].into_iter().enumerate();
        // Each family with a metric, and every second one with a stored form.
        for (_, metric) in metrics.filter(|(at, _)| case_runs(number + at, 2)) {
            check(&bytes, &BuildOptions { metric, ..plain.clone() });
        }
        if !case_runs(number, 2) {
            continue;
        }
        let plan = check(&floats, &BuildOptions { store_as: Some(StoreAs::F16), ..plain });
        assert_eq!((plan.element, plan.stored_element), ("f32", "f16"));
    }
}

#[test]
fn builds_of_long_vectors_match_their_plan() {
    let vectors = data(Element::F32, 300, 700);
    for name in ["cluster", "graph", "spann", "flat", "lsh", "partitioned"] {
        check(&vectors, &BuildOptions { threads: 2, ..quick_build(family(name, json!({}))) });
    }
}

#[test]
fn builds_in_parts_match_their_plan() {
    let vectors = data(Element::F32, 6000, 16);
    for name in ["cluster", "spann", "graph"] {
        let options = BuildOptions { threads: 1, ..quick_build(family(name, json!({}))) };
        let whole = plan_build(&vectors, &options).unwrap().memory.planned_bytes;
        // The plan of a budget of one byte names the least possible memory.
        let one_byte =
            plan_build(&vectors, &BuildOptions { memory_bytes: Some(1), ..options.clone() }).unwrap();
        assert!(!one_byte.memory.fits && one_byte.memory.advice.is_some(), "{name}");
        let least = one_byte.memory.planned_bytes;
        let refused = BuildOptions { memory_bytes: Some(least - 1), ..options.clone() };
        let folder = tempfile::tempdir().unwrap();
        let error = build(&vectors, &folder.path().join("x"), &refused, &Silent);
        assert!(matches!(error, Err(IndexError::Memory { needed, .. }) if needed == least), "{name}");
        if least < whole {
            let plan = check(&vectors, &BuildOptions { memory_bytes: Some(least), ..options });
            assert!(plan.memory.fits && plan.memory.vectors_at_once < 6000, "{name}");
        }
    }
}

#[test]
fn a_plan_is_refused_for_the_reasons_of_the_build() {
    let vectors = data(Element::U8, 50, 8);
    let options = BuildOptions { store_as: Some(StoreAs::F16), ..BuildOptions::default() };
    let refused = plan_build(&vectors, &options).unwrap_err();
    assert!(matches!(&refused, IndexError::Parameter(what) if what.contains("store_as")), "{refused}");
}
