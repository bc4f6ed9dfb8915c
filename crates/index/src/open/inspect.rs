//! `inspect`: what an index is made of.

use super::family::load_offsets;
use super::verify::{read_records, read_through};
use crate::error::IndexError;
use crate::families::spann::open::open_table;
use crate::format::csr::{CsrLayout, LINE_BYTES};
use crate::format::groups::GroupLayout;
use crate::format::layout::GraphLayout;
use crate::format::local::LocalLayout;
use crate::format::manifest::{ClusterEntry, MANIFEST_NAME, Manifest, SpannEntry, Structure};
use crate::format::pages::PageLayout;
use bathyal_store::local::LocalStore;
use bathyal_store::{Generation, GenerationExt};
use bathyal_vectors::progress::Progress;
use serde::Serialize;
use std::path::Path;

/// Bars of a histogram.
const HISTOGRAM_BARS: usize = 16;

/// One bar of a histogram.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HistogramBar {
    /// Smallest degree, or length of a list, counted here.
    pub from: u32,
    /// Largest one counted here.
    pub to: u32,
    /// Vectors, or lists.
    pub count: u64,
}

/// What an index is made of.
#[derive(Debug, Clone, Serialize)]
pub struct InspectReport {
    /// The manifest, field by field.
    pub manifest: Manifest,
    /// Bytes of all files, the manifest's own included.
    pub index_bytes: u64,
    /// Bytes of the vectors alone.
    pub data_bytes: u64,
    /// `index_bytes / data_bytes`.
    pub amplification: f64,
    /// Records in one page; 0 when a record takes several.
    pub records_per_page: usize,
    /// Bytes of one read; of packed records the mean.
    pub read_bytes: usize,
    /// Bytes of the file that searches read from a tier, by those of the vectors alone.
    pub paged_amplification: f64,
    /// Share of the paged file that carries nothing: page ends, unused neighbour slots, empty places.
    pub padding_share: f64,
    /// What only this family has.
    #[serde(flatten)]
    pub shape: Shape,
}

/// What the families have to say apart.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Shape {
    /// Of a graph.
    Graph {
        /// Mean number of neighbours of a vector, or of links of a page where these link as a whole.
        mean_degree: f64,
        /// The same of the worst and the best connected one.
        degree_range: (u32, u32),
        /// How many vectors (or pages) have how many.
        degree_histogram: Vec<HistogramBar>,
        /// Of packed records only.
        #[serde(skip_serializing_if = "Option::is_none")]
        packed: Option<PackedShape>,
    },
    /// Of a cluster index.
    Cluster {
        /// Groups.
        groups: u32,
        /// Vectors of a full group.
        group_vectors: usize,
        /// Bytes of the centroids in memory.
        centroid_bytes: u64,
        /// Bytes of the codes in memory.
        code_bytes: u64,
    },
    /// Of posting lists.
    Lists {
        /// Lists.
        lists: u32,
        /// Lists that a vector is in, in the mean.
        mean_replicas: f64,
        /// Vectors of a list, in the mean.
        mean_list: f64,
        /// Those of the shortest and the longest.
        list_range: (u32, u32),
        /// How many lists have how many vectors.
        list_histogram: Vec<HistogramBar>,
        /// Bits of an address, where lists hold addresses.
        #[serde(skip_serializing_if = "Option::is_none")]
        address_bits: Option<f64>,
        /// Bytes of the centroids and of the graph over them.
        centroid_bytes: u64,
        /// Kind and bytes of the codes that stand for vectors in lists, where they do.
        #[serde(skip_serializing_if = "Option::is_none")]
        list_codes: Option<(String, u32)>,
    },
}

/// How tightly records are packed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PackedShape {
    /// Bits of a link, the degree not counted.
    pub link_bits: f64,
    /// Bits of memory a vector to find its record by.
    pub offset_bits: f64,
    /// Lines of memory that a record touches, in the mean.
    pub lines: f64,
    /// Lines that it would touch if none had been moved to the next line.
    pub lines_unmoved: f64,
    /// Share of the file that this moving takes.
    pub moved_share: f64,
}

