//! Posting lists (SPANN, NeurIPS'21): a graph over centroids in memory, and a list for each centroid on the
//! tier.
//!
//! A query walks the graph of centroids (`centroids`) and reads the nearest lists in one submission
//! (`search`). A second submission reads the vectors of which a list has only the address
//! (second-tier-memory, section 6), or whose codes in lists are near (`coded_search`). `gather` joins the
//! pieces of a submission into reads. `wanted_rows` collects the rows that a query wants from lists that it
//! does not read whole.

mod assign;
mod build;
mod centroids;
mod coded_measure;
mod coded_search;
mod coded_verify;
mod coded_write;
mod cost;
mod effort;
mod gather;
mod graph;
mod group;
mod inspect;
mod measure;
mod members;
mod open;
mod options;
mod place;
mod plan;
mod rows;
mod search;
mod section;
mod sizes;
mod steps;
mod table;
mod verify;
mod wanted_rows;
mod work;
mod write;

pub use effort::ListPoint;
pub use options::{
    DEFAULT_CENTROID_SHARE, DEFAULT_COUPLED_REPLICAS, DEFAULT_DECOUPLED_REPLICAS, DEFAULT_GROUPED_REPLICAS,
    SpannOptions,
};
pub use section::{ListCodesEntry, SpannEntry};

use crate::family::Family;
use crate::format::postings::PostingLayout;
use crate::partition::staged::BuildShape;
use crate::query::codes::VectorCodes;
use bathyal_kernels::{Element, Metric};

/// The family, for the registry.
pub static FAMILY: Family = Family {
    name: section::NAME,
    about: "posting lists of full vectors, found by a graph over their centroids (SPANN): little memory with \
            few queries in flight",
    options: options::DOCS,
    counters: search::COUNTERS,
    capabilities: &[],
    striped: section::STRIPED,
    defaults: || SpannOptions::default().into(),
    parse: options::parse,
    read: |manifest| Ok(Box::new(open::StoredLists::read(manifest)?)),
};

/// Checks the bytes of a journal in the way that a continued build reads them: a build of `vectors` vectors
/// of `dim` bytes each, with leaves of `leaf` vectors, which places `rows` vectors at a time.
///
/// # Errors
/// A description of the fault.
pub fn check_journal(
    bytes: &[u8],
    vectors: usize,
    dim: usize,
    leaf: usize,
    rows: usize,
) -> Result<(), String> {
    let postings = PostingLayout::Grouped;
    let layout = work::ListShape { leaf: leaf.max(1), list_limit: 1, postings, element: Element::U8 };
    let shape = BuildShape { vectors, dim, row_bytes: dim, rows: rows.max(1), layout };
    steps::Journal::parse::<SpannOptions>(bytes, &shape).map(|_| ())
}

/// Checks the bytes of a file with the links of `lists` centroids in the way that opening an index reads
/// them.
///
/// # Errors
/// A description of the fault.
pub fn check_links(bytes: &[u8], lists: u32) -> Result<(), String> {
    centroids::CentroidLinks::from_bytes(bytes, lists).map(|_| ()).map_err(|error| error.to_string())
}

/// Checks the bytes of the codec of lists of codes in the way that opening an index reads them; vectors have
/// `dim` dimensions.
///
/// # Errors
/// A description of the fault.
pub fn check_list_codec(bytes: &[u8], dim: usize, metric: Metric, code_bytes: u32) -> Result<(), String> {
    VectorCodes::from_bytes(bytes, dim, metric, code_bytes).map(|_| ())
}
