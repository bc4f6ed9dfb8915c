//! The Vamana graph (DiskANN, NeurIPS'19): builder and searcher.
//!
//! * `build`: two passes of search and robust prune over vectors in memory (`crate::proximity`), then pages,
//!   codes, calibration.
//! * `search`: one `async fn` for every tier; codes in memory navigate, full vectors from the tier re-rank.

mod among;
mod build;
mod calibrate;
mod connect;
mod cost;
mod inspect;
pub mod layout;
mod local;
mod merge;
mod on_card;
mod open;
mod options;
mod pack;
mod page_search;
mod pages_on_card;
mod parts;
mod places;
mod plan;
mod records;
mod relayout;
mod resident;
mod rows;
mod search;
mod section;
mod sizes;
mod slots;
mod verify;
mod whole;
mod work;
mod write;

pub use crate::proximity::options::DEFAULT_ALPHA;
pub use options::{DEFAULT_MAX_DEGREE, DEFAULT_SEARCH_LIST, GraphLayoutChoice, GraphOptions};
pub use relayout::{LayoutConversion, convert_layout, convert_layout_in};
pub use section::GraphEntry;

use crate::family::{Capability, Family};

/// The family, for the registry.
pub static FAMILY: Family = Family {
    name: section::NAME,
    about: "a Vamana graph (DiskANN): small reads, several rounds of them",
    options: options::DOCS,
    counters: &[],
    capabilities: &[Capability::Card],
    striped: section::STRIPED,
    defaults: || GraphOptions::default().into(),
    parse: options::parse,
    read: |manifest| Ok(Box::new(open::StoredGraph::read(manifest)?)),
};

/// Parses and checks the journal of an interrupted build in parts: `vectors` vectors of `row_bytes` bytes
/// each, at most `rows` of them in a part.
///
/// # Errors
/// A sentence that names the first fault of the journal.
pub fn check_journal(bytes: &[u8], vectors: usize, row_bytes: usize, rows: usize) -> Result<(), String> {
    parts::GraphJournal::parse(bytes, parts::DataShape { vectors, row_bytes, rows: rows.max(1) }).map(|_| ())
}
