//! A graph whose candidates are scored, kept and chosen by a graphics card (GustANN, section 4): this processor reads the records, compares
//! their vectors exactly, and hands over nothing but their links (section 4.3 hands over the vector as well).
//!
//! Of pages that link as a whole it hands over the links page by page; that is in `pages_on_card`.
//!
//! What the card chooses is what a list of candidates here would have, so that answers, hops and reads are the same. No code is in this
//! machine's memory; where searches begin (section 4.4) is chosen by the card as well.

use super::layout::GraphLayout;
use super::page_search::{pivots, starts};
use super::pages_on_card::OnPages;
use super::resident;
use super::search::Graph;
use super::section::GraphEntry;
use crate::error::IndexError;
use crate::family::CardChoice;
use crate::format::manifest::Manifest;
use crate::format::walk::read_through;
use crate::query::{SearchParams, spread};
use bathyal_gpu::graph::{Codes, Navigation, Upload, write_query};
use bathyal_gpu::hops::{GraphSearchParameters, Hops, MOST_CANDIDATES, Shape, Slot};
use bathyal_gpu::pages::Pages;
use bathyal_gpu::walks::Walks;
use bathyal_gpu::{Card, CardCounters, GpuError, slots};
use bathyal_kernels::quantize::{CodeKind, CodeQuery};
use bathyal_store::Generation;
use bathyal_tier::Cx;
use bathyal_vectors::progress::Progress;

/// Records that it expands at a time at most.
pub(super) const MOST_WIDTH: u32 = 16;
/// Codes that are copied at a time.
const CODES_AT_ONCE: usize = 4096;
/// Codes that are kept here for whoever wants some vectors.
const SOME_CODES: usize = 1024;

/// Links and ends of pages that a query hands over at a time: those of some pages. Where there are more, it takes several launches.
const PAGE_IDS: u32 = 2048;

/// What a card has of a graph.
#[derive(Debug)]
pub(crate) enum GraphCard {
    /// Codes, of layouts of single records.
    Records(Hops),
    /// Codes, of pages that link as a whole.
    Pages(Pages),
    /// All of it.
    Whole(Walks),
}

impl GraphCard {
    /// Candidates that it keeps of a query at most.
    pub(super) fn list(&self) -> u32 {
        match self {
            GraphCard::Records(hops) => hops.shape().list,
            GraphCard::Pages(pages) => pages.shape().list,
            GraphCard::Whole(walks) => walks.shape().list,
        }
    }

    /// Queries under way at most.
    pub(super) fn slots(&self) -> u32 {
        match self {
            GraphCard::Records(hops) => hops.shape().slots,
            GraphCard::Pages(pages) => pages.shape().slots,
            GraphCard::Whole(walks) => walks.shape().slots,
        }
    }

    /// Bytes of the card's memory that are taken.
    pub(super) fn resident_bytes(&self) -> u64 {
        match self {
            GraphCard::Records(hops) => hops.resident_bytes(),
            GraphCard::Pages(pages) => pages.resident_bytes(),
            GraphCard::Whole(walks) => walks.resident_bytes(),
        }
    }

    pub(super) fn counters(&self) -> CardCounters {
        match self {
            GraphCard::Records(hops) => hops.counters(),
            GraphCard::Pages(pages) => pages.counters(),
            GraphCard::Whole(walks) => walks.counters(),
        }
    }
}

/// How many codes stay here when a card has them all: some for whoever wants vectors, of pages those at which searches may begin.
pub(super) fn kept_codes(layout: &GraphLayout, vectors: u32) -> u64 {
    match layout {
        GraphLayout::Local(_) => pivots(vectors, &[]).len() as u64 + 1,
        GraphLayout::Padded(_) | GraphLayout::Csr(_) => SOME_CODES.min(vectors as usize) as u64,
    }
}

