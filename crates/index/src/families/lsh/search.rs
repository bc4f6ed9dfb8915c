//! The searcher: it reads a run of blocks from each table in one round, scores the entries by their codes,
//! and reads and compares the best vectors.

use super::cost::LshShape;
use super::multi_probe::{MultiProbe, OwnKeys};
use super::runs::{BlockRun, Fences, RunScratch, TableKey};
use super::section::LshEntry;
use super::stated::LastPromises;
use super::tables::HASH_ROWS;
use crate::calibrate::solve::{Solved, Target};
use crate::cost::Machine;
use crate::cost::demand::Demand;
use crate::cost::work::Estimate;
use crate::error::IndexError;
use crate::family::capabilities::{FilteredSearch, InsertBuckets, RatioTargets};
use crate::family::pages::{PageReads, Pages};
use crate::family::rows::{PageRows, StoredRows};
use crate::family::{OpenCapabilities, Opened, QueryState, query_state};
use crate::family::{Scanned, Searcher};
use crate::format::tables::TableLayout;
use crate::partition::intake::Intake;
use crate::query::changes::{Changes, Placed};
use crate::query::set::VectorSet;
use crate::query::under_way::Query;
use crate::query::visited::VisitedSet;
use crate::query::within::{RowFilter, Scoring};
use crate::query::{Phase, SearchParams, spread};
use bathyal_kernels::Neighbor;
use bathyal_kernels::lsh::{Buckets, CompoundHashes, HashScratch};
use bathyal_kernels::quantize::{CodeQuery, Codec, EncodeScratch};
use bathyal_store::Object;
use bathyal_tier::{Cx, Span};
use std::sync::Arc;

/// Bytes of a run that one read fetches: a device takes little longer for them than for one block.
pub(super) const RUN_BYTES: usize = 16 << 10;
/// The worst candidates are dropped when there are this many times more than are wanted.
const SLACK: usize = 4;
/// Factor by which a query that found too few vectors widens its scan.
const WIDENING: usize = 4;

/// The parts of an LSH index that stay in memory.
pub(crate) struct Lsh {
    pub(super) set: VectorSet,
    pub(super) pages: Pages,
    pub(super) tables: TableLayout,
    /// True if blocks are checked when they arrive; blocks in memory were checked when they were loaded.
    pub(super) check: bool,
    pub(super) functions: CompoundHashes,
    pub(super) fences: Fences,
    pub(super) codec: Codec,
    pub(super) codes: Vec<u8>,
    pub(super) entry: LshEntry,
    pub(super) buckets: Buckets,
    pub(super) promises: LastPromises,
}

/// Memory of one running query, reused from query to query.
pub(crate) struct LshScratch {
    pub(super) query: Query,
    pub(super) point: Vec<f32>,
    hash: HashScratch,
    keys: Vec<u128>,
    /// The query's own keys, one per table.
    own_keys: Vec<TableKey>,
    run: RunScratch,
    additional_keys: MultiProbe,
    /// Number of additional buckets of each table.
    multi_probe: usize,
    pub(super) runs: Vec<BlockRun>,
    spans: Vec<Span>,
    /// The runs that the spans read, in pieces of at most [`RUN_BYTES`].
    parts: Vec<BlockRun>,
    pub(super) candidates: Candidates,
    reads: PageReads,
    /// The inserted vectors that have been compared.
    inserted: VisitedSet,
    compared: usize,
    /// Scores of queries that are restricted to a set of vectors.
    scoring: Scoring,
}

/// The candidates among the entries that a query has read so far.
pub(super) struct Candidates {
    code_query: CodeQuery,
    /// The code that a vector which is identical to the query has.
    own_code: Vec<u8>,
    encoding: EncodeScratch,
    ids: Vec<u32>,
    scores: Vec<f32>,
    /// The vectors with the best estimates, each once.
    pub(super) hits: Vec<Neighbor>,
    /// The vectors that have the query's code, each once. They are compared in addition to the hits, since
    /// one of them may be identical to the query, and another estimate may still be better.
    twins: Vec<Neighbor>,
    seen: VisitedSet,
    /// Estimates at or above the threshold are dropped.
    threshold: f32,
    wanted: usize,
}

