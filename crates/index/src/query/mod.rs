//! Parameters, counters and shared parts of the searches of all families.

pub(crate) mod changes;
pub(crate) mod codes;
pub(crate) mod counters;
pub(crate) mod pass;
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
use std::str::FromStr;
use std::time::Instant;

/// The id in places without a neighbour, for a query that found fewer than were asked for: in a small row
/// set, or in an index that changes.
pub use bathyal_vectors::NO_ID;

/// Reads of one hop: enough to hide some latency, few enough to waste little (DiskANN, section 4.2).
pub const DEFAULT_BEAM_WIDTH: u32 = 4;
/// Reads of one hop on a remote tier, where each hop waits for milliseconds (cloud-native-vector-search,
/// section 5.1).
pub const FAR_BEAM_WIDTH: u32 = 16;
/// Reads in flight on each thread.
pub(crate) const ENGINE_DEPTH: u32 = 128;
/// The most reads in flight on each thread, for a device whose latency takes as many to hide.
pub(crate) const LARGEST_ENGINE_DEPTH: u32 = 1024;
/// A tier with at least this latency counts as remote: a lone query spends nearly all its time waiting for
/// it.
pub(crate) const FAR_LATENCY_NS: u64 = 500_000;

/// Returns the default beam width on a tier with this profile.
pub(crate) fn beam_width_on(profile: &TierProfile) -> u32 {
    if profile.latency_ns >= FAR_LATENCY_NS { FAR_BEAM_WIDTH } else { DEFAULT_BEAM_WIDTH }
}

/// Buffers of a thread: twice its depth, so that reads can be staged while others are in flight.
pub(crate) const FRAMES: u32 = 2 * ENGINE_DEPTH;
/// The largest alignment that a tier may require.
pub(crate) const LARGEST_ALIGNMENT: usize = 4096;
/// About the number of distances from codes that take as long as one from a full vector, whose bytes are not
/// in a cache.
pub(crate) const CODES_A_VECTOR: usize = 64;

/// The effort of a search, from calibration or from the caller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Effort {
    /// Candidates.
    pub(crate) search_list: usize,
    /// Groups or lists to scan; an average of groups if `prune` is not 0; 0 for a graph.
    pub(crate) probes: usize,
    /// Posting lists or groups more than `1 + prune` times as far as the nearest are skipped; 0 skips none.
    pub(crate) prune: f32,
}

/// Returns up to `wanted` numbers below `count`, spread evenly.
pub(crate) fn spread(count: usize, wanted: usize) -> impl Iterator<Item = usize> {
    let wanted = count.min(wanted);
    (0..wanted).map(move |i| (i as u64 * count as u64 / wanted as u64) as usize)
}

/// The engine mode: when a query continues with the reads of a beam.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchMode {
    /// The query continues when all reads of a beam have arrived. Answers and counters are the same on every
    /// tier, except that a cluster index whose pages are in memory reads only its candidates.
    #[default]
    Batched,
    /// The query uses each record as it arrives, and submits the next best read in its place. The latency is
    /// lower, and the answers may vary with the order of arrival. A cluster search reads in one round, so
    /// that both modes are the same.
    Pipelined,
}

impl FromStr for SearchMode {
    type Err = String;

    fn from_str(text: &str) -> Result<SearchMode, String> {
        match text {
            "batched" => Ok(SearchMode::Batched),
            "pipelined" => Ok(SearchMode::Pipelined),
            _ => Err(format!("unknown mode '{text}': it is one of batched, pipelined")),
        }
    }
}

/// The parameters of a single search, besides the query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SearchParams {
    pub(crate) k: usize,
    pub(crate) search_list: usize,
    /// Groups or lists to scan; an average of groups if `prune` is not 0; unused by a graph.
    pub(crate) probes: usize,
    /// Posting lists or groups more than `1 + prune` times as far as the nearest are skipped; 0 skips none.
    pub(crate) prune: f32,
    pub(crate) beam_width: usize,
    /// Additional buckets of each hash table; unused by other families.
    pub(crate) multi_probe: usize,
    pub(crate) mode: SearchMode,
    /// True to measure time by phase, which costs a system call between two phases.
    pub(crate) timed: bool,
    /// The effort of a query that begins before all codes are loaded; `None` if it is the same.
    pub(crate) early: Option<Effort>,
}

/// A phase of a query, by which its time is measured.
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

/// The time of a query by phase; all zero unless the search is timed.
///
/// Computing is measured by processor time, which other programs on the machine hardly change; waiting is
/// measured by elapsed time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock {
    /// The instant and the thread's processor time in nanoseconds, at the last call.
    last: Option<(Instant, u64)>,
    ns: [u64; Phase::ALL.len()],
}

impl Clock {
    /// Starts a clock at zero. It measures only if `timed` is true.
    pub(crate) fn begin(timed: bool) -> Clock {
        Clock { last: timed.then(|| (Instant::now(), thread_ns())), ns: [0; Phase::ALL.len()] }
    }

    /// Adds the time since the last call to a phase.
    #[inline]
    pub(crate) fn spent(&mut self, phase: Phase) {
        if let Some((wall, processor)) = self.last {
            let now = (Instant::now(), thread_ns());
            let passed = now.0.duration_since(wall).as_nanos() as u64;
            // While a query waits, its thread computes for others. If the system updates the processor time
            // late or in ticks, it may have advanced by more than the elapsed time.
            self.ns[phase as usize] += match phase {
                Phase::Read => passed,
                _ => now.1.saturating_sub(processor).min(passed),
            };
            self.last = Some(now);
        }
    }

    /// Adds the times of another query.
    pub(crate) fn add(&mut self, other: &Clock) {
        self.ns.iter_mut().zip(other.ns).for_each(|(sum, ns)| *sum += ns);
    }

    /// Returns the nanoseconds of a phase.
    pub(crate) fn ns(&self, phase: Phase) -> u64 {
        self.ns[phase as usize]
    }
}

impl SearchParams {
    /// Returns the parameters for a query that begins before all codes are loaded.
    pub(crate) fn early(self) -> SearchParams {
        let Some(Effort { search_list, probes, prune }) = self.early else { return self };
        let search_list = search_list.max(self.search_list);
        SearchParams { search_list, probes, prune, early: None, ..self }
    }

    /// Returns the number of candidates to read.
    pub(crate) fn wanted(&self) -> usize {
        self.search_list.max(self.k)
    }
}
