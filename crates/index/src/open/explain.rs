//! Explanation of one query: its time and its memory.

use super::result::{PhaseTime, phase_means};
use super::store_traffic::{StoreSnapshot, StoreTraffic};
use super::{Index, SearchOptions, SearchRequest};
use crate::cost::deviation::{FAILING_FACTOR, FailedAssumption, QueryMeans, judge};
use crate::error::IndexError;
use crate::family::QueryState;
use crate::query::changes::Changes;
use crate::query::{OwnTotals, SearchParams};
use bathyal_kernels::Neighbor;
use bathyal_store::{CacheUse, Requests};
use bathyal_tier::{Control, Cx, Engine, thread_ns};
use bathyal_vectors::VectorFile;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// A share of an open index's memory.
#[derive(Debug, Clone, Serialize)]
pub struct MemoryPart {
    /// The name of its content.
    pub part: &'static str,
    /// Bytes.
    pub bytes: u64,
}

/// The prediction of the cost model for a query.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Predicted {
    /// Dependent rounds of reads.
    pub hops: f64,
    /// Reads.
    pub reads: f64,
    /// Bytes that the device moves, whole granules.
    pub moved_bytes: f64,
    /// Nanoseconds of the processor, without the time of issuing reads.
    pub compute_ns: f64,
    /// Nanoseconds from start to answer, alone on the device.
    pub total_ns: f64,
    /// Processor nanoseconds for finding groups, lists or the next record, and for preparing the query.
    pub navigate_ns: f64,
    /// Processor nanoseconds for scoring codes.
    pub scan_ns: f64,
    /// Nanoseconds of reads: to issue them, and to wait for them.
    pub read_ns: f64,
    /// Processor nanoseconds for comparing full vectors.
    pub rerank_ns: f64,
}

impl Predicted {
    fn of(means: &QueryMeans) -> Predicted {
        Predicted {
            hops: means.rounds,
            reads: means.reads,
            moved_bytes: means.bytes,
            compute_ns: means.navigate_ns + means.scan_ns + means.rerank_ns,
            total_ns: means.total_ns,
            navigate_ns: means.navigate_ns,
            scan_ns: means.scan_ns,
            read_ns: means.read_ns,
            rerank_ns: means.rerank_ns,
        }
    }
}

/// The requests to the store for the two runs of one query. The counts are exact, and include data that was
/// loaded meanwhile, and other searches of the same index.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StoreShare {
    /// Requests of the first run.
    pub first: Requests,
    /// Requests of the second run, the one whose times are reported.
    pub again: Requests,
    /// The sources of the blocks of the first run, by kind of object; empty without a cache in front of the
    /// store.
    pub cache: BTreeMap<String, CacheUse>,
    /// The same by dependent round of reads ([`Index::cache_rounds`]).
    pub cache_rounds: Vec<CacheUse>,
}

impl StoreShare {
    /// Returns the requests between the first and the second of these moments, and between the second and the
    /// third.
    fn between([before, first, again]: &[StoreSnapshot; 3]) -> StoreShare {
        let none = CacheUse::default();
        let kinds = first
            .kinds
            .iter()
            .map(|(kind, used)| (kind.clone(), used.since(before.kinds.get(kind).unwrap_or(&none))));
        let rounds = first
            .rounds
            .iter()
            .enumerate()
            .map(|(at, used)| used.since(before.rounds.get(at).unwrap_or(&none)));
        let mut cache_rounds: Vec<CacheUse> = rounds.collect();
        cache_rounds
            .truncate(cache_rounds.iter().rposition(|used| used.blocks() > 0).map_or(0, |last| last + 1));
        StoreShare {
            first: first.requests.since(&before.requests),
            again: again.requests.since(&first.requests),
            cache: kinds.filter(|(_, used)| used.blocks() > 0).collect(),
            cache_rounds,
        }
    }
}

