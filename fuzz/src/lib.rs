//! The fuzz targets: the readers of `crates/index/tests/mutations/targets.rs`, in groups that share a corpus.

#[path = "../../crates/index/tests/mutations/targets.rs"]
pub mod targets;

/// Name of a fuzz target, and the readers that it runs; the first byte of an input says which.
pub const GROUPS: [(&str, &[&str]); 13] = [
    ("vector_files", &["fbin", "f16bin", "b1bin", "u8bin", "fvecs", "bvecs", "npy"]),
    ("ids", &["ibin", "ivecs", "id_runs"]),
    (
        "manifest",
        &["manifest", "manifest_content", "cluster_manifest", "flat_manifest", "lsh_manifest", "spann_manifest", "partitioned_manifest", "manifest_of_version_1"],
    ),
    ("journal", &["change_log", "journal", "journal_content", "list_journal", "graph_journal"]),
    ("graph_page", &["graph_page", "local_page", "links"]),
    ("codec", &["codec", "hash_functions"]),
    ("code_blocks", &["code_blocks"]),
    ("wire", &["wire"]),
    ("group_page", &["group_page", "table_block"]),
    ("packed_record", &["packed_record", "offsets"]),
    ("centroids", &["centroids"]),
    ("partitions", &["subindex", "partition_table", "partition_group"]),
    (
        "lists",
        &[
            "list_table",
            "coded_table",
            "list_codec",
            "members",
            "runs",
            "packed_ids",
            "centroid_links",
            "block_checksums",
        ],
    ),
];

/// Gives `input` to the reader of `group` that its first byte selects.
pub fn run(group: &str, input: &[u8]) {
    let Some((selector, bytes)) = input.split_first() else { return };
    let readers = GROUPS.iter().find(|(name, _)| *name == group).map_or(&[][..], |(_, readers)| readers);
    let reader = readers[usize::from(*selector) % readers.len()];
    let target = targets::TARGETS.iter().find(|target| target.name == reader).expect("a reader of TARGETS");
    (target.read)(bytes);
}
