//! A graph of pages that link as a whole, on a graphics card: this processor reads pages, compares their vectors exactly, and hands over
//! their links; the card looks at the codes of all vectors of the pages that these lead to, and chooses the pages to open.
//!
//! How much farther than a candidate a link may lead is added up here, from the codes at which searches may begin: the same sum of the
//! same numbers as without a card.

use super::layout::GraphLayout;
use super::on_card::{GraphCard, OnCard, write};
use super::page_search::starts;
use super::search::{Graph, Scratch};
use crate::error::IndexError;
use crate::format::local::LocalLayout;
use crate::query::SearchParams;
use bathyal_gpu::pages::{Hop, PageResponse, Pages, Parts, Slot};
use bathyal_tier::Cx;

/// A query that opens pages.
#[derive(Debug)]
pub(super) struct OnPages {
    slot: Slot,
    list: u32,
    starts: u32,
    /// Whether the card has the query.
    begun: bool,
    answer: PageResponse,
    /// Pages that it has opened, rising.
    opened: Vec<u32>,
    /// The links of the pages of the last beam, one page after the other, and where those of each end.
    links: Vec<u32>,
    ends: Vec<u32>,
    /// The ends of pages of a part of these.
    own: Vec<u32>,
}

impl OnPages {
    /// Takes a place on the card, once there is one.
    pub(super) async fn begin(
        pages: &Pages,
        cx: &Cx,
        params: &SearchParams,
        layout: &GraphLayout,
    ) -> OnPages {
        let slot = loop {
            match pages.slot(cx.task_waker()) {
                Some(slot) => break slot,
                None => cx.parked().await,
            }
        };
        OnPages {
            slot,
            list: params.search_list as u32,
            starts: starts(layout, params.beam_width).0 as u32,
            begun: false,
            answer: PageResponse::default(),
            opened: Vec::new(),
            links: Vec::new(),
            ends: Vec::new(),
            own: Vec::new(),
        }
    }

    /// Takes the links of the next page of the beam; what leads to an opened page leads nowhere.
    pub(super) fn take_links(&mut self, layout: &LocalLayout, links: &[u32]) {
        let opened = &self.opened;
        let new = links.iter().filter(|place| opened.binary_search(&layout.page_of(**place)).is_err());
        self.links.extend(new);
        self.ends.push(self.links.len() as u32);
    }

    /// Waits for the answer; the codes that were scored for it.
    async fn answered(&mut self, cx: &Cx) -> Result<u32, IndexError> {
        loop {
            match self.slot.take_response(&mut self.answer) {
                Some(answered) => return Ok(answered.map(|()| self.answer.scored)?),
                None => cx.parked().await,
            }
        }
    }

    /// Hands over all links, in as many parts as it takes; the codes that were scored for it.
    async fn hop(&mut self, cx: &Cx, slack: f32, width: u32) -> Result<u32, IndexError> {
        let (links, ends, mut own) =
            (std::mem::take(&mut self.links), std::mem::take(&mut self.ends), std::mem::take(&mut self.own));
        let (mut parts, mut scored) = (Parts::new(&ends, self.slot.max_ids()), 0);
        loop {
            let part = parts.next(&mut own);
            let (links, continues) = (&links[part.links], part.continues);
            let width = if part.is_last { width } else { 0 };
            self.slot.submit(&Hop { links, ends: &own, continues, slack, width }, cx.task_waker());
            scored += self.answered(cx).await?;
            if part.is_last {
                break;
            }
        }
        (self.links, self.ends, self.own) = (links, ends, own);
        self.links.clear();
        self.ends.clear();
        Ok(scored)
    }
}

impl Scratch {
    /// Has the card look at what the links of the last beam lead to, and choose the pages of the next.
    pub(super) async fn fill_beam_with_pages_on_card(
        &mut self,
        graph: &Graph,
        cx: &Cx,
        width: usize,
    ) -> Result<(), IndexError> {
        let (Some(OnCard::Pages(on_card)), Some(GraphCard::Pages(pages))) = (&mut self.on_card, &graph.card)
        else {
            return Ok(());
        };
        if on_card.begun {
            self.query.stats.code_distances += on_card.hop(cx, self.slack, width as u32).await?;
        } else {
            let asks = (on_card.list, on_card.starts, width as u32);
            let write = |bytes: &mut Vec<u8>| write(&self.code_query, pages.codes(), bytes);
            on_card.slot.begin(asks, graph.entry.entry_point, write, cx.task_waker());
            self.query.stats.code_distances += on_card.answered(cx).await?;
            on_card.begun = true;
            let starts = std::mem::take(&mut on_card.answer.starts);
            self.slack = self.slack_of(graph, &starts);
        }
        let Some(OnCard::Pages(on_card)) = &mut self.on_card else { return Ok(()) };
        self.beam.extend_from_slice(&on_card.answer.pages);
        on_card.opened.extend_from_slice(&on_card.answer.pages);
        on_card.opened.sort_unstable();
        Ok(())
    }
}
