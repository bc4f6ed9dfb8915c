//! The graph over the centroids: a Vamana graph that is built in rounds, and the files of it that a search
//! loads.

use super::centroids::CentroidLinks;
use super::section::{CENTROIDS_NAME, LINKS_NAME};
use super::work::Work;
use crate::error::IndexError;
use crate::format::appender::Appender;
use crate::format::manifest::FileEntry;
use crate::partition::space::Space;
use crate::proximity::adjacency::Adjacency;
use crate::proximity::grow::Growth;
use crate::proximity::options::GrowthOptions;

/// Links of a centroid: half of those in a graph over vectors, since centroids are compared exactly and in
/// DRAM.
pub(crate) const CENTROID_DEGREE: u32 = 32;
/// The candidate list of the build (L in DiskANN).
const CENTROID_SEARCH_LIST: u32 = 64;
/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;

/// Builds the graph.
pub(crate) fn grow<'a>(work: &'a Work<'_>, centroids: &'a Space) -> Result<Growth<'a>, IndexError> {
    let (max_degree, search_list) = (CENTROID_DEGREE, CENTROID_SEARCH_LIST);
    let options = GrowthOptions { max_degree, search_list, alpha: work.own.alpha };
    let entry = centroids.medoid(&[], work.threads, work.progress)?;
    let graph = Adjacency::new(centroids.count(), max_degree)?;
    let (space, seed, threads, progress) = (centroids, work.options.seed, work.threads, work.progress);
    let growth = Growth { space, graph, entry, options, seed, threads, progress };
    let order = growth.rounds()?;
    growth.finish(&order)?;
    Ok(growth)
}

/// The files of centroids and links.
pub(crate) struct Files {
    pub(crate) centroids: FileEntry,
    pub(crate) links: FileEntry,
}

/// Writes the centroids and their links.
pub(crate) fn write(work: &Work<'_>, growth: &Growth<'_>) -> Result<Files, IndexError> {
    let mut centroids = Appender::create(work.directory, CENTROIDS_NAME)?;
    let mut links = Appender::create(work.directory, LINKS_NAME)?;
    let (mut rows, mut lists) = (Vec::new(), Vec::new());
    let mut neighbors: Vec<u32> = Vec::new();
    let count = growth.space.count() as u32;
    for list in 0..count {
        rows.extend_from_slice(growth.space.row(list));
        neighbors.clear();
        neighbors.extend(growth.graph.neighbors(list));
        neighbors.sort_unstable();
        CentroidLinks::encode(&neighbors, &mut lists);
        if rows.len().max(lists.len()) >= WRITE_BYTES || list + 1 == count {
            work.check_cancelled()?;
            centroids.append(&rows)?;
            links.append(&lists)?;
            rows.clear();
            lists.clear();
        }
    }
    Ok(Files { centroids: centroids.finish()?, links: links.finish()? })
}
