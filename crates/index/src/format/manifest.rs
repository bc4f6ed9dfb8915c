//! The manifest: the one file that makes a directory an index. Written last, replaced atomically.

use super::curves::{self, Effort, Limits};
use super::groups::GroupLayout;
use super::identity::Identity;
use super::layout::GraphLayout;
use super::postings::{BLOCK_BYTES, ENTRY_BYTES, MOST_LIST_BYTES, MOST_REPLICAS, PackedIds, PostingLayout};
use super::seal;
use crate::error::IndexError;
use crate::families::spann::centroids::{MOST_DEGREE, centroid_element};
use bathyal_kernels::quantize::SCAN_BLOCK;
use bathyal_kernels::{Element, Metric};
use bathyal_store::local::LocalStore;
use bathyal_store::{Generation, Object, ObjectExt};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

/// Name of the manifest within an index directory.
pub const MANIFEST_NAME: &str = "manifest.json";
/// The format version that this program writes, and the latest that it reads.
pub const FORMAT_VERSION: u32 = 2;
/// The first format version of indexes that have an identity.
const FIRST_IDENTIFIED: u32 = 2;
/// A manifest is a few kilobytes; anything beyond this is not one.
const LARGEST_MANIFEST: u64 = 16 << 20;
/// Largest dimension of a vector.
pub const MAX_DIM: u32 = 1 << 16;
/// Most bytes of a code: 8 bits a dimension and two factors, and what fills up.
const MAX_CODE_BYTES: u32 = MAX_DIM + 64;
/// Longest file: more than the most vectors of the largest dimension take eight times. Sums of lengths never overflow.
const MOST_FILE_BYTES: u64 = 1 << 56;
/// Largest number of vectors: ids are `u32`, and the last is kept free.
pub const MAX_VECTORS: u64 = u32::MAX as u64;

/// A file of the index: its name, length and checksum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Name within the directory; never a path.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// CRC-32C of the whole file.
    pub crc32c: u32,
}

/// One point of the calibration curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CalibrationPoint {
    /// Size of the candidate list (L in DiskANN); the number of posting lists where these hold vectors.
    pub search_list: u32,
    /// Groups scanned, or posting lists at most; 0 for a graph.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub probes: u32,
    /// Mean recall@k at that size.
    pub recall: f32,
    /// Posting lists more than `1 + prune` times as far as the nearest were left out; 0 where none was.
    #[serde(default, skip_serializing_if = "is_nought")]
    pub prune: f32,
    /// Mean number of posting lists that were scanned; 0 of other families.
    #[serde(default, skip_serializing_if = "is_nought")]
    pub lists: f32,
}

/// The curve from recall to effort for one k.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CalibrationCurve {
    /// Number of neighbours asked for.
    pub k: u32,
    /// Points by rising `probes`, for each by rising `search_list`, and for each by rising `prune`.
    pub points: Vec<CalibrationPoint>,
}

/// What was measured when the index was built.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Calibration {
    /// Number of queries measured.
    pub queries: u32,
    /// Where they came from: "held-out vectors" or "given queries".
    pub source: String,
    /// Curves by rising k.
    pub curves: Vec<CalibrationCurve>,
    /// The same of a cluster index whose candidates are read alone, without what else is on their pages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lone_curves: Vec<CalibrationCurve>,
}

/// The parameters of a graph and of its layout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphEntry {
    /// The file of pages.
    pub file: FileEntry,
    /// Where the records begin, of packed ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offsets: Option<FileEntry>,
    /// Layout of the file; version 1 knows "padded", "page_local" and "csr".
    pub layout: String,
    /// Vectors of a page in the page-local layout; 0 in others.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub page_vectors: u32,
    /// Bytes of a page, or of the lines that packed records are placed by.
    pub page_bytes: u32,
    /// Most neighbours of a vector (R in DiskANN).
    pub max_degree: u32,
    /// Candidate list while building (L in DiskANN).
    pub search_list: u32,
    /// Pruning slack (alpha in DiskANN).
    pub alpha: f32,
    /// Where searches begin.
    pub entry_point: u32,
}

