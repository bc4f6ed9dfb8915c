//! `verify`: every byte of an index against its checksums, every link against the vectors.

use super::family;
use crate::error::IndexError;
use crate::families::cluster::centroids::Centroids;
use crate::families::spann;
use crate::families::spann::open::{Opening, open};
use crate::format::csr::CsrLayout;
use crate::format::layout::GraphLayout;
use crate::format::local::LocalLayout;
use crate::format::manifest::{ClusterEntry, MANIFEST_NAME, Manifest, SpannEntry, Structure};
use crate::format::offsets::Offsets;
use crate::format::pages::PageLayout;
use bathyal_kernels::quantize::Codec;
use bathyal_kernels::{Element, first_non_finite};
use bathyal_store::local::LocalStore;
use bathyal_store::{Generation, Object};
use bathyal_vectors::progress::Progress;
use serde::Serialize;
use std::path::Path;

/// Bytes read at once.
const READ_BYTES: usize = 4 << 20;
/// Faults that are listed one by one; a ruined file has millions.
const LISTED_FAULTS: usize = 20;

/// What a verification found.
#[derive(Debug, Clone, Serialize)]
pub struct VerifyReport {
    /// Whether nothing is wrong.
    pub sound: bool,
    /// Vectors walked.
    pub vectors: u64,
    /// Links walked.
    pub links: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Vectors, or pages where these link as a whole, that no other one links to (besides the entry point): searches
    /// cannot find them.
    pub unlinked: u64,
    /// Number of faults.
    pub fault_count: u64,
    /// The first faults, in words.
    pub faults: Vec<String>,
}

impl VerifyReport {
    pub(crate) fn fault(&mut self, what: String) {
        self.sound = false;
        self.fault_count += 1;
        if self.faults.len() < LISTED_FAULTS {
            self.faults.push(what);
        }
    }
}

/// Checks the whole index at `path`. Damage is reported, not returned as an error; errors are for what keeps
/// the check from running: no index, no permission, cancellation.
pub fn verify(path: impl AsRef<Path>, progress: &dyn Progress) -> Result<VerifyReport, IndexError> {
    verify_in(LocalStore::open_at(path.as_ref(), MANIFEST_NAME)?.as_ref(), progress)
}

/// The same for an index in any store.
///
/// # Errors
/// As [`verify`].
pub fn verify_in(directory: &dyn Generation, progress: &dyn Progress) -> Result<VerifyReport, IndexError> {
    let mut report = VerifyReport {
        sound: true,
        vectors: 0,
        links: 0,
        bytes: 0,
        unlinked: 0,
        fault_count: 0,
        faults: Vec::new(),
    };
    let manifest = match Manifest::load(directory) {
        Err(damage @ IndexError::Damaged { .. }) => {
            report.fault(damage.to_string());
            return Ok(report);
        }
        other => other?,
    };
    progress.stage("verifying", manifest.paged_file().bytes);
    let paged = manifest.paged_file().name.clone();
    for entry in manifest.files().into_iter().filter(|entry| entry.name != paged) {
        match family::load(directory, &manifest, entry) {
            Err(damage @ (IndexError::Damaged { .. } | IndexError::Store(_))) => {
                report.fault(damage.to_string())
            }
            Err(other) => return Err(other),
            Ok(bytes) => {
                report.bytes += bytes.len() as u64;
                if entry.name == manifest.codes.codec.name
                    && let Err(e) = Codec::from_bytes(&bytes)
                {
                    report.fault(format!("{}: {e}", entry.name));
                }
            }
        }
    }
    match (manifest.open_file(directory, manifest.paged_file()), &manifest.structure) {
        (Err(damage), _) => report.fault(damage.to_string()),
        (Ok(file), Structure::Graph(entry)) => match family::load_offsets(directory, &manifest, entry) {
            Err(damage @ (IndexError::Damaged { .. } | IndexError::Store(_))) => {
                // A damaged file of offsets has been reported; one whose checksum is right may still be wrong.
                if report.sound {
                    report.fault(damage.to_string());
                }
            }
            Err(other) => return Err(other),
            Ok(offsets) => walk_graph(file.as_ref(), &offsets, &manifest, &mut report, progress)?,
        },
        (Ok(file), Structure::Cluster(entry)) => {
            let held = walk_groups(file.as_ref(), &manifest, entry, &mut report, progress)?;
            if report.sound {
                match family::load_cluster_for_scan(directory, &manifest) {
                    Err(damage) => report.fault(damage.to_string()),
                    Ok(cluster) => compare_groups(&cluster.centroids, &held, &mut report),
                }
            }
        }
        (Ok(file), Structure::Spann(entry)) => {
            spann::verify::verify(directory, file.as_ref(), &manifest, entry, &mut report, progress)?;
            if report.sound {
                match load_centroids(directory, &manifest, entry) {
                    Err(damage) => report.fault(damage.to_string()),
                    Ok(0) => {}
                    Ok(unreached) => {
                        report.unlinked = unreached;
                        report.fault(format!("{unreached} centroids have no way to them"));
                    }
                }
            }
        }
    }
    Ok(report)
}

