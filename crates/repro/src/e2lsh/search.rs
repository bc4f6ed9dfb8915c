//! Searches the paper's hash tables (sections 2.3 and 5.4) radius by radius, with the reads of all tables of
//! a radius in one submission.

use bathyal_console::Failure;
use bathyal_kernels::distance::{Distance, to_f32};
use bathyal_kernels::{Neighbor, TopK};
use bathyal_tier::{Cx, Span};
use bathyal_vectors::VectorFile;
use serde::Serialize;

use super::build::BuiltTables;
use super::filter::Filter;

/// Parameters of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchParameters {
    pub k: usize,
    /// Most vectors compared at one radius (S).
    pub candidates: usize,
    /// Number of the first radius in the ladder.
    pub first: usize,
    /// True if the next radius is read together with one that is unlikely to be the last.
    pub read_ahead: bool,
}

/// Counters of searches, summed over queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct TableCounters {
    pub queries: u64,
    /// Radii searched.
    pub radii: u64,
    /// Submissions, each of which waits for the previous one.
    pub rounds: u64,
    /// Buckets looked up.
    pub buckets: u64,
    /// Buckets that were not read because a filter or the table of addresses showed that they are empty.
    pub empty: u64,
    pub table_reads: u64,
    pub block_reads: u64,
    /// Blocks read for a radius that was not reached.
    pub wasted: u64,
    /// Entries read.
    pub entries: u64,
    /// Entries with another fingerprint: they share the slot, not the bucket.
    pub rejected: u64,
    /// Vectors compared.
    pub compared: u64,
}

impl TableCounters {
    /// Adds the counters of `other`.
    pub(super) fn add(&mut self, other: &TableCounters) {
        let pairs = [
            (&mut self.queries, other.queries),
            (&mut self.radii, other.radii),
            (&mut self.rounds, other.rounds),
            (&mut self.buckets, other.buckets),
            (&mut self.empty, other.empty),
            (&mut self.table_reads, other.table_reads),
            (&mut self.block_reads, other.block_reads),
            (&mut self.wasted, other.wasted),
            (&mut self.entries, other.entries),
            (&mut self.rejected, other.rejected),
            (&mut self.compared, other.compared),
        ];
        pairs.into_iter().for_each(|(sum, more)| *sum += more);
    }

    /// Returns the mean of a counter per query.
    pub(super) fn mean(&self, counter: impl Fn(&TableCounters) -> u64) -> f64 {
        counter(self) as f64 / self.queries.max(1) as f64
    }

    /// Returns the reads per query (N_I/O).
    pub(super) fn reads(&self) -> f64 {
        self.mean(|counters| counters.table_reads + counters.block_reads)
    }
}

/// Tables and their vectors, which are in memory.
pub(super) struct Searcher<'a> {
    pub built: &'a BuiltTables,
    pub filter: Option<&'a Filter>,
    pub base: &'a VectorFile,
    pub distance: Distance,
}

/// A bucket that is being read: the number of its next block, and the fingerprint of the query's entries.
#[derive(Clone, Copy, Debug)]
struct Chain {
    block: u64,
    fingerprint: u32,
}

/// Ids compared for the current query.
#[derive(Debug, Default)]
struct VisitedIds {
    words: Vec<u64>,
    ids: Vec<u32>,
}

impl VisitedIds {
    /// Forgets all ids and makes room for `vectors` ids.
    fn reset(&mut self, vectors: usize) {
        self.words.resize(vectors.div_ceil(64), 0);
        self.ids.drain(..).for_each(|id| self.words[id as usize / 64] = 0);
    }

    /// Adds an id; true if it is new.
    fn insert(&mut self, id: u32) -> bool {
        let (word, bit) = (&mut self.words[id as usize / 64], 1 << (id % 64));
        let new = *word & bit == 0;
        *word |= bit;
        if new {
            self.ids.push(id);
        }
        new
    }
}

