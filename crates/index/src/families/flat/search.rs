//! The searcher: it compares all vectors in one pass, or the vectors with the nearest codes until the codes
//! rule out the rest.

use super::cost::FlatShape;
use super::effort;
use super::section::{FlatCodes, FlatEntry};
use crate::calibrate::solve::Solved;
use crate::cost::Machine;
use crate::cost::demand::Demand;
use crate::cost::work::Estimate;
use crate::error::IndexError;
use crate::family::capabilities::{FilteredSearch, PassRun, SharedPasses};
use crate::family::pages::{PageReads, Pages};
use crate::family::rows::{PageRows, StoredRows};
use crate::family::{OpenCapabilities, Opened, QueryState, Scanned, Searcher, query_state};
use crate::format::stored::StoredEntry;
use crate::query::codes::{CodedQuery, VectorCodes, query_bytes};
use crate::query::pass::PassPart;
use crate::query::set::VectorSet;
use crate::query::under_way::Query;
use crate::query::within::{CandidateStages, keep_of};
use crate::query::{Phase, SearchParams};
use bathyal_kernels::{Metric, Neighbor};
use bathyal_tier::{Cx, Span};
use std::sync::Arc;

/// Bytes that a scan requests ahead of the comparison: several reads hide a device's latency.
const AHEAD_BYTES: usize = 1 << 20;
/// The same on a tier whose bytes are prefetched into a cache, which the queries in flight share.
const AHEAD_CACHED_BYTES: usize = 128 << 10;
/// Codes that are scanned between two removals of the worst candidates.
const CODES_AT_ONCE: usize = 4096;
/// The worst candidates are dropped when there are this many times more than the list is long.
const SLACK: usize = 4;
/// A vector whose code is this many standard errors too far away is ruled out. This is wrong for one vector
/// in a million.
const STOP_ERRORS: f32 = 5.0;

/// The parts of a flat index that stay in memory.
pub(crate) struct Flat {
    pub(crate) pages: Pages,
    pub(crate) set: VectorSet,
    pub(crate) codes: Option<Coded>,
    /// Number of pages in one read of a scan.
    pub(crate) unit_pages: u32,
    /// Number of reads that a scan keeps in flight.
    pub(crate) reads_ahead: usize,
    pub(crate) entry: FlatEntry,
    /// The stored form of the vectors, if it differs from the form of the data.
    pub(crate) stored: Option<StoredEntry>,
}

/// The codes of all vectors.
pub(crate) struct Coded {
    pub(crate) codes: VectorCodes,
    pub(crate) bytes: Vec<u8>,
    pub(crate) entry: FlatCodes,
}

/// Memory of one running query, reused from query to query.
pub(crate) struct FlatScratch {
    query: Query,
    coded: CodedQuery,
    reads: PageReads,
    hits: Vec<Neighbor>,
    scores: Vec<f32>,
}

impl Default for FlatScratch {
    fn default() -> FlatScratch {
        FlatScratch {
            query: Query::new(),
            coded: CodedQuery::new(),
            reads: PageReads::default(),
            hits: Vec::new(),
            scores: Vec::new(),
        }
    }
}

/// Returns the number of reads of `bytes` bytes that a scan keeps in flight; `cached` is true for a tier
/// whose bytes are brought into a cache, and false for one that reads into buffers.
pub(super) fn reads_ahead(bytes: usize, cached: bool) -> usize {
    (if cached { AHEAD_CACHED_BYTES } else { AHEAD_BYTES } / bytes).clamp(2, 64)
}

/// Returns the approximate peak memory of a query in bytes.
pub(super) fn planned_bytes(dim: usize, search_list: usize) -> u64 {
    let found = SLACK * search_list * 12 + CODES_AT_ONCE * 12 + search_list * 24;
    found as u64 + query_bytes(dim, None) + 8192
}

impl Flat {
    /// Returns true if a search compares all vectors.
    fn scans(&self, params: &SearchParams) -> bool {
        effort::scans(&self.entry, self.set.vectors as usize, params)
    }

    fn shape(&self) -> FlatShape {
        FlatShape {
            all_bytes: self.entry.file.bytes as f64,
            reads: f64::from(self.entry.reads) * self.pages.layout.group_pages() as f64
                / f64::from(self.unit_pages),
            vectors: f64::from(self.set.vectors),
            codes: self.codes.as_ref().map_or(0.0, |coded| coded.bytes.len() as f64),
            vector_bytes: self.pages.layout.vector_bytes() as u32,
            page_bytes: self.entry.page_bytes,
            lone: self.pages.lone(),
        }
    }

    /// Returns the standard error of a code for a query, in the units of the codes' estimates.
    fn standard_error(&self, coded: &Coded, query: &[f32]) -> f32 {
        let spread = coded.codes.codec.group_error() * coded.entry.radius;
        let length =
            |values: &mut dyn Iterator<Item = f32>| values.map(|value| value * value).sum::<f32>().sqrt();
        match coded.codes.codec.metric() {
            Metric::InnerProduct => spread * length(&mut query.iter().copied()),
            _ => 2.0 * spread * length(&mut query.iter().zip(&coded.codes.shift).map(|(q, s)| q - s)),
        }
    }

