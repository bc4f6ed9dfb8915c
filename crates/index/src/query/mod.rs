//! What every family's search is told and what it reports, and the exact distance that all of them re-rank by.

pub(crate) mod counters;
pub(crate) mod visited;

pub use counters::{Counter, MOST_OWN_COUNTERS, OwnCosts, OwnTotals, QueryStats, SearchTotals};

use bathyal_kernels::{Distance, Element, Metric, Rows, normalize_f16, normalize_f32};
use half::f16;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Reads of one hop: enough to hide some latency, few enough to waste little (DiskANN, section 4.2).
pub const DEFAULT_BEAM_WIDTH: u32 = 4;
/// Reads in flight a thread.
pub(crate) const ENGINE_DEPTH: u32 = 128;
/// Buffers of a thread: twice its depth, so that reads can be staged while others are in flight.
pub(crate) const FRAMES: u32 = 2 * ENGINE_DEPTH;
/// Largest alignment that a tier may ask for.
pub(crate) const LARGEST_ALIGNMENT: usize = 4096;
/// How many distances from codes take as long as one from a full vector, about: that one's bytes come from far.
pub(crate) const CODES_A_VECTOR: usize = 64;
/// Rows taken from all over a mapped file before its memory is given back: around each the system maps up to two megabytes
/// that are cached already, so that a thousand rows of ten million vectors were 600 MB of this process.
pub(crate) const ROWS_A_RELEASE: usize = 8;

/// How hard a search looks: what a calibration says, or a caller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Effort {
    /// Candidates.
    pub(crate) search_list: usize,
    /// Groups or lists scanned; 0 of a graph.
    pub(crate) probes: usize,
    /// Posting lists more than `1 + prune` times as far as the nearest are left out; 0 leaves none out.
    pub(crate) prune: f32,
}

/// Up to `wanted` numbers below `count`, spread evenly.
pub(crate) fn spread(count: usize, wanted: usize) -> impl Iterator<Item = usize> {
    let wanted = count.min(wanted);
    (0..wanted).map(move |i| (i as u64 * count as u64 / wanted as u64) as usize)
}

/// In what order a query goes on with its reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchMode {
    /// Hop by hop: the reads of a beam are awaited together. Answers and counters are the same on every tier, but that
    /// a cluster index whose pages lie in memory reads its candidates alone.
    #[default]
    Batched,
    /// Each record is used as it arrives and replaced by the next best read: lower latency, and answers that
    /// may vary with the order of arrival. A cluster search reads in one round and knows no difference.
    Pipelined,
}

/// What a single search needs to know besides the query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SearchParams {
    pub(crate) k: usize,
    pub(crate) search_list: usize,
    /// Groups or lists scanned; of no meaning to a graph.
    pub(crate) probes: usize,
    /// Posting lists more than `1 + prune` times as far as the nearest are left out; 0 leaves none out.
    pub(crate) prune: f32,
    pub(crate) beam_width: usize,
    pub(crate) mode: SearchMode,
    /// Whether a clock runs; it costs a look at the time between two phases.
    pub(crate) timed: bool,
}

/// What a query spends its time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Preparing the query, choosing groups or the next vectors to expand.
    Navigate,
    /// Scoring codes.
    Scan,
    /// Waiting for the tier.
    Read,
    /// Scoring full vectors.
    Rerank,
}

impl Phase {
    pub(crate) const ALL: [Phase; 4] = [Phase::Navigate, Phase::Scan, Phase::Read, Phase::Rerank];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::Navigate => "navigate",
            Phase::Scan => "scan",
            Phase::Read => "read",
            Phase::Rerank => "rerank",
        }
    }
}

/// Where the time of a query goes; stands still unless somebody asked.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock {
    last: Option<Instant>,
    ns: [u64; Phase::ALL.len()],
}

impl Clock {
    /// Starts anew; a clock that is not `timed` stays at zero.
    pub(crate) fn begin(timed: bool) -> Clock {
        Clock { last: timed.then(Instant::now), ns: [0; Phase::ALL.len()] }
    }

    /// Says what the time since the last call was spent on.
    #[inline]
    pub(crate) fn spent(&mut self, phase: Phase) {
        if let Some(last) = &mut self.last {
            let now = Instant::now();
            self.ns[phase as usize] += now.duration_since(*last).as_nanos() as u64;
            *last = now;
        }
    }

    /// Nanoseconds spent on a phase.
    pub(crate) fn ns(&self, phase: Phase) -> u64 {
        self.ns[phase as usize]
    }
}

impl SearchParams {
    /// Candidates that are read.
    pub(crate) fn wanted(&self) -> usize {
        self.search_list.max(self.k)
    }
}

/// The distance between a query and stored vectors, which under cosine are normalised where the element allows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exact {
    distance: Distance,
    shift: f32,
}

impl Exact {
    pub(crate) fn new(element: Element, metric: Metric, dim: usize) -> Exact {
        // The cosine distance of normalised vectors is 1 minus their product.
        let normalised = metric == Metric::Cosine && element.is_float();
        let kernel = if normalised { Metric::InnerProduct } else { metric };
        Exact { distance: Distance::new(element, kernel, dim), shift: if normalised { 1.0 } else { 0.0 } }
    }

    /// The distance of a query, normalised under cosine, to one stored vector.
    #[inline]
    pub(crate) fn between(&self, query: &[u8], vector: &[u8]) -> f32 {
        self.shift + self.distance.between(query, vector)
    }

    /// The distances to the vectors `ids` of those that lie one after the other.
    #[inline]
    pub(crate) fn score_some(&self, query: &[u8], vectors: &[u8], ids: &[u32], out: &mut [f32]) {
        let rows = Rows { bytes: vectors, stride: self.distance.row_bytes() };
        self.distance.score(query, rows, ids, out);
        if self.shift != 0.0 {
            out.iter_mut().for_each(|distance| *distance += self.shift);
        }
    }

    /// The distances to vectors that lie one after the other.
    #[inline]
    pub(crate) fn score_block(&self, query: &[u8], vectors: &[u8], out: &mut [f32]) {
        self.distance.score_block(query, vectors, out);
        if self.shift != 0.0 {
            out.iter_mut().for_each(|distance| *distance += self.shift);
        }
    }
}

/// Normalises a row in place where its element can hold the result; false for a vector of zeros.
pub(crate) fn normalize(element: Element, row: &mut [u8]) -> bool {
    match element {
        Element::F32 => {
            let mut values: Vec<f32> =
                row.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            let sound = normalize_f32(&mut values);
            for (slot, value) in row.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                *slot = value.to_le_bytes();
            }
            sound
        }
        Element::F16 => {
            let mut values: Vec<f16> =
                row.as_chunks::<2>().0.iter().map(|b| f16::from_le_bytes(*b)).collect();
            let sound = normalize_f16(&mut values);
            for (slot, value) in row.as_chunks_mut::<2>().0.iter_mut().zip(values) {
                *slot = value.to_le_bytes();
            }
            sound
        }
        Element::U8 | Element::I8 => row.iter().any(|b| *b != 0),
    }
}
