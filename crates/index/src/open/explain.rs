//! Where the time and the memory of one query go.

use super::{Index, SearchOptions};
use crate::error::IndexError;
use crate::query::{Clock, OwnTotals, Phase, SearchParams};
use bathyal_kernels::Neighbor;
use bathyal_store::{CacheUse, Requests};
use bathyal_tier::{Control, Cx, Engine};
use bathyal_vectors::VectorFile;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// A share of a query's time.
#[derive(Debug, Clone, Serialize)]
pub struct PhaseTime {
    /// What was done: navigate (find groups or prepare the query), scan (score codes), read (wait for the tier),
    /// rerank (score full vectors).
    pub phase: &'static str,
    /// Nanoseconds: of `read` on the wall's clock, of the others of the processor.
    pub ns: u64,
}

impl PhaseTime {
    /// All phases as `clock` has them; none of a clock that stood still.
    pub(super) fn of(clock: &Clock) -> Vec<PhaseTime> {
        let phases = Phase::ALL.map(|phase| PhaseTime { phase: phase.name(), ns: clock.ns(phase) });
        if phases.iter().any(|phase| phase.ns > 0) { phases.to_vec() } else { Vec::new() }
    }
}

/// A share of an open index's memory.
#[derive(Debug, Clone, Serialize)]
pub struct MemoryPart {
    /// What it holds.
    pub part: &'static str,
    /// Bytes.
    pub bytes: u64,
}

/// What the cost model of the index's family says of a query, before it is run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Predicted {
    /// Dependent rounds of reads.
    pub hops: f64,
    /// Reads.
    pub reads: f64,
    /// Bytes that the device moves, whole granules.
    pub moved_bytes: f64,
    /// Nanoseconds of the processor, without what it takes to issue reads.
    pub compute_ns: f64,
    /// Nanoseconds from start to answer, alone on the device.
    pub total_ns: f64,
}

/// What the store was asked until either answer to one query was there. Exact; what was loaded on the side meanwhile is in it, and
/// what others searched in the same index.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StoreShare {
    /// Until the first answer.
    pub first: Requests,
    /// From then on until the second, the one whose times are told.
    pub again: Requests,
    /// Where blocks of the first answer came from, by kind of object; none without a cache in front of the store.
    pub cache: BTreeMap<String, CacheUse>,
    /// The same by dependent round of reads ([`Index::cache_rounds`]).
    pub cache_rounds: Vec<CacheUse>,
}

/// What a store was asked up to a moment.
struct Asked {
    requests: Requests,
    kinds: BTreeMap<String, CacheUse>,
    rounds: Vec<CacheUse>,
}

