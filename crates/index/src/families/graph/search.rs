//! The search of a graph: one `async fn` for every tier and every mode.
//!
//! Beam search (DiskANN, section 4.2; GustANN, algorithm 1): codes in memory order the candidates, and each
//! hop reads the records of the nearest candidates that are not expanded yet. The records contain the full
//! vectors, which are compared exactly, so that re-ranking needs no further reads.

use super::cost::GraphShape;
use super::layout::{CSR, GraphLayout, PADDED};
use super::on_card::{CardQuery, GraphCard, MAX_BEAM_WIDTH};
use super::page_search::width_after;
use super::section::GraphEntry;
use crate::calibrate::solve::Solved;
use crate::cost::Machine;
use crate::cost::demand::Demand;
use crate::cost::layout::LayoutEstimate;
use crate::cost::work::Estimate;
use crate::error::IndexError;
use crate::family::capabilities::{CardSearch, FilteredSearch, OtherLayouts};
use crate::family::rows::StoredRows;
use crate::family::{CardUse, Scanned, Searcher};
use crate::family::{OpenCapabilities, Opened, QueryState, query_state};
use crate::format::csr::CsrLayout;
use crate::format::offsets::Offsets;
use crate::format::pages::PageLayout;
use crate::query::set::VectorSet;
use crate::query::under_way::Query;
use crate::query::visited::VisitedSet;
use crate::query::within::Scoring;
use crate::query::{Phase, SearchMode, SearchParams, spread};
use bathyal_kernels::quantize::{CodeQuery, Codec};
use bathyal_kernels::{CandidateList, Neighbor};
use bathyal_tier::{Cx, Span};
use std::sync::Arc;

/// Most bytes of a packed record besides the vector and its links: checksum, id and degree.
const PACKED_HEAD_BYTES: u64 = 10;

/// An open graph, as searches use it.
pub(crate) struct Graph {
    pub(crate) layout: GraphLayout,
    /// The offsets of packed records; empty in other layouts.
    pub(crate) offsets: Offsets,
    pub(crate) set: VectorSet,
    pub(crate) entry: GraphEntry,
    pub(crate) codec: Codec,
    pub(crate) codes: Vec<u8>,
    /// Places of the pivots, in rising order.
    pub(crate) pivots: Vec<u32>,
    /// Places that searches must not find, in rising order: the held-out vectors of a calibration.
    pub(crate) absent: Vec<u32>,
    /// The part of the graph on a graphics card. Then the card has the codes, and `codes` is empty.
    pub(crate) card: Option<GraphCard>,
    /// Copies of some codes that are on a card. Page-local layout: those of all pivots, then that of the
    /// entry point. Other layouts: an even sample of all codes.
    pub(crate) kept_codes: Vec<u8>,
}

impl Graph {
    fn shape(&self) -> GraphShape {
        let vectors = self.set.vectors.max(1);
        let (vectors_per_read, read_bytes) = match &self.layout {
            GraphLayout::Padded(layout) => (1.0, layout.read_bytes() as f64),
            GraphLayout::Local(layout) => (layout.records() as f64, layout.page_bytes() as f64),
            GraphLayout::Csr(_) => (1.0, self.entry.file.bytes as f64 / f64::from(vectors)),
        };
        GraphShape {
            vectors_per_read,
            read_bytes,
            max_degree: f64::from(self.entry.max_degree),
            vector_bytes: self.set.row_bytes() as f64,
            code_bytes: self.codec.code_bytes() as f64,
            dim: self.set.dim,
        }
    }