    /// Converts an exact distance to the units of the codes' estimates: between stored vectors, and squared
    /// if the vectors are normalised.
    fn estimated(&self, distance: f32) -> f32 {
        let stored = distance / self.set.form.distance_scale();
        if self.set.metric == Metric::Cosine { 2.0 * stored } else { stored }
    }
}

impl FlatScratch {
    /// Writes the places of the `wanted` vectors with the nearest codes to `hits`, the nearest first. There
    /// are fewer if the estimates of the others are not numbers.
    pub(super) fn rank(&mut self, coded: &Coded, wanted: usize) {
        let FlatScratch { query, coded: prepared, hits, .. } = self;
        coded.codes.begin(&query.floats, prepared);
        hits.clear();
        let (size, mut threshold) = (coded.codes.code_bytes(), f32::INFINITY);
        let places = query.within.as_ref().map(|among| among.places());
        for (number, codes) in coded.bytes.chunks(CODES_AT_ONCE * size).enumerate() {
            let (before, first) = (hits.len(), (number * CODES_AT_ONCE) as u32);
            if places.is_some_and(|places| !places.has_any(first..first.saturating_add(CODES_AT_ONCE as u32)))
            {
                continue;
            }
            coded.codes.scan(prepared, codes, threshold, hits);
            hits[before..].iter_mut().for_each(|hit| hit.id += first);
            if let Some(places) = places {
                keep_of(places, before, hits);
            }
            query.stats.code_distances += (codes.len() / size) as u32;
            if hits.len() >= SLACK * wanted {
                hits.select_nth_unstable(wanted - 1);
                hits.truncate(wanted);
                threshold = hits[wanted - 1].distance;
            }
        }
        hits.sort_unstable();
        hits.truncate(wanted);
        query.clock.spent(Phase::Scan);
    }

    /// Begins a query.
    pub(super) fn begin(&mut self, set: &VectorSet, query: &[u8], params: &SearchParams) {
        self.query.begin(set, query, params);
        self.reads.begin();
    }

    /// Returns the places of the candidates, the nearest first.
    pub(super) fn candidates(&self) -> &[Neighbor] {
        &self.hits
    }
}

/// Compares the candidates, the nearest first, until the codes rule out the rest.
async fn compare_candidates(
    cx: &Cx,
    flat: &Flat,
    coded: &Coded,
    params: &SearchParams,
    scratch: &mut FlatScratch,
) -> Result<(), IndexError> {
    let FlatScratch { query, hits, reads, .. } = scratch;
    let error = STOP_ERRORS * flat.standard_error(coded, &query.floats);
    let mut stages = match &query.within {
        None => CandidateStages::one(hits.len()),
        Some(among) => among.stages(params.wanted(), params.k, hits.len()),
    };
    while let Some(range) = stages.next(&query.found) {
        for batch in hits[range].chunks(flat.pages.at_once) {
            let full = query.found.len() >= params.k;
            if full && batch[0].distance - error > flat.estimated(query.found.threshold()) {
                return Ok(());
            }
            flat.pages.compare(cx, &flat.set, batch, query, reads).await?;
        }
    }
    Ok(())
}

/// Compares the vectors of all units that no other thread takes with the queries of a pass.
async fn run_pass(cx: &Cx, flat: &Flat, part: &mut PassPart<'_>) -> Result<(), IndexError> {
    let layout = &flat.pages.layout;
    let pages = flat.entry.reads * layout.group_pages() as u32;
    let (alignment, unit, shared) = (cx.alignment(), flat.unit_pages, part.shared);
    // Each read in flight: its number in the stream, and its first page.
    let (mut stream, mut in_flight) = (cx.stream(), Vec::with_capacity(flat.reads_ahead));
    loop {
        while stream.pending() < flat.reads_ahead
            && let Some(taken) = shared.take_unit(pages.div_ceil(unit))
        {
            let first = taken * unit;
            let span: Span = layout.span(first, unit.min(pages - first));
            in_flight.push((stream.push(span), first));
            part.found.cost.reads += 1;
            part.found.cost.bytes += span.aligned_len(alignment);
        }
        part.found.clock.spent(Phase::Navigate);
        let Some(arrived) = stream.next().await else { return part.compare(cx, &flat.set).await };
        part.found.clock.spent(Phase::Read);
        let arrived = arrived.map_err(|source| flat.set.failed(source))?;
        let at = in_flight.iter().position(|(place, _)| *place == arrived.place);
        let Some((_, first)) = at.map(|at| in_flight.swap_remove(at)) else { continue };
        for (page, bytes) in (first..).zip(arrived.bytes().chunks_exact(layout.page_bytes())) {
            if part.is_full(layout.page_vectors()) {
                part.compare(cx, &flat.set).await?;
            }
            flat.pages.add(&flat.set, page, bytes, part)?;
        }
        part.found.clock.spent(Phase::Rerank);
    }
}