/// Reads through the index at `path` and describes it.
///
/// # Errors
/// [`IndexError`]: no index, or a record that cannot be read; `verify` says more about damage.
pub fn inspect(path: impl AsRef<Path>, progress: &dyn Progress) -> Result<InspectReport, IndexError> {
    inspect_in(LocalStore::open_at(path.as_ref(), MANIFEST_NAME)?.as_ref(), progress)
}

/// The same for an index in any store.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_in(directory: &dyn Generation, progress: &dyn Progress) -> Result<InspectReport, IndexError> {
    let manifest = Manifest::load(directory)?;
    let wrong = |reason: String| IndexError::damaged(directory.address(), "the manifest", reason);
    let element = manifest.element().map_err(wrong)?;
    let graph = match &manifest.structure {
        Structure::Graph(graph) => graph,
        Structure::Cluster(cluster) => {
            let layout = manifest.group_layout().map_err(wrong)?;
            return Ok(describe_groups(directory, &manifest, cluster, &layout));
        }
        Structure::Spann(entry) => return describe_lists(directory, &manifest, entry),
    };
    let layout = manifest.graph_layout().map_err(wrong)?;
    let file = manifest.open_file(directory, &graph.file)?;
    progress.stage("reading the graph", graph.file.bytes);
    let vector_bytes = u64::from(manifest.dim) * element.size() as u64;
    let mut degrees = Degrees::default();
    let offsets = load_offsets(directory, &manifest, graph)?;
    let mut failure = None;
    let (total, unit) = (graph.file.bytes, layout.read_bytes());
    let mut note = |counted: Result<(), (String, String)>| {
        if let Err(fault) = counted {
            failure.get_or_insert(fault);
        }
    };
    match &layout {
        GraphLayout::Padded(layout) => {
            read_through(file.as_ref(), total, unit, progress, |number, bytes| {
                note(degrees.count_records(layout, manifest.vectors, number, bytes))
            })?
        }
        GraphLayout::Local(layout) => read_through(file.as_ref(), total, unit, progress, |number, bytes| {
            note(degrees.count_page(layout, number, bytes))
        })?,
        GraphLayout::Csr(layout) => read_records(file.as_ref(), &offsets, progress, |place, bytes| {
            note(degrees.count_packed(layout, place, bytes))
        })?,
    };
    if let Some((place, reason)) = failure {
        return Err(IndexError::damaged(file.address(), place, reason));
    }
    let used = manifest.vectors * vector_bytes + degrees.used_bytes;
    let (read_bytes, packed) = match layout {
        GraphLayout::Csr(_) => {
            let offset_bits = 8.0 * offsets.memory_bytes() as f64 / manifest.vectors as f64;
            ((total / manifest.vectors) as usize, Some(degrees.packed(total, manifest.vectors, offset_bits)))
        }
        _ => (layout.read_bytes(), None),
    };
    let Degrees { counts: degrees, .. } = degrees;
    let nodes: u64 = degrees.iter().sum();
    let links: u64 = degrees.iter().enumerate().map(|(degree, count)| degree as u64 * count).sum();
    let index_bytes = directory_bytes(directory, &manifest);
    let lowest = degrees.iter().position(|c| *c > 0).unwrap_or(0) as u32;
    let highest = degrees.iter().rposition(|c| *c > 0).unwrap_or(0) as u32;
    Ok(InspectReport {
        index_bytes,
        data_bytes: manifest.data_bytes,
        amplification: index_bytes as f64 / manifest.data_bytes as f64,
        records_per_page: layout.records_per_page(),
        read_bytes,
        paged_amplification: total as f64 / manifest.data_bytes as f64,
        padding_share: 1.0 - used as f64 / graph.file.bytes as f64,
        shape: Shape::Graph {
            mean_degree: links as f64 / nodes.max(1) as f64,
            degree_range: (lowest, highest),
            degree_histogram: bars(&degrees),
            packed,
        },
        manifest,
    })
}