    /// Returns the layout to which the index can be converted, and the bytes of a read in it, at most; `None`
    /// if it can only be built again.
    fn other_layout(&self) -> Option<(&'static str, f64)> {
        let vectors = self.set.vectors;
        match &self.layout {
            GraphLayout::Local(_) => None,
            GraphLayout::Padded(_) => {
                let id_bits = u32::BITS - vectors.saturating_sub(1).leading_zeros();
                let links = u64::from(self.entry.max_degree) * u64::from(id_bits);
                Some((CSR, (self.set.row_bytes() as u64 + PACKED_HEAD_BYTES + links.div_ceil(8)) as f64))
            }
            GraphLayout::Csr(_) => {
                let dim = u32::try_from(self.set.dim).ok()?;
                let layout = PageLayout::choose(self.set.element, dim, self.entry.max_degree).ok()?;
                Some((PADDED, layout.read_bytes() as f64))
            }
        }
    }

    /// Returns the span of a node ([`GraphLayout::node_of`]).
    #[inline]
    pub(super) fn node_span(&self, node: u32) -> Span {
        match &self.layout {
            GraphLayout::Padded(layout) => layout.span(node),
            GraphLayout::Local(layout) => layout.span(node),
            GraphLayout::Csr(_) => self.offsets.span(node),
        }
    }

    /// Returns true if searches may find the vector at `place`.
    #[inline]
    pub(super) fn is_present(&self, place: u32) -> bool {
        self.absent.is_empty() || self.absent.binary_search(&place).is_err()
    }
}

/// Buffers of one running query, which later queries reuse.
pub(crate) struct GraphScratch {
    pub(super) query: Query,
    pub(super) code_query: CodeQuery,
    pub(super) candidates: CandidateList,
    /// Vectors whose codes have been scored; in the page-local layout, pages whose codes have all been
    /// scored.
    pub(super) visited: VisitedSet,
    /// The nodes that are being read.
    pub(super) beam: Vec<u32>,
    pub(super) spans: Vec<Span>,
    pub(super) ids: Vec<u32>,
    pub(super) scores: Vec<f32>,
    /// Page-local layout: pages that are read or being read.
    pub(super) opened: VisitedSet,
    /// Page-local layout: vectors whose pages are to be scored. Packed layout: the links of a record.
    pub(super) near: Vec<u32>,
    pub(super) starts: Vec<Neighbor>,
    pub(super) bounds: Vec<f32>,
    /// Page-local layout: the slack. The page of a linked vector is scored if the vector is no farther than
    /// the last candidate plus this distance.
    pub(super) slack: f32,
    /// The query on a graphics card, which then keeps the candidates; `visited` and `candidates` are unused.
    pub(super) on_card: Option<CardQuery>,
    /// Scores of a search within a set of rows.
    pub(super) scoring: Scoring,
}

impl Default for GraphScratch {
    fn default() -> GraphScratch {
        GraphScratch {
            query: Query::new(),
            code_query: CodeQuery::new(),
            candidates: CandidateList::new(0),
            visited: VisitedSet::new(1024),
            beam: Vec::new(),
            spans: Vec::new(),
            ids: Vec::new(),
            scores: Vec::new(),
            opened: VisitedSet::new(64),
            near: Vec::new(),
            starts: Vec::new(),
            bounds: Vec::new(),
            slack: 0.0,
            on_card: None,
            scoring: Scoring::default(),
        }
    }
}

impl GraphScratch {
    /// Estimates the bytes of a query at its peak. The visited set dominates.
    pub(crate) fn planned_bytes(vectors: u32, max_degree: usize, query: u64, search_list: usize) -> u64 {
        let seen = (search_list * max_degree).min(vectors as usize) as u64;
        seen * 16 + search_list as u64 * 32 + query + 4096
    }

    fn begin(&mut self, graph: &Graph, query: &[u8], params: &SearchParams) {
        self.query.begin(&graph.set, query, params);
        graph.codec.prepare(&self.query.floats, &mut self.code_query);
        self.candidates.reset(params.search_list);
        self.visited.clear();
        self.on_card = None;
        if graph.card.is_some() {
            // The pivots are on the card.
            self.ids.clear();
            self.ids.push(graph.entry.entry_point);
            return;
        }
        match graph.layout.page_local() {
            Some(layout) => self.enter(graph, layout, params.beam_width),
            None => {
                self.find_starts(graph, params.beam_width);
                let visited = &mut self.visited;
                self.ids.retain(|id| visited.insert(*id));
                self.offer(graph);
            }
        }
    }

