//! The searcher: navigation and scan in memory, then one round of reads.

use super::centroids::{Centroids, Navigation};
use crate::error::IndexError;
use crate::format::groups::GroupLayout;
use crate::query::{Exact, QueryStats, SearchParams};
use bathyal_kernels::quantize::{CodeQuery, Codec};
use bathyal_kernels::{Element, Metric, Neighbor, TopK, normalize_f32, to_f32};
use bathyal_tier::{Cx, ReadError, Span};
use std::path::PathBuf;

/// Pages of one submission: more than recall 0.95 takes anywhere measured, few enough that the buffers of 16
/// interleaved queries stay small.
pub(crate) const PAGES_AT_ONCE: usize = 64;
/// Candidates are collected up to so many times the list before the worst are dropped.
const SLACK: usize = 4;

/// The part of an open index that a search reads.
pub(crate) struct Cluster {
    pub(crate) layout: GroupLayout,
    pub(crate) vectors: u32,
    pub(crate) dim: usize,
    pub(crate) element: Element,
    pub(crate) metric: Metric,
    pub(crate) codec: Codec,
    pub(crate) codes: Vec<u8>,
    pub(crate) centroids: Centroids,
    pub(crate) exact: Exact,
    /// Whether a page is checked when it arrives; in memory it was checked when it was loaded.
    pub(crate) check_pages: bool,
    pub(crate) file: PathBuf,
}

impl Cluster {
    /// Bytes of the codes of a group.
    fn group_codes(&self) -> usize {
        self.layout.group_blocks() * self.codec.block_bytes()
    }
}

/// Memory of one running query, reused from query to query.
pub(crate) struct Scratch {
    query: Vec<u8>,
    floats: Vec<f32>,
    code_query: CodeQuery,
    navigation: Navigation,
    hits: Vec<Neighbor>,
    pages: Vec<u32>,
    spans: Vec<Span>,
    scores: Vec<f32>,
    found: TopK,
    pub(crate) stats: QueryStats,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch {
            query: Vec::new(),
            floats: Vec::new(),
            code_query: CodeQuery::new(),
            navigation: Navigation::default(),
            hits: Vec::new(),
            pages: Vec::new(),
            spans: Vec::new(),
            scores: Vec::new(),
            found: TopK::new(0),
            stats: QueryStats::default(),
        }
    }

    /// Bytes that a query holds at its peak, about.
    pub(crate) fn planned_bytes(cluster: &Cluster, search_list: usize) -> u64 {
        let groups = cluster.centroids.groups() as u64;
        let hits = (SLACK * search_list + cluster.layout.group_vectors()) as u64;
        groups * 24 + hits * 12 + search_list as u64 * 24 + cluster.dim as u64 * 256 + 4096
    }

    /// Appends what was found to `out`, nearest first.
    pub(crate) fn take_found(&mut self, out: &mut Vec<Neighbor>) {
        self.found.drain_sorted(out);
    }

    /// The candidates of the last scan, best estimate first: their places.
    pub(crate) fn candidates(&self) -> &[Neighbor] {
        &self.hits
    }

    /// Navigates and scans: afterwards `hits` holds the best `search_list` candidates, the best first.
    pub(crate) fn scan(&mut self, cluster: &Cluster, query: &[u8], params: &SearchParams) {
        self.stats = QueryStats::default();
        self.floats.resize(cluster.dim, 0.0);
        to_f32(cluster.element, query, &mut self.floats);
        self.query.clear();
        self.query.extend_from_slice(query);
        if cluster.metric == Metric::Cosine {
            crate::vamana::space::normalize(cluster.element, &mut self.query);
            normalize_f32(&mut self.floats);
        }
        let wanted = params.search_list.max(params.k);
        let navigation = &mut self.navigation;
        cluster.centroids.nearest(&self.floats, params.probes, wanted, navigation);
        self.code_query.prepare_groups(&cluster.codec, &navigation.shifted);
        self.hits.clear();
        let (mut worst, bytes) = (f32::INFINITY, cluster.group_codes());
        let slots = cluster.layout.group_vectors() as u32;
        for group in &navigation.groups {
            let codes = &cluster.codes[group.id as usize * bytes..][..bytes];
            let (count, first) = (cluster.centroids.count(group.id), group.id * slots);
            let (query, hits) = (&self.code_query, &mut self.hits);
            query.scan_group(&cluster.codec, codes, count, group.distance, worst, first, hits);
            self.stats.code_distances += count as u32;
            if hits.len() >= SLACK * wanted {
                worst = keep_best(hits, wanted);
            }
        }
        if self.hits.len() > wanted {
            keep_best(&mut self.hits, wanted);
        }
        self.hits.sort_unstable();
    }

    /// Lists the pages of the candidates, each once, in the order of its best candidate.
    fn list_pages(&mut self, cluster: &Cluster) {
        self.pages.clear();
        for hit in &self.hits {
            let page = cluster.layout.page_of(hit.id);
            if !self.pages.contains(&page) {
                self.pages.push(page);
            }
        }
    }

    /// Scores all vectors of a page that has arrived.
    fn score_page(&mut self, cluster: &Cluster, page: u32, bytes: &[u8]) -> Result<(), IndexError> {
        let layout = &cluster.layout;
        if cluster.check_pages {
            layout
                .check(page, bytes)
                .map_err(|reason| IndexError::damaged(&cluster.file, format!("page {page}"), reason))?;
        }
        self.scores.resize(layout.page_vectors(), 0.0);
        cluster.exact.score_block(&self.query, layout.vectors(bytes), &mut self.scores);
        for (slot, distance) in self.scores.iter().enumerate() {
            let Some(id) = layout.id(bytes, slot) else { break };
            if id >= cluster.vectors {
                let reason = format!("it holds vector {id}, which is not among {}", cluster.vectors);
                return Err(IndexError::damaged(&cluster.file, format!("page {page}"), reason));
            }
            self.found.push(id, *distance);
            self.stats.full_distances += 1;
        }
        Ok(())
    }
}

/// Keeps the best `wanted` and returns the worst of them.
fn keep_best(hits: &mut Vec<Neighbor>, wanted: usize) -> f32 {
    let (_, worst, _) = hits.select_nth_unstable(wanted - 1);
    let worst = worst.distance;
    hits.truncate(wanted);
    worst
}

/// Answers one query; what was found stays in `scratch`.
pub(crate) async fn search(
    cx: Cx,
    cluster: &Cluster,
    query: &[u8],
    params: SearchParams,
    scratch: &mut Scratch,
) -> Result<(), IndexError> {
    scratch.found = TopK::new(params.k);
    scratch.scan(cluster, query, &params);
    scratch.list_pages(cluster);
    let failed = |source: ReadError| IndexError::Read { file: cluster.file.clone(), source };
    for first in (0..scratch.pages.len()).step_by(PAGES_AT_ONCE) {
        let last = scratch.pages.len().min(first + PAGES_AT_ONCE);
        scratch.spans.clear();
        scratch.spans.extend(scratch.pages[first..last].iter().map(|page| cluster.layout.span(*page, 1)));
        scratch.stats.hops += 1;
        scratch.stats.reads += (last - first) as u32;
        scratch.stats.bytes += ((last - first) * cluster.layout.page_bytes()) as u64;
        let pages = cx.read(&scratch.spans).await.map_err(failed)?;
        for i in first..last {
            scratch.score_page(cluster, scratch.pages[i], pages.bytes(i - first))?;
        }
    }
    Ok(())
}