/// The parameters of a cluster index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterEntry {
    /// The file of pages that hold the vectors.
    pub file: FileEntry,
    /// The means of groups and runs.
    pub centroids: FileEntry,
    /// Where codes and vectors lie; version 1 knows "resident".
    pub layout: String,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of a group.
    pub group_pages: u32,
    /// Number of groups.
    pub groups: u32,
    /// Number of runs of groups.
    pub runs: u32,
}

/// The parameters of an index of posting lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpannEntry {
    /// The file of postings.
    pub file: FileEntry,
    /// The checksums of its blocks.
    pub checksums: FileEntry,
    /// The table of lists.
    pub lists: FileEntry,
    /// The centroids of all lists.
    pub centroids: FileEntry,
    /// The graph over the centroids.
    pub links: FileEntry,
    /// The ids by place, of the grouped layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<FileEntry>,
    /// How lists hold their vectors; version 1 knows "coupled", "decoupled" and "grouped".
    pub layout: String,
    /// The codes that stand for vectors in coupled lists; none where these hold the vectors themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codes: Option<Box<ListCodesEntry>>,
    /// Number of lists.
    pub list_count: u32,
    /// Vectors of all lists together, as often as they are in one.
    pub copies: u64,
    /// Most lists that a vector is in.
    pub replicas: u32,
    /// Lists for each vector, as asked for.
    pub centroid_share: f32,
    /// Vectors that a list takes in, besides those that no other would.
    pub list_limit: u32,
    /// Bytes of the longest run of rows or of members of one list.
    pub longest_bytes: u32,
    /// Most links of a centroid.
    pub max_degree: u32,
    /// The centroid where searches begin.
    pub entry_point: u32,
}

impl SpannEntry {
    /// Bytes of the file that belong to a list, in the mean; of lists of codes without the vectors.
    pub fn list_bytes(&self) -> f64 {
        let lists = match &self.codes {
            Some(codes) => self.copies * (u64::from(codes.code_bytes) + 4),
            None => self.file.bytes,
        };
        lists as f64 / f64::from(self.list_count)
    }
}

/// The codes within posting lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListCodesEntry {
    /// What vectors are shifted by, and the trained codec.
    pub codec: FileEntry,
    /// The codec's kind, for people.
    pub kind: String,
    /// Bytes of a code.
    pub code_bytes: u32,
}

/// What an index is besides its codes: one entry a family.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Structure {
    /// Family "vamana".
    Graph(GraphEntry),
    /// Family "cluster".
    Cluster(ClusterEntry),
    /// Family "spann".
    Spann(SpannEntry),
}

/// The codes that stay in memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CodesEntry {
    /// The codes: `vectors x code_bytes`, the blocks of all groups, or `lists x code_bytes` of centroids.
    pub file: FileEntry,
    /// The trained codec.
    pub codec: FileEntry,
    /// The codec's kind, for people.
    pub kind: String,
    /// Bytes of a code.
    pub code_bytes: u32,
}

/// Everything that an index says about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the format.
    pub format_version: u32,
    /// What all checksums of pages, records and blocks begin with, as hexadecimal digits. Version 1 has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The program that wrote it.
    pub written_by: String,
    /// The index family: "vamana", "cluster" or "spann".
    pub family: String,
    /// Number of vectors.
    pub vectors: u64,
    /// Dimensions of a vector.
    pub dim: u32,
    /// Element name (f32, f16, u8, i8).
    pub element: String,
    /// Metric name (l2, ip, cosine).
    pub metric: String,
    /// Bytes of the vectors alone: `vectors x dim x element size`.
    pub data_bytes: u64,
    /// Seed of the build.
    pub seed: u64,
    /// Seconds that the build took.
    pub build_seconds: f64,
    /// What the family needs to know, under the key `graph`, `cluster` or `spann`.
    #[serde(flatten)]
    pub structure: Structure,
    /// The codes.
    pub codes: CodesEntry,
    /// Recall against effort.
    pub calibration: Calibration,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_nought(number: &f32) -> bool {
    *number == 0.0
}

fn require(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_string()) }
}

