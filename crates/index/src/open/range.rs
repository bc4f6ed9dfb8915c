//! Range search: all vectors within a distance of each query.
//!
//! A query searches for its k nearest vectors, with k rising from round to round until the k-th lies beyond
//! the radius, each time with the effort of the calibration for that k. The result then has the recall that
//! was asked for, and a query with few vectors around it costs no more than an ordinary search.

use super::pool::{AnsweredQuery, Answers, Job, RangePlan, RawQueries};
use super::{DEFAULT_RECALL, Effort, Index, SearchOptions, SearchRequest};
use crate::error::IndexError;
use crate::query::changes::Changes;
use crate::query::{Counter, OwnCosts, QueryStats, SearchMode, SearchParams, SearchTotals};
use bathyal_kernels::Metric;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use std::sync::Arc;
use std::time::Instant;

/// Neighbours of the first round: about as many as an ordinary search finds.
const FIRST_K: usize = 16;
/// Factor from one round's k to the next: all rounds before the last together cost a third of the last.
const WIDER: usize = 4;

/// Options of a range search.
#[derive(Debug, Clone, Copy)]
pub struct RangeOptions {
    /// Share of the vectors within the radius that should be found, above 0 and at most 1.
    pub recall: f32,
    /// Most neighbours of a query; the nearest are kept. `None` means all that the index holds.
    pub limit: Option<usize>,
    /// Reads of one hop in a graph (W in DiskANN).
    pub beam_width: Option<u32>,
    /// Threads; 0 means all cores.
    pub threads: usize,
    /// Batched or pipelined; `None` is [`Index::default_mode`].
    pub mode: Option<SearchMode>,
    /// Queries interleaved on each thread; `None` chooses by the tier.
    pub in_flight: Option<usize>,
}

impl Default for RangeOptions {
    fn default() -> Self {
        RangeOptions {
            recall: DEFAULT_RECALL,
            limit: None,
            beam_width: None,
            threads: 0,
            mode: None,
            in_flight: None,
        }
    }
}

impl RangeOptions {
    /// Returns the request of the searches that answer a range search.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for a number out of range.
    fn request(&self) -> Result<SearchRequest, IndexError> {
        if self.limit == Some(0) {
            return Err(IndexError::Parameter("limit is 0; allow at least one neighbour".into()));
        }
        SearchRequest::new(&SearchOptions {
            effort: Effort::Recall(self.recall),
            beam_width: self.beam_width,
            mode: self.mode,
            in_flight: self.in_flight,
            ..SearchOptions::default()
        })
    }
}

/// The answers to a batch of range queries: a ragged array.
#[derive(Debug, Clone)]
pub struct RangeResult {
    /// The neighbours of query `q` are `ids[offsets[q]..offsets[q + 1]]`; `queries + 1` entries.
    pub offsets: Vec<usize>,
    /// Row numbers, for each query the nearest first.
    pub ids: Vec<u32>,
    /// As [`SearchResult::distances`](super::SearchResult::distances), none above the radius.
    pub distances: Vec<f32>,
    /// Nanoseconds of each query from its start to its answer.
    pub latencies_ns: Vec<u64>,
    /// The counters of each query, summed over its rounds.
    pub per_query: Vec<QueryStats>,
    /// The counters of each query that only the index's family has, summed over its rounds.
    pub own: OwnCosts,
    /// The sums of the counters over all queries.
    pub totals: SearchTotals,
    /// Seconds from the first query's start to the last one's end.
    pub seconds: f64,
    /// Threads used.
    pub threads: usize,
    /// Notes for the user, such as answers cut at the limit, or a recall beyond the calibration.
    pub notes: Vec<String>,
}