impl Default for LshScratch {
    fn default() -> LshScratch {
        LshScratch {
            query: Query::new(),
            point: Vec::new(),
            hash: HashScratch::default(),
            keys: Vec::new(),
            own_keys: Vec::new(),
            run: RunScratch::default(),
            additional_keys: MultiProbe::default(),
            multi_probe: 0,
            runs: Vec::new(),
            spans: Vec::new(),
            parts: Vec::new(),
            candidates: Candidates {
                code_query: CodeQuery::new(),
                own_code: Vec::new(),
                encoding: EncodeScratch::default(),
                ids: Vec::new(),
                scores: Vec::new(),
                hits: Vec::new(),
                twins: Vec::new(),
                seen: VisitedSet::new(256),
                threshold: f32::INFINITY,
                wanted: 1,
            },
            reads: PageReads::default(),
            inserted: VisitedSet::new(64),
            compared: 0,
            scoring: Scoring::default(),
        }
    }
}

/// Returns the approximate peak memory in bytes of a query of an index of `tables` tables.
pub(super) fn planned_bytes(query: u64, tables: u32, search_list: usize) -> u64 {
    query + (search_list * (SLACK * 64 + 64) + tables as usize * 160 + RUN_BYTES + 16_384) as u64
}

impl Candidates {
    /// Prepares scores for a query.
    fn prepare(&mut self, codec: &Codec, query: &[f32]) {
        codec.prepare(query, &mut self.code_query);
        self.own_code.resize(codec.code_bytes(), 0);
        codec.encode(query, &mut self.own_code, &mut self.encoding);
    }

    /// Drops the candidates of the previous query; `wanted` candidates are to be compared.
    fn begin(&mut self, wanted: usize) {
        self.hits.clear();
        self.twins.clear();
        self.seen.clear();
        self.threshold = f32::INFINITY;
        self.wanted = wanted.max(1);
    }

    /// Adds the ids of a block.
    ///
    /// # Errors
    /// A sentence if an id is not the id of a vector.
    fn list(&mut self, block: &[[u8; 4]], vectors: u32) -> Result<(), String> {
        let before = self.ids.len();
        self.ids.extend(block.iter().map(|id| u32::from_le_bytes(*id)));
        match self.ids[before..].iter().find(|id| **id >= vectors) {
            Some(id) => Err(format!("it contains the id {id}, but there are only {vectors} vectors")),
            None => Ok(()),
        }
    }

    /// Scores the listed ids and keeps the best. Returns the number of listed ids.
    fn score(&mut self, codec: &Codec, codes: &[u8], changes: Option<&Changes>) -> u32 {
        let Candidates { code_query, own_code, ids, scores, hits, twins, seen, threshold, wanted, .. } = self;
        scores.resize(ids.len(), 0.0);
        code_query.score(codec, codes, ids, scores);
        let own_head = head(own_code);
        for (id, score) in ids.iter().zip(scores.iter()) {
            // An estimate that is not a number counts as farther than all others.
            let distance = if score.is_nan() { f32::INFINITY } else { *score };
            let code = &codes[*id as usize * own_code.len()..][..own_code.len()];
            let twin = head(code) == own_head && code == own_code.as_slice();
            // All entries of a vector share its one code: one that was too far stays too far.
            if (distance < *threshold || *threshold == f32::INFINITY || twin)
                && seen.insert(*id)
                && !changes.is_some_and(|changes| changes.is_place_deleted(*id))
            {
                let list = if twin { &mut *twins } else { &mut *hits };
                list.push(Neighbor { distance, id: *id });
            }
        }
        if hits.len() >= SLACK * *wanted {
            *threshold = keep_best(hits, *wanted).next_up();
        }
        let listed = ids.len() as u32;
        ids.clear();
        listed
    }

    /// Keeps the wanted candidates, sorted, the nearest first.
    fn keep_wanted(&mut self) {
        if self.hits.len() > self.wanted {
            keep_best(&mut self.hits, self.wanted);
        }
        self.hits.sort_unstable();
    }

    /// Moves the twins to the front of the hits.
    fn add_twins(&mut self) {
        self.hits.splice(0..0, self.twins.drain(..));
    }

    /// Returns the number of vectors that may be compared.
    fn count(&self) -> usize {
        self.hits.len() + self.twins.len()
    }
}

