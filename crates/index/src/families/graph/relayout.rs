//! Copies a graph into another layout, record by record: the same vectors, links, codes and calibration.
//!
//! Memory that grows with the number of vectors: the order of the records (8 bytes a vector), the codes, and
//! 8 bytes a record of the packed layout. Records pass through a window of some megabytes: the records of the
//! next places are read in the order of the old file, then written in the order of the new one.

use super::layout::GraphLayout;
use super::open::load_offsets;
use super::options::GraphLayoutChoice;
use super::pack::Packer;
use super::places::Places;
use super::records::read_records;
use super::section::{CODEC_NAME, CODES_NAME, GRAPH_NAME, GraphEntry, NAME};
use crate::build::options::Target;
use crate::build::publishing::{Note, Start, publish};
use crate::error::IndexError;
use crate::format::appender::Appender;
use crate::format::csr::{CsrLayout, LINE_BYTES};
use crate::format::identity::Identity;
use crate::format::loading::{load, load_codec};
use crate::format::manifest::{CodesEntry, Manifest};
use crate::format::offsets::Offsets;
use crate::format::pages::PageLayout;
use crate::locate::{find, holding};
use crate::partition::placement::Points;
use bathyal_kernels::quantize::Codec;
use bathyal_object::StoreOptions;
use bathyal_store::{Draft, Generation, Object, Replace, Store};
use bathyal_tier::backend::file::{FileOptions, Method};
use bathyal_tier::{Control, Cx, Engine, EngineOptions, ReadError, RunError, Span};
use bathyal_vectors::progress::Progress;
use serde::Serialize;
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

/// Bytes of records in the window. At this size, most reads of a page serve several records.
const WINDOW_BYTES: usize = 64 << 20;
/// Spans that one task of the engine reads together.
const READ_SPANS: usize = 16;
/// Reads in flight.
const DEPTH: u32 = 128;
/// Bytes of codes written at once.
const WRITE_BYTES: usize = 4 << 20;

/// The result of a conversion.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayoutConversion {
    /// The layout that the index had.
    pub from: String,
    /// The layout that the copy has.
    pub to: String,
    /// Number of vectors.
    pub vectors: u64,
    /// Links copied.
    pub links: u64,
    /// Bytes of all files of the copy without its manifest.
    pub index_bytes: u64,
    /// Bytes of all files of the source without its manifest.
    pub index_bytes_before: u64,
    /// `index_bytes` divided by the bytes of the given vectors.
    pub amplification: f64,
}

/// Writes the graph index at `source` to `target` in another layout: `padded` becomes `csr`, and `csr`
/// becomes `padded`.
///
/// The graph stays the same, and so do recall, reads and the calibration; only ties may be broken
/// differently. The copy appears at `target` when it is complete. `threads` of 0 means all cores.
///
/// # Errors
/// [`IndexError::Parameter`] if the index is not a graph, if it has that layout already, and for
/// `page_local`, whose links lead to pages: it can only be built. [`IndexError::Exists`] if `target` exists;
/// a damaged source; a full disk; cancellation.
pub fn convert_layout(
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
    layout: GraphLayoutChoice,
    threads: usize,
    progress: &dyn Progress,
) -> Result<LayoutConversion, IndexError> {
    let (source, options) = (source.as_ref(), StoreOptions::default());
    let (source, target) = (find(source, &[], &options)?, holding(target, &options)?);
    convert_layout_in(source.as_ref(), target.store(), &target.name, layout, threads, progress)
}