/// Compares all vectors, in the order in which the tier delivers them. The result does not depend on the
/// order.
async fn scan(cx: &Cx, flat: &Flat, scratch: &mut FlatScratch) -> Result<(), IndexError> {
    let FlatScratch { query, scores, .. } = scratch;
    let layout = &flat.pages.layout;
    let pages = flat.entry.reads * layout.group_pages() as u32;
    let (alignment, unit) = (cx.alignment(), flat.unit_pages);
    let (mut stream, mut next) = (cx.stream(), 0_u32);
    query.stats.hops += 1;
    loop {
        while next < pages && stream.pending() < flat.reads_ahead {
            let span: Span = layout.span(next, unit.min(pages - next));
            stream.push(span);
            query.stats.reads += 1;
            query.stats.bytes += span.aligned_len(alignment);
            next += unit;
        }
        query.clock.spent(Phase::Navigate);
        let Some(arrived) = stream.next().await else { return Ok(()) };
        query.clock.spent(Phase::Read);
        let arrived = arrived.map_err(|source| flat.set.failed(source))?;
        let first = arrived.place * unit;
        for (page, bytes) in (first..).zip(arrived.bytes().chunks_exact(layout.page_bytes())) {
            flat.pages.score(&flat.set, page, bytes, query, scores)?;
        }
        query.clock.spent(Phase::Rerank);
    }
}

crate::family::impl_scratch!(FlatScratch);

impl Searcher for Flat {
    type Scratch = FlatScratch;

    async fn search(
        &self,
        cx: Cx,
        query: &[u8],
        params: SearchParams,
        scratch: &mut FlatScratch,
    ) -> Result<(), IndexError> {
        scratch.begin(&self.set, query, &params);
        let wanted = params.wanted();
        let wanted = scratch.query.within.as_ref().map_or(wanted, |among| among.most(wanted));
        if let Some(coded) = self.codes.as_ref().filter(|_| !self.scans(&params)) {
            scratch.rank(coded, wanted);
            if scratch.hits.len() == wanted {
                return compare_candidates(&cx, self, coded, &params, scratch).await;
            }
        }
        scan(&cx, self, scratch).await
    }

    fn scanned(&self, _: &FlatScratch) -> Option<Scanned> {
        None
    }
}

impl Opened for Flat {
    fn effort(&self, k: usize, recall: f32, machine: &Machine<'_>) -> Option<Solved> {
        let (shape, device) = (self.shape(), machine.device());
        let scan = shape.scan(machine).price_ns(&device);
        let worth = |list: usize| shape.candidates(list as f64, machine).price_ns(&device) < scan;
        let solved = effort::effort(&self.entry.calibration, self.set.vectors, k, recall, worth);
        // No effort restores a loss of the stored form.
        let reached = self.stored.and_then(|stored| stored.falls_short(recall)).is_none();
        Some(Solved { reached, ..solved })
    }

    fn estimate(&self, params: &SearchParams, machine: &Machine<'_>) -> Estimate {
        match self.scans(params) {
            true => self.shape().scan(machine),
            false => self.shape().candidates(params.wanted() as f64, machine),
        }
    }

    /// Returns all rows: a scan reads every page for any query.
    fn rows(&self) -> Box<dyn StoredRows + '_> {
        let (layout, set) = (&self.pages.layout, &self.set);
        let pages = set.vectors.div_ceil(layout.page_vectors() as u32);
        Box::new(PageRows { layout, set, pages, ordered: true })
    }

    fn samples(&self, wanted: usize, out: &mut Vec<f32>) {
        out.resize(self.set.dim * wanted.min(1), 1.0);
    }

    fn capabilities(&self) -> OpenCapabilities<'_> {
        OpenCapabilities {
            reads_candidates_alone: self.pages.lone(),
            filter: Some(self),
            passes: Some(self),
            ..OpenCapabilities::default()
        }
    }

    fn query_state(self: Arc<Self>) -> Box<dyn QueryState> {
        query_state(self)
    }
}

impl SharedPasses for Flat {
    fn set(&self) -> &VectorSet {
        &self.set
    }

    fn compares_all(&self, params: &SearchParams) -> bool {
        self.scans(params)
    }

    fn run<'a>(&'a self, cx: Cx, part: &'a mut PassPart<'_>) -> PassRun<'a> {
        Box::pin(async move { run_pass(&cx, self, part).await })
    }
}

impl FilteredSearch for Flat {
    fn among(&self, params: &SearchParams, matches: u32, machine: &Machine<'_>) -> Option<Demand> {
        if self.scans(params) {
            return Some(self.shape().scan(machine).demand);
        }
        // Codes are scanned in chunks, and a chunk without a vector of the set is skipped.
        let chunks = f64::from(self.set.vectors).max(1.0) / CODES_AT_ONCE as f64;
        let share = (f64::from(matches) / chunks).min(1.0);
        let shape = self.shape();
        let shape = FlatShape { codes: shape.codes * share, vectors: f64::from(matches), ..shape };
        Some(shape.candidates(params.wanted() as f64, machine).demand)
    }
}