    /// Scores `self.ids` by their codes.
    #[inline]
    pub(super) fn score(&mut self, graph: &Graph) {
        self.query.clock.spent(Phase::Navigate);
        self.scores.resize(self.ids.len(), 0.0);
        self.code_query.score(&graph.codec, &graph.codes, &self.ids, &mut self.scores);
        self.query.stats.code_distances += self.ids.len() as u32;
        self.query.clock.spent(Phase::Scan);
    }

    /// Scores `self.ids` by their codes and offers them as candidates.
    #[inline]
    pub(super) fn offer(&mut self, graph: &Graph) {
        self.score(graph);
        for (id, distance) in self.ids.iter().zip(&self.scores) {
            if *distance <= self.candidates.threshold() {
                self.candidates.insert(Neighbor { distance: *distance, id: *id });
            }
        }
        self.query.clock.spent(Phase::Scan);
    }

    /// Processes the bytes that have arrived for entry `i` of the beam.
    #[inline]
    fn expand(&mut self, graph: &Graph, i: usize, pages: &[u8]) -> Result<(), IndexError> {
        match &graph.layout {
            GraphLayout::Padded(layout) => self.expand_record(graph, layout, self.beam[i], pages),
            GraphLayout::Local(layout) => self.expand_page(graph, layout, self.beam[i], pages),
            GraphLayout::Csr(layout) => self.expand_packed(graph, layout, self.beam[i], pages),
        }
    }

    /// Processes one padded record: offers its vector as an answer, and its neighbours as candidates.
    #[inline]
    fn expand_record(
        &mut self,
        graph: &Graph,
        layout: &PageLayout,
        id: u32,
        pages: &[u8],
    ) -> Result<(), IndexError> {
        let damaged = |reason: String| {
            let place = format!("vector {id}, page at byte {}", layout.span(id).offset);
            graph.set.damaged(place, reason)
        };
        let record = layout.decode(pages, id).map_err(damaged)?;
        self.query.offer(id, graph.set.exact.between(&self.query.bytes, record.vector));
        self.query.clock.spent(Phase::Rerank);
        let on_card = self.on_card.is_some();
        if !on_card {
            self.ids.clear();
        }
        for neighbor in record.neighbors() {
            if neighbor >= graph.set.vectors {
                return Err(damaged(format!(
                    "neighbour {neighbor} is not among {} vectors",
                    graph.set.vectors
                )));
            }
            if on_card || self.visited.insert(neighbor) {
                self.ids.push(neighbor);
            }
        }
        if !on_card {
            self.offer(graph);
        }
        Ok(())
    }

    /// Processes one packed record, whose links are places.
    #[inline]
    fn expand_packed(
        &mut self,
        graph: &Graph,
        layout: &CsrLayout,
        place: u32,
        bytes: &[u8],
    ) -> Result<(), IndexError> {
        let damaged = |reason: String| {
            let place = format!("record {place} at byte {}", graph.offsets.span(place).offset);
            graph.set.damaged(place, reason)
        };
        let record = layout.decode(bytes, place).map_err(damaged)?;
        if record.id >= graph.set.vectors {
            return Err(damaged(format!("id {} is not among {} vectors", record.id, graph.set.vectors)));
        }
        self.query.offer(record.id, graph.set.exact.between(&self.query.bytes, record.vector));
        self.query.clock.spent(Phase::Rerank);
        layout.links(&record, &mut self.near).map_err(damaged)?;
        if self.on_card.is_some() {
            self.ids.extend_from_slice(&self.near);
            return Ok(());
        }
        self.ids.clear();
        let visited = &mut self.visited;
        self.ids.extend(self.near.iter().copied().filter(|place| visited.insert(*place)));
        self.offer(graph);
        Ok(())
    }

