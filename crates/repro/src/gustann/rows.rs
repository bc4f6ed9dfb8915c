//! The measurements, one line of `records.jsonl` each.

use bathyal_index::cost::card::CardDemand;
use serde::Serialize;

use super::copies::CopyRow;
use super::latency::LoadRow;
use super::model::ThroughputPrediction;
use super::pivots::StartRow;
use super::queries::QueryRow;

/// A line of the records.
#[derive(Serialize)]
#[serde(rename_all = "snake_case", tag = "of")]
pub(super) enum GustannRecord<'a> {
    Row(&'a SearchRow),
    Begun(&'a StartRow),
    Queried(&'a QueryRow),
    Copied(&'a CopyRow),
    Loaded(&'a LoadRow),
}

/// An index searched at a requested recall. Means per query.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SearchRow {
    pub(super) set: String,
    pub(super) vectors: usize,
    pub(super) dim: usize,
    pub(super) element: &'static str,
    pub(super) index: &'static str,
    /// True if a card can search it; reads and results are the same without a card.
    pub(super) on_card: bool,
    pub(super) k: u32,
    pub(super) asked: f32,
    pub(super) recall: f64,
    pub(super) search_list: u32,
    pub(super) probes: Option<u32>,
    /// Exact counts: pages, rounds of reads, and codes that a processor scores; a processor skips vectors
    /// seen before.
    pub(super) pages: f64,
    pub(super) rounds: f64,
    pub(super) code_distances: f64,
    /// Bytes sent to the card: as Bathyal does, with whole records, and with whole pages.
    pub(super) sent_bytes: f64,
    pub(super) record_bytes: f64,
    pub(super) page_bytes: f64,
    /// Bytes of the card's memory: for a query in flight with this list, and for the code of a vector.
    pub(super) slot_bytes: u64,
    pub(super) code_bytes: u32,
    #[serde(rename = "asks")]
    pub(super) demand: CardDemand,
    /// With the machine's number of disks.
    pub(super) prediction: ThroughputPrediction,
    /// The same if reads go through the system, and with the time of a query for groups and tables.
    pub(super) through_system: ThroughputPrediction,
    /// With one disk, two, and so on.
    pub(super) by_disks: Vec<ThroughputPrediction>,
    /// With the machine's number of disks, if whole records or whole pages are sent.
    pub(super) sending_records: ThroughputPrediction,
    pub(super) sending_pages: ThroughputPrediction,
}
