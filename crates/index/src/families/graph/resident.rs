//! A graph that is entirely on a graphics card: codes, links and vectors. A search is one launch, and reads
//! no tier.
//!
//! The card expands the same vectors as a search on the processor, bit for bit. It compares full vectors with
//! 32-bit sums in a different order, so those distances may differ.

use super::layout::GraphLayout;
use super::on_card::{load_codes, search_parameters, write_code_query};
use super::records::read_records;
use super::search::{Graph, GraphScratch};
use crate::error::IndexError;
use crate::family::CardChoice;
use crate::format::manifest::Manifest;
use crate::format::walk::read_through;
use crate::query::{Phase, SearchParams};
use bathyal_gpu::hops::MOST_CANDIDATES;
use bathyal_gpu::walks::{LinkUpload, WalkShape, Walks};
use bathyal_gpu::{GpuError, VectorUpload, slots};
use bathyal_store::Generation;
use bathyal_tier::Cx;
use bathyal_vectors::progress::Progress;

/// Copies a graph to `card`, and starts to serve searches there.
pub(super) fn copy_to_card(
    directory: &dyn Generation,
    manifest: &Manifest,
    graph: &mut Graph,
    CardChoice { card, mini_batch, .. }: CardChoice<'_>,
    progress: &dyn Progress,
) -> Result<Walks, IndexError> {
    if graph.layout.page_local().is_some() {
        let text = "a graph with the layout page_local cannot be searched entirely on a graphics card: build \
                   the index again with the layout padded or csr, or leave --tier gpu (tier) out";
        return Err(GpuError::Unsuited(text.into()).into());
    }
    let codes = load_codes(directory, manifest, graph, card, progress)?;
    let vectors = u64::from(graph.set.vectors);
    let mut copy = CardCopy {
        graph,
        vectors: VectorUpload::begin(card, graph.set.exact.on_card(), vectors)?,
        links: LinkUpload::begin(card, graph.entry.max_degree, vectors)?,
        record_links: Vec::new(),
    };
    let file = &graph.entry.file;
    let object = manifest.open_file(directory, file)?;
    progress.stage("copying vectors and links to the graphics card", file.bytes);
    let mut outcome = Ok(());
    let mut copy_record = |place: u32, bytes: &[u8]| {
        if outcome.is_ok() {
            outcome = copy.append(place, bytes);
        }
    };
    let crc = match &graph.layout {
        GraphLayout::Padded(layout) => {
            let records = layout.records_per_page().max(1) as u64;
            let bytes = layout.read_bytes();
            read_through(object.as_ref(), file.bytes, bytes, progress, |page, bytes| {
                let ids = page * records..((page + 1) * records).min(vectors);
                ids.for_each(|id| copy_record(id as u32, bytes));
            })?
        }
        _ => read_records(object.as_ref(), &graph.offsets, progress, copy_record)?,
    };
    outcome?;
    if crc != file.crc32c {
        let reason = format!("its checksum is {crc:08x}; the manifest has {:08x}", file.crc32c);
        return Err(IndexError::damaged(object.address(), "its content", reason));
    }
    let CardCopy { vectors, links, .. } = copy;
    let (vectors, one_slot) = (vectors.finish()?, WalkShape { list: MOST_CANDIDATES, slots: 1 });
    let slots = slots(card.profile(), one_slot.slot_bytes(codes.codes(), &vectors));
    Ok(Walks::start(card, codes, links, vectors, (WalkShape { slots, ..one_slot }, mini_batch))?)
}

/// A copy of a graph's records to a card.
struct CardCopy<'a> {
    graph: &'a Graph,
    vectors: VectorUpload,
    links: LinkUpload,
    /// Links of the record that is being copied.
    record_links: Vec<u32>,
}

impl CardCopy<'_> {
    /// Copies the record at `place`. Records must come in the order of their places.
    fn append(&mut self, place: u32, bytes: &[u8]) -> Result<(), IndexError> {
        let set = &self.graph.set;
        let damaged = |reason: String| set.damaged(format!("record {place}"), reason);
        let (id, vector) = match &self.graph.layout {
            GraphLayout::Padded(layout) => {
                let record = layout.decode(bytes, place).map_err(damaged)?;
                self.record_links.clear();
                self.record_links.extend(record.neighbors());
                (place, record.vector)
            }
            GraphLayout::Csr(layout) => {
                let record = layout.decode(bytes, place).map_err(damaged)?;
                layout.links(&record, &mut self.record_links).map_err(damaged)?;
                (record.id, record.vector)
            }
            GraphLayout::Local(_) => {
                return Err(IndexError::Internal("a page_local graph was to be copied to a card".into()));
            }
        };
        set.check_id(id, || format!("record {place}"))?;
        if let Some(link) = self.record_links.iter().find(|link| **link >= set.vectors) {
            return Err(damaged(format!("neighbour {link} is not among {} vectors", set.vectors)));
        }
        self.vectors.append(vector, id)?;
        Ok(self.links.append(&self.record_links)?)
    }
}

impl GraphScratch {
    /// Searches on the card. The response of the card holds the answer.
    pub(super) async fn walk_on_card(
        &mut self,
        graph: &Graph,
        walks: &Walks,
        cx: &Cx,
        params: &SearchParams,
    ) -> Result<(), IndexError> {
        let mut slot = walks.wait_for_slot(cx).await;
        let code_query = &self.code_query;
        let write = |bytes: &mut Vec<u8>| write_code_query(code_query, walks.codes(), bytes);
        let vector_and_k = (&self.query.bytes[..], params.k.min(params.search_list) as u32);
        slot.submit(search_parameters(graph, params), write, vector_and_k, cx.task_waker())?;
        let found = &mut self.query.found;
        let offer = |distance, id| {
            found.push(id, distance);
        };
        let counts = slot.wait_for_response(cx, offer).await?;
        let stats = &mut self.query.stats;
        stats.hops += counts.hops;
        stats.code_distances += counts.scored;
        stats.full_distances += counts.expanded;
        self.query.clock.spent(Phase::Scan);
        Ok(())
    }
}
