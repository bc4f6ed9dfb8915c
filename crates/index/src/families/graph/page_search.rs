//! The search of page-local graphs, whose pages hold many vectors and share their links.
//!
//! A page is read once. All its vectors are compared exactly. Each of its links names one vector of another
//! page. The code of that vector is scored; if it is near enough, the codes of all vectors of its page are
//! scored too, which are beside each other in memory. Reads are expensive, and codes are cheap.

use super::layout::GraphLayout;
use super::on_card::CardQuery;
use super::search::{Graph, GraphScratch};
use crate::error::IndexError;
use crate::format::local::{LocalLayout, LocalPage};
use crate::query::{FAR_BEAM_WIDTH, Phase};
use bathyal_kernels::Neighbor;

/// Number of pivots, divided by the square root of the number of vectors. Scoring them takes some
/// microseconds, and saves most of the hops from the entry point (`docs/reads.md`).
const PIVOTS_PER_ROOT: f64 = 4.0;
/// A graph of single records scores one in `RECORD_PIVOT_STEP` pivots. Its searches score so few codes that
/// more pivots would take a noticeable share of the time.
const RECORD_PIVOT_STEP: usize = 4;
/// Number of nearest pivots where a search begins, at least.
const MIN_STARTS: usize = 8;
/// Slack in error bounds of a code. A page is scored even if its linked vector is this much too far to be a
/// candidate, because another vector of the page may be nearer.
const SLACK_BOUNDS: f32 = 3.0;

/// Returns pivots at evenly spaced places, without those in `absent` (rising). In a page-local layout, near
/// vectors have near places, so the pivots are spread over the space as the vectors are.
pub(crate) fn pivots(vectors: u32, absent: &[u32]) -> Vec<u32> {
    let count = ((f64::from(vectors).sqrt() * PIVOTS_PER_ROOT) as u64).clamp(1, u64::from(vectors));
    let places = (0..count).map(|i| (i * u64::from(vectors) / count) as u32);
    places.filter(|place| absent.binary_search(place).is_err()).collect()
}

/// Returns the number of pages in the next hop, after a search with `beam_width` has read `reads` pages. The
/// first pages only lead to better ones, so most of a wide beam would be wasted. Later, nearly every page
/// holds an answer.
pub(crate) fn width_after(reads: u32, beam_width: usize) -> usize {
    match reads as usize {
        0 => beam_width.div_ceil(4),
        reads if reads < beam_width => beam_width.div_ceil(2),
        reads if reads < 3 * beam_width => beam_width,
        _ => 2 * beam_width,
    }
}

/// Returns the number of pivots where a search begins, and the step between the pivots that it scores.
pub(super) fn starts(layout: &GraphLayout, beam_width: usize) -> (usize, usize) {
    let scores_few = layout.page_local().is_none() && beam_width < FAR_BEAM_WIDTH as usize;
    (beam_width.max(MIN_STARTS), if scores_few { RECORD_PIVOT_STEP } else { 1 })
}

fn damaged(graph: &Graph, layout: &LocalLayout, number: u32, reason: String) -> IndexError {
    graph.set.damaged(format!("page {number} at byte {}", layout.span(number).offset), reason)
}

impl GraphScratch {
    /// Begins a search: scores the pages of the nearest pivots and of the entry point.
    pub(super) fn enter(&mut self, graph: &Graph, layout: &LocalLayout, beam_width: usize) {
        self.opened.clear();
        self.find_starts(graph, beam_width);
        self.slack = self.mean_bound(graph, &graph.codes) * SLACK_BOUNDS;
        self.near.clear();
        self.near.extend_from_slice(&self.ids);
        self.score_near_pages(graph, layout);
    }

    /// Puts the nearest pivots and the entry point into `self.ids`, enough of them to fill the first beam. If
    /// the beam is as wide as on a far tier, all pivots are scored, because a hop there is a long wait.
    pub(super) fn find_starts(&mut self, graph: &Graph, beam_width: usize) {
        let (starts, step) = starts(&graph.layout, beam_width);
        self.ids.clear();
        self.ids.extend(graph.pivots.iter().step_by(step));
        self.score(graph);
        self.starts.clear();
        self.starts
            .extend(self.ids.iter().zip(&self.scores).map(|(id, d)| Neighbor { distance: *d, id: *id }));
        if self.starts.len() > starts {
            self.starts.select_nth_unstable(starts);
            self.starts.truncate(starts);
        }
        // The order of the sum of their error bounds must not depend on how they were found.
        self.starts.sort_unstable();
        self.ids.clear();
        self.ids.extend(self.starts.iter().map(|start| start.id).chain([graph.entry.entry_point]));
    }