    /// Sends the links of the last beam to the graphics card, which scores the linked vectors and chooses the
    /// next beam.
    async fn fill_beam_on_card(
        &mut self,
        graph: &Graph,
        cx: &Cx,
        beam_width: usize,
    ) -> Result<(), IndexError> {
        let width = self.width(graph, beam_width);
        match self.on_card.as_mut() {
            Some(CardQuery::Records(query)) => {
                self.query.stats.code_distances += self.ids.len() as u32;
                query.hop(cx, &self.ids, &mut self.beam).await?;
                self.ids.clear();
            }
            Some(CardQuery::Pages(_)) => self.fill_beam_with_pages_on_card(graph, cx, width).await?,
            None => return Ok(()),
        }
        self.spans.extend(self.beam.iter().map(|node| graph.node_span(*node)));
        self.query.clock.spent(Phase::Scan);
        Ok(())
    }

    /// Moves the nodes of the nearest unexpanded candidates into the beam, until it has `width` entries.
    fn fill_beam(&mut self, graph: &Graph, width: usize) {
        while self.beam.len() < width
            && let Some(next) = self.candidates.next_unexpanded()
        {
            let node = graph.layout.node_of(next.id);
            // Several candidates may be on one page, which is read once.
            if graph.layout.page_local().is_none() || self.opened.insert(node) {
                self.beam.push(node);
                self.spans.push(graph.node_span(node));
            }
        }
    }

    /// Returns the number of reads in the next hop.
    fn width(&self, graph: &Graph, beam_width: usize) -> usize {
        match graph.layout.page_local() {
            Some(_) => width_after(self.query.stats.reads, beam_width),
            None => beam_width,
        }
    }
}

crate::family::impl_scratch!(GraphScratch);

impl Searcher for Graph {
    type Scratch = GraphScratch;

    async fn search(
        &self,
        cx: Cx,
        query: &[u8],
        params: SearchParams,
        scratch: &mut GraphScratch,
    ) -> Result<(), IndexError> {
        if let Some(among) = scratch.query.within.clone() {
            return scratch.search_among(&cx, self, query, &params, &among).await;
        }
        scratch.begin(self, query, &params);
        if let Some(GraphCard::Whole(walks)) = &self.card {
            return scratch.walk_on_card(self, walks, &cx, &params).await;
        }
        if let Some(card) = &self.card {
            let on_card = CardQuery::begin(card, &cx, self, &scratch.code_query, &params).await;
            scratch.query.stats.code_distances += on_card.as_ref().map_or(0, CardQuery::pivots);
            scratch.on_card = on_card;
        }
        let alignment = cx.alignment();
        let failed = |source| self.set.failed(source);
        match params.mode {
            SearchMode::Batched => loop {
                scratch.beam.clear();
                scratch.spans.clear();
                if scratch.on_card.is_some() {
                    scratch.fill_beam_on_card(self, &cx, params.beam_width).await?;
                } else {
                    scratch.fill_beam(self, scratch.width(self, params.beam_width));
                }
                if scratch.beam.is_empty() {
                    scratch.on_card = None;
                    return Ok(());
                }
                scratch.query.count_round(&scratch.spans, alignment);
                scratch.query.clock.spent(Phase::Navigate);
                let pages = cx.read(&scratch.spans).await.map_err(failed)?;
                scratch.query.clock.spent(Phase::Read);
                for i in 0..scratch.beam.len() {
                    scratch.expand(self, i, pages.bytes(i))?;
                }
            },
            SearchMode::Pipelined => {
                let mut stream = cx.stream();
                scratch.beam.clear();
                scratch.spans.clear();
                loop {
                    let pushed = scratch.beam.len();
                    let room = scratch.width(self, params.beam_width).saturating_sub(stream.pending());
                    scratch.fill_beam(self, pushed + room);
                    for span in &scratch.spans[pushed..] {
                        stream.push(*span);
                        scratch.query.stats.reads += 1;
                        scratch.query.stats.bytes += span.aligned_len(alignment);
                    }
                    scratch.query.stats.hops += u32::from(scratch.beam.len() > pushed);
                    scratch.query.clock.spent(Phase::Navigate);
                    let Some(arrived) = stream.next().await else { return Ok(()) };
                    scratch.query.clock.spent(Phase::Read);
                    let arrived = arrived.map_err(failed)?;
                    scratch.expand(self, arrived.place as usize, arrived.bytes())?;
                }
            }
        }
    }