impl Index {
    /// Finds all vectors whose distance to a query is at most `radius`, for each query. Distances are those
    /// that a search reports: squared L2, negative inner product, 1 - cosine.
    ///
    /// The result is approximate: it contains about `options.recall` of the vectors within the radius, and
    /// none outside it. The search of a small index without a calibration is exact.
    ///
    /// # Errors
    /// As [`Index::search`]; [`IndexError::Parameter`] for a radius that is not a number, or below 0 under
    /// l2.
    pub fn range_search(
        &self,
        queries: &VectorFile,
        radius: f32,
        options: &RangeOptions,
        control: Control<'_>,
    ) -> Result<RangeResult, IndexError> {
        self.check_queries(queries, 0..queries.count())?;
        let changes = self.changes();
        let vectors = self.vectors_with(changes.as_ref());
        let (mut plan, mut notes) = self.range_plan(radius, options, changes.as_ref())?;
        let threads = super::thread_count(options.threads).clamp(1, queries.count().max(1));
        // Rounds whose lists do not fit in the budget are dropped, except for the first.
        let planned = |round: &(usize, SearchParams)| self.stored.family().planned_list(&round.1);
        let fits = |round: &&(usize, SearchParams)| self.affords(1, planned(round));
        let fitting = plan.rounds.iter().take_while(fits).count();
        plan.rounds.truncate(fitting.max(1));
        let longest = plan.rounds.iter().map(planned).max().unwrap_or(1);
        let threads = self.fitting_threads(threads, longest);
        let default = || plan.rounds.iter().map(|round| self.suited_in_flight(&round.1)).min().unwrap_or(1);
        let in_flight = options.in_flight.unwrap_or_else(default).max(1);
        let in_flight = self.affordable_in_flight(in_flight, threads, longest)?;
        let (limit, most) = (plan.limit, plan.most());
        let started = Instant::now();
        let raw = RawQueries::from_range(queries, 0..queries.count());
        let (context, params) = (self.contexts.here().clone(), plan.rounds[0].1);
        let job = Job::new(context, raw, params, (threads, in_flight), control.deadline);
        let job = Arc::new(
            job.with_range_plan(plan)
                .with_query_bytes(self.stored.family().query_bytes(longest))
                .with_changes(changes),
        );
        let answers = self.answers(&job, threads, control)?;
        let (seconds, counters) = (started.elapsed().as_secs_f64(), self.stored.own_counters());
        let mut result = gather(&answers, (queries.count(), counters), seconds, threads)?;
        let cut = result.offsets.windows(2).filter(|w| w[1] - w[0] >= most && most < vectors).count();
        if cut > 0 && most == limit {
            notes.push(format!("{cut} queries have {limit} neighbours, the limit; there may be more"));
        } else if cut > 0 {
            let what = format!(
                "{cut} queries may have more neighbours than were found: longer lists than those for"
            );
            let room =
                if self.searcher().card().is_some() { "the graphics card" } else { "the memory budget" };
            notes.push(format!("{what} {most} do not fit {room}"));
        }
        notes.extend(self.trouble.note());
        result.notes = notes;
        Ok(result)
    }

    fn range_plan(
        &self,
        radius: f32,
        options: &RangeOptions,
        changes: Option<&Arc<Changes>>,
    ) -> Result<(RangePlan, Vec<String>), IndexError> {
        if radius.is_nan() {
            return Err(IndexError::Parameter("the radius is not a number".into()));
        }
        if radius < 0.0 && self.metric() == Metric::L2 {
            return Err(IndexError::Parameter(format!(
                "the radius is {radius}, and no squared l2 distance is below 0: give the square of the \
                 distance"
            )));
        }
        let vectors = self.vectors_with(changes);
        // An index whose vectors are all deleted is searched, too, and finds nothing.
        let limit = options.limit.unwrap_or(usize::MAX).min(vectors).max(1);
        let request = options.request()?;
        let mut rounds = Vec::new();
        let mut k = FIRST_K.min(limit);
        let mut before = Vec::new();
        let notes = loop {
            let (params, notes) = match self.params(&request.for_neighbors(k), changes) {
                Ok(both) => both,
                // A graphics card does not keep lists as long: the caller notes that the results may be cut.
                Err(_) if self.searcher().card().is_some() && !rounds.is_empty() => break before,
                Err(error) => return Err(error),
            };
            // A round keeps all candidates that it has scored: its k is the length of the list.
            let search_list = params.search_list.min(vectors);
            rounds.push((k, SearchParams { k: search_list, search_list, ..params }));
            if k == limit {
                break notes;
            }
            before = notes;
            k = (k * WIDER).min(limit);
        };
        Ok((RangePlan { radius, limit, rounds }, notes))
    }
}

/// Puts the answers of all workers in the order of the queries.
fn gather(
    answers: &[Answers],
    (count, counters): (usize, &'static [Counter]),
    seconds: f64,
    threads: usize,
) -> Result<RangeResult, IndexError> {
    // For each query: the number of its worker's part, and the start and number of its neighbours there.
    let mut places = vec![None; count];
    for (part, answers) in answers.iter().enumerate() {
        let mut start = 0;
        for (answered, found) in answers.queries.iter().zip(&answers.counts) {
            places[answered.query as usize] = Some((part, start, *found as usize));
            start += *found as usize;
        }
    }
    let total = answers.iter().map(|part| part.neighbors.len()).sum();
    let mut result = RangeResult {
        offsets: Vec::with_capacity(count + 1),
        ids: Vec::with_capacity(total),
        distances: Vec::with_capacity(total),
        latencies_ns: vec![0; count],
        per_query: vec![QueryStats::default(); count],
        own: OwnCosts::new(counters, count),
        totals: SearchTotals::default(),
        seconds,
        threads,
        notes: Vec::new(),
    };
    result.offsets.push(0);
    for (query, place) in places.iter().enumerate() {
        let Some((part, start, found)) = *place else {
            return Err(IndexError::Internal(format!("query {query} was not answered")));
        };
        let neighbors = &answers[part].neighbors[start..start + found];
        result.ids.extend(neighbors.iter().map(|n| n.id));
        result.distances.extend(neighbors.iter().map(|n| n.distance));
        result.offsets.push(result.ids.len());
    }
    for AnsweredQuery { query, latency_ns, cost } in answers.iter().flat_map(|part| &part.queries) {
        result.latencies_ns[*query as usize] = *latency_ns;
        result.per_query[*query as usize] = *cost;
        result.own.set(*query as usize, cost);
    }
    result.totals = SearchTotals::of(&result.per_query, &result.own);
    Ok(result)
}