/// Does the same as [`convert_layout`] between any two stores. The copy gets the name `name`.
///
/// # Errors
/// As [`convert_layout`].
pub fn convert_layout_in(
    source: &dyn Generation,
    store: &dyn Store,
    name: &str,
    layout: GraphLayoutChoice,
    threads: usize,
    progress: &dyn Progress,
) -> Result<LayoutConversion, IndexError> {
    let manifest = Manifest::load(source)?;
    let graph = &check(source.address(), &manifest, layout)?;
    let target = Target { store, name, replace: Replace::Never };
    // The manifest contains the checksums of all files of the index.
    let content =
        Identity::of(&serde_json::to_string(&manifest).map_err(|e| IndexError::Internal(e.to_string()))?);
    let fingerprint = format!("{} of {content} by {}", layout.name(), env!("CARGO_PKG_VERSION"));
    let (draft, start) = target.start(Some(&fingerprint), |_, _| None::<()>)?;
    let conversion = |converted: &Manifest, links| LayoutConversion {
        from: graph.layout.clone(),
        to: layout.name().into(),
        vectors: manifest.vectors,
        links,
        index_bytes: converted.index_bytes(),
        index_bytes_before: manifest.index_bytes(),
        amplification: converted.index_bytes() as f64 / manifest.data_bytes as f64,
    };
    if let Start::Finished(converted, note) = start {
        publish(draft, &converted, &note, progress)?;
        return Ok(conversion(&converted, note.links));
    }
    let directory = draft.as_ref();
    let threads = match threads {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        n => n,
    };
    let old = SourceGraph::open(source, &manifest, graph)?;
    // The copy is the same index in another layout, so it keeps the identity. Version 1 has none.
    let mut identity = manifest.identity().map_err(IndexError::Parameter)?;
    if identity.is_none() {
        identity = content;
    }
    let to = Destination { directory, identity, threads };
    let (mut entry, links) = match &old.layout {
        GraphLayout::Padded(layout) => pack(&old, layout, graph, to, progress)?,
        GraphLayout::Csr(layout) => unpack(&old, layout, graph, to, progress)?,
        GraphLayout::Local(_) => return Err(refused(source.address())),
    };
    // Curves of version 1 may contain noise.
    entry.calibration.curves.iter_mut().for_each(|curve| curve.keep_rising(|_| ()));
    let mut converted = manifest.clone();
    converted.written_by = format!("bathyal {}", env!("CARGO_PKG_VERSION"));
    converted.identity = Some(identity.to_string());
    // The plan predicts the old layout.
    converted.plan = None;
    converted.set_structure(&entry, entry.files())?;
    converted.renew_version().map_err(IndexError::Internal)?;
    let conversion = conversion(&converted, links);
    publish(draft, &converted, &Note { fingerprint, links }, progress)?;
    Ok(conversion)
}

/// The destination of the copy.
#[derive(Clone, Copy)]
struct Destination<'a> {
    directory: &'a dyn Draft,
    /// The identity with which the checksums of the copy begin.
    identity: Identity,
    threads: usize,
}

fn check(source: &Path, manifest: &Manifest, layout: GraphLayoutChoice) -> Result<GraphEntry, IndexError> {
    let refuse = |what: &str| Err(IndexError::Parameter(format!("{}: {what}", source.display())));
    if manifest.family != NAME {
        return refuse("this index is not a graph; only graphs can be converted to another layout");
    }
    let graph =
        GraphEntry::read(manifest).map_err(|reason| IndexError::damaged(source, "the manifest", reason))?;
    if layout == GraphLayoutChoice::PageLocal || graph.layout == GraphLayoutChoice::PageLocal.name() {
        return Err(refused(source));
    }
    if graph.layout == layout.name() {
        return refuse(&format!("the index already has the layout {}", graph.layout));
    }
    Ok(graph)
}

fn refused(source: &Path) -> IndexError {
    IndexError::Parameter(format!(
        "{}: the layout page_local stores links of pages, not of vectors, so it cannot be converted from \
        or to; build the index again with the layout that you want",
        source.display()
    ))
}

/// The graph that is read.
struct SourceGraph<'a> {
    directory: &'a dyn Generation,
    manifest: &'a Manifest,
    layout: GraphLayout,
    offsets: Offsets,
    file: Arc<dyn Object>,
    codec: Codec,
    codes: Vec<u8>,
    engine: RefCell<Engine>,
}

impl<'a> SourceGraph<'a> {
    fn open(
        directory: &'a dyn Generation,
        manifest: &'a Manifest,
        graph: &GraphEntry,
    ) -> Result<Self, IndexError> {
        let wrong = |reason| IndexError::damaged(directory.address(), "the manifest", reason);
        let layout = graph.layout(manifest).map_err(wrong)?;
        let file = manifest.open_file(directory, &graph.file)?;
        // Reads go through the page cache, because each window reads records in rising order.
        let tier = file.tier(FileOptions { method: Method::Probe, direct: false })?;
        let frame_bytes = layout.buffer_bytes();
        let options = EngineOptions {
            depth: DEPTH,
            frame_bytes,
            buffer_budget_bytes: 2 * u64::from(DEPTH) * frame_bytes as u64,
            ..EngineOptions::default()
        };
        Ok(SourceGraph {
            directory,
            manifest,
            layout,
            offsets: load_offsets(directory, manifest, graph)?,
            file,
            codec: load_codec(directory, manifest, &graph.codes)?,
            codes: load(directory, manifest, &graph.codes.file)?,
            engine: RefCell::new(Engine::new(tier, options)?),
        })
    }