/// Whether a card searches a graph that its manifest describes so.
pub(super) fn check(entry: &GraphEntry) -> Result<(), GpuError> {
    let unsuited = |text: String| Err(GpuError::Unsuited(text));
    match entry.codes.kind.parse() {
        Ok(CodeKind::RaBitQ { .. } | CodeKind::Axes) => Ok(()),
        _ => unsuited(format!(
            "codes of kind {} are not scored on a graphics card; build the graph with codes of {} bytes or more, which are of another kind",
            entry.codes.kind, 32
        )),
    }
}

/// Copies the codes of a graph to a card, or all of it, which begins to serve.
pub(super) fn load(
    directory: &dyn Generation,
    manifest: &Manifest,
    graph: &mut Graph,
    choice: CardChoice<'_>,
    progress: &dyn Progress,
) -> Result<GraphCard, IndexError> {
    if choice.resident {
        return Ok(GraphCard::Whole(resident::walks(directory, manifest, graph, choice, progress)?));
    }
    let CardChoice { card, mini_batch, .. } = choice;
    let codes = load_codes(directory, manifest, graph, card, progress)?;
    if let GraphLayout::Local(layout) = &graph.layout {
        // A search of pages opens twice as many as it was asked for in the end.
        let one = Shape { list: MOST_CANDIDATES, width: 2 * MOST_WIDTH, ids: PAGE_IDS, slots: 1 };
        let slots = slots(card.profile(), bathyal_gpu::pages::slot_bytes(&one, codes.codes()));
        let pages = Pages::start(card, codes, Shape { slots, ..one }, layout.records() as u32, mini_batch)?;
        return Ok(GraphCard::Pages(pages));
    }
    let ids = (graph.entry.max_degree * MOST_WIDTH).max(1);
    let one = Shape { list: MOST_CANDIDATES, width: MOST_WIDTH, ids, slots: 1 };
    let slots = slots(card.profile(), one.slot_bytes(codes.codes()));
    Ok(GraphCard::Records(Hops::start(card, codes, Shape { slots, ..one }, mini_batch)?))
}

/// Copies the codes of a graph to `card`, piece by piece, and keeps some here.
pub(super) fn load_codes(
    directory: &dyn Generation,
    manifest: &Manifest,
    graph: &mut Graph,
    card: &dyn Card,
    progress: &dyn Progress,
) -> Result<Navigation, IndexError> {
    let Some(codes) = graph.codec.plane_codes() else {
        return Err(IndexError::Internal("codes without planes on a graphics card".into()));
    };
    let planes: Option<Vec<u16>> =
        codes.bytes.iter().map(|(plane, group)| Codes::plane(*plane, *group)).collect();
    let Some(planes) = planes else {
        let text = "codes of so many dimensions are not scored on a graphics card";
        return Err(GpuError::Unsuited(text.into()).into());
    };
    let shape = Codes {
        code_bytes: codes.code_bytes as u32,
        factor_bytes: codes.factor_bytes as u32,
        planes,
        groups: codes.groups as u32,
        fine: codes.fine,
        pivots: graph.pivots.clone(),
        entry: graph.entry.entry_point,
    };
    let file = &graph.entry.codes.file;
    let object = manifest.open_file(directory, file)?;
    let mut upload = Upload::begin(card, shape, graph.set.vectors.into())?;
    progress.stage("copying codes to the graphics card", file.bytes);
    let (size, mut copied, mut some, mut last) = (codes.code_bytes, Ok(()), Vec::new(), Vec::new());
    let (is_local, entry) = (matches!(graph.layout, GraphLayout::Local(_)), graph.entry.entry_point as usize);
    let wanted: Vec<usize> = match is_local {
        true => graph.pivots.iter().map(|pivot| *pivot as usize).collect(),
        false => spread(graph.set.vectors as usize, SOME_CODES).collect(),
    };
    let mut wanted = wanted.into_iter().peekable();
    let crc = read_through(object.as_ref(), file.bytes, size * CODES_AT_ONCE, progress, |piece, codes| {
        let first = piece as usize * CODES_AT_ONCE;
        while let Some(code) = wanted.next_if(|code| *code < first + codes.len() / size) {
            some.extend_from_slice(&codes[(code - first) * size..][..size]);
        }
        if is_local && (first..first + codes.len() / size).contains(&entry) {
            last.extend_from_slice(&codes[(entry - first) * size..][..size]);
        }
        copied = std::mem::replace(&mut copied, Ok(())).and_then(|()| upload.append(codes));
    })?;
    copied?;
    if crc != file.crc32c {
        let reason = format!("checksum {crc:08x}, the manifest says {:08x}", file.crc32c);
        return Err(IndexError::damaged(object.address(), "its content", reason));
    }
    some.append(&mut last);
    graph.some_codes = some;
    Ok(upload.finish()?)
}

