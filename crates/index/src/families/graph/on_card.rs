//! A graph whose codes are on a graphics card, which scores candidates, keeps them and chooses the next ones
//! to expand (GustANN, section 4). The processor reads the records, compares their vectors exactly, and sends
//! only their links to the card (in section 4.3, it sends the vectors as well).
//!
//! Page-local graphs send the links of each page; see `pages_on_card`.
//!
//! The card chooses the same candidates as a search on the processor, so answers, hops and reads are the
//! same. The codes are not in the memory of the machine, so the card also chooses the pivots where a search
//! begins (section 4.4).

use super::layout::GraphLayout;
use super::page_search::{pivots, starts};
use super::pages_on_card::PageQuery;
use super::resident;
use super::search::Graph;
use super::section::GraphEntry;
use crate::error::IndexError;
use crate::family::CardChoice;
use crate::format::manifest::Manifest;
use crate::format::walk::read_through;
use crate::query::{SearchParams, spread};
use bathyal_gpu::graph::{Codes, GraphUpload, Navigation, write_query};
use bathyal_gpu::hops::{GraphSearchParameters, HopShape, Hops, MOST_CANDIDATES, Slot};
use bathyal_gpu::pages::Pages;
use bathyal_gpu::walks::Walks;
use bathyal_gpu::{Card, CardCounters, GpuError, slots};
use bathyal_kernels::quantize::{CodeKind, CodeQuery};
use bathyal_store::Generation;
use bathyal_tier::Cx;
use bathyal_vectors::progress::Progress;

/// Largest beam width of a search on a card.
pub(super) const MAX_BEAM_WIDTH: u32 = 16;
/// Codes that are copied at a time.
const CODES_AT_ONCE: usize = 4096;
/// Codes of a graph without pages that stay in memory, as a sample of its vectors.
const SAMPLE_CODES: usize = 1024;

/// Links and ends of pages that a query sends in one launch, enough for some pages. More of them take several
/// launches.
const PAGE_IDS: u32 = 2048;

/// The part of a graph that is on a card.
#[derive(Debug)]
pub(crate) enum GraphCard {
    /// The codes, for layouts of single records.
    Records(Hops),
    /// The codes, for the page-local layout.
    Pages(Pages),
    /// Codes, links and vectors.
    Whole(Walks),
}

impl GraphCard {
    /// Returns the length of the longest candidate list.
    pub(super) fn list(&self) -> u32 {
        match self {
            GraphCard::Records(hops) => hops.shape().list,
            GraphCard::Pages(pages) => pages.shape().list,
            GraphCard::Whole(walks) => walks.shape().list,
        }
    }

    /// Returns the largest number of running queries.
    pub(super) fn slots(&self) -> u32 {
        match self {
            GraphCard::Records(hops) => hops.shape().slots,
            GraphCard::Pages(pages) => pages.shape().slots,
            GraphCard::Whole(walks) => walks.shape().slots,
        }
    }