impl Manifest {
    /// The element type.
    pub fn element(&self) -> Result<Element, String> {
        self.element.parse().map_err(|_| format!("unknown element {:?}", self.element))
    }

    /// The metric.
    pub fn metric(&self) -> Result<Metric, String> {
        self.metric.parse().map_err(|_| format!("unknown metric {:?}", self.metric))
    }

    /// What tells the index from others.
    pub fn identity(&self) -> Result<Identity, String> {
        match &self.identity {
            Some(text) => text.parse(),
            None => Ok(Identity::NONE),
        }
    }

    /// How the file of a graph is laid out.
    pub fn graph_layout(&self) -> Result<GraphLayout, String> {
        let layout = GraphLayout::of(self.graph()?, self.element()?, self.dim, self.vectors)?;
        Ok(layout.identified(self.identity()?))
    }

    /// How the vectors of a cluster index are laid out.
    pub fn group_layout(&self) -> Result<GroupLayout, String> {
        let entry = self.cluster()?;
        let layout = GroupLayout::new(self.element()?, self.dim, entry.page_bytes, entry.group_pages)?;
        Ok(layout.identified(self.identity()?))
    }

    /// The graph, of an index of that family.
    pub fn graph(&self) -> Result<&GraphEntry, String> {
        match &self.structure {
            Structure::Graph(graph) => Ok(graph),
            Structure::Cluster(_) | Structure::Spann(_) => Err("the index is no graph".into()),
        }
    }

    /// The groups, of an index of the cluster family.
    pub fn cluster(&self) -> Result<&ClusterEntry, String> {
        match &self.structure {
            Structure::Cluster(cluster) => Ok(cluster),
            Structure::Graph(_) | Structure::Spann(_) => Err("the index has no groups".into()),
        }
    }

    /// The posting lists, of an index of that family.
    pub fn spann(&self) -> Result<&SpannEntry, String> {
        match &self.structure {
            Structure::Spann(spann) => Ok(spann),
            Structure::Graph(_) | Structure::Cluster(_) => Err("the index has no posting lists".into()),
        }
    }

    /// The file of pages that searches read from a tier.
    pub fn paged_file(&self) -> &FileEntry {
        match &self.structure {
            Structure::Graph(graph) => &graph.file,
            Structure::Cluster(cluster) => &cluster.file,
            Structure::Spann(spann) => &spann.file,
        }
    }

    /// The files of the index besides the manifest.
    pub fn files(&self) -> Vec<&FileEntry> {
        let mut files = vec![self.paged_file(), &self.codes.file, &self.codes.codec];
        match &self.structure {
            Structure::Cluster(cluster) => files.push(&cluster.centroids),
            Structure::Graph(graph) => files.extend(&graph.offsets),
            Structure::Spann(spann) => {
                files.extend([&spann.checksums, &spann.lists, &spann.centroids, &spann.links]);
                files.extend(&spann.ids);
                files.extend(spann.codes.as_ref().map(|codes| &codes.codec));
            }
        }
        files
    }

    /// Bytes of all files, the manifest not counted.
    pub fn index_bytes(&self) -> u64 {
        self.files().iter().map(|f| f.bytes).sum()
    }

    /// The manifest as the bytes of its file: JSON, a line feed, and a line with the JSON's CRC-32C.
    pub fn to_bytes(&self) -> Result<Vec<u8>, IndexError> {
        let json = serde_json::to_vec_pretty(self).map_err(|e| IndexError::Internal(e.to_string()))?;
        Ok(seal::sealed(json))
    }

    /// Reads and checks the manifest of the index in the folder `directory`.
    ///
    /// # Errors
    /// [`IndexError`]: no index there, a later version, damage.
    pub fn read(directory: &Path) -> Result<Manifest, IndexError> {
        Manifest::load(LocalStore::open_at(directory, MANIFEST_NAME)?.as_ref())
    }

    /// The same of an index in any store.
    ///
    /// # Errors
    /// As [`Manifest::read`].
    pub fn load(directory: &(impl Generation + ?Sized)) -> Result<Manifest, IndexError> {
        let object = directory.get(MANIFEST_NAME)?;
        if object.len() > LARGEST_MANIFEST {
            let reason = format!("its {MANIFEST_NAME} has {} bytes", object.len());
            return Err(IndexError::NotAnIndex { path: directory.address().to_path_buf(), reason });
        }
        Manifest::parse(&object.read_all()?, directory.address())
    }

