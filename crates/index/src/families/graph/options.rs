//! What a builder is told and what it reports.

use crate::error::IndexError;
use crate::format::layout::{CSR, PADDED, PAGE_LOCAL};
use crate::format::pages::{MAX_DEGREE, PAGE_BYTES};
use crate::format::postings::{COUPLED, DECOUPLED, GROUPED, MOST_REPLICAS, PostingLayout};
use bathyal_kernels::Metric;
use bathyal_kernels::quantize::CodeKind;
use bathyal_vectors::VectorFile;
use serde::Serialize;

/// Neighbours a vector (R): the value of the DiskANN papers, and what Bathyal is measured with beside DiskANN.
pub const DEFAULT_MAX_DEGREE: u32 = 64;
/// Candidates while building (L): the value of the DiskANN papers; more builds slower and better graphs.
pub const DEFAULT_SEARCH_LIST: u32 = 100;
/// Pruning slack (alpha), on squared distances as in the DiskANN papers.
pub const DEFAULT_ALPHA: f32 = 1.2;
/// Bytes of a code: 32 a vector fit a billion vectors into 32 GB (GustANN, section 4.5.1).
pub const DEFAULT_CODE_BYTES: u32 = 32;
/// Any fixed number will do; a fixed one makes builds on one thread repeatable.
pub const DEFAULT_SEED: u64 = 0xba74_17a1;

/// Vectors of a group, about: of 31, 93, 186 and 372 on SIFT and GloVe this needs the least time for a recall.
pub const DEFAULT_GROUP_VECTORS: u32 = 96;

/// Posting lists for each vector: more compare and read less for more memory and more reads, at 0.015 to 0.12 on SIFT, GloVe
/// and MiniLM alike (table in `docs/posting-lists.md`), so it is memory that decides; this takes some 10 bytes a vector of SIFT.
pub const DEFAULT_CENTROID_SHARE: f32 = 0.03;
/// Coupled lists that a vector may be in: what SPFresh and SPANN take, and where all sets of second-tier-memory are
/// fastest; a copy more is a list less to read, and lists are what a disk is slow at.
pub const DEFAULT_COUPLED_REPLICAS: u32 = 8;
/// Decoupled lists that a vector may be in: each further one is an address to decode and to remove as a double, and every
/// vector is a read of its own in any case.
pub const DEFAULT_DECOUPLED_REPLICAS: u32 = 1;
/// Grouped lists that a vector may be in: without addresses to follow SIFT is answered 1.6 to 2.6 times as fast from memory
/// and 6 times from a disk as with 8 (`docs/repro/second-tier-cluster.md`).
pub const DEFAULT_GROUPED_REPLICAS: u32 = 1;
/// Smallest share: lists of 100,000 vectors would be no index any more.
const LEAST_CENTROID_SHARE: f32 = 1e-5;

/// Which index family to build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FamilyChoice {
    /// Groups of near vectors with their codes in memory: fewer reads, a smaller index and a quicker build than the
    /// graph wherever measured.
    #[default]
    Cluster,
    /// A Vamana graph.
    Graph,
    /// Posting lists with full vectors, found by a graph over their centroids (SPANN): no code, one or two rounds of
    /// reads, hardly any memory.
    Spann,
}

/// How the file that searches read is laid out: of a graph, or of posting lists. A cluster index has one layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutChoice {
    /// A record a vector with its links: most records read are on the way, so fast from memory.
    Padded,
    /// Near vectors share a page and its links: a third to a half of the reads.
    PageLocal,
    /// The records of `padded` without its padding, near ones beside each other, links in few bits: for memory that
    /// serves small reads (second-tier-memory, section 5).
    Csr,
    /// Posting lists with a copy of each of their vectors: one read a list.
    Coupled,
    /// Posting lists of addresses; each vector is stored once.
    Decoupled,
    /// Posting lists that store the vectors they own and the addresses of the others (second-tier-memory, section 6).
    Grouped,
}

impl LayoutChoice {
    /// The layout of posting lists that it is, if it is one.
    pub(crate) fn of_lists(self) -> Option<PostingLayout> {
        match self {
            LayoutChoice::Padded | LayoutChoice::PageLocal | LayoutChoice::Csr => None,
            LayoutChoice::Coupled => Some(PostingLayout::Coupled),
            LayoutChoice::Decoupled => Some(PostingLayout::Decoupled),
            LayoutChoice::Grouped => Some(PostingLayout::Grouped),
        }
    }

    /// Its name in a manifest and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            LayoutChoice::Padded => PADDED,
            LayoutChoice::PageLocal => PAGE_LOCAL,
            LayoutChoice::Csr => CSR,
            LayoutChoice::Coupled => COUPLED,
            LayoutChoice::Decoupled => DECOUPLED,
            LayoutChoice::Grouped => GROUPED,
        }
    }
}