/// The explanation of how one query was answered.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// The index family.
    pub family: String,
    /// The kind of tier that was read.
    pub tier: String,
    /// Neighbours found.
    pub k: usize,
    /// The candidate list that was used.
    pub search_list: usize,
    /// Groups or posting lists that were scanned; `None` for a graph.
    pub groups_scanned: Option<usize>,
    /// Groups or posting lists of the index; `None` for a graph.
    pub groups: Option<usize>,
    /// Groups or posting lists of the effort; `None` for a graph. If `prune` is above 0, a query scans fewer,
    /// or, of groups, possibly more.
    pub probes: Option<usize>,
    /// The limit of distance: lists more than `1 + prune` times as far as the nearest were skipped. At 0,
    /// none were.
    pub prune: f32,
    /// Dependent rounds of reads.
    pub hops: u32,
    /// Reads: pages, or records of a graph.
    pub reads: u32,
    /// Bytes read.
    pub bytes: u64,
    /// Codes scored.
    pub code_distances: u32,
    /// Full vectors scored.
    pub full_distances: u32,
    /// The counters that only the family has, by name; in JSON beside the others.
    #[serde(flatten)]
    pub own: OwnTotals,
    /// The prediction of the cost model, from the effort, the tier's profile and the processor.
    pub predicted: Predicted,
    /// The counted and measured costs, as those of a batch.
    #[serde(skip)]
    pub actual: QueryMeans,
    /// The factor between prediction and measurement beyond which an assumption has failed.
    pub factor: f64,
    /// The assumptions of the model that failed for this query, those about counts first.
    pub failed: Vec<FailedAssumption>,
    /// Nanoseconds from start to answer, alone on its thread.
    pub total_ns: u64,
    /// The time by phase.
    pub phases: Vec<PhaseTime>,
    /// The requests to the store; absent in JSON if the index is not in a remote store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreShare>,
    /// The memory of the open index by part, while this query runs.
    pub memory: Vec<MemoryPart>,
    /// The answer's ids, nearest first.
    pub ids: Vec<u32>,
    /// Their distances.
    pub distances: Vec<f32>,
    /// Notes for the user about the answer.
    pub notes: Vec<String>,
}

/// Queries that the calling thread answers one after the other.
pub(super) struct LoneQueries<'i> {
    index: &'i Index,
    engine: Engine,
    /// The state of the last query, with its counters and times.
    pub(super) state: Box<dyn QueryState>,
    params: SearchParams,
    changes: Option<&'i Arc<Changes>>,
}

impl LoneQueries<'_> {
    /// Answers a query, replaces the content of `found` by its neighbours, and returns its nanoseconds.
    pub(super) fn answer(
        &mut self,
        query: &[u8],
        found: &mut Vec<Neighbor>,
        control: Control<'_>,
    ) -> Result<u64, IndexError> {
        let LoneQueries { index, engine, state, params, changes } = self;
        let (trouble, params, changes) = (&index.trouble, *params, *changes);
        found.clear();
        let (started, running) = (Instant::now(), &mut *state);
        let search = |cx: &Cx| {
            let cx = cx.clone();
            async move {
                running.query_mut().changes = changes.cloned();
                let searched = running.search(cx.clone(), query, params).await;
                let (Err(IndexError::Gpu(failure)), Some(standby)) = (&searched, &trouble.standby) else {
                    return searched;
                };
                *running = standby.opened(&cx, failure).await?.query_state();
                running.query_mut().changes = changes.cloned();
                running.search(cx, query, params).await
            }
        };
        engine.run_one(search, control)??;
        let total_ns = started.elapsed().as_nanos() as u64;
        state.query_mut().found.drain_sorted(found);
        Ok(total_ns)
    }
}

/// Two runs of one query.
struct ExplainedRun {
    /// The state of the query after the second run, with its counters and times.
    state: Box<dyn QueryState>,
    /// The answer.
    found: Vec<Neighbor>,
    /// Nanoseconds of the second run, and of the processor for it.
    total_ns: u64,
    processor_ns: u64,
    /// The requests to the store before, between and after the runs; empty for a local index.
    snapshots: Vec<StoreSnapshot>,
}

impl Index {
    /// Answers query number `row` of `queries` alone, on the calling thread, and reports its time, counters
    /// and memory.
    ///
    /// The query is run twice. The times are those of the second run, in which buffers are allocated and the
    /// processor's caches are warm. The counters are those of a search with the same options. For an index in
    /// a remote store, the requests of both runs are reported, and the use of the cache by the first.
    ///
    /// # Errors
    /// As [`Index::search`]; [`IndexError::Parameter`] if `queries` has no such row.
    pub fn explain(
        &self,
        queries: &VectorFile,
        row: usize,
        options: &SearchOptions,
        control: Control<'_>,
    ) -> Result<Explanation, IndexError> {
        if row >= queries.count() {
            let what =
                format!("there is no query {row}: there are {} queries, numbered from 0", queries.count());
            return Err(IndexError::Parameter(what));
        }
        self.check_queries(queries, row..row + 1)?;
        let changes = self.changes();
        let (params, mut notes) = self.params(&SearchRequest::new(options)?, changes.as_ref())?;
        let params = SearchParams { timed: true, ..params };
        self.affordable_in_flight(1, 1, self.stored.family().planned_list(&params))?;
        let run = self.run_twice(queries.row(row), params, changes.as_ref(), control)?;
        notes.extend(self.trouble.note());
        Ok(self.explained(&params, run, notes))
    }