/// Returns the first bytes of a code, which tell almost all codes apart without a call; 0 for a shorter one.
fn head(code: &[u8]) -> u64 {
    code.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Keeps the `wanted` best hits and returns the distance of the worst of them. Of equal hits, the lowest ids
/// stay.
fn keep_best(hits: &mut Vec<Neighbor>, wanted: usize) -> f32 {
    let (_, worst, _) = hits.select_nth_unstable(wanted - 1);
    let distance = worst.distance;
    hits.truncate(wanted);
    distance
}

impl LshScratch {
    /// Begins a query and computes its keys.
    pub(super) fn begin(&mut self, lsh: &Lsh, query: &[u8], params: &SearchParams) {
        self.query.begin(&lsh.set, query, params);
        self.reads.begin();
        self.inserted.clear();
        self.compared = 0;
        self.point.clear();
        self.point.extend_from_slice(&self.query.floats);
        // Under the inner product, the extra value of a query is 0.
        self.point.resize(lsh.functions.dim(), 0.0);
        lsh.functions.subtract_centre(&mut self.point);
        self.multi_probe = params.multi_probe;
        lsh.functions.keys_of(&self.point, &mut self.hash, &mut self.keys);
        self.own_keys.clear();
        self.own_keys.extend((0..).zip(&self.keys).map(|(table, key)| TableKey { table, key: *key }));
        self.candidates.prepare(&lsh.codec, &self.query.floats);
    }

    /// Finds the runs around the query's own keys, which have `blocks` blocks together, and those around
    /// additional keys. Drops the candidates of earlier runs.
    pub(super) fn find_runs(&mut self, lsh: &Lsh, blocks: usize, wanted: usize) {
        lsh.fences.own_runs(&self.own_keys, blocks, &mut self.run, &mut self.runs);
        if self.multi_probe > 0 {
            let blocks = blocks / self.own_keys.len().max(1);
            let own = OwnKeys { keys: &self.own_keys, values: self.hash.values(), blocks };
            let limits = (self.multi_probe, lsh.tables.block_bytes());
            self.additional_keys.add(
                (&lsh.functions, &lsh.fences),
                own,
                limits,
                &mut self.run,
                &mut self.runs,
            );
        }
        self.candidates.begin(wanted);
        let most = (RUN_BYTES / lsh.tables.block_bytes()).max(1) as u32;
        self.parts.clear();
        for run in &self.runs {
            let parts = (0..run.count).step_by(most as usize);
            self.parts.extend(
                parts.map(|from| BlockRun { first: run.first + from, count: most.min(run.count - from) }),
            );
        }
        self.query.clock.spent(Phase::Navigate);
    }

    /// Compares the vectors that were inserted into the buckets of the runs.
    fn take_inserted(&mut self, lsh: &Lsh) {
        let Some(changes) = self.query.changes.clone() else { return };
        for run in &self.runs {
            changes.in_buckets((run.first, run.count), &mut self.inserted, |id, row| {
                self.query.offer(id, lsh.set.exact_inserted.between(&self.query.bytes, row.0));
                self.compared += 1;
            });
        }
        self.query.clock.spent(Phase::Rerank);
    }

    /// Scores the entries of a part of a run.
    fn score_part(&mut self, lsh: &Lsh, part: BlockRun, bytes: &[u8]) -> Result<(), IndexError> {
        for (block, bytes) in (part.first..).zip(bytes.chunks_exact(lsh.tables.block_bytes())) {
            let damaged = |reason| lsh.set.damaged(format!("block {block} of the tables"), reason);
            if lsh.check {
                lsh.tables.check(block, bytes).map_err(damaged)?;
            }
            self.candidates.list(lsh.tables.ids(bytes), lsh.set.vectors).map_err(damaged)?;
        }
        let entries = self.candidates.score(&lsh.codec, &lsh.codes, self.query.changes.as_deref());
        self.query.stats.code_distances += entries;
        self.query.stats.own[1] += entries;
        Ok(())
    }

    /// Returns the candidates of a query after `begin`, the nearest first. Reads its blocks from `object`
    /// into `bytes`, one run after the other.
    pub(super) fn find_candidates(
        &mut self,
        lsh: &Lsh,
        (probes, wanted): (usize, usize),
        object: &dyn Object,
        bytes: &mut Vec<u8>,
    ) -> Result<&[Neighbor], IndexError> {
        self.find_runs(lsh, probes.saturating_mul(lsh.functions.tables()), wanted);
        let parts = std::mem::take(&mut self.parts);
        for part in &parts {
            let span = lsh.tables.span(part.first, part.count);
            bytes.resize(span.len as usize, 0);
            object.read_at(span.offset, bytes)?;
            self.score_part(lsh, *part, bytes)?;
        }
        self.parts = parts;
        self.candidates.keep_wanted();
        self.candidates.add_twins();
        Ok(&self.candidates.hits)
    }

    /// Reads and scores the parts of all runs.
    async fn read_parts(&mut self, cx: &Cx, lsh: &Lsh) -> Result<(), IndexError> {
        let parts = std::mem::take(&mut self.parts);
        for batch in parts.chunks(lsh.pages.at_once) {
            self.spans.clear();
            self.spans.extend(batch.iter().map(|part| lsh.tables.span(part.first, part.count)));
            self.query.count_round(&self.spans, cx.alignment());
            self.query.stats.own[0] += batch.len() as u32;
            let arrived = cx.read(&self.spans).await.map_err(|source| lsh.set.failed(source))?;
            self.query.clock.spent(Phase::Read);
            for (i, part) in batch.iter().enumerate() {
                self.score_part(lsh, *part, arrived.bytes(i))?;
            }
            self.query.clock.spent(Phase::Scan);
        }
        self.parts = parts;
        Ok(())
    }
}

impl Lsh {
    /// Compares the vectors of a set whose codes are nearest. The tables are not used, since they lead to
    /// vectors outside of the set too.
    async fn search_among(
        &self,
        cx: &Cx,
        query: &[u8],
        params: &SearchParams,
        among: &RowFilter,
        scratch: &mut LshScratch,
    ) -> Result<(), IndexError> {
        let LshScratch { query: state, candidates, reads, scoring, .. } = scratch;
        state.begin(&self.set, query, params);
        reads.begin();
        self.codec.prepare(&state.floats, &mut candidates.code_query);
        state.clock.spent(Phase::Navigate);
        let most = among.most(params.wanted());
        let codes = (&self.codec, &self.codes[..]);
        state.stats.code_distances += scoring.rank(&candidates.code_query, codes, among.places(), most);
        state.clock.spent(Phase::Scan);
        let mut stages = among.stages(params.wanted(), params.k, scoring.hits.len());
        while let Some(range) = stages.next(&state.found) {
            self.pages.compare(cx, &self.set, &scoring.hits[range], state, reads).await?;
        }
        Ok(())
    }

    fn effort_to(&self, k: usize, target: Target, machine: &Machine<'_>) -> Option<Solved> {
        let (shape, device) = (self.shape(), machine.device());
        self.entry.effort(k, target, |probes, list| shape.estimate(probes, list, machine).price_ns(&device))
    }

    fn shape(&self) -> LshShape {
        let layout = &self.pages.layout;
        let (tables, dim) = (self.functions.tables() as f64, self.functions.dim());
        LshShape {
            tables,
            blocks: self.fences.blocks() as f64,
            block_ids: self.tables.block_ids() as f64,
            block_bytes: self.tables.block_bytes() as u32,
            read_blocks: (RUN_BYTES / self.tables.block_bytes()).max(1) as f64,
            code_bytes: self.codec.code_bytes() as u32,
            vector_bytes: layout.vector_bytes() as u32,
            page_bytes: layout.page_bytes() as u32,
            lone: self.pages.lone(),
            hash_products: tables * (self.functions.hashes() * dim) as f64,
        }
    }
}

crate::family::impl_scratch!(LshScratch);

impl Searcher for Lsh {
    type Scratch = LshScratch;

    async fn search(
        &self,
        cx: Cx,
        query: &[u8],
        params: SearchParams,
        scratch: &mut LshScratch,
    ) -> Result<(), IndexError> {
        if let Some(among) = scratch.query.within.clone() {
            return self.search_among(&cx, query, &params, &among, scratch).await;
        }
        scratch.begin(self, query, &params);
        let tables = self.functions.tables();
        let (all, enough) = (tables * self.fences.blocks(), params.k);
        let mut blocks = params.probes.max(1).saturating_mul(tables).min(all);
        loop {
            scratch.find_runs(self, blocks, params.wanted());
            scratch.take_inserted(self);
            scratch.read_parts(&cx, self).await?;
            if scratch.candidates.count() + scratch.compared >= enough || blocks == all {
                break;
            }
            // Widen the scan until there are k results: each table contains every vector.
            blocks = blocks.saturating_mul(WIDENING).min(all);
        }
        scratch.candidates.keep_wanted();
        scratch.query.clock.spent(Phase::Scan);
        let LshScratch { query, candidates, reads, .. } = scratch;
        if candidates.twins.len() <= candidates.wanted {
            candidates.add_twins();
        }
        self.pages.compare(&cx, &self.set, &candidates.hits, query, reads).await?;
        // Nearly all of so many twins are copies of one vector.
        for some in candidates.twins.chunks(candidates.wanted) {
            if query.found.len() >= params.k && query.found.threshold() <= 0.0 {
                break;
            }
            self.pages.compare(&cx, &self.set, some, query, reads).await?;
        }
        Ok(())
    }

    fn scanned(&self, _: &LshScratch) -> Option<Scanned> {
        None
    }
}

impl Opened for Lsh {
    fn effort(&self, k: usize, recall: f32, machine: &Machine<'_>) -> Option<Solved> {
        self.effort_to(k, Target::Recall(recall), machine)
    }

    fn estimate(&self, params: &SearchParams, machine: &Machine<'_>) -> Estimate {
        let shape = self.shape();
        // An additional bucket is read and scored like a table's own, but takes no hashing.
        let shape = LshShape { tables: shape.tables * (1.0 + params.multi_probe as f64), ..shape };
        shape.estimate(params.probes as f64, params.wanted() as f64, machine)
    }

    fn rows(&self) -> Box<dyn StoredRows + '_> {
        let (layout, set) = (&self.pages.layout, &self.set);
        let pages = self.entry.pages(layout, set.vectors.into()) as u32;
        Box::new(PageRows { layout, set, pages, ordered: true })
    }

    fn samples(&self, wanted: usize, out: &mut Vec<f32>) {
        let size = self.codec.code_bytes();
        let mut row = vec![0.0; self.set.dim];
        for code in spread(self.codes.len() / size, wanted) {
            self.codec.decode(&self.codes[code * size..][..size], &mut row);
            out.extend_from_slice(&row);
        }
    }

    fn capabilities(&self) -> OpenCapabilities<'_> {
        OpenCapabilities {
            reads_candidates_alone: self.pages.lone(),
            ratio: Some(self),
            promised: Some(self),
            filter: Some(self),
            inserts: Some(self),
            ..OpenCapabilities::default()
        }
    }

    fn query_state(self: Arc<Self>) -> Box<dyn QueryState> {
        query_state(self)
    }
}