impl std::str::FromStr for LayoutChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            PADDED => Ok(LayoutChoice::Padded),
            PAGE_LOCAL => Ok(LayoutChoice::PageLocal),
            CSR => Ok(LayoutChoice::Csr),
            COUPLED => Ok(LayoutChoice::Coupled),
            DECOUPLED => Ok(LayoutChoice::Decoupled),
            GROUPED => Ok(LayoutChoice::Grouped),
            _ => Err(format!(
                "unknown layout {text:?}; known are {PADDED}, {PAGE_LOCAL} and {CSR} of graphs, {COUPLED}, {DECOUPLED} and {GROUPED} of posting lists"
            )),
        }
    }
}

/// How to build an index.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// What "near" means.
    pub metric: Metric,
    /// Which index family.
    pub family: FamilyChoice,
    /// Vectors of a group, about: whole pages are filled. Of no meaning to a graph.
    pub group_vectors: u32,
    /// How the file that searches read is laid out; `None` is `padded` of a graph and `grouped` of posting lists. A
    /// cluster index has one layout only.
    pub layout: Option<LayoutChoice>,
    /// Most neighbours of a vector: R in DiskANN.
    pub max_degree: u32,
    /// Size of the candidate list while building: L in DiskANN.
    pub search_list: u32,
    /// How much longer a detour must be before an edge is pruned: alpha in DiskANN, at least 1.
    pub alpha: f32,
    /// Bytes of memory a vector for its code; `None` picks a size that suits the dimension.
    pub code_bytes: Option<u32>,
    /// The kind of code; `None` picks the best by measurement (`docs/codes.md`). Coupled posting lists for which a kind is
    /// named hold codes, of `code_bytes` too, instead of vectors, which are then read to re-rank only.
    pub code_kind: Option<CodeKind>,
    /// Threads; 0 means all cores.
    pub threads: usize,
    /// Seed of everything random. One seed gives the same cluster index bit for bit; a graph needs one thread, too.
    pub seed: u64,
    /// Memory that the build may take, in bytes. `None` means no limit.
    pub memory_bytes: Option<u64>,
    /// Whether to replace an index that is already there.
    pub overwrite: bool,
    /// Posting lists for each vector: about 1 in `1 / centroid_share` vectors is the middle of a list. More are more
    /// precise and take more memory (second-tier-memory: 0.04 to 0.32).
    pub centroid_share: f32,
    /// Most posting lists that a vector is in: 1 to 8. More find it from more sides; `None` is what suits the layout
    /// ([`DEFAULT_COUPLED_REPLICAS`], [`DEFAULT_DECOUPLED_REPLICAS`], [`DEFAULT_GROUPED_REPLICAS`]).
    pub replicas: Option<u32>,
    /// Most vectors that a posting list admits, the nearest of those that choose it; `None` is `replicas / centroid_share`,
    /// which no list exceeds unless it is chosen far more often than others.
    pub list_limit: Option<u32>,
    /// Queries like those to come, for the calibration; `None` holds out vectors of the data.
    pub calibration: Option<VectorFile>,
}

impl Default for BuildOptions {
    fn default() -> Self {
        BuildOptions {
            metric: Metric::L2,
            family: FamilyChoice::default(),
            group_vectors: DEFAULT_GROUP_VECTORS,
            layout: None,
            max_degree: DEFAULT_MAX_DEGREE,
            search_list: DEFAULT_SEARCH_LIST,
            alpha: DEFAULT_ALPHA,
            code_bytes: None,
            code_kind: None,
            threads: 0,
            seed: DEFAULT_SEED,
            memory_bytes: None,
            overwrite: false,
            centroid_share: DEFAULT_CENTROID_SHARE,
            replicas: None,
            list_limit: None,
            calibration: None,
        }
    }
}

impl BuildOptions {
    /// Checks the numbers that need no data.
    pub(crate) fn check(&self) -> Result<(), IndexError> {
        let refuse = |what: String| Err(IndexError::Parameter(what));
        if self.max_degree == 0 || self.max_degree > MAX_DEGREE {
            return refuse(format!(
                "max_degree is {}; it must be between 1 and {MAX_DEGREE}",
                self.max_degree
            ));
        }
        if self.search_list == 0 || self.search_list > 1 << 16 {
            return refuse(format!("search_list is {}; it must be between 1 and 65536", self.search_list));
        }
        if !(1.0..=10.0).contains(&self.alpha) {
            return refuse(format!("alpha is {}; it must be between 1 and 10", self.alpha));
        }
        if self.group_vectors == 0 || self.group_vectors > 1 << 16 {
            return refuse(format!(
                "group_vectors is {}; it must be between 1 and 65536",
                self.group_vectors
            ));
        }
        self.check_lists()?;
        if self.code_bytes.is_some_and(|b| b == 0 || b > PAGE_BYTES) {
            return refuse(format!("code_bytes must be between 1 and {PAGE_BYTES}"));
        }
        if let Some(layout) = self.layout
            && (self.family == FamilyChoice::Spann) != layout.of_lists().is_some()
            && self.family != FamilyChoice::Cluster
        {
            let of = if layout.of_lists().is_some() { "posting lists (spann)" } else { "graphs (graph)" };
            return refuse(format!("the layout {} is one of {of}", layout.name()));
        }
        Ok(())
    }

