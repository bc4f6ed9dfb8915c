//! What every family's search is told and what it reports, and what all searchers have in common.

pub(crate) mod changes;
pub(crate) mod codes;
pub(crate) mod counters;
pub(crate) mod row_set;
pub(crate) mod set;
pub(crate) mod under_way;
pub(crate) mod visited;
pub(crate) mod within;

pub use counters::{Counter, MOST_OWN_COUNTERS, OwnCosts, OwnTotals, QueryStats, SearchTotals};
pub use row_set::RowSet;
pub use within::WithinPlan;

use bathyal_tier::{TierProfile, thread_ns};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// In the place of an id where a query has fewer neighbours than were asked for, which happens to indexes that others change.
pub use bathyal_vectors::NO_ID;

/// Reads of one hop: enough to hide some latency, few enough to waste little (DiskANN, section 4.2).
pub const DEFAULT_BEAM_WIDTH: u32 = 4;
/// The same of a tier that is far away, where a hop is a wait of milliseconds (cloud-native-vector-search, section 5.1).
pub const FAR_BEAM_WIDTH: u32 = 16;
/// Reads in flight a thread.
pub(crate) const ENGINE_DEPTH: u32 = 128;
/// The same at most, of a device whose latency takes as many to hide.
pub(crate) const LARGEST_ENGINE_DEPTH: u32 = 1024;
/// A device that takes as long as this is far away: a query alone waits for it and for nothing else.
pub(crate) const FAR_LATENCY_NS: u64 = 500_000;

/// Reads of one hop on such a tier, where nobody says how many.
pub(crate) fn beam_width_on(profile: &TierProfile) -> u32 {
    if profile.latency_ns >= FAR_LATENCY_NS { FAR_BEAM_WIDTH } else { DEFAULT_BEAM_WIDTH }
}

/// Buffers of a thread: twice its depth, so that reads can be staged while others are in flight.
pub(crate) const FRAMES: u32 = 2 * ENGINE_DEPTH;
/// Largest alignment that a tier may ask for.
pub(crate) const LARGEST_ALIGNMENT: usize = 4096;
/// How many distances from codes take as long as one from a full vector, about: that one's bytes come from far.
pub(crate) const CODES_A_VECTOR: usize = 64;

/// How hard a search looks: what a calibration says, or a caller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Effort {
    /// Candidates.
    pub(crate) search_list: usize,
    /// Groups or lists scanned, groups on average where `prune` is not 0; 0 of a graph.
    pub(crate) probes: usize,
    /// Posting lists or groups more than `1 + prune` times as far as the nearest are left out; 0 leaves none out.
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
    /// Groups or lists scanned, groups on average where `prune` is not 0; of no meaning to a graph.
    pub(crate) probes: usize,
    /// Posting lists or groups more than `1 + prune` times as far as the nearest are left out; 0 leaves none out.
    pub(crate) prune: f32,
    pub(crate) beam_width: usize,
    /// Further places of each hash table; of no meaning to other families.
    pub(crate) multi_probe: usize,
    pub(crate) mode: SearchMode,
    /// Whether a clock runs; it costs a system call between two phases.
    pub(crate) timed: bool,
    /// The effort of a query that begins before all is there that the index keeps in memory, where that is another one.
    pub(crate) early: Option<Effort>,
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
///
/// What is computed counts by the processor's time, which others that use the machine hardly change; waiting by the wall's.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock {
    /// The last look at the wall's clock and at the processor's, in nanoseconds.
    last: Option<(Instant, u64)>,
    ns: [u64; Phase::ALL.len()],
}

impl Clock {
    /// Starts anew; a clock that is not `timed` stays at zero.
    pub(crate) fn begin(timed: bool) -> Clock {
        Clock { last: timed.then(|| (Instant::now(), thread_ns())), ns: [0; Phase::ALL.len()] }
    }

    /// Says what the time since the last call was spent on.
    #[inline]
    pub(crate) fn spent(&mut self, phase: Phase) {
        if let Some((wall, processor)) = self.last {
            let now = (Instant::now(), thread_ns());
            let passed = now.0.duration_since(wall).as_nanos() as u64;
            // While a query waits, its thread computes for others. Where the processor's time is booked late or in
            // ticks, more may be booked than has passed.
            self.ns[phase as usize] += match phase {
                Phase::Read => passed,
                _ => now.1.saturating_sub(processor).min(passed),
            };
            self.last = Some(now);
        }
    }

    /// Adds what another query spent.
    pub(crate) fn add(&mut self, other: &Clock) {
        self.ns.iter_mut().zip(other.ns).for_each(|(sum, ns)| *sum += ns);
    }

    /// Nanoseconds spent on a phase.
    pub(crate) fn ns(&self, phase: Phase) -> u64 {
        self.ns[phase as usize]
    }
}

impl SearchParams {
    /// The same for a query that begins before all is there that the index keeps in memory.
    pub(crate) fn early(self) -> SearchParams {
        let Some(Effort { search_list, probes, prune }) = self.early else { return self };
        let search_list = search_list.max(self.search_list);
        SearchParams { search_list, probes, prune, early: None, ..self }
    }

    /// Candidates that are read.
    pub(crate) fn wanted(&self) -> usize {
        self.search_list.max(self.k)
    }
}
