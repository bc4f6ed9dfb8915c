//! The index families as one: what an open index holds besides its tier, and the search of each.

use crate::error::IndexError;
use crate::families::cluster::centroids::{self, Centroids, codes_metric};
use crate::families::cluster::search::{self as cluster, Cluster};
use crate::families::graph::page_search::pivots;
use crate::families::graph::search::{self as vamana, Graph};
use crate::families::spann::coded::search::Candidates;
use crate::families::spann::open::{Opening, open, suited_gap, suited_submission};
use crate::families::spann::search::{self as spann, Lists};
use crate::format::groups::NO_ID;
use crate::format::identity::Identity;
use crate::format::manifest::{ClusterEntry, FileEntry, GraphEntry, Manifest, Structure};
use crate::format::offsets::Offsets;
use crate::format::packing::buffer_bytes;
use crate::format::postings::BLOCK_BYTES;
use crate::open::memory::MemorySplit;
use crate::query::{Clock, Exact, QueryStats, SearchParams};
use bathyal_kernels::quantize::Codec;
use bathyal_kernels::{Element, Metric, Neighbor};
use bathyal_store::{Generation, ObjectExt, ObjectReader, StoreError};
use bathyal_tier::memory::CACHE_LINE;
use bathyal_tier::{Cx, TierProfile};
use std::io::Read;
use std::path::Path;

/// Buffers of a thread: twice its depth, so that reads can be staged while others are in flight.
pub(super) const FRAMES: u32 = 2 * super::ENGINE_DEPTH;
/// Memory that a thread's buffers for posting lists may take, and how many there are at least.
const LIST_BUFFER_BYTES: usize = 32 << 20;
const LEAST_FRAMES: u32 = 16;
/// Shortest buffer for posting lists: lists that lie side by side share a read. Of grouped lists with 1 replica from a disk,
/// a thread answers 1.20 and 1.24 times the queries of 16 KiB (SIFT, recall 0.90 and 0.95) and 1.13 times (GloVe, 0.90)
/// with 70 to 85% of the reads; 64 and 128 KiB gain no more, for more memory.
const LEAST_LIST_FRAME: usize = 32 << 10;

/// Coarsest granularity of a tier from which vectors are read alone; one that moves whole pages gives what else is on
/// them for nothing.
const MOST_LONE_GRANULARITY: u32 = 512;

/// How many distances from codes take as long as one from a full vector, about: that one's bytes come from far.
const CODES_A_VECTOR: usize = 64;

/// What an open index holds in memory.
pub(crate) enum Family {
    /// A graph: codes, and the geometry of its pages.
    Graph(Graph),
    /// Groups: codes, centroids, and the geometry of the pages.
    Cluster(Cluster),
    /// Posting lists: centroids, their graph, and where the lists lie.
    Spann(Box<Lists>),
}

impl Family {
    /// Loads what stays in memory and checks it.
    pub(super) fn load(
        directory: &dyn Generation,
        manifest: &Manifest,
        split: &MemorySplit,
        sizes: &Sizes,
        check: bool,
    ) -> Result<Family, IndexError> {
        match &manifest.structure {
            Structure::Graph(entry) => load_graph(directory, manifest, entry).map(Family::Graph),
            Structure::Cluster(entry) => {
                let mut cluster = load_cluster(directory, manifest, entry, split.codes)?;
                cluster.check_pages = split.pages == 0;
                Ok(Family::Cluster(cluster))
            }
            Structure::Spann(entry) => {
                let opening = Opening {
                    exact: split.codes == 0,
                    check,
                    frame_bytes: sizes.frame_bytes(false),
                    reads_at_once: sizes.frames as usize / 2,
                };
                Ok(Family::Spann(Box::new(open(directory, manifest, entry, opening)?)))
            }
        }
    }