    fn vectors(&self) -> u32 {
        self.manifest.vectors as u32
    }

    fn code_bytes(&self) -> usize {
        self.codec.code_bytes()
    }

    /// Reads all `spans`, and calls `on_arrival` with the number and the bytes of each, in any order.
    fn read(
        &self,
        spans: &[Span],
        progress: &dyn Progress,
        on_arrival: impl Fn(usize, &[u8]) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let failed = |source: ReadError| IndexError::Read { file: self.file.address().to_path_buf(), source };
        let mut parts = spans.chunks(READ_SPANS).enumerate();
        let mut failure = None;
        let (on_arrival, failed) = (&on_arrival, &failed);
        let next = |cx: &Cx| {
            let (part, spans) = parts.next().filter(|_| !progress.cancelled())?;
            let cx = cx.clone();
            Some(async move {
                let batch = cx.read(spans).await.map_err(failed)?;
                (0..spans.len()).try_for_each(|i| on_arrival(part * READ_SPANS + i, batch.bytes(i)))
            })
        };
        let sink = |outcome: Result<(), IndexError>| {
            if let Err(error) = outcome {
                failure.get_or_insert(error);
            }
        };
        let width = DEPTH as usize / READ_SPANS;
        let outcome = self.engine.borrow_mut().run(width, next, sink, Control::default());
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        match (failure, outcome) {
            (Some(error), _) => Err(error),
            (None, outcome) => outcome.map_err(|error: RunError| error.into()),
        }
    }

    fn damaged(&self, place: String, reason: String) -> IndexError {
        IndexError::damaged(self.file.address(), place, reason)
    }

    /// Writes the codec, and the codes at the old places that `order` gives, in that order.
    fn write_codes(
        &self,
        directory: &dyn Draft,
        order: impl ExactSizeIterator<Item = u32>,
        codes: &CodesEntry,
        progress: &dyn Progress,
    ) -> Result<CodesEntry, IndexError> {
        let mut file = Appender::create(directory, CODES_NAME)?;
        let mut buffer = Vec::with_capacity(WRITE_BYTES + self.code_bytes());
        for old in order {
            buffer.extend_from_slice(&self.codes[old as usize * self.code_bytes()..][..self.code_bytes()]);
            if buffer.len() >= WRITE_BYTES {
                if progress.cancelled() {
                    return Err(IndexError::Cancelled);
                }
                file.append(&buffer)?;
                buffer.clear();
            }
        }
        file.append(&buffer)?;
        let mut codec = Appender::create(directory, CODEC_NAME)?;
        codec.append(&load(self.directory, self.manifest, &codes.codec)?)?;
        Ok(CodesEntry { file: file.finish()?, codec: codec.finish()?, ..codes.clone() })
    }
}

/// Vectors decoded from their codes, which is precise enough to order them.
struct DecodedPoints<'a> {
    codec: &'a Codec,
    codes: &'a [u8],
}

impl Points for DecodedPoints<'_> {
    fn dim(&self) -> usize {
        self.codec.dim()
    }

    fn read(&self, id: u32, out: &mut [f32]) {
        let size = self.codec.code_bytes();
        self.codec.decode(&self.codes[id as usize * size..][..size], out);
    }
}

/// Records between reading and writing, in slots of equal size: a vector, its degree and its links each.
struct RecordWindow {
    slots: RefCell<Vec<u8>>,
    slot_bytes: usize,
    vector_bytes: usize,
}

impl RecordWindow {
    /// Allocates a window for [`WINDOW_BYTES`] of records, and at most `records` of them.
    fn new(vector_bytes: usize, max_degree: u32, records: usize) -> RecordWindow {
        let slot_bytes = vector_bytes + 4 * (1 + max_degree as usize);
        let slots = (WINDOW_BYTES / slot_bytes).clamp(1, records.max(1));
        RecordWindow { slots: RefCell::new(vec![0; slots * slot_bytes]), slot_bytes, vector_bytes }
    }