impl StoreShare {
    /// What was asked between the first two of these moments and between the last two.
    fn between([before, first, again]: &[Asked; 3]) -> StoreShare {
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

/// How one query was answered.
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
    /// Groups or posting lists that were scanned; `None` of a graph.
    pub groups_scanned: Option<usize>,
    /// Groups or posting lists of the index; `None` of a graph.
    pub groups: Option<usize>,
    /// Groups or posting lists of the effort; `None` of a graph. A query scans fewer or, of groups, more if `prune` is above 0.
    pub probes: Option<usize>,
    /// By how much farther than the nearest others were left out (0.1: over 1.1 times as far); 0 left none out.
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
    /// What only the family counts, by name; in JSON beside the others.
    #[serde(flatten)]
    pub own: OwnTotals,
    /// The same as the cost model has it, by the effort and by what is known of the tier and of the processor.
    pub predicted: Predicted,
    /// Nanoseconds from start to answer, alone on its thread.
    pub total_ns: u64,
    /// Where the time went.
    pub phases: Vec<PhaseTime>,
    /// What the store was asked; absent in JSON of an index that is here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreShare>,
    /// Where the memory of the open index goes while this query runs.
    pub memory: Vec<MemoryPart>,
    /// The answer's ids, nearest first.
    pub ids: Vec<u32>,
    /// Their distances.
    pub distances: Vec<f32>,
    /// What the user should know about the answer.
    pub notes: Vec<String>,
}

impl Index {
    /// Answers query number `row` of `queries` alone, on the calling thread, and says what it took.
    ///
    /// It is answered twice and the second time is told, so that buffers are there and the processor's caches warm.
    /// Counters are those of a search with the same options; times are of this one run. Of an index in a store that is elsewhere
    /// it is told what either answer asked there, and what a cache had for the first.
    ///
    /// # Errors
    /// As [`Index::search`]; [`IndexError::Parameter`] if there is no such query.
    pub fn explain(
        &self,
        queries: &VectorFile,
        row: usize,
        options: &SearchOptions,
        control: Control<'_>,
    ) -> Result<Explanation, IndexError> {
        if row >= queries.count() {
            let what = format!("query {row} is none of the {} queries", queries.count());
            return Err(IndexError::Parameter(what));
        }
        self.check_queries(queries, row..row + 1)?;
        let changes = self.changes();
        let (mut params, mut notes) = self.params(options, changes.as_ref())?;
        params.timed = true;
        self.affordable_in_flight(1, 1, self.stored.planned_list(&params))?;
        let mut engine = Engine::new(self.tier.clone(), self.engine)?;
        let mut state = self.searcher().clone().query_state();
        let mut total_ns = 0;
        let mut found: Vec<Neighbor> = Vec::new();
        let mut moments = Vec::from_iter(self.asked());
        for _ in 0..2 {
            found.clear();
            let started = Instant::now();
            let (query, running, changes) = (queries.row(row), &mut state, changes.clone());
            let search = |cx: &Cx| {
                let cx = cx.clone();
                async move {
                    running.query_mut().changes.clone_from(&changes);
                    let answered = running.search(cx.clone(), query, params).await;
                    let (Err(IndexError::Gpu(lost)), Some(standby)) = (&answered, &self.trouble.standby)
                    else {
                        return answered;
                    };
                    *running = standby.opened(&cx, lost).await?.query_state();
                    running.query_mut().changes = changes;
                    running.search(cx, query, params).await
                }
            };
            engine.run_one(search, control)??;
            total_ns = started.elapsed().as_nanos() as u64;
            state.query_mut().found.drain_sorted(&mut found);
            moments.extend(self.asked());
        }
        notes.extend(self.trouble.note());
        let cost = state.query().stats;
        let scanned = state.scanned();
        let phases = PhaseTime::of(&state.query().clock);
        Ok(Explanation {
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
            own: cost.named(self.own_counters),
            predicted: self.predicted(&params),
            total_ns,
            phases,
            store: moments.try_into().ok().map(|moments| StoreShare::between(&moments)),
            memory: self.memory_parts(self.stored.planned_list(&params)),
            ids: found.iter().map(|n| n.id).collect(),
            distances: found.iter().map(|n| n.distance).collect(),
            notes,
        })
    }

    /// What the store was asked up to now; `None` of one that is here.
    fn asked(&self) -> Option<Asked> {
        Some(Asked { requests: self.requests()?, kinds: self.cache_use(), rounds: self.cache_rounds() })
    }

    /// What a query of this effort will take.
    fn predicted(&self, params: &SearchParams) -> Predicted {
        let machine = self.machine();
        let demand = self.searcher().demand(params, &machine);
        Predicted {
            hops: demand.rounds,
            reads: demand.reads,
            moved_bytes: demand.moved_bytes,
            compute_ns: demand.compute_ns,
            total_ns: demand.alone_ns(&machine.device()),
        }
    }

    /// The parts of [`Index::dram_bytes`] for one thread and one query.
    fn memory_parts(&self, search_list: usize) -> Vec<MemoryPart> {
        let split = self.memory_split();
        let query = self.stored.query_bytes(search_list);
        let buffers = self.used_buffers(1);
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
