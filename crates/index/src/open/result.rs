//! What a search of many queries returns.

use super::Index;
use super::explain::PhaseTime;
use super::options::Effort;
use super::pool::Answers;
use crate::calibrate::reach::{Reach, Unlike};
use crate::error::IndexError;
use crate::family::Knob;
use crate::query::NO_ID;
use crate::query::{Clock, Counter, OwnCosts, QueryStats, SearchParams, SearchTotals, WithinPlan};
use bathyal_store::Requests;

/// The answers to a batch of queries.
#[derive(Debug, Clone)]
pub struct SearchResult {
    /// Neighbours a query: what was asked for, or all that the index holds.
    pub k: usize,
    /// `queries x k`, nearest first.
    pub ids: Vec<u32>,
    /// `queries x k`: squared L2, negative inner product, or 1 - cosine.
    pub distances: Vec<f32>,
    /// Nanoseconds each query took from its start to its answer.
    pub latencies_ns: Vec<u64>,
    /// What each query cost.
    pub per_query: Vec<QueryStats>,
    /// What each query cost by counters that only the index's family has.
    pub own: OwnCosts,
    /// What all cost together.
    pub totals: SearchTotals,
    /// Seconds from the first query's start to the last one's end.
    pub seconds: f64,
    /// Where the time of all queries together went: nanoseconds by phase. What is computed counts by the
    /// processor's time, `read` by the wall's: queries that are in flight at once wait at the same time, so their waits add up
    /// to more than passed. Empty unless the time was asked for.
    pub phases: Vec<PhaseTime>,
    /// The candidate list that was used.
    pub search_list: u32,
    /// Groups, posting lists at most, or blocks of each hash table that were looked at, before any rule by which single
    /// queries have more or fewer; `None` of a family that has none of these.
    pub probes: Option<u32>,
    /// Threads used.
    pub threads: usize,
    /// What the store was asked, if the index is in one that is elsewhere. Searches of the index that run at the same time
    /// share its requests, and each counts those of all.
    pub requests: Option<Requests>,
    /// How rows were found of a search that keeps to some ([`Index::search_within`]); `None` of others.
    pub within: Option<WithinPlan>,
    /// Why so, with the number of rows that it keeps to, in a sentence.
    pub within_reason: Option<String>,
    /// What the user should know: fewer neighbours than asked for, a recall beyond the calibration.
    pub notes: Vec<String>,
}

impl SearchResult {
    /// Notes queries with fewer neighbours than were asked for, of an index whose vectors others may have deleted, or not.
    pub(super) fn note_short(&mut self, others_change_it: bool) {
        let short = self.ids.chunks(self.k.max(1)).filter(|ids| ids.last() == Some(&NO_ID)).count();
        if short > 0 {
            let why = match others_change_it {
                true => "the index holds no more vectors",
                false => {
                    "the search came to no more; verify the index, and build it anew if that finds a fault"
                }
            };
            self.notes.push(format!("{short} queries have fewer than {} neighbours: {why}", self.k));
        }
    }

    /// Notes queries to whom the calibration, whose own were so far away (`measured`), cannot promise the recall asked for.
    pub(super) fn note_unlike(&mut self, measured: &[Reach], effort: Effort) {
        let (asked, ratio) = match effort {
            Effort::Recall(recall) => (format!("recall {recall}"), 1.0),
            Effort::Ratio(ratio) => (format!("an overall ratio of {ratio}"), ratio),
            Effort::SearchList(_) => return,
        };
        let unlike = Unlike::find(measured, self.k, &self.distances, ratio);
        self.notes.extend(unlike.map(|unlike| unlike.note(&asked)));
    }
}

/// What a search was told.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Used {
    pub(super) k: usize,
    pub(super) search_list: u32,
    pub(super) probes: Option<u32>,
    pub(super) threads: usize,
}

impl Index {
    /// What of `params` a result tells.
    pub(super) fn used(&self, params: &SearchParams, threads: usize) -> Used {
        let probes = self.stored.knobs().contains(&Knob::Probes);
        let probes = probes.then(|| u32::try_from(params.probes).unwrap_or(u32::MAX));
        Used { k: params.k, search_list: params.search_list as u32, probes, threads }
    }
}

/// Puts the answers of all workers in the order of the queries.
pub(super) fn collect(
    answers: Vec<Answers>,
    (count, counters): (usize, &'static [Counter]),
    used: Used,
    seconds: f64,
) -> Result<SearchResult, IndexError> {
    let Used { k, search_list, probes, threads } = used;
    let mut result = SearchResult {
        k,
        ids: vec![0; count * k],
        distances: vec![0.0; count * k],
        latencies_ns: vec![0; count],
        per_query: vec![QueryStats::default(); count],
        own: OwnCosts::new(counters, count),
        totals: SearchTotals::default(),
        seconds,
        phases: Vec::new(),
        search_list,
        probes,
        threads,
        requests: None,
        within: None,
        within_reason: None,
        notes: Vec::new(),
    };
    let (mut answered, mut clock) = (0, Clock::default());
    for part in answers {
        clock.add(&part.clock);
        for (i, (query, latency_ns, stats)) in part.queries.iter().enumerate() {
            let at = *query as usize * k;
            for (j, neighbor) in part.neighbors[i * k..(i + 1) * k].iter().enumerate() {
                result.ids[at + j] = neighbor.id;
                result.distances[at + j] = neighbor.distance;
            }
            result.latencies_ns[*query as usize] = *latency_ns;
            result.per_query[*query as usize] = *stats;
            result.own.set(*query as usize, stats);
            answered += 1;
        }
    }
    if answered != count {
        return Err(IndexError::Internal(format!("{answered} of {count} queries were answered")));
    }
    result.phases = PhaseTime::of(&clock);
    result.totals = SearchTotals::of(&result.per_query, &result.own);
    Ok(result)
}
