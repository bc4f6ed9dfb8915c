//! Explanation of several queries: their mean cost by phase and tier, next to the prediction.

use super::explain::MemoryPart;
use super::result::{PhaseTime, phase_means};
use super::{Index, SearchOptions, SearchRequest};
use crate::cost::deviation::{FAILING_FACTOR, FailedAssumption, QueryMeans, judge};
use crate::error::IndexError;
use crate::family::Knob;
use crate::query::{Clock, OwnTotals, QueryStats, SearchParams};
use bathyal_store::Requests;
use bathyal_tier::{Control, thread_ns};
use bathyal_vectors::VectorFile;
use serde::Serialize;
use std::ops::Range;

/// The reads of a query from one tier: means over a set of queries.
#[derive(Debug, Clone, Serialize)]
pub struct TierShare {
    /// The kind of tier; "page cache" for reads that the cache in memory answered.
    pub tier: String,
    /// Reads.
    pub reads: f64,
    /// Assumed or measured nanoseconds of a read that is alone on the tier; 0 for the cache.
    pub latency_ns: f64,
    /// True if the latency was measured.
    pub measured: bool,
}

/// The explanation of how several queries were answered, one after the other on one thread.
#[derive(Debug, Clone, Serialize)]
pub struct BatchExplanation {
    /// The index family.
    pub family: String,
    /// The kind of tier that was read.
    pub tier: String,
    /// Queries.
    pub queries: usize,
    /// Neighbours wanted of each.
    pub k: usize,
    /// The candidate list that was used.
    pub search_list: usize,
    /// Groups or posting lists of the effort; `None` in families without them.
    pub probes: Option<usize>,
    /// The prediction of the cost model, from the effort, the tier's profile and the processor.
    pub predicted: QueryMeans,
    /// The counted and measured costs.
    pub actual: QueryMeans,
    /// The counters that only the family has, as sums over all queries.
    pub own: OwnTotals,
    /// The reads by tier.
    pub tiers: Vec<TierShare>,
    /// The factor between prediction and measurement beyond which an assumption has failed.
    pub factor: f64,
    /// The assumptions that failed, those about counts first.
    pub failed: Vec<FailedAssumption>,
    /// The requests to the store; absent in JSON if the index is not in a remote store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// The memory of the open index by part, while a query runs.
    pub memory: Vec<MemoryPart>,
    /// Notes for the user about the answers.
    pub notes: Vec<String>,
}

impl Index {
    /// Answers the queries `rows` of `queries` one after the other on one thread, and reports their mean
    /// cost by phase and tier beside the prediction of the cost model, with the assumptions that failed.
    ///
    /// The first query is answered once more before the others, so that threads and buffers exist. The
    /// counters are those of a search with the same options.
    ///
    /// # Errors
    /// As [`Index::search`]; [`IndexError::Parameter`] if `rows` is empty or `queries` lacks one of them.
    pub fn explain_batch(
        &self,
        queries: &VectorFile,
        rows: Range<usize>,
        options: &SearchOptions,
        control: Control<'_>,
    ) -> Result<BatchExplanation, IndexError> {
        if rows.is_empty() || rows.end > queries.count() {
            return Err(IndexError::Parameter(format!(
                "there are no queries {} to {}: there are {} queries, numbered from 0, and the last number \
                 must not be below the first",
                rows.start,
                rows.end.saturating_sub(1),
                queries.count()
            )));
        }
        self.check_queries(queries, rows.clone())?;
        let changes = self.changes();
        let (params, mut notes) = self.params(&SearchRequest::new(options)?, changes.as_ref())?;
        let params = SearchParams { timed: true, ..params };
        self.affordable_in_flight(1, 1, self.stored.family().planned_list(&params))?;
        let cached = || self.loaded.cache_counters().map_or(0, |counters| counters.hits);
        let requests = || self.traffic.as_ref().map(|traffic| traffic.snapshot().requests);
        let mut lone = self.lone_queries(params, changes.as_ref())?;
        let mut found = Vec::new();
        lone.answer(queries.row(rows.start), &mut found, control)?;
        let (hits, sent) = (cached(), requests());
        let mut sums = CostSums::default();
        let before = thread_ns();
        for row in rows {
            sums.total_ns += lone.answer(queries.row(row), &mut found, control)?;
            let cost = &lone.state.query().stats;
            sums.queries += 1;
            sums.add(cost);
            sums.own.merge(&cost.named(self.stored.own_counters()));
            sums.clock.add(&lone.state.query().clock);
        }
        sums.processor_ns = thread_ns().saturating_sub(before);
        notes.extend(self.trouble.note());
        let requests = requests().zip(sent).map(|(after, before)| after.since(&before));
        Ok(BatchExplanation {
            requests,
            notes,
            ..self.explained_batch(&params, sums, cached().saturating_sub(hits))
        })
    }

    /// Returns the explanation of answered queries, without notes and requests. `hits` reads were answered by
    /// the page cache.
    fn explained_batch(&self, params: &SearchParams, sums: CostSums, hits: u64) -> BatchExplanation {
        let machine = self.loaded.machine();
        let (device, profile) = (machine.device(), machine.profile);
        let (predicted, actual) = (self.predicted_means(params), sums.means());
        let hits = (hits as f64 / sums.queries.max(1) as f64).min(actual.reads);
        let tier = TierShare {
            tier: profile.kind.clone(),
            reads: actual.reads - hits,
            latency_ns: device.latency_ns,
            measured: profile.latency_ns > 0,
        };
        let cache = TierShare { tier: "page cache".into(), reads: hits, latency_ns: 0.0, measured: false };
        BatchExplanation {
            family: self.manifest().family.clone(),
            tier: profile.kind.clone(),
            queries: sums.queries,
            k: params.k,
            search_list: params.search_list,
            probes: self.stored.family().knobs().contains(&Knob::Probes).then_some(params.probes),
            failed: judge(&predicted, &actual, FAILING_FACTOR),
            predicted,
            actual,
            own: sums.own,
            tiers: [tier, cache].into_iter().filter(|tier| tier.reads > 0.0).collect(),
            factor: FAILING_FACTOR,
            requests: None,
            memory: self.memory_parts(self.stored.family().planned_list(params)),
            notes: Vec::new(),
        }
    }
}

/// Sums over the queries that were answered.
#[derive(Default)]
struct CostSums {
    queries: usize,
    hops: u64,
    reads: u64,
    bytes: u64,
    code_distances: u64,
    full_distances: u64,
    total_ns: u64,
    processor_ns: u64,
    own: OwnTotals,
    clock: Clock,
}

impl CostSums {
    fn add(&mut self, cost: &QueryStats) {
        self.hops += u64::from(cost.hops);
        self.reads += u64::from(cost.reads);
        self.bytes += cost.bytes;
        self.code_distances += u64::from(cost.code_distances);
        self.full_distances += u64::from(cost.full_distances);
    }

    /// Returns the means over the queries.
    fn means(&self) -> QueryMeans {
        let mean = |total: u64| total as f64 / self.queries.max(1) as f64;
        QueryMeans {
            rounds: mean(self.hops),
            reads: mean(self.reads),
            bytes: mean(self.bytes),
            code_distances: mean(self.code_distances),
            full_distances: mean(self.full_distances),
            total_ns: mean(self.total_ns),
            processor_ns: mean(self.processor_ns),
            ..phase_means(&PhaseTime::of(&self.clock), mean)
        }
    }
}
