//! The readers of partitions.

use super::{calibration, content, file, manifest_of, number};
use bathyal_index::calibrate::probed::ProbedPoint;
use bathyal_index::families::partitioned::{
    PartitionedEntry, PartitionedOptions, check_subindex, check_table,
};
use bathyal_index::{BuildOptions, build_in};
use bathyal_kernels::Element;
use bathyal_store::memory::MemoryStore;
use bathyal_store::{GenerationExt, Store};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::sync::OnceLock;

const DIM: usize = 3;

pub fn manifests() -> Vec<Vec<u8>> {
    let point = |probes, search_list, recall| ProbedPoint { probes, search_list, recall, ratio: None };
    let entry = PartitionedEntry {
        file: file("partitions.bin", 9000),
        table: file("table.bin", 48),
        meta: file("meta.bin", 700),
        partitions: 3,
        partition_vectors: 40,
        pivots: "balanced".into(),
        replicas: 2,
        links: 16,
        construction_list: 100,
        copies: 120,
        most_vectors: 50,
        longest_bytes: 4000,
        calibration: calibration(vec![point(1, 10, 0.5), point(1, 16, 0.6), point(2, 10, 0.9)]),
    };
    let manifest = manifest_of("partitioned", &entry, entry.files());
    assert_eq!(PartitionedEntry::read(&manifest), Ok(entry));
    vec![content(&manifest)]
}

/// The files of an index of 60 vectors.
fn files() -> &'static [Vec<u8>; 3] {
    static FILES: OnceLock<[Vec<u8>; 3]> = OnceLock::new();
    FILES.get_or_init(|| {
        let rows = (0..60 * DIM as u32).map(|at| (at * 37 % 101) as u8).collect();
        let data = VectorFile::from_rows(Element::U8, DIM, rows).expect("vectors");
        let own = PartitionedOptions { partition_vectors: 60, links: 4, ..PartitionedOptions::default() };
        let store = MemoryStore::new("memory");
        build_in(&data, &store, "index", &BuildOptions::of(own), &Silent).expect("builds");
        let index = store.open("index").expect("is there");
        ["partitions.bin", "meta.bin", "table.bin"].map(|name| index.read(name).expect("reads"))
    })
}

pub fn subindexes() -> Vec<Vec<u8>> {
    let [partition, meta, _] = files();
    [partition, meta]
        .map(|bytes| {
            assert_eq!(check_subindex(bytes, DIM, 60), Ok(()));
            bytes.clone()
        })
        .to_vec()
}

pub fn subindex(bytes: &[u8]) {
    let _ = check_subindex(bytes, DIM, 60);
}

pub fn tables() -> Vec<Vec<u8>> {
    let [partition, _, table] = files();
    let length = partition.len() as u32;
    assert_eq!(check_table(table, u64::from(length)), Ok(()));
    vec![[&length.to_le_bytes()[..], table].concat()]
}

/// Four bytes for the length of the file, and a table.
pub fn table(bytes: &[u8]) {
    let Some((head, table)) = bytes.split_first_chunk::<4>() else { return };
    let _ = check_table(table, number(head));
}