    fn len(&self) -> usize {
        self.slots.borrow().len() / self.slot_bytes
    }

    fn set(&self, slot: usize, vector: &[u8], neighbors: impl ExactSizeIterator<Item = u32>) {
        let mut slots = self.slots.borrow_mut();
        let (row, links) = slots[slot * self.slot_bytes..][..self.slot_bytes].split_at_mut(self.vector_bytes);
        row.copy_from_slice(vector);
        let words = std::iter::once(neighbors.len() as u32).chain(neighbors);
        links.chunks_exact_mut(4).zip(words).for_each(|(out, word)| out.copy_from_slice(&word.to_le_bytes()));
    }

    /// Calls `write` with the vector of a slot and its links. Each link is translated by `renamed`; links are
    /// in rising order, without duplicates. `links` is a buffer.
    fn with_record<T>(
        &self,
        slot: usize,
        renamed: impl Fn(u32) -> u32,
        links: &mut Vec<u32>,
        write: impl FnOnce(&[u8], &[u32]) -> T,
    ) -> T {
        let slots = self.slots.borrow();
        let (row, words) = slots[slot * self.slot_bytes..][..self.slot_bytes].split_at(self.vector_bytes);
        let mut words = words.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        let degree = words.next().unwrap_or(0) as usize;
        links.clear();
        links.extend(words.take(degree).map(renamed));
        links.sort_unstable();
        links.dedup();
        write(row, links)
    }
}

/// Copies padded records to packed ones. Returns the entry of the copy, and the number of its links.
fn pack(
    old: &SourceGraph<'_>,
    layout: &PageLayout,
    graph: &GraphEntry,
    to: Destination<'_>,
    progress: &dyn Progress,
) -> Result<(GraphEntry, u64), IndexError> {
    let count = old.vectors();
    let points = DecodedPoints { codec: &old.codec, codes: &old.codes };
    let places = Places::new(&points, count as usize, 1, old.manifest.seed, to.threads, progress)?;
    let codes = old.write_codes(to.directory, places.ids.iter().copied(), &graph.codes, progress)?;
    let element = old.manifest.stored_element().map_err(IndexError::Parameter)?;
    let new = CsrLayout::new(element, old.manifest.dim, count, graph.max_degree, LINE_BYTES);
    let new = new.map_err(IndexError::Parameter)?.identified(to.identity);
    let mut packer = Packer::create(to.directory, new, count as usize)?;
    let vector_bytes = element.row_bytes(old.manifest.dim as usize);
    let window = RecordWindow::new(vector_bytes, graph.max_degree, count as usize);
    progress.stage("writing graph", u64::from(count));
    let (mut links, mut total) = (Vec::new(), 0);
    for (part, ids) in places.ids.chunks(window.len()).enumerate() {
        let first = part * window.len();
        let mut ids_and_slots: Vec<(u32, u32)> = ids.iter().copied().zip(0..).collect();
        ids_and_slots.sort_unstable();
        let groups: Vec<&[(u32, u32)]> =
            ids_and_slots.chunk_by(|a, b| layout.span(a.0) == layout.span(b.0)).collect();
        let spans: Vec<Span> = groups.iter().map(|group| layout.span(group[0].0)).collect();
        old.read(&spans, progress, |i, pages| {
            for (id, slot) in groups[i] {
                let damaged = |reason| old.damaged(format!("vector {id}"), reason);
                let record = layout.decode(pages, *id).map_err(damaged)?;
                if let Some(neighbor) = record.neighbors().find(|neighbor| *neighbor >= count) {
                    return Err(damaged(format!("neighbour {neighbor} is not among {count} vectors")));
                }
                window.set(*slot as usize, record.vector, record.neighbors());
            }
            Ok(())
        })?;
        for (slot, id) in ids.iter().enumerate() {
            window.with_record(
                slot,
                |id| places.place_of(id),
                &mut links,
                |vector, links| {
                    total += links.len() as u64;
                    packer.push(*id, vector, links)
                },
            )?;
        }
        progress.advance((first + ids.len()) as u64);
    }
    let (file, offsets) = packer.finish()?;
    let entry = GraphEntry {
        file,
        offsets: Some(offsets),
        layout: GraphLayoutChoice::Csr.name().into(),
        page_bytes: LINE_BYTES,
        entry_point: places.place_of(graph.entry_point),
        codes,
        ..graph.clone()
    };
    Ok((entry, total))
}