/// Loads what searches keep in memory, in both forms of the centroids; returns how many of these no walk finds.
fn load_centroids(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &SpannEntry,
) -> Result<u64, IndexError> {
    let load = |exact| {
        let opening = Opening { exact, check: true, frame_bytes: 0, reads_at_once: 1 };
        open(directory, manifest, entry, opening)
    };
    load(false)?;
    Ok(load(true)?.centroids.unreached())
}

/// Compares the vectors that the pages of each group hold with what a scan believes.
fn compare_groups(centroids: &Centroids, held: &[u32], report: &mut VerifyReport) {
    for (group, held) in (0..centroids.groups() as u32).zip(held) {
        let count = centroids.count(group);
        if count != *held as usize {
            report.fault(format!("group {group}: its pages hold {held} vectors, the centroids say {count}"));
        }
    }
}

/// Checks every page of a cluster index: its checksum, and that each vector is there once. Returns the vectors of
/// each group.
fn walk_groups(
    object: &dyn Object,
    manifest: &Manifest,
    entry: &ClusterEntry,
    report: &mut VerifyReport,
    progress: &dyn Progress,
) -> Result<Vec<u32>, IndexError> {
    let wrong = |reason: String| IndexError::damaged(object.address(), "the manifest", reason);
    let element = manifest.element().map_err(wrong)?;
    let layout = manifest.group_layout().map_err(wrong)?;
    let mut seen = vec![0_u64; manifest.vectors as usize / 64 + 1];
    let mut held = vec![0_u32; entry.groups as usize];
    let file = entry.file.clone();
    let pages = u64::from(entry.groups) * layout.group_pages() as u64;
    let crc = read_through(object, file.bytes, layout.page_bytes(), progress, |number, page| {
        if number >= pages {
            if page.iter().any(|byte| *byte != 0) {
                report.fault("unused bytes behind the last page are not zero".into());
            }
            return;
        }
        if let Err(reason) = layout.check(number as u32, page) {
            return report.fault(format!("page {number}: {reason}"));
        }
        let vectors = layout.vectors(page).chunks_exact(layout.vector_bytes());
        for (slot, vector) in vectors.enumerate() {
            let Some(id) = layout.id(page, slot) else { continue };
            report.vectors += 1;
            held[number as usize / layout.group_pages()] += 1;
            if u64::from(id) >= manifest.vectors || seen[id as usize / 64] >> (id % 64) & 1 == 1 {
                report.fault(format!(
                    "page {number}: vector {id} is there twice or none of {}",
                    manifest.vectors
                ));
                continue;
            }
            seen[id as usize / 64] |= 1 << (id % 64);
            if let Some(at) = first_non_finite(element, vector) {
                report.fault(format!("vector {id}: component {at} is not finite"));
            }
        }
    })?;
    report.bytes += file.bytes;
    if crc != file.crc32c {
        report.fault(format!("{}: checksum {crc:08x}, the manifest says {:08x}", file.name, file.crc32c));
    }
    if report.vectors != manifest.vectors {
        report.fault(format!("the pages hold {} vectors of {}", report.vectors, manifest.vectors));
    }
    Ok(held)
}