    /// Returns the bytes of the card's memory that the graph takes.
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

/// Returns the number of codes that stay in memory when a card has all codes. Page-local layout: those of the
/// pivots and of the entry point. Other layouts: a sample.
pub(super) fn kept_code_count(layout: &GraphLayout, vectors: u32) -> u64 {
    match layout.page_local() {
        Some(_) => pivots(vectors, &[]).len() as u64 + 1,
        None => SAMPLE_CODES.min(vectors as usize) as u64,
    }
}

/// Returns an error if a card cannot search a graph with this entry.
pub(super) fn check(entry: &GraphEntry) -> Result<(), GpuError> {
    let unsuited = |text: String| Err(GpuError::Unsuited(text));
    match entry.codes.kind.parse() {
        Ok(CodeKind::RaBitQ { .. } | CodeKind::Axes) => Ok(()),
        _ => unsuited(format!(
            "a graphics card cannot score codes of kind {}; build the graph again with code_bytes of {} or \
            more, which makes codes of another kind",
            entry.codes.kind, 32
        )),
    }
}

/// Copies the codes of a graph to a card, or the whole graph, and starts to serve searches there.
pub(super) fn load(
    directory: &dyn Generation,
    manifest: &Manifest,
    graph: &mut Graph,
    choice: CardChoice<'_>,
    progress: &dyn Progress,
) -> Result<GraphCard, IndexError> {
    if choice.resident {
        return Ok(GraphCard::Whole(resident::copy_to_card(directory, manifest, graph, choice, progress)?));
    }
    let CardChoice { card, mini_batch, .. } = choice;
    let codes = load_codes(directory, manifest, graph, card, progress)?;
    if let Some(layout) = graph.layout.page_local() {
        // The last hops of a page-local search read twice the beam width (see `width_after`).
        let one_slot = HopShape { list: MOST_CANDIDATES, width: 2 * MAX_BEAM_WIDTH, ids: PAGE_IDS, slots: 1 };
        let slots = slots(card.profile(), bathyal_gpu::pages::slot_bytes(&one_slot, codes.codes()));
        let shape = HopShape { slots, ..one_slot };
        let pages = Pages::start(card, codes, shape, layout.records() as u32, mini_batch)?;
        return Ok(GraphCard::Pages(pages));
    }
    let ids = (graph.entry.max_degree * MAX_BEAM_WIDTH).max(1);
    let one_slot = HopShape { list: MOST_CANDIDATES, width: MAX_BEAM_WIDTH, ids, slots: 1 };
    let slots = slots(card.profile(), one_slot.slot_bytes(codes.codes()));
    Ok(GraphCard::Records(Hops::start(card, codes, HopShape { slots, ..one_slot }, mini_batch)?))
}

/// Copies the codes of a graph to `card`, piece by piece, and keeps some of them in [`Graph::kept_codes`].
pub(super) fn load_codes(
    directory: &dyn Generation,
    manifest: &Manifest,
    graph: &mut Graph,
    card: &dyn Card,
    progress: &dyn Progress,
) -> Result<Navigation, IndexError> {
    let Some(codes) = graph.codec.plane_codes() else {
        return Err(IndexError::Internal("codes without planes were to be copied to a graphics card".into()));
    };
    let planes: Option<Vec<u16>> =
        codes.bytes.iter().map(|(plane, group)| Codes::plane(*plane, *group)).collect();
    let Some(planes) = planes else {
        let text = "a graphics card cannot score codes of this many dimensions";
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
    let mut upload = GraphUpload::begin(card, shape, graph.set.vectors.into())?;
    progress.stage("copying codes to the graphics card", file.bytes);
    let (size, mut outcome, mut kept, mut entry_code) = (codes.code_bytes, Ok(()), Vec::new(), Vec::new());
    let (is_local, entry) = (graph.layout.page_local().is_some(), graph.entry.entry_point as usize);
    let kept_places: Vec<usize> = match is_local {
        true => graph.pivots.iter().map(|pivot| *pivot as usize).collect(),
        false => spread(graph.set.vectors as usize, SAMPLE_CODES).collect(),
    };
    let mut kept_places = kept_places.into_iter().peekable();
    let crc = read_through(object.as_ref(), file.bytes, size * CODES_AT_ONCE, progress, |piece, codes| {
        let first = piece as usize * CODES_AT_ONCE;
        while let Some(place) = kept_places.next_if(|place| *place < first + codes.len() / size) {
            kept.extend_from_slice(&codes[(place - first) * size..][..size]);
        }
        if is_local && (first..first + codes.len() / size).contains(&entry) {
            entry_code.extend_from_slice(&codes[(entry - first) * size..][..size]);
        }
        outcome = std::mem::replace(&mut outcome, Ok(())).and_then(|()| upload.append(codes));
    })?;
    outcome?;
    if crc != file.crc32c {
        let reason = format!("its checksum is {crc:08x}; the manifest has {:08x}", file.crc32c);
        return Err(IndexError::damaged(object.address(), "its content", reason));
    }
    kept.append(&mut entry_code);
    graph.kept_codes = kept;
    Ok(upload.finish()?)
}

/// Returns the parameters of a query for a card.
pub(super) fn search_parameters(graph: &Graph, params: &SearchParams) -> GraphSearchParameters {
    let (starts, step) = starts(&graph.layout, params.beam_width);
    GraphSearchParameters {
        list: params.search_list as u32,
        width: params.beam_width as u32,
        starts: starts as u32,
        step: step as u32,
    }
}

/// A running query on a card.
#[derive(Debug)]
pub(super) enum CardQuery {
    Records(RecordQuery),
    Pages(PageQuery),
}

impl CardQuery {
    /// Waits for a free slot on the card, and begins a query that takes one launch for each hop. `None` if
    /// the whole graph is on the card.
    pub(super) async fn begin(
        card: &GraphCard,
        cx: &Cx,
        graph: &Graph,
        query: &CodeQuery,
        params: &SearchParams,
    ) -> Option<CardQuery> {
        match card {
            GraphCard::Records(hops) => {
                Some(CardQuery::Records(RecordQuery::begin(hops, cx, graph, query, params).await))
            }
            GraphCard::Pages(pages) => {
                Some(CardQuery::Pages(PageQuery::begin(pages, cx, params, &graph.layout).await))
            }
            GraphCard::Whole(_) => None,
        }
    }

    /// Returns the number of pivots that the card scores but does not count.
    pub(super) fn pivots(&self) -> u32 {
        match self {
            CardQuery::Records(query) => query.pivots,
            CardQuery::Pages(_) => 0,
        }
    }
}

/// Appends a query to `out`, in the form that a card reads.
pub(super) fn write_code_query(query: &CodeQuery, codes: &Codes, out: &mut Vec<u8>) {
    let numbers = query.plane_numbers();
    let head = [numbers.offset, numbers.bias, numbers.norm_factor, numbers.gain_factor];
    write_query(head, numbers.low, if codes.fine { numbers.high } else { &[] }, out);
}

/// A query on a card that expands records.
#[derive(Debug)]
pub(super) struct RecordQuery {
    slot: Slot,
    /// Number of pivots that the card scores.
    pivots: u32,
}

impl RecordQuery {
    /// Waits for a free slot on the card, and begins a query.
    async fn begin(
        hops: &Hops,
        cx: &Cx,
        graph: &Graph,
        query: &CodeQuery,
        params: &SearchParams,
    ) -> RecordQuery {
        let mut slot = hops.wait_for_slot(cx).await;
        let parameters = search_parameters(graph, params);
        slot.begin(parameters, |bytes| write_code_query(query, hops.codes(), bytes));
        RecordQuery { slot, pivots: graph.pivots.len().div_ceil(parameters.step as usize) as u32 }
    }

    /// Sends `ids` as candidates to the card, and fills `next` with the candidates to expand next, nearest
    /// first.
    pub(super) async fn hop(&mut self, cx: &Cx, ids: &[u32], next: &mut Vec<u32>) -> Result<(), IndexError> {
        self.slot.submit(ids, cx.task_waker());
        Ok(self.slot.wait_for_response(cx, next).await?)
    }
}
