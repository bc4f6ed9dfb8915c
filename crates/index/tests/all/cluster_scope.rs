//! The number of groups that queries of a cluster index scan. It varies between queries, and its mean is the
//! number of the calibration.

use crate::clustered::vectors;
use bathyal_index::families::cluster::ClusterEntry;
use bathyal_index::format::manifest::MANIFEST_NAME;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, Index, OpenOptions, SearchOptions, SearchResult, TierChoice,
};
use bathyal_index::{build, inspect};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Silent;
use std::path::Path;

const GROUP: u32 = 16;

fn build_index(path: &Path, data: &VectorFile, metric: Metric) -> Index {
    let family = ClusterOptions { group_vectors: GROUP, ..ClusterOptions::default() };
    build(data, path, &BuildOptions { metric, threads: 2, ..BuildOptions::of(family) }, &Silent).unwrap();
    open(path)
}

fn open(path: &Path) -> Index {
    Index::open(path, &OpenOptions { tier: TierChoice::Dram, ..OpenOptions::default() }).unwrap()
}

fn search(index: &Index, queries: &VectorFile, probes: Option<u32>) -> SearchResult {
    let options = SearchOptions { effort: Effort::Recall(0.9), probes, ..SearchOptions::default() };
    index.search(queries, &options, Control::default()).unwrap()
}

/// Numbers of codes that queries scored.
struct ScoredCodes {
    fewest: u32,
    average: f64,
    most: u32,
}

impl ScoredCodes {
    fn of(found: &SearchResult) -> ScoredCodes {
        let codes = found.per_query.iter().map(|one| one.code_distances);
        ScoredCodes {
            fewest: codes.clone().min().unwrap(),
            average: codes.clone().map(f64::from).sum::<f64>() / found.per_query.len() as f64,
            most: codes.max().unwrap(),
        }
    }
}

#[test]
fn the_number_of_scanned_groups_for_a_recall_varies_between_queries() {
    let dir = tempfile::tempdir().unwrap();
    for (element, metric) in
        [(Element::F32, Metric::L2), (Element::U8, Metric::L2), (Element::F32, Metric::Cosine)]
    {
        let (data, queries) = (vectors(element, 6000, 32, 1), vectors(element, 200, 32, 2));
        let path = dir.path().join(format!("{element}-{metric}"));
        let index = build_index(&path, &data, metric);
        let entry = ClusterEntry::read(index.manifest()).unwrap();
        assert!(
            entry.prunes.is_sorted_by(|a, b| a.probes < b.probes && a.prune < b.prune),
            "{:?}",
            entry.prunes
        );
        let found = search(&index, &queries, None);
        let explained = index
            .explain(
                &queries,
                0,
                &SearchOptions { effort: Effort::Recall(0.9), ..SearchOptions::default() },
                Control::default(),
            )
            .unwrap();
        let probes = explained.probes.unwrap();
        let ScoredCodes { fewest, average, most } = ScoredCodes::of(&found);
        let what =
            format!("{element} {metric}: {fewest}, {average}, {most} codes at {probes} of {}", entry.groups);
        assert!(explained.prune > 0.0 && probes < entry.groups as usize / 2, "{what}");
        let scanned = |groups: usize| groups as f64 * 6000.0 / f64::from(entry.groups);
        assert!((average / scanned(probes) - 1.0).abs() < 0.2, "{what}");
        assert!(f64::from(most) > 1.1 * average && f64::from(most) < 1.1 * scanned(2 * probes), "{what}");
        assert!(f64::from(fewest) < 0.9 * average && f64::from(fewest) > 0.8 * scanned(probes / 3), "{what}");
        let truth = exact_neighbors(&data, &queries, metric, 10, None, &Silent).unwrap();
        let rows = found.ids.chunks(10).enumerate();
        let hits: usize =
            rows.map(|(q, row)| truth.ids(q).iter().filter(|id| row.contains(id)).count()).sum();
        assert!(hits as f64 / 2000.0 > 0.88, "{what}: {hits} of 2000");
        // A given number of groups is the same for every query. Some groups are not full.
        let ScoredCodes { fewest, most, .. } = ScoredCodes::of(&search(&index, &queries, Some(20)));
        assert!(f64::from(most - fewest) < 0.2 * f64::from(most), "{fewest} to {most}");
        let lines = inspect(&path, &Silent).unwrap().description.calibration;
        assert!(lines.last().unwrap().contains("a third to twice"), "{lines:?}");
    }
}

#[test]
fn groups_are_not_pruned_under_the_inner_product() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::F32, 3000, 16, 1), vectors(Element::F32, 50, 16, 2));
    let index = build_index(&dir.path().join("index"), &data, Metric::InnerProduct);
    assert_eq!(ClusterEntry::read(index.manifest()).unwrap().prunes, []);
    assert_eq!(index.explain(&queries, 0, &SearchOptions::default(), Control::default()).unwrap().prune, 0.0);
}

#[test]
fn an_index_of_an_earlier_version_scans_the_same_number_of_groups_for_every_query() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::F32, 3000, 16, 1), vectors(Element::F32, 50, 16, 2));
    let path = dir.path().join("index");
    let mut manifest = build_index(&path, &data, Metric::L2).manifest().clone();
    let mut entry = ClusterEntry::read(&manifest).unwrap();
    entry.prunes.clear();
    manifest.set_structure(&entry, entry.files()).unwrap();
    let bytes = manifest.to_bytes().unwrap();
    assert!(!String::from_utf8_lossy(&bytes).contains("prune"));
    std::fs::write(path.join(MANIFEST_NAME), bytes).unwrap();
    let index = open(&path);
    let ScoredCodes { fewest, average, most } = ScoredCodes::of(&search(&index, &queries, None));
    assert!(f64::from(most - fewest) < 0.2 * average, "{fewest} to {most}");
    assert_eq!(index.explain(&queries, 0, &SearchOptions::default(), Control::default()).unwrap().prune, 0.0);
    let lines = inspect(&path, &Silent).unwrap().description.calibration;
    assert!(lines.iter().all(|line| !line.contains("twice")), "{lines:?}");
}
