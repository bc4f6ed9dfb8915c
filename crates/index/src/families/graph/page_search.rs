//! What a search does with pages that hold many vectors and link as a whole (layout `page_local`).
//!
//! A page is read once. All its vectors are scored exactly for the answer, and its links show other pages: of each
//! the one vector that the link names is scored by its code, and where that is near enough, so are all vectors of
//! its page, whose codes lie side by side in memory. Reads are what costs, codes are cheap.

use super::layout::GraphLayout;
use super::on_card::OnCard;
use super::search::{Graph, Scratch};
use crate::error::IndexError;
use crate::format::local::{LocalLayout, LocalPage};
use crate::query::{FAR_BEAM_WIDTH, Phase};
use bathyal_kernels::Neighbor;

/// Pivots a square root of the number of vectors: scoring them costs some microseconds and saves most of the way from
/// the entry point (`docs/reads.md`).
const PIVOTS_A_ROOT: f64 = 4.0;
/// Of so many pivots a graph of single records looks at one: its searches score so few codes that more would show.
const RECORD_SHARE: usize = 4;
/// Nearest pivots that a search begins at.
const STARTS: usize = 8;
/// A page is looked at if its linked vector is this many error bounds of the code too far to be a candidate itself:
/// another vector of the page may be nearer.
const SLACK_BOUNDS: f32 = 3.0;

/// Vectors spread evenly over the places but those `absent`; in a page-local layout they are so spread over the space
/// as well as the vectors are.
pub(crate) fn pivots(vectors: u32, absent: &[u32]) -> Vec<u32> {
    let count = ((f64::from(vectors).sqrt() * PIVOTS_A_ROOT) as u64).clamp(1, u64::from(vectors));
    let places = (0..count).map(|i| (i * u64::from(vectors) / count) as u32);
    places.filter(|place| absent.binary_search(place).is_err()).collect()
}

/// Pages read in the next hop after `reads` pages, where `beam_width` are wanted. The first pages only lead to better
/// ones, so that most of a wide beam would be wasted; in the end nearly every page read holds an answer.
pub(crate) fn width_after(reads: u32, beam_width: usize) -> usize {
    match reads as usize {
        0 => beam_width.div_ceil(4),
        reads if reads < beam_width => beam_width.div_ceil(2),
        reads if reads < 3 * beam_width => beam_width,
        _ => 2 * beam_width,
    }
}

/// How many pivots a search begins at, and of how many it looks at one.
pub(super) fn starts(layout: &GraphLayout, beam_width: usize) -> (usize, usize) {
    let step = match layout {
        GraphLayout::Padded(_) | GraphLayout::Csr(_) if beam_width < FAR_BEAM_WIDTH as usize => RECORD_SHARE,
        _ => 1,
    };
    (beam_width.max(STARTS), step)
}

fn damaged(graph: &Graph, layout: &LocalLayout, number: u32, reason: String) -> IndexError {
    graph.set.damaged(format!("page {number} at byte {}", layout.span(number).offset), reason)
}

impl Scratch {
    /// Begins at the pages of the nearest pivots and of the entry point.
    pub(super) fn enter(&mut self, graph: &Graph, layout: &LocalLayout, beam_width: usize) {
        self.opened.clear();
        self.find_starts(graph, beam_width);
        self.slack = self.mean_bound(graph, &graph.codes) * SLACK_BOUNDS;
        self.near.clear();
        self.near.extend_from_slice(&self.ids);
        self.look_at_near(graph, layout);
    }

    /// Puts the nearest pivots and the entry point into `self.ids`: as many as fill the first beam at least, of all pivots where
    /// the beam is as wide as that of a tier on which a hop is a wait.
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
        // Their error bounds are added up in this order, wherever they are found.
        self.starts.sort_unstable();
        self.ids.clear();
        self.ids.extend(self.starts.iter().map(|start| start.id).chain([graph.entry.entry_point]));
    }

    /// The slack of a search that begins at the pivots `starts` and at the entry point, of which `graph` has the codes besides a card's.
    pub(super) fn slack_of(&mut self, graph: &Graph, starts: &[u32]) -> f32 {
        self.ids.clear();
        let kept = |start: &u32| graph.pivots.binary_search(start).ok().map(|at| at as u32);
        self.ids.extend(starts.iter().filter_map(kept).chain([graph.pivots.len() as u32]));
        self.mean_bound(graph, &graph.some_codes) * SLACK_BOUNDS
    }

    /// The mean error bound of `self.ids` among `codes`; infinite where the code has none.
    fn mean_bound(&mut self, graph: &Graph, codes: &[u8]) -> f32 {
        self.scores.resize(self.ids.len(), 0.0);
        self.bounds.resize(self.ids.len(), 0.0);
        let (scores, bounds) = (&mut self.scores, &mut self.bounds);
        self.code_query.score_with_bound(&graph.codec, codes, &self.ids, scores, bounds);
        self.bounds.iter().sum::<f32>() / self.ids.len().max(1) as f32
    }

    /// Uses the vectors of a page that has arrived for the answer.
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

    /// Uses one page that has arrived: its vectors for the answer, its links for the way.
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
        if let Some(OnCard::Pages(on_card)) = &mut self.on_card {
            on_card.take_links(layout, &self.ids);
            return Ok(());
        }
        let visited = &self.visited;
        self.ids.retain(|place| !visited.contains(layout.page_of(*place)));
        self.score(graph);
        let limit = self.candidates.threshold() + self.slack;
        self.near.clear();
        let near = self.ids.iter().zip(&self.scores).filter(|(_, distance)| **distance <= limit);
        self.near.extend(near.map(|(place, _)| *place));
        self.look_at_near(graph, layout);
        Ok(())
    }

    /// Offers all vectors of the pages of `self.near` as candidates.
    fn look_at_near(&mut self, graph: &Graph, layout: &LocalLayout) {
        self.ids.clear();
        for place in &self.near {
            let page = layout.page_of(*place);
            if self.visited.insert(page) {
                self.ids.extend(layout.places(page).filter(|place| graph.is_present(*place)));
            }
        }
        self.offer(graph);
    }

    /// Moves the pages of the nearest candidates into the beam until it is `width` wide.
    pub(super) fn fill_beam_with_pages(&mut self, layout: &LocalLayout, width: usize) {
        while self.beam.len() < width
            && let Some(next) = self.candidates.next_unexpanded()
        {
            let page = layout.page_of(next.id);
            if self.opened.insert(page) {
                self.beam.push(page);
                self.spans.push(layout.span(page));
            }
        }
    }
}
