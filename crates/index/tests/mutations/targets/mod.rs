//! The readers of bytes from outside of the process: a function that calls each reader, and valid files from
//! which mutations begin.
//!
//! The seeded mutations (`tests/mutations`) and the coverage-guided targets (`fuzz/`) share them. To add a
//! reader, write a function that passes any bytes to it and asserts the invariants of accepted input, and add
//! a line to [`TARGETS`].

mod changes;
mod cluster;
mod codes;
mod flat;
mod graph;
mod lists;
mod manifests;
mod partitions;
mod tables;
mod vectors;
mod wire;

use bathyal_index::calibrate::reach::Reach;
use bathyal_index::calibrate::{Calibration, Curve};
use bathyal_index::format::manifest::{FORMAT_VERSION, FileEntry, Manifest};
use bathyal_kernels::Element;
use bathyal_vectors::{FileFormat, IdFormat};
use serde::Serialize;

/// A reader of untrusted bytes.
pub struct Target {
    /// Name on the command line, and of the folder in `found`.
    pub name: &'static str,
    /// Returns valid files.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Reads any bytes. Panics if the reader violates its contract.
    pub read: fn(&[u8]),
}

const fn target(name: &'static str, seeds: fn() -> Vec<Vec<u8>>, read: fn(&[u8])) -> Target {
    Target { name, seeds, read }
}

/// Every reader. The seeds of random mutations depend on the order.
pub const TARGETS: [Target; 46] = [
    target("fbin", || vectors::bin(4), |bytes| vectors::read_vectors(FileFormat::Bin(Element::F32), bytes)),
    target("f16bin", || vectors::bin(2), |bytes| vectors::read_vectors(FileFormat::Bin(Element::F16), bytes)),
    target("b1bin", vectors::bits, |bytes| vectors::read_vectors(FileFormat::Bin(Element::B1), bytes)),
    target("u8bin", || vectors::bin(1), |bytes| vectors::read_vectors(FileFormat::Bin(Element::U8), bytes)),
    target(
        "fvecs",
        || vectors::vecs(4),
        |bytes| vectors::read_vectors(FileFormat::Vecs(Element::F32), bytes),
    ),
    target("bvecs", || vectors::vecs(1), |bytes| vectors::read_vectors(FileFormat::Vecs(Element::U8), bytes)),
    target("wire", wire::wire, wire::operations),
    target("npy", vectors::npy, |bytes| vectors::read_vectors(FileFormat::Npy, bytes)),
    target(
        "ibin",
        || vectors::bin(4).into_iter().chain(vectors::bin(8)).collect(),
        |bytes| vectors::read_ids(IdFormat::Ibin, bytes),
    ),
    target("ivecs", || vectors::vecs(4), |bytes| vectors::read_ids(IdFormat::Ivecs, bytes)),
    target("manifest", || vec![manifests::manifest()], manifests::manifest_file),
    target("manifest_content", || vec![content(&graph::manifest())], manifests::manifest_content),
    target("graph_page", || vec![graph::page()], graph::graph_records),
    target("local_page", || vec![graph::local_page()], graph::local_pages),
    target("links", graph::link_codes, graph::links),
    target("packed_record", || vec![graph::packed_record()], graph::packed_records),
    target("offsets", graph::offset_files, graph::offset_file),
    target("codec", codes::codecs, codes::codec),
    target("code_blocks", codes::code_blocks, codes::blocks_of_codes),
    target("group_page", || vec![cluster::page()], cluster::group_records),
    target("centroids", || vec![cluster::centroids()], cluster::centroid_file),
    target("journal", cluster::sealed_journals, cluster::journal),
    target("journal_content", cluster::journals, cluster::journal_content),
    target("list_journal", lists::journals, lists::journal),
    target("graph_journal", graph::journals, graph::journal),
    target("cluster_manifest", || vec![content(&cluster::manifest())], manifests::manifest_content),
    target("flat_manifest", flat::manifests, manifests::manifest_content),
    target("lsh_manifest", tables::manifests, manifests::manifest_content),
    target("hash_functions", tables::function_files, tables::functions),
    target("change_log", changes::logs, changes::log_of_changes),
    target("id_runs", changes::id_files, changes::ids),
    target("table_block", || vec![tables::block()], tables::blocks),
    target("spann_manifest", lists::manifests, manifests::manifest_content),
    target("partitioned_manifest", partitions::manifests, manifests::manifest_content),
    target("subindex", partitions::subindexes, partitions::subindex),
    target("partition_group", partitions::groups, partitions::group),
    target("partition_table", partitions::tables, partitions::table),
    target("manifest_of_version_1", manifests::first_manifests, manifests::manifest_content),
    target("list_table", lists::tables, lists::table),
    target("coded_table", lists::coded_tables, lists::coded_table),
    target("list_codec", lists::list_codecs, lists::list_codec),
    target("members", lists::member_sections, lists::members),
    target("runs", lists::run_sections, lists::runs),
    target("packed_ids", lists::packed_id_files, lists::packed_ids),
    target("centroid_links", lists::centroid_link_files, lists::centroid_links),
    target("block_checksums", lists::checked_files, lists::checked_blocks),
];

/// Reads a little-endian number.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

/// Joins the lines of a text that is broken for this code alone.
fn joined_lines(text: &str) -> Vec<u8> {
    text.lines().map(str::trim).collect::<String>().into_bytes()
}

/// Returns the text of a manifest or journal with its checksum.
fn sealed(json: &[u8]) -> Vec<u8> {
    let seal = format!("\ncrc32c {:08x}\n", crc32c::crc32c(json));
    [json, seal.as_bytes()].concat()
}

fn unsealed(bytes: &[u8]) -> Vec<u8> {
    let last =
        bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').expect("a line with a checksum");
    bytes[..last].to_vec()
}

/// Returns a manifest without its checksum.
fn content(manifest: &Manifest) -> Vec<u8> {
    unsealed(&manifest.to_bytes().expect("writable"))
}

fn file(name: &str, bytes: u64) -> FileEntry {
    FileEntry { name: name.into(), bytes, crc32c: 0x1234_5678, stripe: None }
}

/// Returns the manifest of an index of 100 vectors.
fn manifest_of(family: &str, structure: &impl Serialize, files: Vec<FileEntry>) -> Manifest {
    let mut manifest = Manifest {
        identity: Some("0123456789abcdef".into()),
        format_version: FORMAT_VERSION,
        written_by: "a test".into(),
        family: family.into(),
        vectors: 100,
        dim: 16,
        element: "u8".into(),
        stored: None,
        metric: "l2".into(),
        data_bytes: 1600,
        seed: 7,
        build_seconds: 1.5,
        plan: None,
        files: Vec::new(),
        structure: serde_json::Value::Null,
    };
    manifest.set_structure(structure, files).expect("writable");
    manifest
}

fn calibration<P>(points: Vec<P>) -> Calibration<P> {
    Calibration {
        queries: 10,
        source: "held-out vectors".into(),
        curves: vec![Curve { k: 10, points }],
        reach: vec![Reach { k: 10, usual: 1.0, most: 2.0 }],
    }
}
