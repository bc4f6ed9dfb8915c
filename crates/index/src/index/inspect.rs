//! `inspect`: what an index is made of.

use super::verify::Walk;
use crate::error::IndexError;
use crate::format::groups::GroupLayout;
use crate::format::manifest::{ClusterEntry, Manifest, Structure};
use crate::format::pages::PageLayout;
use crate::progress::Progress;
use serde::Serialize;
use std::path::Path;

/// Bars of the degree histogram.
const HISTOGRAM_BARS: usize = 16;

/// One bar of a histogram.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HistogramBar {
    /// Smallest degree counted here.
    pub from: u32,
    /// Largest degree counted here.
    pub to: u32,
    /// Vectors.
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
    /// Bytes of one read.
    pub read_bytes: usize,
    /// Share of the graph's file that carries nothing: page ends and unused neighbour slots.
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
        /// Mean number of neighbours.
        mean_degree: f64,
        /// Number of neighbours of the best and worst connected vector.
        degree_range: (u32, u32),
        /// How many vectors have how many neighbours.
        degree_histogram: Vec<HistogramBar>,
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
}

/// Reads through the index at `path` and describes it.
///
/// # Errors
/// [`IndexError`]: no index, or a record that cannot be read; `verify` says more about damage.
pub fn inspect(path: impl AsRef<Path>, progress: &dyn Progress) -> Result<InspectReport, IndexError> {
    let directory = path.as_ref();
    let manifest = Manifest::read(directory)?;
    let wrong = |reason: String| IndexError::damaged(directory, "the manifest", reason);
    let element = manifest.element().map_err(wrong)?;
    let graph = match &manifest.structure {
        Structure::Graph(graph) => graph,
        Structure::Cluster(cluster) => {
            let layout = GroupLayout::new(element, manifest.dim, cluster.page_bytes, cluster.group_pages);
            return Ok(describe_groups(directory, &manifest, cluster, &layout.map_err(wrong)?));
        }
    };
    let layout = PageLayout::new(element, manifest.dim, graph.max_degree, graph.page_bytes).map_err(wrong)?;
    let file = manifest.checked_path(directory, &graph.file)?;
    progress.stage("reading the graph", graph.file.bytes);
    let vectors = manifest.vectors as u32;
    let mut degrees = vec![0_u64; graph.max_degree as usize + 1];
    let mut failure = None;
    Walk { layout, vectors, progress }.run(&file, |first, bytes| {
        let records = layout.records_per_page().max(1) as u64;
        for id in u64::from(first)..(u64::from(first) + records).min(u64::from(vectors)) {
            match layout.decode(bytes, id as u32) {
                Ok(record) => degrees[record.degree()] += 1,
                Err(reason) => {
                    failure.get_or_insert((id, reason));
                }
            }
        }
    })?;
    if let Some((id, reason)) = failure {
        return Err(IndexError::damaged(file, format!("vector {id}"), reason));
    }
    let links: u64 = degrees.iter().enumerate().map(|(degree, count)| degree as u64 * count).sum();
    let used = manifest.vectors * (8 + u64::from(manifest.dim) * element.size() as u64) + links * 4;
    let index_bytes = directory_bytes(directory, &manifest);
    let lowest = degrees.iter().position(|c| *c > 0).unwrap_or(0) as u32;
    let highest = degrees.iter().rposition(|c| *c > 0).unwrap_or(0) as u32;
    Ok(InspectReport {
        index_bytes,
        data_bytes: manifest.data_bytes,
        amplification: index_bytes as f64 / manifest.data_bytes as f64,
        records_per_page: layout.records_per_page(),
        read_bytes: layout.read_bytes(),
        padding_share: 1.0 - used as f64 / graph.file.bytes as f64,
        shape: Shape::Graph {
            mean_degree: links as f64 / manifest.vectors as f64,
            degree_range: (lowest, highest),
            degree_histogram: bars(&degrees),
        },
        manifest,
    })
}

fn describe_groups(
    directory: &Path,
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

/// Bytes of all files of an index, the manifest's own included.
fn directory_bytes(directory: &Path, manifest: &Manifest) -> u64 {
    let own = directory.join(crate::format::manifest::MANIFEST_NAME).metadata().map_or(0, |m| m.len());
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