    /// Checks pages that were loaded into memory, if searches will not check them, and notes whose vectors they hold.
    pub(super) fn check_loaded(&mut self, pages: &[u8]) -> Result<(), IndexError> {
        let Family::Cluster(cluster) = self else { return Ok(()) };
        let layout = cluster.layout;
        let groups = cluster.centroids.groups();
        let mut ids = Vec::with_capacity(layout.places(groups));
        // Zeros may follow the last page.
        let count = groups * layout.group_pages();
        for (number, page) in pages.chunks(layout.page_bytes()).take(count).enumerate() {
            let damaged = |reason| IndexError::damaged(&cluster.file, format!("page {number}"), reason);
            layout.check(number as u32, page).map_err(damaged)?;
            for slot in 0..layout.page_vectors() {
                let id = layout.id(page, slot);
                let (group, rank) = layout.group_rank(ids.len() as u32);
                // Places of no vector are at the end of a group, and are never asked for.
                if (rank < cluster.centroids.count(group)) != id.is_some_and(|id| id < cluster.vectors) {
                    return Err(damaged(format!("place {slot} does not hold what the centroids say")));
                }
                ids.push(id.unwrap_or(NO_ID));
            }
        }
        cluster.ids = ids;
        Ok(())
    }

    /// Decides whether candidates are read alone, once it is known what reads them.
    pub(super) fn settle(&mut self, profile: &TierProfile) {
        if let Family::Cluster(cluster) = self
            && (!profile.addressable || profile.granularity > MOST_LONE_GRANULARITY)
        {
            cluster.ids = Vec::new();
        }
    }

    /// Whether candidates are read alone, not by the page.
    pub(super) fn reads_vectors(&self) -> bool {
        matches!(self, Family::Cluster(cluster) if !cluster.ids.is_empty())
    }

    /// Hides vectors of a graph, by their places (rising), from searches.
    pub(super) fn hide(&mut self, places: Vec<u32>) {
        if let Family::Graph(graph) = self {
            graph.pivots = pivots(graph.vectors, &places);
            graph.absent = places;
        }
    }

    /// Fits searches to the device that they read.
    pub(super) fn suit(&mut self, profile: &TierProfile) {
        if let Family::Spann(lists) = self {
            lists.gap = suited_gap(profile);
            lists.submission = suited_submission(profile, lists.submission);
        }
    }

    pub(super) fn element(&self) -> Element {
        match self {
            Family::Graph(graph) => graph.element,
            Family::Cluster(cluster) => cluster.element,
            Family::Spann(lists) => lists.element,
        }
    }

    pub(super) fn metric(&self) -> Metric {
        match self {
            Family::Graph(graph) => graph.metric,
            Family::Cluster(cluster) => cluster.metric,
            Family::Spann(lists) => lists.metric,
        }
    }

    pub(super) fn vector_bytes(&self) -> usize {
        match self {
            Family::Graph(graph) => graph.dim * graph.element.size(),
            Family::Cluster(cluster) => cluster.layout.vector_bytes(),
            Family::Spann(lists) => lists.dim * lists.element.size(),
        }
    }

    /// The file that reads come from.
    pub(super) fn file(&self) -> &Path {
        match self {
            Family::Graph(graph) => &graph.file,
            Family::Cluster(cluster) => &cluster.file,
            Family::Spann(lists) => &lists.file,
        }
    }

    /// Answers one query; what was found stays in `scratch`.
    pub(super) async fn search(
        &self,
        cx: Cx,
        query: &[u8],
        params: SearchParams,
        scratch: &mut Scratch,
    ) -> Result<(), IndexError> {
        match (self, scratch) {
            (Family::Graph(graph), Scratch::Graph(scratch)) => {
                vamana::search(cx, graph, query, params, scratch).await
            }
            (Family::Cluster(cluster), Scratch::Cluster(scratch)) => {
                cluster::search(cx, cluster, query, params, scratch).await
            }
            (Family::Spann(lists), Scratch::Spann(scratch)) => {
                spann::search(cx, lists, query, params, scratch).await
            }
            _ => Err(IndexError::Internal("the scratch of another family".into())),
        }
    }
}

/// Memory of one running query of any family.
pub(crate) enum Scratch {
    Graph(Box<vamana::Scratch>),
    Cluster(Box<cluster::Scratch>),
    Spann(Box<spann::Scratch>),
}

impl Scratch {
    pub(super) fn new(family: &Family) -> Scratch {
        match family {
            Family::Graph(_) => Scratch::Graph(Box::new(vamana::Scratch::new())),
            Family::Cluster(_) => Scratch::Cluster(Box::new(cluster::Scratch::new())),
            Family::Spann(_) => Scratch::Spann(Box::new(spann::Scratch::new())),
        }
    }

