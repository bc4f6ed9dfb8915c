//! A graph that is on a graphics card as a whole: codes, links and vectors. A search is one launch, and reads nothing.
//!
//! It walks as one of this processor does, to the last bit; what it finds on the way is compared in 32-bit sums of another order.

use super::layout::GraphLayout;
use super::on_card::{asks, load_codes, write};
use super::records::read_records;
use super::search::{Graph, Scratch};
use crate::error::IndexError;
use crate::family::CardChoice;
use crate::format::manifest::Manifest;
use crate::format::walk::read_through;
use crate::query::{Phase, SearchParams};
use bathyal_gpu::hops::MOST_CANDIDATES;
use bathyal_gpu::walks::{LinkUpload, Shape, Walks};
use bathyal_gpu::{GpuError, VectorUpload, slots};
use bathyal_store::Generation;
use bathyal_tier::Cx;
use bathyal_vectors::progress::Progress;

/// Copies a graph to `card`, which begins to serve.
pub(super) fn walks(
    directory: &dyn Generation,
    manifest: &Manifest,
    graph: &mut Graph,
    CardChoice { card, mini_batch, .. }: CardChoice<'_>,
    progress: &dyn Progress,
) -> Result<Walks, IndexError> {
    if let GraphLayout::Local(_) = graph.layout {
        let text = "a graph of layout page_local is not on a graphics card as a whole, one of padded or csr can be: `bathyal \
                    convert-layout` makes it, or leave --tier gpu (tier) out";
        return Err(GpuError::Unsuited(text.into()).into());
    }
    let codes = load_codes(directory, manifest, graph, card, progress)?;
    let vectors = u64::from(graph.set.vectors);
    let mut copying = Copying {
        graph,
        vectors: VectorUpload::begin(card, graph.set.exact.on_card(), vectors)?,
        links: LinkUpload::begin(card, graph.entry.max_degree, vectors)?,
        of_record: Vec::new(),
    };
    let file = &graph.entry.file;
    let object = manifest.open_file(directory, file)?;
    progress.stage("copying vectors and links to the graphics card", file.bytes);
    let mut outcome = Ok(());
    let mut each = |place: u32, bytes: &[u8]| {
        if outcome.is_ok() {
            outcome = copying.take(place, bytes);
        }
    };
    let crc = match &graph.layout {
        GraphLayout::Padded(layout) => {
            let records = layout.records_per_page().max(1) as u64;
            let bytes = layout.read_bytes();
            read_through(object.as_ref(), file.bytes, bytes, progress, |page, bytes| {
                (page * records..((page + 1) * records).min(vectors)).for_each(|id| each(id as u32, bytes));
            })?
        }
        _ => read_records(object.as_ref(), &graph.offsets, progress, each)?,
    };
    outcome?;
    if crc != file.crc32c {
        let reason = format!("checksum {crc:08x}, the manifest says {:08x}", file.crc32c);
        return Err(IndexError::damaged(object.address(), "its content", reason));
    }
    let Copying { vectors, links, .. } = copying;
    let (vectors, one) = (vectors.finish()?, Shape { list: MOST_CANDIDATES, slots: 1 });
    let slots = slots(card.profile(), one.slot_bytes(codes.codes(), &vectors));
    Ok(Walks::start(card, codes, links, vectors, (Shape { slots, ..one }, mini_batch))?)
}

/// Records on their way to a card.
struct Copying<'a> {
    graph: &'a Graph,
    vectors: VectorUpload,
    links: LinkUpload,
    of_record: Vec<u32>,
}

impl Copying<'_> {
    /// Takes the record of the next place.
    fn take(&mut self, place: u32, bytes: &[u8]) -> Result<(), IndexError> {
        let set = &self.graph.set;
        let damaged = |reason: String| set.damaged(format!("record {place}"), reason);
        let (id, vector) = match &self.graph.layout {
            GraphLayout::Padded(layout) => {
                let record = layout.decode(bytes, place).map_err(damaged)?;
                self.of_record.clear();
                self.of_record.extend(record.neighbors());
                (place, record.vector)
            }
            GraphLayout::Csr(layout) => {
                let record = layout.decode(bytes, place).map_err(damaged)?;
                layout.links(&record, &mut self.of_record).map_err(damaged)?;
                (record.id, record.vector)
            }
            GraphLayout::Local(_) => {
                return Err(IndexError::Internal("pages that link as a whole on a graphics card".into()));
            }
        };
        set.check_id(id, || format!("record {place}"))?;
        if let Some(link) = self.of_record.iter().find(|link| **link >= set.vectors) {
            return Err(damaged(format!("neighbour {link} is not among {} vectors", set.vectors)));
        }
        self.vectors.append(vector, id)?;
        Ok(self.links.append(&self.of_record)?)
    }
}

impl Scratch {
    /// Has the card search; what it has found is the answer.
    pub(super) async fn walk_on_card(
        &mut self,
        graph: &Graph,
        walks: &Walks,
        cx: &Cx,
        params: &SearchParams,
    ) -> Result<(), IndexError> {
        let mut slot = loop {
            match walks.slot(cx.task_waker()) {
                Some(slot) => break slot,
                None => cx.parked().await,
            }
        };
        let code_query = &self.code_query;
        let write = |bytes: &mut Vec<u8>| write(code_query, walks.codes(), bytes);
        let vector = (&self.query.bytes[..], params.k.min(params.search_list) as u32);
        slot.submit(asks(graph, params), write, vector, cx.task_waker())?;
        let walked = loop {
            let found = &mut self.query.found;
            let offer = |distance, id| {
                found.push(id, distance);
            };
            match slot.take_response(offer) {
                Some(answered) => break answered?,
                None => cx.parked().await,
            }
        };
        let stats = &mut self.query.stats;
        stats.hops += walked.hops;
        stats.code_distances += walked.scored;
        stats.full_distances += walked.expanded;
        self.query.clock.spent(Phase::Scan);
        Ok(())
    }
}