    /// Checks what only posting lists know of.
    fn check_lists(&self) -> Result<(), IndexError> {
        let refuse = |what: String| Err(IndexError::Parameter(what));
        if !(LEAST_CENTROID_SHARE..=1.0).contains(&self.centroid_share) {
            return refuse(format!(
                "centroid_share is {}; it must be between {LEAST_CENTROID_SHARE} and 1: 0.04 makes a list for every 25 \
                 vectors",
                self.centroid_share
            ));
        }
        if !(1..=MOST_REPLICAS).contains(&self.list_replicas()) {
            return refuse(format!(
                "replicas is {}; it must be between 1, each vector in one list, and {MOST_REPLICAS}",
                self.list_replicas()
            ));
        }
        if self.list_limit == Some(0) {
            return refuse("list_limit is 0; a list has to admit a vector, or leave it open".into());
        }
        self.check_list_codes()
    }

    /// Checks that posting lists can hold the codes that were named.
    fn check_list_codes(&self) -> Result<(), IndexError> {
        let refuse = |what: String| Err(IndexError::Parameter(what));
        let Some(kind) = self.code_kind.filter(|_| self.family == FamilyChoice::Spann) else { return Ok(()) };
        let layout = self.list_layout();
        if layout != PostingLayout::Coupled {
            return refuse(format!(
                "posting lists of layout {} hold no codes; take the layout {COUPLED}, or name no kind of code ({kind}) and lists \
                 hold vectors",
                layout.name()
            ));
        }
        if !matches!(kind, CodeKind::Axes | CodeKind::RaBitQ { .. }) {
            return refuse(format!(
                "code kind {kind} cannot be scanned in posting lists; take axes or rabitq1 to rabitq8"
            ));
        }
        Ok(())
    }

    /// The layout of a graph: what is fast from memory, unless one was named.
    pub(crate) fn graph_layout(&self) -> LayoutChoice {
        self.layout.unwrap_or(LayoutChoice::Padded)
    }

    /// The layout of posting lists: the smallest that is fast, unless one was named.
    pub(crate) fn list_layout(&self) -> PostingLayout {
        self.layout.and_then(LayoutChoice::of_lists).unwrap_or(PostingLayout::Grouped)
    }

    /// Most posting lists that a vector is in: what suits the layout, unless a number was given.
    pub(crate) fn list_replicas(&self) -> u32 {
        self.replicas.unwrap_or(match self.list_layout() {
            PostingLayout::Coupled => DEFAULT_COUPLED_REPLICAS,
            PostingLayout::Decoupled => DEFAULT_DECOUPLED_REPLICAS,
            PostingLayout::Grouped => DEFAULT_GROUPED_REPLICAS,
        })
    }

    /// Threads to use.
    pub(crate) fn thread_count(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        }
    }
}

/// What a build came to.
#[derive(Debug, Clone, Serialize)]
pub struct BuildReport {
    /// The index family.
    pub family: String,
    /// Seconds from start to finish.
    pub build_seconds: f64,
    /// Bytes of the index on disk.
    pub index_bytes: u64,
    /// Bytes of the vectors alone.
    pub data_bytes: u64,
    /// `index_bytes / data_bytes`.
    pub amplification: f64,
    /// Number of vectors.
    pub vectors: u64,
    /// Dimensions.
    pub dim: u32,
    /// Element name.
    pub element: String,
    /// Metric name.
    pub metric: String,
    /// Most neighbours of a vector, of a graph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_degree: Option<u32>,
    /// Candidate list while building, of a graph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search_list: Option<u32>,
    /// Kind of code.
    pub code_kind: String,
    /// Bytes of a code.
    pub code_bytes: u32,
    /// Mean number of neighbours, of a graph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_degree: Option<f64>,
    /// Threads used.
    pub threads: usize,
    /// Bytes that the build was computed to need at its peak.
    pub planned_memory_bytes: u64,
    /// Seconds of each stage.
    pub stage_seconds: Vec<(String, f64)>,
}