impl RatioTargets for Lsh {
    fn effort_for_ratio(&self, k: usize, ratio: f32, machine: &Machine<'_>) -> Option<Solved> {
        self.effort_to(k, Target::Ratio(ratio), machine)
    }
}

impl FilteredSearch for Lsh {
    fn among(&self, params: &SearchParams, matches: u32, machine: &Machine<'_>) -> Option<Demand> {
        Some(self.shape().among(f64::from(matches), params.wanted() as f64, machine))
    }
}

impl InsertBuckets for Lsh {
    fn place(&self, rows: &[u8]) -> Vec<Placed> {
        let (dim, tables) = (self.functions.dim(), self.functions.tables());
        let VectorSet { form, metric, dim: components, .. } = self.set;
        let element = form.inserted();
        let row_bytes = element.row_bytes(components);
        let intake = Intake { form, element, metric, dim: components, longest: self.entry.longest };
        let (mut points, mut keys, mut scratch) = (Vec::new(), Vec::new(), HashScratch::default());
        let mut placed = Vec::with_capacity(rows.len() / row_bytes * tables);
        for (first, batch) in (0..).step_by(HASH_ROWS).zip(rows.chunks(HASH_ROWS * row_bytes)) {
            points.resize(batch.len() / row_bytes * dim, 0.0);
            for (row, point) in batch.chunks_exact(row_bytes).zip(points.chunks_exact_mut(dim)) {
                intake.point(row, point);
            }
            self.functions.subtract_centre(&mut points);
            for table in 0..tables {
                self.functions.keys(table, &points, &mut scratch, &mut keys);
                let table_key = |key: &u128| TableKey { table: table as u32, key: *key };
                placed.extend(
                    keys.iter().zip(first..).map(|(key, row)| (self.fences.home(&table_key(key)), row)),
                );
            }
        }
        placed
    }
}
