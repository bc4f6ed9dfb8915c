//! The searcher: one `async fn` for every tier and every mode.
//!
//! Beam search (DiskANN, section 4.2; GustANN, algorithm 1): codes in memory choose the way, each hop reads the
//! records of the nearest candidates not yet expanded, and the full vectors that come with them are scored
//! exactly, so that re-ranking costs no further reads.

use super::layout::GraphLayout;
use super::page_search::width_after;
use super::section::GraphEntry;
use crate::error::IndexError;
use crate::format::csr::CsrLayout;
use crate::format::offsets::Offsets;
use crate::format::pages::PageLayout;
use crate::query::visited::VisitedSet;
use crate::query::{Clock, Exact, Phase, QueryStats, SearchMode, SearchParams};
use bathyal_kernels::quantize::{CodeQuery, Codec};
use bathyal_kernels::{CandidateList, Element, Metric, Neighbor, TopK, normalize_f32, to_f32};
use bathyal_tier::{Cx, ReadError, Span};
use std::path::PathBuf;

/// The part of an open index that a search reads.
pub(crate) struct Graph {
    pub(crate) layout: GraphLayout,
    /// Where packed records lie; empty in other layouts.
    pub(crate) offsets: Offsets,
    pub(crate) vectors: u32,
    pub(crate) dim: usize,
    pub(crate) element: Element,
    pub(crate) metric: Metric,
    pub(crate) entry: GraphEntry,
    pub(crate) codec: Codec,
    pub(crate) codes: Vec<u8>,
    pub(crate) exact: Exact,
    pub(crate) file: PathBuf,
    /// Places where a search looks first.
    pub(crate) pivots: Vec<u32>,
    /// Places that searches must not find, rising: vectors that a calibration holds out.
    pub(crate) absent: Vec<u32>,
}

impl Graph {
    /// Whether searches may find the vector at `place`.
    #[inline]
    pub(super) fn is_present(&self, place: u32) -> bool {
        self.absent.is_empty() || self.absent.binary_search(&place).is_err()
    }
}

/// Memory of one running query, reused from query to query.
pub(crate) struct Scratch {
    pub(super) query: Vec<u8>,
    floats: Vec<f32>,
    pub(super) code_query: CodeQuery,
    pub(super) candidates: CandidateList,
    /// Vectors scored by their codes; in the page-local layout the pages of which all are.
    pub(super) visited: VisitedSet,
    pub(super) found: TopK,
    /// What is being read: vectors (by place in a packed graph), or pages in the page-local layout.
    pub(super) beam: Vec<u32>,
    pub(super) spans: Vec<Span>,
    pub(super) ids: Vec<u32>,
    pub(super) scores: Vec<f32>,
    /// Page-local layout: pages read or being read.
    pub(super) opened: VisitedSet,
    /// Page-local layout: vectors whose pages are worth a look. Packed layout: the links of a record.
    pub(super) near: Vec<u32>,
    pub(super) starts: Vec<Neighbor>,
    pub(super) bounds: Vec<f32>,
    /// Page-local layout: how much farther than a candidate a page's linked vector may be.
    pub(super) slack: f32,
    pub(crate) stats: QueryStats,
    pub(crate) clock: Clock,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch {
            query: Vec::new(),
            floats: Vec::new(),
            code_query: CodeQuery::new(),
            candidates: CandidateList::new(0),
            visited: VisitedSet::new(1024),
            found: TopK::new(0),
            beam: Vec::new(),
            spans: Vec::new(),
            ids: Vec::new(),
            scores: Vec::new(),
            opened: VisitedSet::new(64),
            near: Vec::new(),
            starts: Vec::new(),
            bounds: Vec::new(),
            slack: 0.0,
            stats: QueryStats::default(),
            clock: Clock::default(),
        }
    }

    /// Bytes that a query holds at its peak, about: the visited set dominates.
    pub(crate) fn planned_bytes(vectors: u32, max_degree: usize, dim: usize, search_list: usize) -> u64 {
        let seen = (search_list * max_degree).min(vectors as usize) as u64;
        seen * 16 + search_list as u64 * 32 + dim as u64 * 1100 + 4096
    }

    /// Appends what was found to `out`, nearest first.
    pub(crate) fn take_found(&mut self, out: &mut Vec<Neighbor>) {
        self.found.drain_sorted(out);
    }

    fn begin(&mut self, graph: &Graph, query: &[u8], params: &SearchParams) {
        self.stats = QueryStats::default();
        self.clock = Clock::begin(params.timed);
        self.floats.resize(graph.dim, 0.0);
        to_f32(graph.element, query, &mut self.floats);
        self.query.clear();
        self.query.extend_from_slice(query);
        if graph.metric == Metric::Cosine {
            crate::query::normalize(graph.element, &mut self.query);
            normalize_f32(&mut self.floats);
        }
        graph.codec.prepare(&self.floats, &mut self.code_query);
        self.candidates.reset(params.search_list);
        self.visited.clear();
        self.found = TopK::new(params.k);
        match &graph.layout {
            GraphLayout::Padded(_) | GraphLayout::Csr(_) => {
                self.find_starts(graph);
                let visited = &mut self.visited;
                self.ids.retain(|id| visited.insert(*id));
                self.offer(graph);
            }
            GraphLayout::Local(layout) => self.enter(graph, layout),
        }
    }

    /// Scores `self.ids` by their codes.
    #[inline]
    pub(super) fn score(&mut self, graph: &Graph) {
        self.clock.spent(Phase::Navigate);
        self.scores.resize(self.ids.len(), 0.0);
        self.code_query.score(&graph.codec, &graph.codes, &self.ids, &mut self.scores);
        self.stats.code_distances += self.ids.len() as u32;
        self.clock.spent(Phase::Scan);
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
        self.clock.spent(Phase::Scan);
    }

    /// Uses what has arrived for one place of the beam.
    #[inline]
    fn expand(&mut self, graph: &Graph, i: usize, pages: &[u8]) -> Result<(), IndexError> {
        match &graph.layout {
            GraphLayout::Padded(layout) => self.expand_record(graph, layout, self.beam[i], pages),
            GraphLayout::Local(layout) => self.expand_page(graph, layout, self.beam[i], pages),
            GraphLayout::Csr(layout) => self.expand_packed(graph, layout, self.beam[i], pages),
        }
    }

    /// Uses one record that has arrived: its vector for the answer, its neighbours as candidates.
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
            IndexError::damaged(&graph.file, place, reason)
        };
        let record = layout.decode(pages, id).map_err(damaged)?;
        self.found.push(id, graph.exact.between(&self.query, record.vector));
        self.stats.full_distances += 1;
        self.clock.spent(Phase::Rerank);
        self.ids.clear();
        for neighbor in record.neighbors() {
            if neighbor >= graph.vectors {
                return Err(damaged(format!("neighbour {neighbor} is not among {} vectors", graph.vectors)));
            }
            if self.visited.insert(neighbor) {
                self.ids.push(neighbor);
            }
        }
        self.offer(graph);
        Ok(())
    }

    /// The same with a packed record, whose links are places.
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
            IndexError::damaged(&graph.file, place, reason)
        };
        let record = layout.decode(bytes, place).map_err(damaged)?;
        if record.id >= graph.vectors {
            return Err(damaged(format!("id {} is not among {} vectors", record.id, graph.vectors)));
        }
        self.found.push(record.id, graph.exact.between(&self.query, record.vector));
        self.stats.full_distances += 1;
        self.clock.spent(Phase::Rerank);
        layout.links(&record, &mut self.near).map_err(damaged)?;
        self.ids.clear();
        let visited = &mut self.visited;
        self.ids.extend(self.near.iter().copied().filter(|place| visited.insert(*place)));
        self.offer(graph);
        Ok(())
    }

    /// Moves the nearest unexpanded candidates into the beam until it is `width` wide.
    fn fill_beam(&mut self, graph: &Graph, width: usize) {
        match &graph.layout {
            GraphLayout::Padded(layout) => {
                while self.beam.len() < width
                    && let Some(next) = self.candidates.next_unexpanded()
                {
                    self.beam.push(next.id);
                    self.spans.push(layout.span(next.id));
                }
            }
            GraphLayout::Csr(_) => {
                while self.beam.len() < width
                    && let Some(next) = self.candidates.next_unexpanded()
                {
                    self.beam.push(next.id);
                    self.spans.push(graph.offsets.span(next.id));
                }
            }
            GraphLayout::Local(layout) => self.fill_beam_with_pages(layout, width),
        }
    }

    /// Reads of the next hop.
    fn width(&self, graph: &Graph, beam_width: usize) -> usize {
        match &graph.layout {
            GraphLayout::Padded(_) | GraphLayout::Csr(_) => beam_width,
            GraphLayout::Local(_) => width_after(self.stats.reads, beam_width),
        }
    }
}

