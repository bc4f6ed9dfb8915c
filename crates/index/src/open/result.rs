//! The result of a search.

use super::pool::{AnsweredQuery, Answers};
use super::request::Effort;
use super::stored::StoredIndex;
use crate::calibrate::reach::{Calibrated, QueryLengths, Reach, Unlike};
use crate::cost::deviation::QueryMeans;
use crate::error::IndexError;
use crate::family::Knob;
use crate::query::NO_ID;
use crate::query::{Clock, Counter, OwnCosts, Phase, QueryStats, SearchParams, SearchTotals, WithinPlan};
use bathyal_store::Requests;
use serde::Serialize;

/// A share of a query's time.
#[derive(Debug, Clone, Serialize)]
pub struct PhaseTime {
    /// The name: navigate (find groups or prepare the query), scan (score codes), read (wait for the tier),
    /// rerank (score full vectors).
    pub phase: &'static str,
    /// Nanoseconds: of `read` elapsed time, of the others processor time.
    pub ns: u64,
}

impl PhaseTime {
    /// Returns all phases of `clock`, or none if it has counted no time.
    pub(super) fn of(clock: &Clock) -> Vec<PhaseTime> {
        let phases = Phase::ALL.map(|phase| PhaseTime { phase: phase.name(), ns: clock.ns(phase) });
        if phases.iter().any(|phase| phase.ns > 0) { phases.to_vec() } else { Vec::new() }
    }
}

/// Returns the times of phases, each as `mean` converts it.
pub(super) fn phase_means(phases: &[PhaseTime], mean: impl Fn(u64) -> f64) -> QueryMeans {
    let of = |name: &str| mean(phases.iter().filter(|phase| phase.phase == name).map(|phase| phase.ns).sum());
    QueryMeans {
        navigate_ns: of("navigate"),
        scan_ns: of("scan"),
        rerank_ns: of("rerank"),
        read_ns: of("read"),
        ..QueryMeans::default()
    }
}

/// The answers to a batch of queries.
#[derive(Debug, Clone)]
pub struct SearchResult {
    /// Neighbours per query: as many as were asked for, or all that the index holds.
    pub k: usize,
    /// `queries x k`, row-major; the nearest of each query first.
    pub ids: Vec<u32>,
    /// `queries x k`, row-major: squared L2, negative inner product, or 1 - cosine.
    pub distances: Vec<f32>,
    /// Nanoseconds of each query from its start to its answer.
    pub latencies_ns: Vec<u64>,
    /// The counters of each query.
    pub per_query: Vec<QueryStats>,
    /// The counters of each query that only the index's family has.
    pub own: OwnCosts,
    /// The sums of the counters over all queries.
    pub totals: SearchTotals,
    /// Seconds from the first query's start to the last one's end.
    pub seconds: f64,
    /// The time of all queries together by phase, in nanoseconds: of `read` elapsed time, of the other phases
    /// processor time. Queries in flight at once wait at the same time, so the sum of their waits exceeds the
    /// elapsed time of the search. Empty unless the search was timed.
    pub phases: Vec<PhaseTime>,
    /// The length of the candidate list.
    pub search_list: u32,
    /// The number of groups to scan, the most posting lists to read, or the blocks to read of each hash
    /// table, before the rules that give single queries more or fewer. `None` in families without them.
    pub probes: Option<u32>,
    /// Threads used.
    pub threads: usize,
    /// The requests to the store, if the index is in a remote one. Searches of the index that run at the same
    /// time share requests, and each of them counts those of all.
    pub requests: Option<Requests>,
    /// How a search within a row set found its rows
    /// ([`Index::search_within`](super::Index::search_within)); `None` for other searches.
    pub within: Option<WithinPlan>,
    /// The reason for this plan, with the number of rows in the set, as a sentence.
    pub within_reason: Option<String>,
    /// Notes for the user, such as fewer neighbours than asked for, or a recall beyond the calibration.
    pub notes: Vec<String>,
    /// The position in `notes` of the note that the queries are unlike those of the calibration.
    pub unlike_note: Option<usize>,
}

/// Answers that are merged from several indexes.
#[derive(Debug, Clone, Copy)]
pub struct MergedAnswers<'a> {
    /// Neighbours per query.
    pub k: usize,
    /// `queries x k`, row-major; the nearest of each query first.
    pub distances: &'a [f32],
    /// The lengths of the queries.
    pub lengths: &'a QueryLengths,
    /// The effort of the search in each index.
    pub effort: Effort,
}

