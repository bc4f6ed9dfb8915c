//! Posting lists of vectors, of addresses and of codes.

mod build;
mod codes;

use crate::cases::quick_build;
use bathyal_index::{BuildOptions, SearchResult, SpannOptions};
use bathyal_kernels::Metric;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Silent;
use std::collections::BTreeMap;
use std::path::Path;

fn build_options(metric: Metric, lists: SpannOptions) -> BuildOptions {
    BuildOptions { metric, threads: 2, ..quick_build(lists) }
}

fn recall(found: &SearchResult, data: &VectorFile, queries: &VectorFile, metric: Metric) -> f64 {
    let truth = exact_neighbors(data, queries, metric, found.k, None, &Silent).unwrap();
    let rows = found.ids.chunks(found.k).enumerate();
    let hits: usize = rows.map(|(q, row)| truth.ids(q).iter().filter(|id| row.contains(id)).count()).sum();
    hits as f64 / found.ids.len() as f64
}

/// Returns the bytes of all files, by name. The manifest is left out, because it contains durations.
fn file_contents(index: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(index).unwrap().map(|entry| entry.unwrap());
    files
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .filter(|(name, _)| name != "manifest.json")
        .collect()
}
