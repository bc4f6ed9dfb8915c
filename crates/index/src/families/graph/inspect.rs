//! Describes a graph for `bathyal inspect`: degrees, packing and calibration.

use super::layout::GraphLayout;
use super::open::load_offsets;
use super::records::read_records;
use super::section::GraphEntry;
use crate::calibrate::list::ListPoint;
use crate::error::IndexError;
use crate::family::reports::bars;
use crate::family::{Description, Fact};
use crate::format::csr::{CsrLayout, LINE_BYTES};
use crate::format::local::LocalLayout;
use crate::format::manifest::Manifest;
use crate::format::offsets::Offsets;
use crate::format::pages::PageLayout;
use crate::format::walk::read_through;
use bathyal_store::{Generation, Object};
use bathyal_vectors::progress::Progress;
use serde::Serialize;

/// Statistics of packed records.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PackedShape {
    /// Mean bits of a link, without the degree.
    pub link_bits: f64,
    /// Bits of memory for each vector that the offsets take.
    pub offset_bits: f64,
    /// Cache lines that a record touches, on average.
    pub lines: f64,
    /// Cache lines that a record would touch if no record had been moved to the beginning of a line.
    pub lines_unmoved: f64,
    /// Share of the file that the padding of moved records takes.
    pub moved_share: f64,
}

/// Reads the whole graph, and describes it.
pub(super) fn describe(
    directory: &dyn Generation,
    manifest: &Manifest,
    graph: &GraphEntry,
    progress: &dyn Progress,
) -> Result<Description, IndexError> {
    let wrong = |reason: String| IndexError::damaged(directory.address(), "the manifest", reason);
    let layout = graph.layout(manifest).map_err(wrong)?;
    let file = manifest.open_file(directory, &graph.file)?;
    progress.stage("reading the graph", graph.file.bytes);
    let offsets = load_offsets(directory, manifest, graph)?;
    let degrees = Degrees::read(file.as_ref(), &layout, &offsets, manifest, progress)?;
    let (total, vectors) = (graph.file.bytes, manifest.vectors);
    let used = manifest.data_bytes + degrees.used_bytes;
    let (read_bytes, packed) = match layout {
        GraphLayout::Csr(_) => {
            let offset_bits = 8.0 * offsets.memory_bytes() as f64 / vectors as f64;
            ((total / vectors) as usize, Some(degrees.packed(total, vectors, offset_bits)))
        }
        _ => (layout.read_bytes(), None),
    };
    let counts = &degrees.counts;
    let nodes: u64 = counts.iter().sum();
    let links: u64 = counts.iter().enumerate().map(|(degree, count)| degree as u64 * count).sum();
    let lowest = counts.iter().position(|c| *c > 0).unwrap_or(0) as u32;
    let highest = counts.iter().rposition(|c| *c > 0).unwrap_or(0) as u32;
    let mean_degree = links as f64 / nodes.max(1) as f64;
    let histogram = bars(counts);
    let mut facts = vec![
        Fact::new("mean_degree", mean_degree),
        Fact::new("degree_range", (lowest, highest)),
        Fact::new("degree_histogram", &histogram),
    ];
    let mut lines = vec![("entry point", format!("vector {}", graph.entry_point)), graph.codes.line()];
    if let Some(packed) = packed {
        lines.extend(packed.lines());
        facts.push(Fact::new("packed", packed));
    }
    lines.push(("neighbours", format!("{lowest} to {highest}, mean {mean_degree:.1}")));
    Ok(Description {
        kind: format!("{} graph", graph.layout),
        built_with: format!(
            "max_degree {}, search_list {}, alpha {}",
            graph.max_degree, graph.search_list, graph.alpha
        ),
        read_bytes,
        records_per_page: layout.records_per_page(),
        padding_share: 1.0 - used as f64 / total as f64,
        facts,
        lines,
        histogram,
        calibration: calibration(graph),
    })
}

/// Returns a line for each curve of the calibration, with its first and its last point.
fn calibration(graph: &GraphEntry) -> Vec<String> {
    let calibration = &graph.calibration;
    let line = |(k, least, most): (u32, ListPoint, ListPoint)| {
        format!(
            "k {k}: recall {:.3} at search_list {} to {:.3} at {} ({} {})",
            least.recall,
            least.search_list,
            most.recall,
            most.search_list,
            calibration.queries,
            calibration.source
        )
    };
    calibration.ends().into_iter().map(line).collect()
}