    /// Returns the slack of a search on a card that begins at the pivots `starts` and at the entry point.
    /// Their codes are in [`Graph::kept_codes`].
    pub(super) fn slack_from_kept_codes(&mut self, graph: &Graph, starts: &[u32]) -> f32 {
        self.ids.clear();
        let kept_position = |start: &u32| graph.pivots.binary_search(start).ok().map(|at| at as u32);
        self.ids.extend(starts.iter().filter_map(kept_position).chain([graph.pivots.len() as u32]));
        self.mean_bound(graph, &graph.kept_codes) * SLACK_BOUNDS
    }

    /// Returns the mean error bound of the codes at positions `self.ids` in `codes`; infinite if the kind of
    /// code has no bound.
    fn mean_bound(&mut self, graph: &Graph, codes: &[u8]) -> f32 {
        self.scores.resize(self.ids.len(), 0.0);
        self.bounds.resize(self.ids.len(), 0.0);
        let (scores, bounds) = (&mut self.scores, &mut self.bounds);
        self.code_query.score_with_bound(&graph.codec, codes, &self.ids, scores, bounds);
        self.bounds.iter().sum::<f32>() / self.ids.len().max(1) as f32
    }

    /// Compares all vectors of a page that has arrived, and offers them as answers.
    #[inline]
    pub(super) fn compare_page<'a>(
        &mut self,
        graph: &Graph,
        layout: &LocalLayout,
        number: u32,
        bytes: &'a [u8],
    ) -> Result<LocalPage<'a>, IndexError> {
        let damaged = |reason| damaged(graph, layout, number, reason);
        let page = layout.decode(bytes, number).map_err(damaged)?;
        let places = layout.places(number);
        self.scores.resize(places.len(), 0.0);
        graph.set.exact.score_block(&self.query.bytes, page.vectors, &mut self.scores);
        for ((place, id), distance) in places.zip(page.ids()).zip(&self.scores) {
            if id >= graph.set.vectors {
                return Err(damaged(format!("id {id} is not among {} vectors", graph.set.vectors)));
            }
            if graph.is_present(place) {
                self.query.offer(id, *distance);
            }
        }
        self.query.clock.spent(Phase::Rerank);
        Ok(page)
    }

    /// Processes one page: compares its vectors, and follows its links.
    #[inline]
    pub(super) fn expand_page(
        &mut self,
        graph: &Graph,
        layout: &LocalLayout,
        number: u32,
        bytes: &[u8],
    ) -> Result<(), IndexError> {
        let page = self.compare_page(graph, layout, number, bytes)?;
        page.links(&mut self.ids).map_err(|reason| damaged(graph, layout, number, reason))?;
        if let Some(CardQuery::Pages(query)) = &mut self.on_card {
            query.add_links(layout, &self.ids);
            return Ok(());
        }
        let visited = &self.visited;
        self.ids.retain(|place| !visited.contains(layout.page_of(*place)));
        self.score(graph);
        let limit = self.candidates.threshold() + self.slack;
        self.near.clear();
        let near = self.ids.iter().zip(&self.scores).filter(|(_, distance)| **distance <= limit);
        self.near.extend(near.map(|(place, _)| *place));
        self.score_near_pages(graph, layout);
        Ok(())
    }

    /// Scores the pages of the vectors in `self.near`, and offers all their vectors as candidates.
    fn score_near_pages(&mut self, graph: &Graph, layout: &LocalLayout) {
        self.ids.clear();
        for place in &self.near {
            let page = layout.page_of(*place);
            if self.visited.insert(page) {
                self.ids.extend(layout.places(page).filter(|place| graph.is_present(*place)));
            }
        }
        self.offer(graph);
    }
}