/// Calls `page` with the number and the bytes of each `unit` bytes of a file, and returns the file's CRC-32C.
pub(crate) fn read_through(
    object: &dyn Object,
    total: u64,
    unit: usize,
    progress: &dyn Progress,
    mut page: impl FnMut(u64, &[u8]),
) -> Result<u32, IndexError> {
    let mut buffer = vec![0_u8; (READ_BYTES / unit).max(1) * unit];
    let (mut left, mut crc, mut number) = (total, 0_u32, 0);
    while left > 0 {
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        let part = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        object.read_at(total - left, &mut buffer[..part])?;
        crc = crc32c::crc32c_append(crc, &buffer[..part]);
        for bytes in buffer[..part].chunks(unit) {
            page(number, bytes);
            number += 1;
        }
        left -= part as u64;
        progress.advance(total - left);
    }
    Ok(crc)
}

/// Calls `record` with the place and the bytes of each record of a packed file, and returns the file's CRC-32C.
pub(crate) fn read_records(
    object: &dyn Object,
    offsets: &Offsets,
    progress: &dyn Progress,
    mut record: impl FnMut(u32, &[u8]),
) -> Result<u32, IndexError> {
    let mut buffer = Vec::new();
    let (mut place, mut crc) = (0, 0_u32);
    let count = offsets.records() as u32;
    while place < count {
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        let first = offsets.span(place);
        // One record at least, and as many as fit.
        let within = |p: &u32| offsets.span(*p).end() - first.offset <= READ_BYTES as u64;
        let end = (place + 1..count).take_while(within).last().map_or(place, |last| last) + 1;
        buffer.resize((offsets.span(end - 1).end() - first.offset) as usize, 0);
        object.read_at(first.offset, &mut buffer)?;
        crc = crc32c::crc32c_append(crc, &buffer);
        for place in place..end {
            let span = offsets.span(place);
            let start = (span.offset - first.offset) as usize;
            record(place, &buffer[start..start + span.len as usize]);
        }
        place = end;
        progress.advance(first.offset + buffer.len() as u64);
    }
    Ok(crc)
}

fn walk_graph(
    object: &dyn Object,
    offsets: &Offsets,
    manifest: &Manifest,
    report: &mut VerifyReport,
    progress: &dyn Progress,
) -> Result<(), IndexError> {
    let wrong = |reason: String| IndexError::damaged(object.address(), "the manifest", reason);
    let element = manifest.element().map_err(wrong)?;
    let graph = manifest.graph().map_err(wrong)?;
    let layout = manifest.graph_layout().map_err(wrong)?;
    let mut seen = Seen {
        vectors: manifest.vectors as u32,
        element,
        linked: Marks::new(manifest.vectors),
        ids: Marks::new(manifest.vectors),
        links: Vec::new(),
        report,
    };
    let (total, unit) = (graph.file.bytes, layout.read_bytes());
    let crc = match &layout {
        GraphLayout::Padded(layout) => {
            seen.linked.mark(graph.entry_point);
            read_through(object, total, unit, progress, |number, bytes| {
                seen.check_records(layout, number, bytes)
            })?
        }
        GraphLayout::Local(layout) => {
            seen.linked.mark(layout.page_of(graph.entry_point));
            read_through(object, total, unit, progress, |number, bytes| {
                seen.check_page(layout, number as u32, bytes)
            })?
        }
        GraphLayout::Csr(layout) => {
            seen.linked.mark(graph.entry_point);
            read_records(object, offsets, progress, |place, bytes| seen.check_packed(layout, place, bytes))?
        }
    };
    let (linked, ids) = (seen.linked.count(), seen.ids.count());
    report.bytes += graph.file.bytes;
    if crc != graph.file.crc32c {
        report.fault(format!(
            "{}: checksum {crc:08x}, the manifest says {:08x}",
            graph.file.name, graph.file.crc32c
        ));
    }
    let (nodes, name) = match &layout {
        GraphLayout::Padded(_) | GraphLayout::Csr(_) => (manifest.vectors, "vectors"),
        GraphLayout::Local(layout) => (u64::from(layout.pages()), "pages"),
    };
    report.unlinked = nodes.saturating_sub(linked);
    if report.unlinked > 0 {
        report.fault(format!("{} {name} have no link to them", report.unlinked));
    }
    if ids < manifest.vectors {
        report.fault(format!("{} ids are missing", manifest.vectors - ids));
    }
    Ok(())
}

/// One bit a number.
pub(crate) struct Marks(Vec<u64>);

impl Marks {
    pub(crate) fn new(numbers: u64) -> Marks {
        Marks(vec![0; numbers as usize / 64 + 1])
    }