    /// Parses what [`Manifest::to_bytes`] wrote; `directory` is only named in errors.
    pub fn parse(bytes: &[u8], directory: &Path) -> Result<Manifest, IndexError> {
        let path = directory.join(MANIFEST_NAME);
        let damaged = |reason: String| IndexError::damaged(&path, "the manifest", reason);
        let json = seal::unsealed(bytes).map_err(damaged)?;
        #[derive(Deserialize)]
        struct Version {
            format_version: u32,
        }
        let version: Version = serde_json::from_slice(json).map_err(|e| damaged(e.to_string()))?;
        if version.format_version > FORMAT_VERSION {
            return Err(IndexError::LaterVersion {
                path: directory.to_path_buf(),
                found: version.format_version,
                known: FORMAT_VERSION,
            });
        }
        let manifest: Manifest = serde_json::from_slice(json).map_err(|e| damaged(e.to_string()))?;
        manifest.check().map_err(damaged)?;
        Ok(manifest)
    }

    /// Checks every number against the others, so that no later arithmetic can overflow or run out of bounds.
    fn check(&self) -> Result<(), String> {
        let element = self.element()?;
        self.metric()?;
        require(
            self.identity()?.is_none() == (self.format_version < FIRST_IDENTIFIED),
            "an index has an identity from version 2 on, and none before",
        )?;
        require((1..=MAX_VECTORS).contains(&self.vectors), "the number of vectors is out of range")?;
        require((1..=MAX_DIM).contains(&self.dim), "the dimension is out of range")?;
        let data_bytes = self.vectors * u64::from(self.dim) * element.size() as u64;
        require(self.data_bytes == data_bytes, "data_bytes does not follow from vectors, dim and element")?;
        let code_bytes = self.codes.code_bytes;
        require((1..=MAX_CODE_BYTES).contains(&code_bytes), "the bytes of a code are out of range")?;
        match &self.structure {
            Structure::Graph(graph) => self.check_graph(graph)?,
            Structure::Cluster(cluster) => self.check_cluster(cluster)?,
            Structure::Spann(spann) => self.check_spann(spann, element)?,
        }
        for file in self.files() {
            let plain = Path::new(&file.name).file_name().is_some_and(|n| n == file.name.as_str());
            require(plain, "a file's name is a path")?;
            require(file.bytes <= MOST_FILE_BYTES, "a file is longer than any can be")?;
        }
        curves::check(&self.calibration, &self.calibration_limits())?;
        Ok(())
    }

    /// What its curves can say.
    fn calibration_limits(&self) -> Limits {
        let (probes, effort) = match &self.structure {
            Structure::Graph(_) if self.format_version < FIRST_IDENTIFIED => (0, Effort::Unordered),
            Structure::Graph(_) => (0, Effort::Candidates),
            Structure::Cluster(cluster) => (cluster.groups, Effort::Candidates),
            Structure::Spann(spann) if spann.codes.is_some() => (spann.list_count, Effort::Candidates),
            Structure::Spann(spann) => (spann.list_count, Effort::Lists),
        };
        Limits { vectors: self.vectors, probes, effort }
    }

    fn check_graph(&self, graph: &GraphEntry) -> Result<(), String> {
        require(self.family == "vamana", "the family of a graph is not vamana")?;
        require(u64::from(graph.entry_point) < self.vectors, "the entry point is no vector")?;
        require(graph.alpha.is_finite(), "alpha is no number")?;
        let layout = self.graph_layout()?;
        require(
            layout.fits(self.vectors, graph.file.bytes),
            "the graph's length does not follow from its layout",
        )?;
        let codes = self.vectors * u64::from(self.codes.code_bytes);
        require(self.codes.file.bytes == codes, "the codes' length does not follow from their size")
    }