/// Answers one query; what was found stays in `scratch`.
pub(crate) async fn search(
    cx: Cx,
    graph: &Graph,
    query: &[u8],
    params: SearchParams,
    scratch: &mut Scratch,
) -> Result<(), IndexError> {
    scratch.begin(graph, query, &params);
    let alignment = cx.alignment();
    let failed = |source: ReadError| IndexError::Read { file: graph.file.clone(), source };
    match params.mode {
        SearchMode::Batched => loop {
            scratch.beam.clear();
            scratch.spans.clear();
            scratch.fill_beam(graph, scratch.width(graph, params.beam_width));
            if scratch.beam.is_empty() {
                return Ok(());
            }
            scratch.stats.hops += 1;
            scratch.stats.reads += scratch.beam.len() as u32;
            scratch.stats.bytes += scratch.spans.iter().map(|span| span.aligned_len(alignment)).sum::<u64>();
            scratch.clock.spent(Phase::Navigate);
            let pages = cx.read(&scratch.spans).await.map_err(failed)?;
            scratch.clock.spent(Phase::Read);
            for i in 0..scratch.beam.len() {
                scratch.expand(graph, i, pages.bytes(i))?;
            }
        },
        SearchMode::Pipelined => {
            let mut stream = cx.stream();
            scratch.beam.clear();
            scratch.spans.clear();
            loop {
                let pushed = scratch.beam.len();
                let room = scratch.width(graph, params.beam_width).saturating_sub(stream.pending());
                scratch.fill_beam(graph, pushed + room);
                for span in &scratch.spans[pushed..] {
                    stream.push(*span);
                    scratch.stats.reads += 1;
                    scratch.stats.bytes += span.aligned_len(alignment);
                }
                scratch.stats.hops += u32::from(scratch.beam.len() > pushed);
                scratch.clock.spent(Phase::Navigate);
                let Some(arrived) = stream.next().await else { return Ok(()) };
                scratch.clock.spent(Phase::Read);
                let arrived = arrived.map_err(failed)?;
                scratch.expand(graph, arrived.place as usize, arrived.bytes())?;
            }
        }
    }
}
