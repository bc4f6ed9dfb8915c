//! Another layout for a graph that is there: the same vectors, links, codes and calibration, copied record by record.
//!
//! What grows with the vectors in memory is the order of the records (8 bytes a vector), the codes, which any search
//! holds too, and 8 bytes a record of the packed layout. Records themselves pass through a window of some megabytes:
//! those of the next places are read in the order in which they lie in the old file, then written in the new one.

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

/// Bytes of records that wait to be written in their new order: as many as make most reads of a page serve several.
const WINDOW_BYTES: usize = 64 << 20;
/// Spans that are read together.
const READ_SPANS: usize = 16;
/// Reads in flight.
const DEPTH: u32 = 128;
/// Bytes of codes written at once.
const WRITE_BYTES: usize = 4 << 20;

/// What a conversion came to.
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
    /// Bytes of all files of the copy but its manifest.
    pub index_bytes: u64,
    /// The same of the index that it was made from.
    pub index_bytes_before: u64,
    /// `index_bytes` by the bytes of the vectors alone.
    pub amplification: f64,
}

/// Writes the graph index at `source` to `target` in another layout: `padded` becomes `csr`, and `csr` becomes `padded`.
///
/// The graph is the same, so recall, reads and the calibration are; only ties may fall differently. Nothing appears at
/// `target` before all is complete. `threads` of 0 means all cores.
///
/// # Errors
/// [`IndexError::Parameter`] for an index that is no graph, for the layout that it has already, and for `page_local`,
/// whose links lead to pages: it can only be built. [`IndexError::Exists`] if something is at `target`; damage of the
/// source; a full disk; cancellation.
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

/// The same from any store to any store, where the copy will be called `name`.
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
    // The manifest has the checksums of all that the index is.
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
    let old = Source::open(source, &manifest, graph)?;
    // The copy is the same index in another layout, so it keeps the identity; version 1 has none.
    let mut identity = manifest.identity().map_err(IndexError::Parameter)?;
    if identity.is_none() {
        identity = content;
    }
    let to = Destination { directory, identity, threads };
    let (mut entry, links) = match &old.layout {
        GraphLayout::Padded(layout) => pack(&old, layout, graph, to, progress)?,
        GraphLayout::Csr(layout) => spread(&old, layout, graph, to, progress)?,
        GraphLayout::Local(_) => return Err(refused(source.address())),
    };
    // As version 1 may have been measured with noise.
    entry.calibration.curves.iter_mut().for_each(|curve| curve.keep_rising(|_| ()));
    let mut converted = manifest.clone();
    converted.written_by = format!("bathyal {}", env!("CARGO_PKG_VERSION"));
    converted.identity = Some(identity.to_string());
    converted.set_structure(&entry, entry.files())?;
    converted.renew_version().map_err(IndexError::Internal)?;
    let conversion = conversion(&converted, links);
    publish(draft, &converted, &Note { fingerprint, links }, progress)?;
    Ok(conversion)
}

/// Where the copy goes.
#[derive(Clone, Copy)]
struct Destination<'a> {
    directory: &'a dyn Draft,
    /// What its checksums begin with.
    identity: Identity,
    threads: usize,
}

fn check(source: &Path, manifest: &Manifest, layout: GraphLayoutChoice) -> Result<GraphEntry, IndexError> {
    let refuse = |what: &str| Err(IndexError::Parameter(format!("{}: {what}", source.display())));
    if manifest.family != NAME {
        return refuse("is no graph; only graphs can be converted to another layout");
    }
    let graph =
        GraphEntry::read(manifest).map_err(|reason| IndexError::damaged(source, "the manifest", reason))?;
    if layout == GraphLayoutChoice::PageLocal || graph.layout == GraphLayoutChoice::PageLocal.name() {
        return Err(refused(source));
    }
    if graph.layout == layout.name() {
        return refuse(&format!("has the layout {} already", graph.layout));
    }
    Ok(graph)
}

fn refused(source: &Path) -> IndexError {
    IndexError::Parameter(format!(
        "{}: page_local is a graph of pages, which keeps no links of single vectors: it is not converted from or to; \
         build the index again with the layout wanted",
        source.display()
    ))
}