fn describe_groups(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &ClusterEntry,
    layout: &GroupLayout,
) -> InspectReport {
    let index_bytes = directory_bytes(directory, manifest);
    InspectReport {
        index_bytes,
        data_bytes: manifest.data_bytes,
        amplification: index_bytes as f64 / manifest.data_bytes as f64,
        records_per_page: layout.page_vectors(),
        read_bytes: layout.page_bytes(),
        paged_amplification: entry.file.bytes as f64 / manifest.data_bytes as f64,
        // Every vector has its bytes and its id.
        padding_share: 1.0 - (manifest.data_bytes + 4 * manifest.vectors) as f64 / entry.file.bytes as f64,
        shape: Shape::Cluster {
            groups: entry.groups,
            group_vectors: layout.group_vectors(),
            centroid_bytes: entry.centroids.bytes,
            code_bytes: manifest.codes.file.bytes,
        },
        manifest: manifest.clone(),
    }
}

fn describe_lists(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &SpannEntry,
) -> Result<InspectReport, IndexError> {
    let postings = open_table(directory, manifest, entry)?;
    let mut lengths = Vec::new();
    let (mut shortest, mut longest, mut addresses, mut section_bytes) = (u32::MAX, 0, 0_u64, 0_u64);
    for list in 0..entry.list_count {
        let length = postings.vectors_of(list);
        if lengths.len() <= length as usize {
            lengths.resize(length as usize + 1, 0_u64);
        }
        lengths[length as usize] += 1;
        (shortest, longest) = (shortest.min(length), longest.max(length));
        let section = postings.members_range(list);
        addresses += u64::from(postings.members_of(list));
        section_bytes += section.end - section.start;
    }
    let index_bytes = directory_bytes(directory, manifest);
    let lists = f64::from(entry.list_count);
    // Every stored copy has its bytes, and a coupled one its id.
    let copies = entry.copies - addresses;
    let rows = if addresses > 0 { manifest.vectors } else { copies };
    let row_bytes = manifest.data_bytes / manifest.vectors + if addresses > 0 { 0 } else { 4 };
    let used = match &entry.codes {
        Some(codes) => {
            copies * (4 + u64::from(codes.code_bytes)) + manifest.data_bytes + 4 * manifest.vectors
        }
        None => rows * row_bytes + section_bytes,
    };
    Ok(InspectReport {
        index_bytes,
        data_bytes: manifest.data_bytes,
        amplification: index_bytes as f64 / manifest.data_bytes as f64,
        records_per_page: 0,
        read_bytes: entry.list_bytes() as usize,
        paged_amplification: entry.file.bytes as f64 / manifest.data_bytes as f64,
        padding_share: (1.0 - used as f64 / entry.file.bytes as f64).max(0.0),
        shape: Shape::Lists {
            lists: entry.list_count,
            mean_replicas: entry.copies as f64 / manifest.vectors as f64,
            mean_list: entry.copies as f64 / lists,
            list_range: (shortest, longest),
            list_histogram: bars(&lengths),
            address_bits: (addresses > 0).then(|| 8.0 * section_bytes as f64 / addresses as f64),
            centroid_bytes: entry.centroids.bytes + entry.links.bytes,
            list_codes: entry.codes.as_ref().map(|codes| (codes.kind.clone(), codes.code_bytes)),
        },
        manifest: manifest.clone(),
    })
}

/// What is counted on the way through a graph: a failure names the place and the reason.
#[derive(Default)]
struct Degrees {
    /// How many nodes have how many links.
    counts: Vec<u64>,
    /// Bytes in use besides the vectors.
    used_bytes: u64,
    links: Vec<u32>,
    /// Of packed records: where the next one begins, where it would without any moving, lines touched either way, bits
    /// of links.
    at: u64,
    unmoved_at: u64,
    lines: u64,
    lines_unmoved: u64,
    link_bits: u64,
}

/// Lines of memory that `bytes` bytes from `at` on touch.
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

/// Bytes of all files of an index, the manifest's own included.
fn directory_bytes(directory: &dyn Generation, manifest: &Manifest) -> u64 {
    let own = directory.len_of(MANIFEST_NAME).unwrap_or(0);
    manifest.index_bytes() + own
}

fn bars(degrees: &[u64]) -> Vec<HistogramBar> {
    let width = degrees.len().div_ceil(HISTOGRAM_BARS).max(1);
    let bars = degrees.chunks(width).enumerate();
    bars.map(|(i, counts)| HistogramBar {
        from: (i * width) as u32,
        to: (i * width + counts.len() - 1) as u32,
        count: counts.iter().sum(),
    })
    .collect()
}