    pub(super) fn take_found(&mut self, out: &mut Vec<Neighbor>) {
        match self {
            Scratch::Graph(scratch) => scratch.take_found(out),
            Scratch::Cluster(scratch) => scratch.take_found(out),
            Scratch::Spann(scratch) => scratch.take_found(out),
        }
    }

    /// Where the time went, of a search that was timed.
    pub(super) fn clock(&self) -> Clock {
        match self {
            Scratch::Graph(scratch) => scratch.clock,
            Scratch::Cluster(scratch) => scratch.clock,
            Scratch::Spann(scratch) => scratch.clock,
        }
    }

    pub(super) fn stats(&self) -> QueryStats {
        match self {
            Scratch::Graph(scratch) => scratch.stats,
            Scratch::Cluster(scratch) => scratch.stats,
            Scratch::Spann(scratch) => scratch.stats,
        }
    }
}

fn load_graph(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &GraphEntry,
) -> Result<Graph, IndexError> {
    let wrong = |reason| IndexError::damaged(directory.address(), "the manifest", reason);
    let (element, metric) = (manifest.element().map_err(wrong)?, manifest.metric().map_err(wrong)?);
    let layout = manifest.graph_layout().map_err(wrong)?;
    let dim = manifest.dim as usize;
    Ok(Graph {
        layout,
        offsets: load_offsets(directory, manifest, entry)?,
        vectors: manifest.vectors as u32,
        dim,
        element,
        metric,
        entry: entry.entry_point,
        codec: load_codec(directory, manifest)?,
        codes: load(directory, manifest, &manifest.codes.file)?,
        exact: Exact::new(element, metric, dim),
        file: directory.address().join(&entry.file.name),
        pivots: pivots(manifest.vectors as u32, &[]),
        absent: Vec::new(),
    })
}

/// Where the records of a packed graph lie; nothing of others.
pub(crate) fn load_offsets(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &GraphEntry,
) -> Result<Offsets, IndexError> {
    let Some(file) = &entry.offsets else { return Ok(Offsets::default()) };
    Offsets::from_bytes(&load(directory, manifest, file)?, manifest.vectors, entry.file.bytes)
        .map_err(|reason| IndexError::damaged(directory.address().join(&file.name), "the offsets", reason))
}

fn load_cluster(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &ClusterEntry,
    resident_codes: u64,
) -> Result<Cluster, IndexError> {
    let wrong = |reason| IndexError::damaged(directory.address(), "the manifest", reason);
    let (element, metric) = (manifest.element().map_err(wrong)?, manifest.metric().map_err(wrong)?);
    let layout = manifest.group_layout().map_err(wrong)?;
    let dim = manifest.dim as usize;
    let codec = load_codec(directory, manifest)?;
    if !codec.has_groups() {
        let reason = format!("codes of kind {} cannot be scanned in groups", codec.kind());
        return Err(wrong(reason));
    }
    if codec.metric() != codes_metric(metric) {
        let reason = format!("it is for the metric {}, the index has {metric}", codec.metric());
        return Err(IndexError::damaged(
            directory.address().join(&manifest.codes.codec.name),
            "the codec",
            reason,
        ));
    }
    let bytes = load(directory, manifest, &entry.centroids)?;
    let code_bytes = u64::from(manifest.codes.code_bytes);
    let centroids =
        Centroids::from_bytes(&bytes, entry, &layout, codes_metric(metric), manifest.vectors, code_bytes)
            .map_err(|reason| centroids::damaged(directory.address().join(&entry.centroids.name), reason))?;
    let centroids = if metric == Metric::Cosine { centroids.of_unit_vectors() } else { centroids };
    // The codes follow: the peak must not hold the file of centroids beside them.
    drop(bytes);
    let codes = if resident_codes == manifest.codes.file.bytes {
        load(directory, manifest, &manifest.codes.file)?
    } else {
        load_first_codes(directory, manifest, layout.identity(), &centroids, resident_codes)?
    };
    Ok(Cluster {
        layout,
        vectors: manifest.vectors as u32,
        dim,
        element,
        metric,
        codec,
        codes,
        codes_offset: entry.file.bytes,
        centroids,
        exact: Exact::new(element, metric, dim),
        check_pages: true,
        ids: Vec::new(),
        file: directory.address().join(&entry.file.name),
    })
}

