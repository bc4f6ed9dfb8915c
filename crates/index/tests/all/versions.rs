//! Stored indexes of every version of the format. They are opened, verified and searched.

use bathyal_index::families::cluster::ClusterEntry;
use bathyal_index::format::manifest::{FORMAT_VERSION, Manifest, SMALLER_VERSION, STRIPED_VERSION};
use bathyal_index::{
    Effort, Index, IndexError, OpenOptions, SearchOptions, TierChoice, inspect_in, verify_in,
};
use bathyal_index::{StoreOptions, find};
use bathyal_kernels::Metric;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::{exact_neighbors, recall};
use bathyal_vectors::progress::Silent;
use std::path::{Path, PathBuf};

const K: usize = 5;
/// Families and layouts of each version. The first version has no flat indexes.
const INDEXES: [&str; 11] = [
    "cluster",
    "cluster_cosine",
    "flat",
    "flat_codes",
    "graph_csr",
    "graph_padded",
    "graph_page_local",
    "spann_codes",
    "spann_coupled",
    "spann_decoupled",
    "spann_grouped",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/indexes")
}

/// Returns the names in a folder of indexes.
fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().unwrap();
    let mut found: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    found
}

/// A stored index.
struct Fixture {
    path: PathBuf,
    /// The file of its vectors.
    base: &'static str,
    /// The folders of its parts, if it is striped.
    stripe: Vec<PathBuf>,
}

impl Fixture {
    fn search(&self, queries: &VectorFile, options: OpenOptions) -> Vec<u32> {
        let index = Index::open(&self.path, &OpenOptions { stripe: self.stripe.clone(), ..options }).unwrap();
        let family = Manifest::read(&self.path).unwrap().family;
        // With so many candidates and lists the search is exact.
        let compares_all = family == "flat" && index.memory_split().codes == 0;
        let many = queries.count() as u32;
        let options = SearchOptions {
            k: K,
            effort: if compares_all { Effort::Recall(1.0) } else { Effort::SearchList(many) },
            probes: (!["graph", "flat"].contains(&family.as_str())).then_some(many),
            threads: 1,
            ..SearchOptions::default()
        };
        index.search(queries, &options, Control::default()).unwrap().ids
    }

    fn check(&self, version: u32) {
        let queries = VectorFile::open(folder().join(self.base)).unwrap();
        let name = self.path.display();
        let manifest = Manifest::read(&self.path).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(manifest.format_version, version, "{name}");
        let generation = find(&self.path, &self.stripe, &StoreOptions::default()).unwrap();
        let report = verify_in(generation.as_ref(), &Silent).unwrap();
        assert!(report.sound && report.vectors == queries.count() as u64, "{name}: {report:?}");
        inspect_in(generation.as_ref(), &Silent).unwrap();
        let metric = manifest.metric().unwrap();
        let exact = exact_neighbors(&queries, &queries, metric, K, None, &Silent).unwrap();
        for tier in [TierChoice::File, TierChoice::Dram] {
            let found = self.search(&queries, OpenOptions { tier, ..OpenOptions::default() });
            if version == SMALLER_VERSION {
                let share = recall(&exact, &found, K, queries.count()).unwrap();
                assert!(share >= 0.99, "{name}: recall {share} of vectors of f16");
                continue;
            }
            for (query, ids) in found.chunks_exact(K).enumerate() {
                assert_eq!(ids, exact.ids(query), "{name}, query {query}");
            }
        }
    }
}

#[test]
fn indexes_of_every_version_are_read() {
    for version in 1..=SMALLER_VERSION {
        let folder = folder().join(format!("version_{version}"));
        let known: Vec<&str> =
            INDEXES.into_iter().filter(|name| version > 1 || !name.starts_with("flat")).collect();
        assert_eq!(names(&folder), known);
        for name in known {
            Fixture { path: folder.join(name), base: "base.fbin", stripe: Vec::new() }.check(version);
        }
    }
}

/// Later additions to version 2: codecs with rotations of bytes, shorter codes, and efforts by query.
#[test]
fn later_additions_to_a_version_are_read() {
    let folder = folder().join("version_2_later");
    let known = ["cluster", "cluster_cosine", "flat_codes", "lsh", "spann_codes"];
    assert_eq!(names(&folder), known);
    for name in known {
        Fixture { path: folder.join(name), base: "wide.fbin", stripe: Vec::new() }.check(FORMAT_VERSION);
        let codec = if name.starts_with("spann") { "list_codec.bin" } else { "codec.bin" };
        let bytes = std::fs::read(folder.join(name).join(codec)).unwrap();
        // A shift may precede the codec.
        let at = bytes.windows(4).position(|bytes| bytes == b"BYCD").unwrap();
        assert_eq!(bytes[at + 4..at + 8], [2, 0, 0, 0], "{name}");
    }
}

#[test]
fn shorter_codes_of_a_stored_index_answer() {
    let path = folder().join("version_2_later/cluster");
    let entry = ClusterEntry::read(&Manifest::read(&path).unwrap()).unwrap();
    assert!(!entry.prunes.is_empty() && entry.shorter.len() == 3, "{:?}", entry.shorter.len());
    let options_of =
        |memory_bytes| OpenOptions { memory_bytes: Some(memory_bytes), ..OpenOptions::default() };
    let Err(IndexError::Memory { needed, .. }) = Index::open(&path, &options_of(1)) else {
        panic!("a byte is enough")
    };
    let queries = VectorFile::open(folder().join("wide.fbin")).unwrap();
    let options =
        SearchOptions { k: K, effort: Effort::Recall(0.95), threads: 1, ..SearchOptions::default() };
    let short = |budget| {
        let index = Index::open(&path, &options_of(budget)).unwrap();
        let found = index.search(&queries, &options, Control::default()).ok();
        found.filter(|_| index.memory_split().codes_left_out > 0)
    };
    let found =
        (needed..needed + (1 << 20)).step_by(1 << 10).find_map(short).expect("a budget for shorter codes");
    let exact = exact_neighbors(&queries, &queries, Metric::L2, K, None, &Silent).unwrap();
    let share = recall(&exact, &found.ids, K, queries.count()).unwrap();
    assert!(share >= 0.92, "{share} of 0.95");
}

#[test]
fn striped_indexes_are_read() {
    let folder = folder().join("version_4");
    let indexes = ["cluster", "flat", "graph_padded", "spann_grouped"];
    let both: Vec<String> =
        indexes.iter().flat_map(|name| [(*name).to_string(), format!("{name}.parts")]).collect();
    assert_eq!(names(&folder), both);
    for name in indexes {
        let stripe = vec![folder.join(format!("{name}.parts"))];
        Fixture { path: folder.join(name), base: "base.fbin", stripe }.check(STRIPED_VERSION);
    }
}