/// What a query asks of a card.
pub(super) fn asks(graph: &Graph, params: &SearchParams) -> GraphSearchParameters {
    let (starts, step) = starts(&graph.layout, params.beam_width);
    GraphSearchParameters {
        list: params.search_list as u32,
        width: params.beam_width as u32,
        starts: starts as u32,
        step: step as u32,
    }
}

/// A query that is under way on a card.
#[derive(Debug)]
pub(super) enum OnCard {
    Records(OnRecords),
    Pages(OnPages),
}

impl OnCard {
    /// Begins a query that asks hop by hop, once the card has a place for it.
    pub(super) async fn begin(
        card: &GraphCard,
        cx: &Cx,
        graph: &Graph,
        query: &CodeQuery,
        params: &SearchParams,
    ) -> Option<OnCard> {
        match card {
            GraphCard::Records(hops) => {
                Some(OnCard::Records(OnRecords::begin(hops, cx, graph, query, params).await))
            }
            GraphCard::Pages(pages) => {
                Some(OnCard::Pages(OnPages::begin(pages, cx, params, &graph.layout).await))
            }
            GraphCard::Whole(_) => None,
        }
    }

    /// Pivots that it is compared with, as far as the card does not count them.
    pub(super) fn pivots(&self) -> u32 {
        match self {
            OnCard::Records(on_card) => on_card.pivots,
            OnCard::Pages(_) => 0,
        }
    }
}

/// Writes a query as a card reads it.
pub(super) fn write(query: &CodeQuery, codes: &Codes, out: &mut Vec<u8>) {
    let numbers = query.plane_numbers();
    let head = [numbers.offset, numbers.bias, numbers.norm_factor, numbers.gain_factor];
    write_query(head, numbers.low, if codes.fine { numbers.high } else { &[] }, out);
}

/// A query that expands records.
#[derive(Debug)]
pub(super) struct OnRecords {
    slot: Slot,
    /// Pivots that it is compared with.
    pivots: u32,
}

impl OnRecords {
    /// Begins a query, once the card has a place for it.
    async fn begin(
        hops: &Hops,
        cx: &Cx,
        graph: &Graph,
        query: &CodeQuery,
        params: &SearchParams,
    ) -> OnRecords {
        let mut slot = loop {
            match hops.slot(cx.task_waker()) {
                Some(slot) => break slot,
                None => cx.parked().await,
            }
        };
        let asks = asks(graph, params);
        slot.begin(asks, |bytes| write(query, hops.codes(), bytes));
        OnRecords { slot, pivots: graph.pivots.len().div_ceil(asks.step as usize) as u32 }
    }

    /// Makes candidates of `ids`; what is expanded next, the nearest first, is in `next` then.
    pub(super) async fn hop(&mut self, cx: &Cx, ids: &[u32], next: &mut Vec<u32>) -> Result<(), IndexError> {
        self.slot.submit(ids, cx.task_waker());
        loop {
            match self.slot.take_response(next) {
                Some(answered) => return Ok(answered?),
                None => cx.parked().await,
            }
        }
    }
}