/// A cluster index of which only scans are wanted.
pub(crate) fn load_cluster_for_scan(
    directory: &dyn Generation,
    manifest: &Manifest,
) -> Result<Cluster, IndexError> {
    let wrong = |reason| IndexError::damaged(directory.address(), "the manifest", reason);
    load_cluster(directory, manifest, manifest.cluster().map_err(wrong)?, manifest.codes.file.bytes)
}

/// What follows from the manifest alone.
pub(super) struct Sizes {
    /// Bytes of a buffer for a page or a list, whatever a device aligns reads to.
    pub(super) buffer_bytes: usize,
    /// Bytes of the codes of a group; of a graph, of all.
    pub(super) group_codes: u64,
    /// Buffers of a thread.
    pub(super) frames: u32,
    planned: Planned,
}

#[derive(Clone, Copy)]
enum Planned {
    Graph { vectors: u32, max_degree: usize, dim: usize },
    Cluster { groups: usize, group_vectors: usize, dim: usize },
    Spann { lists: usize, mean_list: usize, dim: usize, coded: bool },
}

impl Sizes {
    pub(super) fn of(directory: &dyn Generation, manifest: &Manifest) -> Result<Sizes, IndexError> {
        let wrong = |reason| IndexError::damaged(directory.address(), "the manifest", reason);
        let dim = manifest.dim as usize;
        Ok(match &manifest.structure {
            Structure::Graph(entry) => {
                let layout = manifest.graph_layout();
                let (vectors, max_degree) = (manifest.vectors as u32, entry.max_degree as usize);
                Sizes {
                    buffer_bytes: layout.map_err(wrong)?.buffer_bytes(),
                    group_codes: manifest.codes.file.bytes,
                    frames: FRAMES,
                    planned: Planned::Graph { vectors, max_degree, dim },
                }
            }
            Structure::Cluster(entry) => {
                let layout = manifest.group_layout().map_err(wrong)?;
                let (groups, group_vectors) = (entry.groups as usize, layout.group_vectors());
                Sizes {
                    buffer_bytes: layout.buffer_bytes(),
                    group_codes: manifest.codes.file.bytes / u64::from(entry.groups.max(1)),
                    frames: FRAMES,
                    planned: Planned::Cluster { groups, group_vectors, dim },
                }
            }
            Structure::Spann(entry) => {
                let longest = (entry.longest_bytes as usize).next_multiple_of(BLOCK_BYTES);
                // Whatever a read begins in the middle of, it covers whole blocks.
                let buffer_bytes = (longest + 2 * BLOCK_BYTES).max(LEAST_LIST_FRAME);
                let lists = entry.list_count as usize;
                let mean_list = (entry.copies / u64::from(entry.list_count.max(1))) as usize + 1;
                Sizes {
                    buffer_bytes,
                    group_codes: manifest.codes.file.bytes,
                    frames: ((LIST_BUFFER_BYTES / buffer_bytes) as u32).clamp(LEAST_FRAMES, FRAMES),
                    planned: Planned::Spann { lists, mean_list, dim, coded: entry.codes.is_some() },
                }
            }
        })
    }

    /// Bytes of the ids by place that an index whose pages are in memory keeps.
    pub(super) fn ids(&self) -> u64 {
        match self.planned {
            Planned::Graph { .. } | Planned::Spann { .. } => 0,
            Planned::Cluster { groups, group_vectors, .. } => {
                (groups * group_vectors * size_of::<u32>()) as u64
            }
        }
    }

    /// Bytes of a buffer: of the largest read, with what alignment adds.
    pub(super) fn frame_bytes(&self, codes_on_tier: bool) -> usize {
        let codes = buffer_bytes(self.group_codes as usize, 1);
        if codes_on_tier { self.buffer_bytes.max(codes) } else { self.buffer_bytes }
    }

