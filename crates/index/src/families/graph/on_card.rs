//! A graph whose candidates are scored, kept and chosen by a graphics card (GustANN, section 4): this processor reads the records, compares
//! their vectors exactly, and hands over nothing but their links (section 4.3 hands over the vector as well).
//!
//! What the card chooses is what a list of candidates here would have, so that answers, hops and reads are the same.

use super::layout::GraphLayout;
use super::search::Graph;
use super::section::GraphEntry;
use crate::error::IndexError;
use crate::format::manifest::Manifest;
use crate::query::{SearchMode, SearchParams};
use bathyal_gpu::hops::{Hops, MOST_CANDIDATES, Shape, Slot, write_query};
use bathyal_gpu::{Card, GpuError};
use bathyal_kernels::quantize::{CodeKind, CodeQuery};
use bathyal_tier::Cx;

/// Records that it expands at a time at most.
const MOST_WIDTH: u32 = 16;
/// Queries under way on a card; whatever more there are, the processor walks for.
const SLOTS: u32 = 4096;
/// The starts of a search: the nearest pivots, and the entry point.
const MOST_STARTS: u32 = MOST_WIDTH + 1;

/// Whether a card searches a graph that its manifest describes so.
pub(super) fn check(entry: &GraphEntry, manifest: &Manifest) -> Result<(), GpuError> {
    let unsuited = |text: String| Err(GpuError::Unsuited(text));
    if let Ok(GraphLayout::Local(_)) = entry.layout(manifest) {
        return unsuited(format!(
            "a graph of layout {} is not searched on a graphics card, one of padded or csr is: `bathyal relayout` makes it",
            entry.layout
        ));
    }
    match entry.codes.kind.parse() {
        Ok(CodeKind::RaBitQ { .. } | CodeKind::Axes) => Ok(()),
        _ => unsuited(format!(
            "codes of kind {} are not scored on a graphics card; build the graph with codes of {} bytes or more, which are of another kind",
            entry.codes.kind, 32
        )),
    }
}

/// Copies the codes of a graph to `card`.
pub(super) fn hops(graph: &Graph, card: &dyn Card) -> Result<Hops, IndexError> {
    let Some(codes) = graph.codec.plane_codes() else {
        return Err(IndexError::Internal("codes without planes on a graphics card".into()));
    };
    let planes: Option<Vec<u16>> =
        codes.bytes.iter().map(|(plane, group)| Shape::plane(*plane, *group)).collect();
    let Some(planes) = planes else {
        let text = "codes of so many dimensions are not scored on a graphics card";
        return Err(GpuError::Unsuited(text.into()).into());
    };
    let shape = Shape {
        code_bytes: codes.code_bytes as u32,
        factor_bytes: codes.factor_bytes as u32,
        planes,
        groups: codes.groups as u32,
        fine: codes.fine,
        list: MOST_CANDIDATES,
        width: MOST_WIDTH,
        ids: (graph.entry.max_degree * MOST_WIDTH).max(MOST_STARTS),
        slots: SLOTS,
    };
    Ok(Hops::new(card, shape, &graph.codes)?)
}

/// A query that is under way on a card.
#[derive(Debug)]
pub(super) struct OnCard(Slot);

impl OnCard {
    /// Begins a query; `None` where the processor has to walk, because the card has as many as it takes or the search is not one of hops.
    pub(super) fn begin(
        hops: &Hops,
        graph: &Graph,
        query: &CodeQuery,
        params: &SearchParams,
    ) -> Option<OnCard> {
        let shape = hops.shape();
        let fits = params.search_list <= shape.list as usize && params.beam_width <= shape.width as usize;
        if params.mode != SearchMode::Batched || !fits || !graph.absent.is_empty() {
            return None;
        }
        let mut slot = hops.slot()?;
        let numbers = query.plane_numbers();
        let head = [numbers.offset, numbers.bias, numbers.norm_factor, numbers.gain_factor];
        let high = if shape.fine { numbers.high } else { &[] };
        slot.begin(params.search_list as u32, params.beam_width as u32, |bytes| {
            write_query(head, numbers.low, high, bytes);
        });
        Some(OnCard(slot))
    }

    /// Makes candidates of `ids`; what is expanded next, the nearest first, is in `next` then.
    pub(super) async fn hop(&mut self, cx: &Cx, ids: &[u32], next: &mut Vec<u32>) -> Result<(), IndexError> {
        self.0.ask(ids, cx.task_waker());
        loop {
            match self.0.answer(next) {
                Some(answered) => return Ok(answered?),
                None => cx.parked().await,
            }
        }
    }
}