/// The index that is read.
struct Source<'a> {
    directory: &'a dyn Generation,
    manifest: &'a Manifest,
    layout: GraphLayout,
    offsets: Offsets,
    file: Arc<dyn Object>,
    codec: Codec,
    codes: Vec<u8>,
    engine: RefCell<Engine>,
}

impl<'a> Source<'a> {
    fn open(
        directory: &'a dyn Generation,
        manifest: &'a Manifest,
        graph: &GraphEntry,
    ) -> Result<Self, IndexError> {
        let wrong = |reason| IndexError::damaged(directory.address(), "the manifest", reason);
        let layout = graph.layout(manifest).map_err(wrong)?;
        let file = manifest.open_file(directory, &graph.file)?;
        // Through the page cache: records are read in rising order, window after window.
        let tier = file.tier(FileOptions { method: Method::Probe, direct: false })?;
        let frame_bytes = layout.buffer_bytes();
        let options = EngineOptions {
            depth: DEPTH,
            frame_bytes,
            buffer_budget_bytes: 2 * u64::from(DEPTH) * frame_bytes as u64,
            ..EngineOptions::default()
        };
        Ok(Source {
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

    /// Reads all `spans` and gives each with its number to `used`, in any order.
    fn read(
        &self,
        spans: &[Span],
        progress: &dyn Progress,
        used: impl Fn(usize, &[u8]) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let failed = |source: ReadError| IndexError::Read { file: self.file.address().to_path_buf(), source };
        let mut parts = spans.chunks(READ_SPANS).enumerate();
        let mut failure = None;
        let (used, failed) = (&used, &failed);
        let next = |cx: &Cx| {
            let (part, spans) = parts.next().filter(|_| !progress.cancelled())?;
            let cx = cx.clone();
            Some(async move {
                let batch = cx.read(spans).await.map_err(failed)?;
                (0..spans.len()).try_for_each(|i| used(part * READ_SPANS + i, batch.bytes(i)))
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

    /// Writes codec and codes, the codes of `ids` in their order.
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

/// Vectors as their codes remember them: near enough to place them.
struct Coded<'a> {
    codec: &'a Codec,
    codes: &'a [u8],
}

impl Points for Coded<'_> {
    fn dim(&self) -> usize {
        self.codec.dim()
    }

    fn read(&self, id: u32, out: &mut [f32]) {
        let size = self.codec.code_bytes();
        self.codec.decode(&self.codes[id as usize * size..][..size], out);
    }
}

/// Records on their way: a vector and its neighbours each, in equal slots.
struct Window {
    slots: RefCell<Vec<u8>>,
    slot_bytes: usize,
    vector_bytes: usize,
}

impl Window {
    fn new(vector_bytes: usize, max_degree: u32, most: usize) -> Window {
        let slot_bytes = vector_bytes + 4 * (1 + max_degree as usize);
        let slots = (WINDOW_BYTES / slot_bytes).clamp(1, most.max(1));
        Window { slots: RefCell::new(vec![0; slots * slot_bytes]), slot_bytes, vector_bytes }
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

    /// Gives the vector of a slot and its neighbours, each renamed, rising and once, to `used`.
    fn take<T>(
        &self,
        slot: usize,
        renamed: impl Fn(u32) -> u32,
        links: &mut Vec<u32>,
        used: impl FnOnce(&[u8], &[u32]) -> T,
    ) -> T {
        let slots = self.slots.borrow();
        let (row, words) = slots[slot * self.slot_bytes..][..self.slot_bytes].split_at(self.vector_bytes);
        let mut words = words.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        let degree = words.next().unwrap_or(0) as usize;
        links.clear();
        links.extend(words.take(degree).map(renamed));
        links.sort_unstable();
        links.dedup();
        used(row, links)
    }
}

/// From padded records to packed ones.
fn pack(
    old: &Source<'_>,
    layout: &PageLayout,
    graph: &GraphEntry,
    to: Destination<'_>,
    progress: &dyn Progress,
) -> Result<(GraphEntry, u64), IndexError> {
    let count = old.vectors();
    let coded = Coded { codec: &old.codec, codes: &old.codes };
    let places = Places::new(&coded, count as usize, 1, old.manifest.seed, to.threads, progress)?;
    let codes = old.write_codes(to.directory, places.ids.iter().copied(), &graph.codes, progress)?;
    let element = old.manifest.stored_element().map_err(IndexError::Parameter)?;
    let new = CsrLayout::new(element, old.manifest.dim, count, graph.max_degree, LINE_BYTES);
    let new = new.map_err(IndexError::Parameter)?.identified(to.identity);
    let mut packer = Packer::create(to.directory, new, count as usize)?;
    let vector_bytes = element.row_bytes(old.manifest.dim as usize);
    let window = Window::new(vector_bytes, graph.max_degree, count as usize);
    progress.stage("writing graph", u64::from(count));
    let (mut links, mut total) = (Vec::new(), 0);
    for (part, ids) in places.ids.chunks(window.len()).enumerate() {
        let first = part * window.len();
        let mut wanted: Vec<(u32, u32)> = ids.iter().copied().zip(0..).collect();
        wanted.sort_unstable();
        let groups: Vec<&[(u32, u32)]> =
            wanted.chunk_by(|a, b| layout.span(a.0) == layout.span(b.0)).collect();
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
            window.take(
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

/// From packed records to padded ones.
fn spread(
    old: &Source<'_>,
    layout: &CsrLayout,
    graph: &GraphEntry,
    to: Destination<'_>,
    progress: &dyn Progress,
) -> Result<(GraphEntry, u64), IndexError> {
    let count = old.vectors();
    let places = order(old, layout, progress)?;
    let order = (0..count).map(|id| places.place_of(id));
    let codes = old.write_codes(to.directory, order, &graph.codes, progress)?;
    let element = old.manifest.stored_element().map_err(IndexError::Parameter)?;
    let new = PageLayout::choose(element, old.manifest.dim, graph.max_degree);
    let new = new.map_err(IndexError::Parameter)?.identified(to.identity);
    let window = Window::new(element.row_bytes(old.manifest.dim as usize), graph.max_degree, count as usize);
    progress.stage("writing graph", u64::from(count));
    let mut file = Appender::create(to.directory, GRAPH_NAME)?;
    let (mut links, mut total) = (Vec::new(), 0);
    let mut page = vec![0; new.read_bytes()];
    // Whole pages, so that each is written once.
    let per_page = new.records_per_page().max(1);
    let at_once = (window.len() / per_page).max(1) * per_page;
    for first in (0..count).step_by(at_once) {
        let ids = first..first.saturating_add(at_once as u32).min(count);
        let mut wanted: Vec<(u32, u32)> = ids.clone().map(|id| places.place_of(id)).zip(0..).collect();
        wanted.sort_unstable();
        let spans: Vec<Span> = wanted.iter().map(|(place, _)| old.offsets.span(*place)).collect();
        let found = RefCell::new(Vec::new());
        old.read(&spans, progress, |i, bytes| {
            let (place, slot) = wanted[i];
            let damaged = |reason| old.damaged(format!("record {place}"), reason);
            let record = layout.decode(bytes, place).map_err(damaged)?;
            let mut found = found.borrow_mut();
            layout.links(&record, &mut found).map_err(damaged)?;
            window.set(slot as usize, record.vector, found.iter().copied());
            Ok(())
        })?;
        for pages in ids.clone().step_by(per_page) {
            page.fill(0);
            for id in pages..pages.saturating_add(per_page as u32).min(ids.end) {
                let renamed = |place: u32| places.ids[place as usize];
                window.take((id - first) as usize, renamed, &mut links, |vector, links| {
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

/// The order of packed records, from the ids that they hold.
fn order(old: &Source<'_>, layout: &CsrLayout, progress: &dyn Progress) -> Result<Places, IndexError> {
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
                let reason = format!("vector {} is elsewhere too or none of {count}", record.id);
                failure.get_or_insert(old.damaged(format!("record {place}"), reason));
            }
            Err(reason) => {
                failure.get_or_insert(old.damaged(format!("record {place}"), reason));
            }
        }
    })?;
    match failure {
        Some(error) => Err(error),
        None => Ok(Places::of(ids)),
    }
}
