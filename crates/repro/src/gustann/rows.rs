//! What was counted, a line of `records.jsonl` each.

use serde::Serialize;

use super::copies::Copied;
use super::latency::Loaded;
use super::model::{Asks, Prediction};
use super::pivots::Began;
use super::queries::Queried;

/// A line of the records.
#[derive(Serialize)]
#[serde(rename_all = "snake_case", tag = "of")]
pub(super) enum Record<'a> {
    Row(&'a Row),
    Begun(&'a Began),
    Queried(&'a Queried),
    Copied(&'a Copied),
    Loaded(&'a Loaded),
}

/// An index asked for a recall. Means a query.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) set: String,
    pub(super) vectors: usize,
    pub(super) dim: usize,
    pub(super) element: &'static str,
    pub(super) index: &'static str,
    /// Whether a card searches it; what is read and found is the same without one.
    pub(super) on_card: bool,
    pub(super) k: u32,
    pub(super) asked: f32,
    pub(super) recall: f64,
    pub(super) search_list: u32,
    pub(super) probes: Option<u32>,
    /// Exact: pages, rounds of reads, codes scored by a processor, which keeps a table of what it has seen.
    pub(super) pages: f64,
    pub(super) rounds: f64,
    pub(super) code_distances: f64,
    /// Bytes to the card: what is sent, and what it would be if whole records or whole pages were.
    pub(super) sent_bytes: f64,
    pub(super) record_bytes: f64,
    pub(super) page_bytes: f64,
    /// Bytes of the card's memory: a query under way with this list, and the codes of a vector.
    pub(super) slot_bytes: u64,
    pub(super) code_bytes: u32,
    pub(super) asks: Asks,
    /// With the machine's disks.
    pub(super) prediction: Prediction,
    /// With one disk, two, and so on.
    pub(super) by_disks: Vec<Prediction>,
    /// With as many disks, were whole records sent, and whole pages.
    pub(super) sending_records: Prediction,
    pub(super) sending_pages: Prediction,
}
