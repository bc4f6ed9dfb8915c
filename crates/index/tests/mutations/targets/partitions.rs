//! The readers of partitions.

use super::{calibration, content, file, manifest_of, number};
use bathyal_index::calibrate::probed::ProbedPoint;
use bathyal_index::families::partitioned::{
    PartitionedEntry, PartitionedOptions, Pivots, check_group, check_subindex, check_table,
};
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{BuildOptions, build_in};
use bathyal_kernels::Element;
use bathyal_store::memory::MemoryStore;
use bathyal_store::{Generation, GenerationExt, Store};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::sync::{Arc, OnceLock};

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
        growth: None,
        read_bytes: 9000,
        calibration: calibration(vec![point(1, 10, 0.5), point(1, 16, 0.6), point(2, 10, 0.9)]),
    };
    let manifest = manifest_of("partitioned", &entry, entry.files());
    assert_eq!(PartitionedEntry::read(&manifest), Ok(entry));
    let growing = growing().get("manifest.json").expect("is there");
    let mut bytes = vec![0; growing.len() as usize];
    growing.read_at(0, &mut bytes).expect("reads");
    vec![content(&manifest), bytes]
}

/// Returns an index of 60 vectors that takes inserts.
fn growing() -> &'static dyn Generation {
    static INDEX: OnceLock<Arc<dyn Generation>> = OnceLock::new();
    INDEX
        .get_or_init(|| {
            let own = PartitionedOptions { growth: 1.0, overflow_vectors: 5, ..OWN };
            build_index(own)
        })
        .as_ref()
}

pub fn groups() -> Vec<Vec<u8>> {
    let file = growing().read("partitions.bin").expect("reads");
    let manifest = Manifest::load(growing()).expect("reads");
    let entry = PartitionedEntry::read(&manifest).expect("is one");
    let unit_bytes = entry.growth.expect("it grows").unit_bytes as usize;
    let group = &file[..unit_bytes];
    assert_eq!(check_group(group, DIM, 5, manifest.identity().expect("has one")), Ok(()));
    vec![group.to_vec()]
}

pub fn group(bytes: &[u8]) {
    let _ =
        check_group(bytes, DIM, 5, Manifest::load(growing()).expect("reads").identity().expect("has one"));
}

const OWN: PartitionedOptions = PartitionedOptions {
    partition_vectors: 60,
    pivots: Pivots::Balanced,
    replicas: 1,
    links: 4,
    construction_list: 100,
    growth: 0.0,
    overflow_vectors: 0,
};

/// Builds an index of 60 vectors in memory.
fn build_index(own: PartitionedOptions) -> Arc<dyn Generation> {
    let rows = (0..60 * DIM as u32).map(|at| (at * 37 % 101) as u8).collect();
    let data = VectorFile::from_rows(Element::U8, DIM, rows).expect("vectors");
    let store = MemoryStore::new("memory");
    build_in(&data, &store, "index", &BuildOptions::of(own), &Silent).expect("builds");
    store.open("index").expect("is there")
}

/// Returns the partitions, the meta index and the table of an index of 60 vectors.
fn files() -> &'static [Vec<u8>; 3] {
    static FILES: OnceLock<[Vec<u8>; 3]> = OnceLock::new();
    FILES.get_or_init(|| {
        let index = build_index(OWN);
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

/// Reads the length of the file of partitions (4 bytes), and a table.
pub fn table(bytes: &[u8]) {
    let Some((head, table)) = bytes.split_first_chunk::<4>() else { return };
    let _ = check_table(table, number(head));
}