/// Memory of one running query.
pub(super) struct TableScratch {
    point: Vec<f32>,
    /// Projections for all tables, one after the other.
    projections: Vec<f32>,
    seen: VisitedIds,
    found: TopK,
    slots: Vec<(u64, u32, u32)>,
    spans: Vec<Span>,
    chains: Vec<Chain>,
    reading: Vec<Chain>,
    /// Chains of the next radius, whose first blocks are read together with those of the current one.
    next: Vec<Chain>,
    counters: TableCounters,
}

impl Default for TableScratch {
    fn default() -> TableScratch {
        TableScratch {
            point: Vec::new(),
            projections: Vec::new(),
            seen: VisitedIds::default(),
            found: TopK::new(0),
            slots: Vec::new(),
            spans: Vec::new(),
            chains: Vec::new(),
            reading: Vec::new(),
            next: Vec::new(),
            counters: TableCounters::default(),
        }
    }
}

impl Searcher<'_> {
    /// Finds the nearest vectors of `query`, and returns the counters of the search.
    ///
    /// # Errors
    /// A read that failed; a damaged block.
    pub(super) async fn search(
        &self,
        cx: Cx,
        query: &[u8],
        parameters: SearchParameters,
        scratch: &mut TableScratch,
    ) -> Result<(Vec<Neighbor>, TableCounters), Failure> {
        let ladder = self.built.hashes.ladder();
        self.begin(query, parameters, scratch);
        let mut radius = parameters.first;
        // First blocks of this radius that were read together with those of the previous one.
        let mut early: Option<Vec<(Chain, Vec<u8>)>> = None;
        while radius < ladder.radii {
            scratch.counters.radii += 1;
            let reach = ladder.first * ladder.ratio.powi(radius as i32 + 1);
            scratch.chains.clear();
            if early.is_none() {
                self.look_up(&cx, radius, scratch).await?;
            }
            let far = f64::from(scratch.found.threshold()).sqrt() > reach;
            let ahead =
                parameters.read_ahead && far && radius + 1 < ladder.radii && self.built.plan.layout.direct;
            if ahead {
                let current = std::mem::take(&mut scratch.chains);
                self.look_up(&cx, radius + 1, scratch).await?;
                scratch.next = std::mem::replace(&mut scratch.chains, current);
            }
            // If the next radius has no chains, there is nothing to read for it.
            let next_is_empty = ahead && scratch.next.is_empty();
            let read =
                self.search_radius(&cx, query, parameters, early.take().unwrap_or_default(), scratch).await?;
            early = if next_is_empty { Some(Vec::new()) } else { read };
            let worst = f64::from(scratch.found.threshold()).sqrt();
            if scratch.found.len() >= parameters.k.min(self.base.count()) && worst <= reach {
                break;
            }
            radius += 1;
        }
        scratch.counters.wasted += early.map_or(0, |early| early.len() as u64);
        let mut found = Vec::with_capacity(parameters.k);
        scratch.found.drain_sorted(&mut found);
        Ok((found, scratch.counters))
    }

    /// Resets the scratch memory and projects the query for all radii.
    fn begin(&self, query: &[u8], parameters: SearchParameters, scratch: &mut TableScratch) {
        let hashes = &self.built.hashes;
        scratch.counters = TableCounters { queries: 1, ..TableCounters::default() };
        scratch.found.reset(parameters.k);
        scratch.seen.reset(self.base.count());
        scratch.next.clear();
        scratch.point.resize(self.base.dim(), 0.0);
        to_f32(self.base.element(), query, &mut scratch.point);
        hashes.project_point(&scratch.point, &mut scratch.projections);
    }

    /// Finds the chains of a radius, with a read of each table or, in a direct layout, without reads.
    async fn look_up(&self, cx: &Cx, radius: usize, scratch: &mut TableScratch) -> Result<(), Failure> {
        let (layout, hashes) = (&self.built.plan.layout, &self.built.hashes);
        let TableScratch { projections, slots, spans, chains, counters, .. } = scratch;
        slots.clear();
        spans.clear();
        chains.clear();
        for (table, projections) in projections.chunks_exact(hashes.ladder().hashes.max(1)).enumerate() {
            let (value, place) = (hashes.value(radius, table, projections), layout.place(radius, table));
            counters.buckets += 1;
            if self.filter.is_some_and(|filter| !filter.holds(place, value)) {
                counters.empty += 1;
                continue;
            }
            let (slot, fingerprint) = (layout.slot(value), layout.fingerprint(value));
            if layout.direct {
                chains.push(Chain { block: layout.first_block(place, slot), fingerprint });
            } else {
                slots.push((place, slot, fingerprint));
                spans.push(layout.slot_span(place, slot));
            }
        }
        if spans.is_empty() {
            return Ok(());
        }
        counters.rounds += 1;
        counters.table_reads += spans.len() as u64;
        let arrived = cx.read(spans).await.map_err(|e| Failure::new(e.to_string()))?;
        for (i, (place, slot, fingerprint)) in slots.iter().enumerate() {
            match layout.decode_slot(*place, *slot, arrived.bytes(i)).map_err(Failure::damaged)? {
                Some(block) => chains.push(Chain { block, fingerprint: *fingerprint }),
                None => counters.empty += 1,
            }
        }
        Ok(())
    }

    /// Reads the chains of a radius until all have ended or enough vectors were compared. The first
    /// submission includes the first blocks of the next radius, if `scratch.next` has any. Returns those
    /// blocks with their chains; `None` if they were not read.
    async fn search_radius(
        &self,
        cx: &Cx,
        query: &[u8],
        parameters: SearchParameters,
        before: Vec<(Chain, Vec<u8>)>,
        scratch: &mut TableScratch,
    ) -> Result<Option<Vec<(Chain, Vec<u8>)>>, Failure> {
        let layout = &self.built.plan.layout;
        let (mut left, mut early) = (parameters.candidates, None);
        for (chain, bytes) in &before {
            self.scan_block(query, *chain, bytes, &mut left, scratch)?;
        }
        let (mut spans, mut present) =
            (std::mem::take(&mut scratch.spans), std::mem::take(&mut scratch.reading));
        while left > 0 && !(scratch.chains.is_empty() && scratch.next.is_empty()) {
            spans.clear();
            present.clear();
            present.append(&mut scratch.chains);
            let blocks = present.iter().chain(&scratch.next).map(|chain| layout.block_span(chain.block));
            spans.extend(blocks);
            scratch.counters.rounds += 1;
            scratch.counters.block_reads += spans.len() as u64;
            let arrived = cx.read(&spans).await.map_err(|e| Failure::new(e.to_string()))?;
            for (i, chain) in present.iter().enumerate() {
                self.scan_block(query, *chain, arrived.bytes(i), &mut left, scratch)?;
            }
            let bytes = (present.len()..).map(|i| arrived.bytes(i).to_vec());
            if !scratch.next.is_empty() {
                early = Some(scratch.next.drain(..).zip(bytes).collect());
            }
        }
        (scratch.spans, scratch.reading) = (spans, present);
        scratch.next.clear();
        Ok(early)
    }

    /// Compares the entries of a block that are in the query's bucket, and adds the next block of the chain.
    fn scan_block(
        &self,
        query: &[u8],
        chain: Chain,
        bytes: &[u8],
        left: &mut usize,
        scratch: &mut TableScratch,
    ) -> Result<(), Failure> {
        let TableScratch { seen, found, chains, counters, .. } = scratch;
        if *left == 0 {
            return Ok(());
        }
        let layout = &self.built.plan.layout;
        let block = layout.decode_block(chain.block, bytes).map_err(Failure::damaged)?;
        for (id, fingerprint) in block.entries() {
            if *left == 0 {
                break;
            }
            counters.entries += 1;
            if fingerprint != chain.fingerprint {
                counters.rejected += 1;
                continue;
            }
            if id as usize >= self.base.count() {
                return Err(Failure::damaged(format!("block {} names vector {id}", chain.block)));
            }
            if seen.insert(id) {
                found.push(id, self.distance.between(query, self.base.row(id as usize)));
                counters.compared += 1;
                *left -= 1;
            }
        }
        chains.extend(block.next.map(|block| Chain { block, ..chain }));
        Ok(())
    }
}
