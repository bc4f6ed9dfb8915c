//! The fuzz targets: the readers of `crates/index/tests/mutations/targets.rs` and of `bathyal_collection::readers`, in groups that
//! share a corpus.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, OnceLock, PoisonError};

#[path = "../../crates/index/tests/mutations/targets.rs"]
pub mod targets;

/// Name of a fuzz target, and the readers that it runs; the first byte of an input says which.
pub const GROUPS: [(&str, &[&str]); 17] = [
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
    ("rows_files", &["json_lines", "arrow_rows", "parquet_rows"]),
];

/// One reader.
pub struct Reader {
    /// Its name.
    pub name: &'static str,
    /// Valid files.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Reads any bytes; panics if the reader breaks a promise.
    pub read: fn(&[u8]),
    /// A folder with a folder of each reader, which has the files that once broke it.
    pub found: &'static str,
}

/// Every reader.
pub fn readers() -> Vec<Reader> {
    let of_indexes = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/index/tests/mutations/found");
    let of_collections = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/collection/tests/found");
    let indexes = targets::TARGETS.iter().map(|reader| Reader {
        name: reader.name,
        seeds: reader.seeds,
        read: reader.read,
        found: of_indexes,
    });
    let collections = bathyal_collection::readers::READERS.iter().map(|reader| Reader {
        name: reader.name,
        seeds: reader.seeds,
        read: reader.read,
        found: of_collections,
    });
    indexes.chain(collections).collect()
}

/// Gives `input` to the reader of `group` that its first byte selects.
pub fn run(group: &str, input: &[u8]) {
    static READERS: OnceLock<Vec<Reader>> = OnceLock::new();
    let all = READERS.get_or_init(|| {
        let_libraries_panic();
        readers()
    });
    let Some((selector, bytes)) = input.split_first() else { return };
    let readers = GROUPS.iter().find(|(name, _)| *name == group).map_or(&[][..], |(_, readers)| readers);
    let reader = readers[usize::from(*selector) % readers.len()];
    let reader = all.iter().find(|other| other.name == reader).expect("a reader");
    if catch_unwind(AssertUnwindSafe(|| (reader.read)(bytes))).is_err() {
        let said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        eprintln!("{}: {}", reader.name, *said);
        std::process::abort();
    }
}

/// The last panic that did not end the process at once.
static SAID: Mutex<String> = Mutex::new(String::new());

/// libFuzzer's hook ends the process at any panic. The libraries of Arrow and Parquet panic at some damaged files, which the
/// collection catches. So a panic of this project's own code ends the process at once, wherever it is caught, and one of a
/// library only if nobody catches it.
fn let_libraries_panic() {
    let ends = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.location().is_none_or(|at| is_own(at.file())) {
            return ends(panic);
        }
        *SAID.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string();
    }));
}

/// Whether a file of sources is of this project: those of libraries are in folders of cargo and of the compiler.
fn is_own(file: &str) -> bool {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../");
    let path = std::path::Path::new(file);
    let own = std::path::Path::new(own).canonicalize();
    path.is_relative() || own.is_ok_and(|own| path.canonicalize().is_ok_and(|path| path.starts_with(own)))
}