    /// Marks `number`; true where it was not marked yet.
    pub(crate) fn mark(&mut self, number: u32) -> bool {
        let (word, bit) = (&mut self.0[number as usize / 64], 1 << (number % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

/// What the walk over a graph has seen.
struct Seen<'a> {
    vectors: u32,
    element: Element,
    /// Vectors, or pages in the page-local layout, that something links to.
    linked: Marks,
    ids: Marks,
    links: Vec<u32>,
    report: &'a mut VerifyReport,
}

impl Seen<'_> {
    /// The records of a page of the padded layout, or the one of several pages.
    fn check_records(&mut self, layout: &PageLayout, number: u64, bytes: &[u8]) {
        let records = layout.records_per_page().max(1) as u64;
        for id in number * records..((number + 1) * records).min(u64::from(self.vectors)) {
            self.check_record(layout, id as u32, bytes);
        }
    }

    fn check_record(&mut self, layout: &PageLayout, id: u32, bytes: &[u8]) {
        self.report.vectors += 1;
        self.ids.mark(id);
        let record = match layout.decode(bytes, id) {
            Ok(record) => record,
            Err(reason) => return self.report.fault(format!("vector {id}: {reason}")),
        };
        self.report.links += record.degree() as u64;
        for neighbor in record.neighbors() {
            if neighbor >= self.vectors || neighbor == id {
                self.report.fault(format!(
                    "vector {id}: links to {neighbor}, which is itself or none of {} vectors",
                    self.vectors
                ));
            } else {
                self.linked.mark(neighbor);
            }
        }
        self.check_vector(&format!("vector {id}"), record.vector);
        if !layout.padding_is_zero(bytes, id, record.degree()) {
            self.report.fault(format!("vector {id}: unused bytes are not zero"));
        }
    }

    fn check_packed(&mut self, layout: &CsrLayout, place: u32, bytes: &[u8]) {
        self.report.vectors += 1;
        let decoded = layout
            .decode(bytes, place)
            .and_then(|record| layout.links(&record, &mut self.links).map(|end| (record, end)));
        let (record, end) = match decoded {
            Ok(decoded) => decoded,
            Err(reason) => return self.report.fault(format!("record {place}: {reason}")),
        };
        if record.id >= self.vectors || !self.ids.mark(record.id) {
            self.report.fault(format!(
                "record {place}: holds vector {}, which is elsewhere too or none of {}",
                record.id, self.vectors
            ));
        }
        self.report.links += self.links.len() as u64;
        for link in &self.links {
            if *link == place {
                self.report.fault(format!("record {place}: links to itself"));
            }
            self.linked.mark(*link);
        }
        self.check_vector(&format!("record {place}"), record.vector);
        if !layout.padding_is_zero(&record, end) {
            self.report.fault(format!("record {place}: unused bytes are not zero"));
        }
    }

    fn check_page(&mut self, layout: &LocalLayout, number: u32, bytes: &[u8]) {
        let places = layout.places(number);
        self.report.vectors += places.len() as u64;
        let page = match layout.decode(bytes, number) {
            Ok(page) => page,
            Err(reason) => return self.report.fault(format!("page {number}: {reason}")),
        };
        for (id, vector) in page.ids().zip(page.vectors.chunks_exact(page.vectors.len() / places.len())) {
            if id >= self.vectors || !self.ids.mark(id) {
                self.report.fault(format!(
                    "page {number}: holds vector {id}, which is elsewhere too or none of {}",
                    self.vectors
                ));
            }
            self.check_vector(&format!("page {number}: vector {id}"), vector);
        }
        match page.links(&mut self.links) {
            Err(reason) => self.report.fault(format!("page {number}: {reason}")),
            Ok(used) => {
                self.report.links += self.links.len() as u64;
                for target in self.links.iter().map(|place| layout.page_of(*place)) {
                    if target == number {
                        self.report.fault(format!("page {number}: links to itself"));
                    }
                    self.linked.mark(target);
                }
                if !page.padding_is_zero(used) {
                    self.report.fault(format!("page {number}: unused bytes are not zero"));
                }
            }
        }
    }

    fn check_vector(&mut self, place: &str, vector: &[u8]) {
        if let Some(at) = first_non_finite(self.element, vector) {
            self.report.fault(format!("{place}: component {at} is not finite"));
        }
    }
}
