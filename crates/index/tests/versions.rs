//! Indexes of every version of the format that was ever written: they open, are sound, and answer.

use bathyal_index::format::manifest::Manifest;
use bathyal_index::{Effort, Index, OpenOptions, SearchOptions, TierChoice, inspect, verify};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Silent;
use std::path::{Path, PathBuf};

const K: usize = 5;
/// Families and layouts that each version has.
const INDEXES: [&str; 9] = [
    "cluster",
    "cluster_cosine",
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

fn check(path: &Path, version: u32) {
    let queries = VectorFile::open(folder().join("base.fbin")).unwrap();
    let name = path.display();
    let manifest = Manifest::read(path).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(manifest.format_version, version, "{name}");
    let report = verify(path, &Silent).unwrap();
    assert!(report.sound && report.vectors == 200, "{name}: {report:?}");
    inspect(path, &Silent).unwrap();
    let metric = manifest.metric().unwrap();
    let exact = exact_neighbors(&queries, &queries, metric, K, None, &Silent).unwrap();
    for tier in [TierChoice::File, TierChoice::Dram] {
        let index = Index::open(path, &OpenOptions { tier, ..OpenOptions::default() }).unwrap();
        // More candidates and lists than there are: what is exact is found.
        let options = SearchOptions {
            k: K,
            effort: Effort::SearchList(200),
            probes: (manifest.family != "graph").then_some(200),
            threads: 1,
            ..SearchOptions::default()
        };
        let found = index.search(&queries, &options, Control::default()).unwrap();
        for (query, ids) in found.ids.chunks_exact(K).enumerate() {
            assert_eq!(ids, exact.ids(query), "{name}, query {query}");
        }
    }
}

#[test]
fn indexes_of_every_version_are_read() {
    for version in 1..=2 {
        let folder = folder().join(format!("version_{version}"));
        let mut found: Vec<String> = folder
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort();
        assert_eq!(found, INDEXES);
        INDEXES.iter().for_each(|name| check(&folder.join(name), version));
    }
}
