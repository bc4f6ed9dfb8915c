//! The fuzz targets: the readers of `crates/index/tests/mutations/targets/mod.rs` and of
//! `bathyal_collection::readers`, in groups that share a corpus.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, OnceLock, PoisonError};

#[path = "../../crates/index/tests/mutations/targets/mod.rs"]
pub mod targets;

/// Names of fuzz targets, and the readers of each. The first byte of an input selects the reader.
pub const GROUPS: [(&str, &[&str]); 18] = [
    ("vector_files", &["fbin", "f16bin", "b1bin", "u8bin", "fvecs", "bvecs", "npy"]),
    ("ids", &["ibin", "ivecs", "id_runs"]),
    (
        "manifest",
        &[
            "manifest",
            "manifest_content",
            "cluster_manifest",
            "flat_manifest",
            "lsh_manifest",
            "spann_manifest",
            "partitioned_manifest",
            "manifest_of_version_1",
        ],
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
    ("collection_log", &["collection_log"]),
    (
        "segment",
        &[
            "collection_version",
            "deleted_rows",
            "segment_manifest",
            "id_block",
            "id_fence",
            "segment_columns",
        ],
    ),
    ("filters", &["filter_words", "filter_json"]),
    ("requests", &["request_arrow", "request_json"]),
    ("rows_files", &["json_lines", "arrow_rows", "parquet_rows"]),
];

/// A reader of untrusted bytes.
pub struct Reader {
    /// Its name.
    pub name: &'static str,
    /// Returns valid files.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Reads any bytes; panics if the reader violates its contract.
    pub read: fn(&[u8]),
    /// Folder with a subfolder per reader, which has files that once broke the reader.
    pub found: &'static str,
}

/// Returns every reader.
pub fn readers() -> Vec<Reader> {
    let index_files = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/index/tests/mutations/found");
    let collection_files = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/collection/tests/found");
    let indexes = targets::TARGETS.iter().map(|reader| Reader {
        name: reader.name,
        seeds: reader.seeds,
        read: reader.read,
        found: index_files,
    });
    let collections = bathyal_collection::readers::READERS.iter().map(|reader| Reader {
        name: reader.name,
        seeds: reader.seeds,
        read: reader.read,
        found: collection_files,
    });
    indexes.chain(collections).collect()
}

/// Runs the reader of `group` that the first byte of `input` selects.
pub fn run(group: &str, input: &[u8]) {
    static READERS: OnceLock<Vec<Reader>> = OnceLock::new();
    let all = READERS.get_or_init(|| {
        install_panic_hook();
        readers()
    });
    let Some((selector, bytes)) = input.split_first() else { return };
    let readers = GROUPS.iter().find(|(name, _)| *name == group).map_or(&[][..], |(_, readers)| readers);
    let reader = readers[usize::from(*selector) % readers.len()];
    let reader = all.iter().find(|other| other.name == reader).expect("a reader");
    if catch_unwind(AssertUnwindSafe(|| (reader.read)(bytes))).is_err() {
        let message = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        eprintln!("{}: {}", reader.name, *message);
        std::process::abort();
    }
}

/// Message of the last panic that did not end the process at once.
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// Replaces libFuzzer's panic hook, which ends the process at every panic. The Arrow and Parquet libraries
/// panic at some damaged files, and the collection catches these panics. With this hook a panic in the code
/// of this project ends the process at once, even if it would be caught; a panic in a library ends it only if
/// it is not caught.
fn install_panic_hook() {
    let abort = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.location().is_none_or(|at| is_own(at.file())) {
            return abort(panic);
        }
        *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string();
    }));
}

/// Returns true for a source file of this project. Sources of libraries are in folders of cargo and of the
/// compiler.
fn is_own(file: &str) -> bool {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../");
    let path = std::path::Path::new(file);
    let own = std::path::Path::new(own).canonicalize();
    path.is_relative() || own.is_ok_and(|own| path.canonicalize().is_ok_and(|path| path.starts_with(own)))
}