impl MergedAnswers<'_> {
    /// Returns a note if queries are too different from those of the calibrations for these to predict the
    /// effort. `measured` returns the [reach](crate::Index::reach) of the index that holds the farthest
    /// neighbour of a query. A query may be far from the vectors of all other indexes.
    pub fn unlike_note<'r>(
        &self,
        calibrated: Calibrated,
        measured: impl Fn(usize) -> &'r [Reach],
    ) -> Option<String> {
        let (asked, ratio) = match self.effort {
            Effort::Recall(recall) => (format!("recall {recall}"), 1.0),
            Effort::Ratio(ratio) => (format!("an overall ratio of {ratio}"), ratio),
            Effort::Probability { .. } | Effort::SearchList(_) => return None,
        };
        let unlike = Unlike::find(self.k, self.distances, self.lengths, ratio, measured);
        unlike.map(|unlike| unlike.note(&asked, calibrated))
    }
}

impl SearchResult {
    /// Returns the notes of an index whose answers are merged with those of others, and judged there
    /// ([`MergedAnswers::unlike_note`]).
    pub fn notes_for_merging(&self) -> impl Iterator<Item = &String> {
        let notes = self.notes.iter().enumerate();
        notes.filter(|(at, _)| Some(*at) != self.unlike_note).map(|(_, note)| note)
    }

    /// Adds a note if queries have fewer neighbours than `k`. `others_change_it`: other machines may have
    /// deleted vectors.
    pub(super) fn note_short(&mut self, others_change_it: bool) {
        let short = self.ids.chunks(self.k.max(1)).filter(|ids| ids.last() == Some(&NO_ID)).count();
        if short > 0 {
            let why = match others_change_it {
                true => "the index holds no more vectors",
                false => {
                    "the search found no more; verify the index, and build it again if that finds a fault"
                }
            };
            self.notes.push(format!("{short} queries have fewer than {} neighbours: {why}", self.k));
        }
    }

    /// Adds a note if queries are too different from those of the calibration, whose distances are in
    /// `measured`, for it to predict the effort for the recall.
    pub(super) fn note_unlike(&mut self, measured: &[Reach], lengths: &QueryLengths, effort: Effort) {
        let answers = MergedAnswers { k: self.k, distances: &self.distances, lengths, effort };
        if let Some(note) = answers.unlike_note(Calibrated::Index, |_| measured) {
            self.unlike_note = Some(self.notes.len());
            self.notes.push(note);
        }
    }
}

/// The parameters of a search that its result contains.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct UsedParams {
    pub(super) k: usize,
    pub(super) search_list: u32,
    pub(super) probes: Option<u32>,
    pub(super) threads: usize,
}

impl StoredIndex {
    /// Returns the part of `params` that a result contains.
    pub(super) fn used(&self, params: &SearchParams, threads: usize) -> UsedParams {
        let probes = self.family().knobs().contains(&Knob::Probes);
        let probes = probes.then(|| u32::try_from(params.probes).unwrap_or(u32::MAX));
        UsedParams { k: params.k, search_list: params.search_list as u32, probes, threads }
    }
}

/// Puts the answers of all workers in the order of the queries.
pub(super) fn collect(
    answers: Vec<Answers>,
    (count, counters): (usize, &'static [Counter]),
    used: UsedParams,
    seconds: f64,
) -> Result<SearchResult, IndexError> {
    let UsedParams { k, search_list, probes, threads } = used;
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
        unlike_note: None,
    };
    let (mut answered, mut clock) = (0, Clock::default());
    for part in answers {
        clock.add(&part.clock);
        for (i, AnsweredQuery { query, latency_ns, cost }) in part.queries.iter().enumerate() {
            let at = *query as usize * k;
            for (j, neighbor) in part.neighbors[i * k..(i + 1) * k].iter().enumerate() {
                result.ids[at + j] = neighbor.id;
                result.distances[at + j] = neighbor.distance;
            }
            result.latencies_ns[*query as usize] = *latency_ns;
            result.per_query[*query as usize] = *cost;
            result.own.set(*query as usize, cost);
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