    /// Answers a query twice on the calling thread.
    fn run_twice(
        &self,
        query: &[u8],
        params: SearchParams,
        changes: Option<&Arc<Changes>>,
        control: Control<'_>,
    ) -> Result<ExplainedRun, IndexError> {
        let mut lone = self.lone_queries(params, changes)?;
        let (mut total_ns, mut processor_ns, mut found) = (0, 0, Vec::new());
        let mut snapshots = Vec::from_iter(self.traffic.as_ref().map(StoreTraffic::snapshot));
        for _ in 0..2 {
            let before = thread_ns();
            total_ns = lone.answer(query, &mut found, control)?;
            processor_ns = thread_ns().saturating_sub(before);
            snapshots.extend(self.traffic.as_ref().map(StoreTraffic::snapshot));
        }
        Ok(ExplainedRun { state: lone.state, found, total_ns, processor_ns, snapshots })
    }

    /// Returns an engine on the calling thread, with the state of one query.
    pub(super) fn lone_queries<'i>(
        &'i self,
        params: SearchParams,
        changes: Option<&'i Arc<Changes>>,
    ) -> Result<LoneQueries<'i>, IndexError> {
        let engine = Engine::new(self.loaded.tier().clone(), self.loaded.engine())?;
        Ok(LoneQueries { index: self, engine, state: self.searcher().clone().query_state(), params, changes })
    }

    /// Returns the explanation of a query that has been answered.
    fn explained(&self, params: &SearchParams, run: ExplainedRun, notes: Vec<String>) -> Explanation {
        let ExplainedRun { state, found, total_ns, processor_ns, snapshots } = run;
        let (cost, scanned) = (state.query().stats, state.scanned());
        let phases = PhaseTime::of(&state.query().clock);
        let predicted = self.predicted_means(params);
        let actual = QueryMeans {
            rounds: f64::from(cost.hops),
            reads: f64::from(cost.reads),
            bytes: cost.bytes as f64,
            code_distances: f64::from(cost.code_distances),
            full_distances: f64::from(cost.full_distances),
            total_ns: total_ns as f64,
            processor_ns: processor_ns as f64,
            ..phase_means(&phases, |ns| ns as f64)
        };
        Explanation {
            family: self.manifest().family.clone(),
            tier: self.tier().profile().kind.clone(),
            k: params.k,
            search_list: params.search_list,
            groups_scanned: scanned.map(|scanned| scanned.scanned),
            groups: scanned.map(|scanned| scanned.of),
            probes: scanned.map(|_| params.probes),
            prune: params.prune,
            hops: cost.hops,
            reads: cost.reads,
            bytes: cost.bytes,
            code_distances: cost.code_distances,
            full_distances: cost.full_distances,
            own: cost.named(self.stored.own_counters()),
            predicted: Predicted::of(&predicted),
            actual,
            factor: FAILING_FACTOR,
            failed: judge(&predicted, &actual, FAILING_FACTOR),
            total_ns,
            phases,
            store: snapshots.try_into().ok().map(|snapshots| StoreShare::between(&snapshots)),
            memory: self.memory_parts(self.stored.family().planned_list(params)),
            ids: found.iter().map(|n| n.id).collect(),
            distances: found.iter().map(|n| n.distance).collect(),
            notes,
        }
    }

    /// Returns the prediction for a query with these parameters.
    pub(super) fn predicted_means(&self, params: &SearchParams) -> QueryMeans {
        let machine = self.loaded.machine();
        QueryMeans::predicted(&self.searcher().estimate(params, &machine), &machine.device())
    }

    /// Returns the parts of [`Index::dram_bytes`] for one thread and one query.
    pub(super) fn memory_parts(&self, search_list: usize) -> Vec<MemoryPart> {
        let split = self.memory_split();
        let query = self.stored.family().query_bytes(search_list);
        let buffers = self.used_buffers(1, u64::MAX);
        let part = |part, bytes| MemoryPart { part, bytes };
        let parts = [
            part("codes", split.codes),
            part("codec", split.codec),
            part("centroids", split.centroids),
            part("offsets", split.offsets),
            part("pages", split.pages),
            part("ids", split.ids),
            part("inserted vectors", self.changed_bytes()),
            part("copies on NUMA nodes", split.copies),
            part("set aside for the processor", split.standby),
            part("page cache", split.cache),
            part("read buffers of a thread", buffers),
            part("state of a query", query),
        ];
        parts.into_iter().filter(|part| part.bytes > 0).collect()
    }
}
