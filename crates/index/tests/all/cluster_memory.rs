//! A cluster index with less memory than its codes take.

use crate::cases::{case_runs, quick_build};
use crate::clustered::vectors;
use crate::files::copy;
use crate::shared::folder;
use bathyal_index::families::cluster::ClusterEntry;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, Index, IndexError, MemorySplit, OpenOptions, SearchOptions,
    SearchResult, build, verify,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Silent;
use bathyal_vectors::{IdFile, VectorFile};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const DIM: usize = 32;

fn build_index(path: &Path, metric: Metric, data: &VectorFile) {
    let options = BuildOptions { metric, threads: 2, ..quick_build(ClusterOptions::default()) };
    build(data, path, &options, &Silent).unwrap();
}

/// Returns the vectors that the tests share, and their index under the metric l2.
fn shared() -> &'static (VectorFile, PathBuf) {
    static SHARED: OnceLock<(VectorFile, PathBuf)> = OnceLock::new();
    SHARED.get_or_init(|| {
        let (data, path) = (vectors(Element::F32, 40_000, DIM, 1), folder().join("cluster-memory"));
        build_index(&path, Metric::L2, &data);
        (data, path)
    })
}

fn open(path: &Path, memory_bytes: u64) -> Result<Index, IndexError> {
    Index::open(path, &OpenOptions { memory_bytes: Some(memory_bytes), ..OpenOptions::default() })
}

/// Returns the smallest budget that opens the index.
fn smallest_budget(path: &Path) -> u64 {
    match open(path, 1) {
        Err(IndexError::Memory { needed, .. }) => needed,
        other => panic!("{:?}", other.err()),
    }
}

fn search(index: &Index, queries: &VectorFile, effort: Effort) -> SearchResult {
    let options = SearchOptions { k: 10, effort, threads: 1, ..SearchOptions::default() };
    index.search(queries, &options, Control::default()).unwrap()
}

fn recall(found: &SearchResult, truth: &IdFile) -> f64 {
    let rows = found.ids.chunks(found.k).enumerate();
    let hits: usize = rows.map(|(q, row)| truth.ids(q).iter().filter(|id| row.contains(id)).count()).sum();
    hits as f64 / found.ids.len() as f64
}

/// Returns falling budgets and their splits, from one for all codes to one for few.
fn budgets(path: &Path) -> Vec<(u64, MemorySplit)> {
    let (least, room) = (smallest_budget(path), 1 << 20);
    let codes = ClusterEntry::read(&Manifest::read(path).unwrap()).unwrap().codes.file.bytes;
    let budgets = (0..=24).rev().map(|step| least + room / 4 + (codes + room) * step / 24);
    budgets.map(|budget| (budget, *open(path, budget).unwrap().memory_split())).collect()
}

#[test]
fn less_memory_means_shorter_codes_and_more_reads_at_the_same_recall() {
    let dir = tempfile::tempdir().unwrap();
    for (_, metric) in Metric::ALL.into_iter().enumerate().filter(|(number, _)| case_runs(*number, 2)) {
        let (data, of_l2) = shared();
        let path = if metric == Metric::L2 { of_l2.clone() } else { dir.path().join(metric.to_string()) };
        if metric != Metric::L2 {
            build_index(&path, metric, data);
        }
        let queries = vectors(Element::F32, 100, DIM, 2);
        let truth = exact_neighbors(data, &queries, metric, 10, None, &Silent).unwrap();
        let entry = ClusterEntry::read(&Manifest::read(&path).unwrap()).unwrap();
        let lengths: Vec<u32> = entry.shorter.iter().map(|shorter| shorter.code_bytes).collect();
        assert_eq!(lengths, [24, 20, 16, 12]);
        let all = entry.codes.file.bytes;
        let (mut used, mut before): (Vec<u64>, Option<(u64, u64)>) = (Vec::new(), None);
        for (budget, split) in budgets(&path) {
            let what = format!("{metric} with {budget}: {split:?}");
            assert!(split.fixed() + split.searches <= budget, "{what}");
            assert_eq!(split.codes + split.codes_on_tier + split.codes_left_out, all, "{what}");
            let index = open(&path, budget).unwrap();
            let found = search(&index, &queries, Effort::Recall(0.9));
            assert!(!found.notes.iter().any(|note| note.contains("shorter codes")), "{:?}", found.notes);
            let (recall, reads) = (recall(&found, &truth), found.totals.reads);
            assert!(recall >= 0.87, "{what}: recall {recall}");
            let (fewer, more) = before.unwrap_or((u64::MAX, 0));
            assert!(
                split.codes <= fewer && reads as f64 >= 0.9 * more as f64,
                "{what}: {reads} after {more}"
            );
            before = Some((split.codes, reads));
            used.push((all - split.codes_left_out) * 32 / all + u64::from(split.codes_on_tier > 0) * 100);
        }
        used.dedup();
        assert_eq!(used, [32, 24, 20, 16, 12, 112], "{metric}");
    }
}

#[test]
fn groups_whose_codes_are_on_the_tier_are_compared_by_whole_codes() {
    let (data, path) = shared();
    let queries = vectors(Element::F32, 60, DIM, 3);
    let truth = exact_neighbors(data, &queries, Metric::L2, 10, None, &Silent).unwrap();
    let budgets = budgets(path);
    let shortest = budgets.iter().map(|(_, split)| split.codes_left_out).max().unwrap();
    let mut before: Option<(f64, u64)> = None;
    let mut spilled = 0;
    for (budget, split) in budgets.iter().filter(|(_, split)| split.codes_left_out == shortest) {
        let found = search(&open(path, *budget).unwrap(), &queries, Effort::SearchList(20));
        assert!(found.notes.iter().any(|note| note.contains("shorter codes")), "{:?}", found.notes);
        let (recall, reads) = (recall(&found, &truth), found.totals.reads);
        if let Some((worse, fewer)) = before {
            assert!(
                recall >= worse - 0.01 && reads >= fewer,
                "{split:?}: {recall}, {reads}, before {before:?}"
            );
        } else {
            assert_eq!(split.codes_on_tier, 0);
        }
        before = Some((recall, reads));
        spilled += u32::from(split.codes_on_tier > 0);
    }
    assert!(spilled > 2, "{spilled}");
}

#[test]
fn a_damaged_group_is_named_if_codes_are_shortened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    copy(&shared().1, &path);
    let shorter = budgets(&path).into_iter().find(|(_, split)| split.codes_left_out > 0).unwrap();
    let file = path.join("codes.bin");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&file, &bytes).unwrap();
    let message = open(&path, shorter.0).map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("codes.bin") && message.contains("the codes of group"), "{message}");
}

#[test]
fn invalid_lengths_of_shorter_codes_are_refused() {
    let (_, path) = shared();
    let manifest = Manifest::read(path).unwrap();
    let entry = ClusterEntry::read(&manifest).unwrap();
    for lengths in [vec![32], vec![7], vec![0], vec![16, 20], vec![16, 16], vec![24, u32::MAX]] {
        let mut entry = entry.clone();
        let curves = entry.shorter[0].curves.clone();
        entry.shorter.truncate(lengths.len());
        for (shorter, length) in entry.shorter.iter_mut().zip(&lengths) {
            (shorter.code_bytes, shorter.curves) = (*length, curves.clone());
        }
        let mut changed = manifest.clone();
        changed.set_structure(&entry, entry.files()).unwrap();
        let message = ClusterEntry::read(&changed).unwrap_err();
        assert!(message.contains("shorter codes"), "{lengths:?}: {message}");
    }
    assert!(verify(path, &Silent).unwrap().sound);
}
