//! A page-local graph whose codes are on a graphics card. The processor reads pages, compares their vectors
//! exactly, and sends their links to the card. The card scores the codes of all vectors of the linked pages,
//! and chooses the pages to open.
//!
//! The processor computes the slack of a search from the codes of the pivots, as the same sum of the same
//! numbers as without a card.

use super::layout::GraphLayout;
use super::on_card::{CardQuery, GraphCard, write_code_query};
use super::page_search::starts;
use super::search::{Graph, GraphScratch};
use crate::error::IndexError;
use crate::format::local::LocalLayout;
use crate::query::SearchParams;
use bathyal_gpu::pages::{Hop, PageResponse, PageSearchParameters, Pages, Parts, Slot};
use bathyal_tier::Cx;

/// A query on a card that opens pages.
#[derive(Debug)]
pub(super) struct PageQuery {
    slot: Slot,
    /// Length of the candidate list.
    list: u32,
    /// Number of pivots where the search begins.
    starts: u32,
    /// True if the query has been sent to the card.
    begun: bool,
    response: PageResponse,
    /// Pages that the query has opened, in rising order.
    opened: Vec<u32>,
    /// The links of the pages of the last beam, one page after the other.
    links: Vec<u32>,
    /// The end of each page's links in `links`.
    ends: Vec<u32>,
    /// The ends of the pages in the part that is sent in one launch.
    part_ends: Vec<u32>,
}

impl PageQuery {
    /// Waits for a free slot on the card, and takes it.
    pub(super) async fn begin(
        pages: &Pages,
        cx: &Cx,
        params: &SearchParams,
        layout: &GraphLayout,
    ) -> PageQuery {
        PageQuery {
            slot: pages.wait_for_slot(cx).await,
            list: params.search_list as u32,
            starts: starts(layout, params.beam_width).0 as u32,
            begun: false,
            response: PageResponse::default(),
            opened: Vec::new(),
            links: Vec::new(),
            ends: Vec::new(),
            part_ends: Vec::new(),
        }
    }

    /// Stores the links of the next page of the beam, without those to opened pages.
    pub(super) fn add_links(&mut self, layout: &LocalLayout, links: &[u32]) {
        let opened = &self.opened;
        let new = links.iter().filter(|place| opened.binary_search(&layout.page_of(**place)).is_err());
        self.links.extend(new);
        self.ends.push(self.links.len() as u32);
    }

    /// Waits for the response. Returns the number of codes that the card has scored for it.
    async fn wait_for_response(&mut self, cx: &Cx) -> Result<u32, IndexError> {
        self.slot.wait_for_response(cx, &mut self.response).await?;
        Ok(self.response.scored)
    }

    /// Sends all links to the card, in one or several launches. Returns the number of codes that the card has
    /// scored for them.
    async fn hop(&mut self, cx: &Cx, slack: f32, width: u32) -> Result<u32, IndexError> {
        let (links, ends) = (std::mem::take(&mut self.links), std::mem::take(&mut self.ends));
        let mut part_ends = std::mem::take(&mut self.part_ends);
        let (mut parts, mut scored) = (Parts::new(&ends, self.slot.max_ids()), 0);
        loop {
            let part = parts.next(&mut part_ends);
            let (links, continues) = (&links[part.links], part.continues);
            let width = if part.is_last { width } else { 0 };
            self.slot.submit(&Hop { links, ends: &part_ends, continues, slack, width }, cx.task_waker());
            scored += self.wait_for_response(cx).await?;
            if part.is_last {
                break;
            }
        }
        (self.links, self.ends, self.part_ends) = (links, ends, part_ends);
        self.links.clear();
        self.ends.clear();
        Ok(scored)
    }
}

impl GraphScratch {
    /// Sends the links of the last beam to the card, which scores the linked pages and chooses the next beam.
    pub(super) async fn fill_beam_with_pages_on_card(
        &mut self,
        graph: &Graph,
        cx: &Cx,
        width: usize,
    ) -> Result<(), IndexError> {
        let (Some(CardQuery::Pages(query)), Some(GraphCard::Pages(pages))) = (&mut self.on_card, &graph.card)
        else {
            return Ok(());
        };
        if query.begun {
            self.query.stats.code_distances += query.hop(cx, self.slack, width as u32).await?;
        } else {
            let parameters =
                PageSearchParameters { list: query.list, starts: query.starts, width: width as u32 };
            let write = |bytes: &mut Vec<u8>| write_code_query(&self.code_query, pages.codes(), bytes);
            query.slot.begin(parameters, graph.entry.entry_point, write, cx.task_waker());
            self.query.stats.code_distances += query.wait_for_response(cx).await?;
            query.begun = true;
            let starts = std::mem::take(&mut query.response.starts);
            self.slack = self.slack_from_kept_codes(graph, &starts);
        }
        let Some(CardQuery::Pages(query)) = &mut self.on_card else { return Ok(()) };
        self.beam.extend_from_slice(&query.response.pages);
        query.opened.extend_from_slice(&query.response.pages);
        query.opened.sort_unstable();
        Ok(())
    }
}
