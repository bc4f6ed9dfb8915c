//! A cluster index with less memory than its codes take.

mod clustered;

use bathyal_index::families::cluster::ClusterEntry;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, Index, IndexError, OpenOptions, SearchOptions, SearchResult, build,
    verify,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Silent;
use bathyal_vectors::{IdFile, VectorFile};
use clustered::vectors;
use std::path::Path;

const DIM: usize = 64;

fn made(path: &Path, metric: Metric) -> VectorFile {
    let data = vectors(Element::F32, 12_000, DIM, 1);
    let options = BuildOptions { metric, threads: 2, ..BuildOptions::of(ClusterOptions::default()) };
    build(&data, path, &options, &Silent).unwrap();
    data
}

fn open(path: &Path, memory_bytes: u64) -> Result<Index, IndexError> {
    Index::open(path, &OpenOptions { memory_bytes: Some(memory_bytes), ..OpenOptions::default() })
}

/// The least that the index is opened with.
fn least(path: &Path) -> u64 {
    match open(path, 1) {
        Err(IndexError::Memory { needed, .. }) => needed,
        other => panic!("{:?}", other.err()),
    }
}

fn asked(index: &Index, queries: &VectorFile, effort: Effort) -> SearchResult {
    let options = SearchOptions { k: 10, effort, threads: 1, ..SearchOptions::default() };
    index.search(queries, &options, Control::default()).unwrap()
}

fn recall(found: &SearchResult, truth: &IdFile) -> f64 {
    let rows = found.ids.chunks(found.k).enumerate();
    let hits: usize = rows.map(|(q, row)| truth.ids(q).iter().filter(|id| row.contains(id)).count()).sum();
    hits as f64 / found.ids.len() as f64
}

#[test]
fn less_memory_is_shorter_codes_and_more_reads_at_the_same_recall() {
    let dir = tempfile::tempdir().unwrap();
    for metric in Metric::ALL {
        let path = dir.path().join(metric.to_string());
        let data = made(&path, metric);
        let queries = vectors(Element::F32, 100, DIM, 2);
        let truth = exact_neighbors(&data, &queries, metric, 10, None, &Silent).unwrap();
        let least = least(&path);
        let codes = Manifest::read(&path).unwrap();
        let codes = ClusterEntry::read(&codes).unwrap();
        let lengths: Vec<u32> = codes.shorter.iter().map(|shorter| shorter.code_bytes).collect();
        assert_eq!(lengths, [24, 20, 16, 12]);
        let all = codes.codes.file.bytes;
        let mut before: Option<(u64, u64)> = None;
        for budget in
            [least + all, least + all * 7 / 8, least + all / 2, least + all * 3 / 8, least + all / 8, least]
        {
            let index = open(&path, budget).unwrap();
            let split = *index.memory_split();
            let what = format!("{metric} with {budget} of {least} to {}: {split:?}", least + all);
            assert!(split.fixed() + split.searches <= budget, "{what}");
            assert_eq!(split.codes + split.codes_on_tier + split.codes_left_out, all, "{what}");
            let found = asked(&index, &queries, Effort::Recall(0.95));
            let (recall, reads) = (recall(&found, &truth), found.totals.reads);
            println!("{what}: recall {recall}, {reads} reads");
            assert!(recall >= 0.93, "{what}: recall {recall}");
            if let Some((resident, fewer)) = before {
                assert!(split.codes < resident, "{what}: after {resident}");
                assert!(reads as f64 >= 0.95 * fewer as f64, "{what}: {reads} reads after {fewer}");
            }
            before = Some((split.codes, reads));
        }
    }
}

#[test]
fn shorter_codes_that_are_left_on_the_tier_find_what_those_in_memory_find() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    made(&path, Metric::L2);
    let queries = vectors(Element::F32, 60, DIM, 3);
    let entry = ClusterEntry::read(&Manifest::read(&path).unwrap()).unwrap();
    let shortest = entry.codes.file.bytes * 3 / 8;
    let (least, effort) = (least(&path), Effort::SearchList(40));
    // The shortest that are all in memory, some of them, and as good as none.
    let budgets = [least + shortest, least + shortest / 2, least];
    let found = budgets.map(|budget| {
        let index = open(&path, budget).unwrap();
        (index.memory_split().codes_on_tier, asked(&index, &queries, effort))
    });
    assert_eq!(found[0].0, 0);
    for (on_tier, other) in &found[1..] {
        assert!(*on_tier > 0);
        assert_eq!((&other.ids, &other.distances), (&found[0].1.ids, &found[0].1.distances), "{on_tier}");
        assert!(other.totals.reads > found[0].1.totals.reads);
    }
}

#[test]
fn a_damaged_group_is_named_whatever_codes_are_made_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    made(&path, Metric::L2);
    let (file, least) = (path.join("codes.bin"), least(&path));
    let mut bytes = std::fs::read(&file).unwrap();
    let group = bytes.len() / 2;
    bytes[group] ^= 4;
    std::fs::write(&file, &bytes).unwrap();
    let message = open(&path, least + bytes.len() as u64 / 2).map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("codes.bin") && message.contains("the codes of group"), "{message}");
}

#[test]
fn lengths_that_no_build_measures_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    made(&path, Metric::L2);
    let manifest = Manifest::read(&path).unwrap();
    let entry = ClusterEntry::read(&manifest).unwrap();
    for lengths in [vec![32], vec![7], vec![0], vec![16, 20], vec![16, 16], vec![24, u32::MAX]] {
        let mut entry = entry.clone();
        let curves = entry.shorter[0].curves.clone();
        entry.shorter.truncate(lengths.len());
        for (shorter, length) in entry.shorter.iter_mut().zip(&lengths) {
            (shorter.code_bytes, shorter.curves) = (*length, curves.clone());
        }
        let mut told = manifest.clone();
        told.set_structure(&entry, entry.files()).unwrap();
        let message = ClusterEntry::read(&told).unwrap_err();
        assert!(message.contains("shorter codes"), "{lengths:?}: {message}");
    }
    assert!(verify(&path, &Silent).unwrap().sound);
}