    fn scanned(&self, _: &GraphScratch) -> Option<Scanned> {
        None
    }
}

impl Opened for Graph {
    /// The length of the candidate list is the only effort. The shortest list is the cheapest on every
    /// machine.
    fn effort(&self, k: usize, recall: f32, _machine: &Machine<'_>) -> Option<Solved> {
        self.entry.effort(k, recall)
    }

    fn estimate(&self, params: &SearchParams, machine: &Machine<'_>) -> Estimate {
        let candidates = params.wanted().min(self.set.vectors.max(1) as usize);
        self.shape().of_query(candidates as f64, params.beam_width as f64, machine)
    }

    fn rows(&self) -> Box<dyn StoredRows + '_> {
        Box::new(self)
    }

    fn samples(&self, wanted: usize, out: &mut Vec<f32>) {
        let size = self.codec.code_bytes();
        let mut row = vec![0.0; self.set.dim];
        let codes = if self.card.is_some() { &self.kept_codes } else { &self.codes };
        for code in spread(codes.len() / size, wanted) {
            self.codec.decode(&codes[code * size..][..size], &mut row);
            out.extend_from_slice(&row);
        }
    }

    fn capabilities(&self) -> OpenCapabilities<'_> {
        OpenCapabilities {
            filter: Some(self),
            card: Some(self),
            layouts: Some(self),
            ..OpenCapabilities::default()
        }
    }

    fn query_state(self: Arc<Self>) -> Box<dyn QueryState> {
        query_state(self)
    }
}

impl OtherLayouts for Graph {
    fn layouts(&self, params: &SearchParams, machine: &Machine<'_>) -> Option<[LayoutEstimate; 2]> {
        let (other, read_bytes) = self.other_layout().filter(|_| self.card.is_none())?;
        let own = match &self.layout {
            GraphLayout::Csr(_) => CSR,
            _ => PADDED,
        };
        let candidates = params.wanted().min(self.set.vectors.max(1) as usize) as f64;
        let estimate = |shape: GraphShape| shape.of_query(candidates, params.beam_width as f64, machine);
        let shape = self.shape();
        Some([
            LayoutEstimate { layout: own, estimate: estimate(shape) },
            LayoutEstimate { layout: other, estimate: estimate(GraphShape { read_bytes, ..shape }) },
        ])
    }
}

impl FilteredSearch for Graph {
    fn among(&self, params: &SearchParams, matches: u32, machine: &Machine<'_>) -> Option<Demand> {
        let candidates = params.wanted().min(matches as usize);
        let share = f64::from(matches) / f64::from(self.set.vectors.max(1));
        // With a card, the codes are not in memory.
        let among = || self.shape().among(f64::from(matches), share, candidates as f64, machine).demand;
        self.card.is_none().then(among)
    }
}

impl CardSearch for Graph {
    fn card(&self) -> Option<CardUse> {
        self.card.as_ref().map(|card| CardUse {
            list: card.list(),
            width: Some(MAX_BEAM_WIDTH),
            slots: card.slots(),
            resident_bytes: card.resident_bytes(),
            counters: card.counters(),
        })
    }
}