/// Copies packed records to padded ones. Returns the entry of the copy, and the number of its links.
fn unpack(
    old: &SourceGraph<'_>,
    layout: &CsrLayout,
    graph: &GraphEntry,
    to: Destination<'_>,
    progress: &dyn Progress,
) -> Result<(GraphEntry, u64), IndexError> {
    let count = old.vectors();
    let places = read_places(old, layout, progress)?;
    let order = (0..count).map(|id| places.place_of(id));
    let codes = old.write_codes(to.directory, order, &graph.codes, progress)?;
    let element = old.manifest.stored_element().map_err(IndexError::Parameter)?;
    let new = PageLayout::choose(element, old.manifest.dim, graph.max_degree);
    let new = new.map_err(IndexError::Parameter)?.identified(to.identity);
    let vector_bytes = element.row_bytes(old.manifest.dim as usize);
    let window = RecordWindow::new(vector_bytes, graph.max_degree, count as usize);
    progress.stage("writing graph", u64::from(count));
    let mut file = Appender::create(to.directory, GRAPH_NAME)?;
    let (mut links, mut total) = (Vec::new(), 0);
    let mut page = vec![0; new.read_bytes()];
    // Whole pages at a time, so that each page is written once.
    let per_page = new.records_per_page().max(1);
    let at_once = (window.len() / per_page).max(1) * per_page;
    for first in (0..count).step_by(at_once) {
        let ids = first..first.saturating_add(at_once as u32).min(count);
        let mut places_and_slots: Vec<(u32, u32)> =
            ids.clone().map(|id| places.place_of(id)).zip(0..).collect();
        places_and_slots.sort_unstable();
        let spans: Vec<Span> = places_and_slots.iter().map(|(place, _)| old.offsets.span(*place)).collect();
        let old_links = RefCell::new(Vec::new());
        old.read(&spans, progress, |i, bytes| {
            let (place, slot) = places_and_slots[i];
            let damaged = |reason| old.damaged(format!("record {place}"), reason);
            let record = layout.decode(bytes, place).map_err(damaged)?;
            let mut old_links = old_links.borrow_mut();
            layout.links(&record, &mut old_links).map_err(damaged)?;
            window.set(slot as usize, record.vector, old_links.iter().copied());
            Ok(())
        })?;
        for pages in ids.clone().step_by(per_page) {
            page.fill(0);
            for id in pages..pages.saturating_add(per_page as u32).min(ids.end) {
                let renamed = |place: u32| places.ids[place as usize];
                window.with_record((id - first) as usize, renamed, &mut links, |vector, links| {
                    total += links.len() as u64;
                    new.encode(&mut page, id, vector, links);
                });
            }
            file.append(&page)?;
        }
        progress.advance(u64::from(ids.end));
    }
    let entry = GraphEntry {
        file: file.finish()?,
        offsets: None,
        layout: GraphLayoutChoice::Padded.name().into(),
        page_bytes: new.page_bytes() as u32,
        entry_point: places.ids[graph.entry_point as usize],
        codes,
        ..graph.clone()
    };
    Ok((entry, total))
}

/// Reads the ids of all packed records, and returns their places.
fn read_places(
    old: &SourceGraph<'_>,
    layout: &CsrLayout,
    progress: &dyn Progress,
) -> Result<Places, IndexError> {
    progress.stage("reading the order", old.manifest.paged_file().bytes);
    let count = old.vectors();
    let mut ids = Vec::with_capacity(count as usize);
    let mut seen = vec![false; count as usize];
    let mut failure = None;
    read_records(old.file.as_ref(), &old.offsets, progress, |place, bytes| {
        match layout.decode(bytes, place) {
            Ok(record) if record.id < count && !std::mem::replace(&mut seen[record.id as usize], true) => {
                ids.push(record.id);
            }
            Ok(record) => {
                let reason = format!(
                    "it holds vector {}, which another record holds too, or which is not below {count}",
                    record.id
                );
                failure.get_or_insert(old.damaged(format!("record {place}"), reason));
            }
            Err(reason) => {
                failure.get_or_insert(old.damaged(format!("record {place}"), reason));
            }
        }
    })?;
    match failure {
        Some(error) => Err(error),
        None => Ok(Places::from_ids(ids)),
    }
}