    fn check_cluster(&self, cluster: &ClusterEntry) -> Result<(), String> {
        require(self.family == "cluster", "the family of groups is not cluster")?;
        require(cluster.layout == "resident", "the layout is not resident")?;
        let layout = self.group_layout()?;
        let (groups, runs) = (u64::from(cluster.groups), u64::from(cluster.runs));
        let full = self.vectors.div_ceil(layout.group_vectors() as u64);
        require((full..=self.vectors).contains(&groups), "the groups do not hold the vectors")?;
        require((1..=groups).contains(&runs), "the number of runs is out of range")?;
        require(
            cluster.file.bytes == layout.file_bytes(groups),
            "the vectors' length does not follow from the groups",
        )?;
        require(
            cluster.centroids.bytes == layout.centroid_bytes(groups, runs, u64::from(self.codes.code_bytes)),
            "the centroids' length does not follow from the groups",
        )?;
        // Places are numbers of 32 bits, the last group's included.
        let places = (groups - 1).checked_mul(layout.group_vectors() as u64);
        require(
            places.is_some_and(|last| last < MAX_VECTORS),
            "there are more places than numbers for them",
        )?;
        // The codes of a group are read at once, and the length of a read has 32 bits.
        let group_codes = (layout.group_blocks() * SCAN_BLOCK) as u64 * u64::from(self.codes.code_bytes);
        require(group_codes <= u64::from(u32::MAX), "the codes of a group are too long for a read")?;
        require(
            self.codes.file.bytes == groups * group_codes,
            "the codes' length does not follow from their size",
        )
    }

    fn check_spann(&self, spann: &SpannEntry, element: Element) -> Result<(), String> {
        require(self.family == "spann", "the family of posting lists is not spann")?;
        let layout: PostingLayout = spann.layout.parse()?;
        let lists = u64::from(spann.list_count);
        require((1..=self.vectors).contains(&lists), "the number of lists is out of range")?;
        require((1..=MOST_REPLICAS).contains(&spann.replicas), "replicas is out of range")?;
        let most = self.vectors * u64::from(spann.replicas);
        require((self.vectors..=most).contains(&spann.copies), "the lists do not hold the vectors")?;
        require(u64::from(spann.entry_point) < lists, "the entry point is no centroid")?;
        require(
            (1..=MOST_LIST_BYTES).contains(&u64::from(spann.longest_bytes)),
            "longest_bytes is out of range",
        )?;
        if let Some(codes) = &spann.codes {
            require(layout == PostingLayout::Coupled, "lists of codes are not coupled")?;
            require(
                (1..=MAX_CODE_BYTES).contains(&codes.code_bytes),
                "the bytes of a list's code are out of range",
            )?;
        }
        require((1..=MOST_DEGREE).contains(&spann.max_degree), "max_degree is out of range")?;
        require(spann.lists.bytes == lists * ENTRY_BYTES as u64, "the table does not hold the lists")?;
        let element = centroid_element(element, self.metric()?);
        let row_bytes = u64::from(self.dim) * element.size() as u64;
        require(
            spann.centroids.bytes == lists * row_bytes,
            "the centroids' length does not follow from the lists",
        )?;
        let blocks = spann.file.bytes.div_ceil(BLOCK_BYTES as u64);
        require(spann.checksums.bytes == blocks * 4, "the checksums do not cover the file")?;
        let ids = (layout == PostingLayout::Grouped).then(|| PackedIds::file_bytes(self.vectors));
        require(
            spann.ids.as_ref().map(|ids| ids.bytes) == ids,
            "the ids' length does not follow from the vectors",
        )?;
        let codes = lists * u64::from(self.codes.code_bytes);
        require(self.codes.file.bytes == codes, "the codes' length does not follow from their size")
    }

    /// One of the index's files, after checking that it is there with the right length.
    pub(crate) fn open_file(
        &self,
        directory: &(impl Generation + ?Sized),
        file: &FileEntry,
    ) -> Result<Arc<dyn Object>, IndexError> {
        let object = directory.get(&file.name)?;
        if object.len() != file.bytes {
            let reason = format!("the file has {} bytes, the manifest says {}", object.len(), file.bytes);
            return Err(IndexError::damaged(object.address(), "its length", reason));
        }
        Ok(object)
    }
}
