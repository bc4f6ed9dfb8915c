//! Indexes of every version of the format that was ever written: they open, are sound, and answer.

use bathyal_index::format::manifest::{Manifest, SMALLER_VERSION};
use bathyal_index::{Effort, Index, OpenOptions, SearchOptions, TierChoice, inspect, verify};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::{exact_neighbors, recall};
use bathyal_vectors::progress::Silent;
use std::path::{Path, PathBuf};

const K: usize = 5;
/// Families and layouts that each version has; the first had no flat indexes.
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
        let all = manifest.family == "flat" && index.memory_split().codes == 0;
        let options = SearchOptions {
            k: K,
            effort: if all { Effort::Recall(1.0) } else { Effort::SearchList(200) },
            probes: (!["graph", "flat"].contains(&manifest.family.as_str())).then_some(200),
            threads: 1,
            ..SearchOptions::default()
        };
        let found = index.search(&queries, &options, Control::default()).unwrap();
        if version == SMALLER_VERSION {
            let share = recall(&exact, &found.ids, K, queries.count()).unwrap();
            assert!(share >= 0.99, "{name}: halves find {share}");
            continue;
        }
        for (query, ids) in found.ids.chunks_exact(K).enumerate() {
            assert_eq!(ids, exact.ids(query), "{name}, query {query}");
        }
    }
}

#[test]
fn indexes_of_every_version_are_read() {
    for version in 1..=SMALLER_VERSION {
        let folder = folder().join(format!("version_{version}"));
        let mut found: Vec<String> = folder
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort();
        let known: Vec<&str> =
            INDEXES.into_iter().filter(|name| version > 1 || !name.starts_with("flat")).collect();
        assert_eq!(found, known);
        known.iter().for_each(|name| check(&folder.join(name), version));
    }
}