    /// Distances that a query computes, about, in units of one from a code.
    pub(super) fn query_distances(&self, params: &SearchParams) -> usize {
        let navigated = match self.planned {
            Planned::Graph { max_degree, .. } => params.wanted().saturating_mul(max_degree),
            Planned::Cluster { groups, group_vectors, .. } => {
                params.probes.min(groups).saturating_mul(group_vectors).saturating_add(groups)
            }
            Planned::Spann { lists, mean_list, coded, .. } => {
                // Full vectors, of which most lie side by side, or their codes.
                let each = if coded { 1 } else { CODES_A_VECTOR / 4 };
                params.probes.min(lists).saturating_mul(mean_list).saturating_mul(each)
            }
        };
        navigated.saturating_add(params.wanted().saturating_mul(CODES_A_VECTOR))
    }

    /// Bytes that a query holds at its peak, about.
    pub(super) fn query_bytes(&self, search_list: usize) -> u64 {
        match self.planned {
            Planned::Graph { vectors, max_degree, dim } => {
                vamana::Scratch::planned_bytes(vectors, max_degree, dim, search_list)
            }
            Planned::Cluster { groups, group_vectors, dim } => {
                cluster::Scratch::planned_bytes(groups, group_vectors, dim, search_list)
            }
            Planned::Spann { lists, mean_list, dim, coded: false } => {
                spann::Scratch::planned_bytes(lists, mean_list, dim, search_list)
            }
            Planned::Spann { lists, mean_list, dim, coded: true } => {
                // Of the lists themselves only what is best is kept.
                let candidates = Candidates::planned_bytes(search_list, mean_list);
                candidates + spann::Scratch::planned_bytes(lists, 0, dim, search_list)
            }
        }
    }
}

pub(crate) fn load_codec(directory: &dyn Generation, manifest: &Manifest) -> Result<Codec, IndexError> {
    let entry = &manifest.codes.codec;
    let codec = Codec::from_bytes(&load(directory, manifest, entry)?).map_err(|e| {
        IndexError::damaged(directory.address().join(&entry.name), "the codec", e.to_string())
    })?;
    if codec.dim() != manifest.dim as usize || codec.code_bytes() != manifest.codes.code_bytes as usize {
        let reason = format!(
            "it makes codes of {} bytes from {} dimensions, the manifest says {} from {}",
            codec.code_bytes(),
            codec.dim(),
            manifest.codes.code_bytes,
            manifest.dim
        );
        return Err(IndexError::damaged(directory.address().join(&entry.name), "the codec", reason));
    }
    Ok(codec)
}

/// Reads a whole file of the index into memory and checks its checksum.
pub(crate) fn load(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &FileEntry,
) -> Result<Vec<u8>, IndexError> {
    let object = manifest.open_file(directory, entry)?;
    // A line more, so that a tier can move it to the start of one.
    let mut bytes = object.room(entry.bytes, CACHE_LINE)?;
    bathyal_tier::advise_huge_pages(&mut bytes);
    let read = ObjectReader::new(object.clone()).read_to_end(&mut bytes);
    read.map_err(|e| StoreError::io("read", object.address(), e))?;
    let found = crc32c::crc32c(&bytes);
    if bytes.len() as u64 != entry.bytes || found != entry.crc32c {
        let reason = format!("checksum {found:08x}, the manifest says {:08x}", entry.crc32c);
        return Err(IndexError::damaged(object.address(), "its content", reason));
    }
    Ok(bytes)
}

/// Reads the codes of the first groups, `wanted` bytes in all, and checks them group by group.
fn load_first_codes(
    directory: &dyn Generation,
    manifest: &Manifest,
    identity: Identity,
    centroids: &Centroids,
    wanted: u64,
) -> Result<Vec<u8>, IndexError> {
    let object = manifest.open_file(directory, &manifest.codes.file)?;
    let mut codes = object.room(wanted, 0)?;
    bathyal_tier::advise_huge_pages(&mut codes);
    codes.resize(wanted as usize, 0);
    object.read_at(0, &mut codes)?;
    let group_bytes = manifest.codes.file.bytes as usize / centroids.groups().max(1);
    for (group, blocks) in codes.chunks_exact(group_bytes.max(1)).enumerate() {
        centroids.check_codes(identity, group as u32, blocks).map_err(|reason| {
            IndexError::damaged(object.address(), format!("the codes of group {group}"), reason)
        })?;
    }
    Ok(codes)
}