impl PackedShape {
    /// Returns labelled lines of text.
    fn lines(&self) -> [(&'static str, String); 2] {
        let links = format!(
            "{:.1} bits each; offsets take {:.1} bits of memory for each record",
            self.link_bits, self.offset_bits
        );
        let lines = format!(
            "a record touches {:.2} lines of 64 B; without moved records {:.2}, and {:.1}% of the file less",
            self.lines,
            self.lines_unmoved,
            100.0 * self.moved_share
        );
        [("links", links), ("lines", lines)]
    }
}

/// Counts of the links of a graph. The methods that count return the place and the reason of a failure.
#[derive(Default)]
struct Degrees {
    /// Number of nodes (vectors or pages) of each degree.
    counts: Vec<u64>,
    /// Bytes in use, without the vectors.
    used_bytes: u64,
    links: Vec<u32>,
    /// Packed records: offset of the next record.
    at: u64,
    /// Packed records: offset of the next record if no record had been moved.
    unmoved_at: u64,
    /// Packed records: cache lines that records touch.
    lines: u64,
    /// Packed records: cache lines that records would touch if none had been moved.
    lines_unmoved: u64,
    /// Packed records: bits of all links.
    link_bits: u64,
}

/// Returns the number of cache lines that `bytes` bytes at offset `at` touch.
fn lines(at: u64, bytes: u64) -> u64 {
    let line = u64::from(LINE_BYTES);
    (at + bytes).div_ceil(line) - at / line
}

impl Degrees {
    fn count(&mut self, degree: usize) {
        if self.counts.len() <= degree {
            self.counts.resize(degree + 1, 0);
        }
        self.counts[degree] += 1;
    }

    fn count_records(
        &mut self,
        layout: &PageLayout,
        vectors: u64,
        number: u64,
        bytes: &[u8],
    ) -> Result<(), (String, String)> {
        let records = layout.records_per_page().max(1) as u64;
        for id in number * records..((number + 1) * records).min(vectors) {
            let record =
                layout.decode(bytes, id as u32).map_err(|reason| (format!("vector {id}"), reason))?;
            self.count(record.degree());
            self.used_bytes += 8 + 4 * record.degree() as u64;
        }
        Ok(())
    }

    fn count_page(
        &mut self,
        layout: &LocalLayout,
        number: u64,
        bytes: &[u8],
    ) -> Result<(), (String, String)> {
        let failed = |reason| (format!("page {number}"), reason);
        let page = layout.decode(bytes, number as u32).map_err(failed)?;
        let bits = page.links(&mut self.links).map_err(failed)?;
        self.count(page.link_count());
        self.used_bytes += 12 + 4 * page.ids().len() as u64 + bits.div_ceil(8) as u64;
        Ok(())
    }
}

impl Degrees {
    fn count_packed(&mut self, layout: &CsrLayout, place: u32, bytes: &[u8]) -> Result<(), (String, String)> {
        let failed = |reason| (format!("record {place}"), reason);
        let record = layout.decode(bytes, place).map_err(failed)?;
        let end = layout.links(&record, &mut self.links).map_err(failed)?;
        self.count(record.degree);
        let used = end.div_ceil(8) as u64;
        self.used_bytes += used - record.vector.len() as u64;
        self.lines += lines(self.at, used);
        self.lines_unmoved += lines(self.unmoved_at, used);
        self.link_bits += (end - record.links_start()) as u64;
        self.at += bytes.len() as u64;
        self.unmoved_at += used;
        Ok(())
    }

    fn packed(&self, total: u64, vectors: u64, offset_bits: f64) -> PackedShape {
        let links: u64 = self.counts.iter().enumerate().map(|(degree, count)| degree as u64 * count).sum();
        PackedShape {
            link_bits: self.link_bits as f64 / links.max(1) as f64,
            offset_bits,
            lines: self.lines as f64 / vectors as f64,
            lines_unmoved: self.lines_unmoved as f64 / vectors as f64,
            moved_share: 1.0 - self.unmoved_at as f64 / total as f64,
        }
    }
}

impl Degrees {
    fn read(
        file: &dyn Object,
        layout: &GraphLayout,
        offsets: &Offsets,
        manifest: &Manifest,
        progress: &dyn Progress,
    ) -> Result<Degrees, IndexError> {
        let mut degrees = Degrees::default();
        let mut failure = None;
        let (total, unit) = (manifest.paged_file().bytes, layout.read_bytes());
        let mut note = |counted: Result<(), (String, String)>| {
            if let Err(fault) = counted {
                failure.get_or_insert(fault);
            }
        };
        match layout {
            GraphLayout::Padded(layout) => read_through(file, total, unit, progress, |number, bytes| {
                note(degrees.count_records(layout, manifest.vectors, number, bytes))
            })?,
            GraphLayout::Local(layout) => read_through(file, total, unit, progress, |number, bytes| {
                note(degrees.count_page(layout, number, bytes))
            })?,
            GraphLayout::Csr(layout) => read_records(file, offsets, progress, |place, bytes| {
                note(degrees.count_packed(layout, place, bytes))
            })?,
        };
        match failure {
            Some((place, reason)) => Err(IndexError::damaged(file.address(), place, reason)),
            None => Ok(degrees),
        }
    }
}
