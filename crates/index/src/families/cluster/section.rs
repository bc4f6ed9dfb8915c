//! The entry of a cluster index in a manifest.

use super::centroids::CentroidFile;
use super::centroids::scope::{self, MeasuredPrune};
use super::cost::ClusterShape;
use crate::calibrate::probed::{self, ProbedPoint};
use crate::calibrate::solve::{Solved, Target};
use crate::calibrate::{self, Calibration, Curve, Limits};
use crate::cost::Machine;
use crate::format::groups::GroupLayout;
use crate::format::manifest::{CodesEntry, FileEntry, MAX_VECTORS, Manifest, require};
use crate::format::places::Places;
use crate::format::positions;
use bathyal_kernels::Metric;
use bathyal_kernels::quantize::SCAN_BLOCK;
use serde::{Deserialize, Serialize};

pub(crate) use crate::format::manifest::{CODEC_NAME, CODES_NAME};

/// The family's name.
pub(crate) const NAME: &str = "cluster";
/// The file of the vectors, in the order of their groups.
pub(crate) const VECTORS_NAME: &str = "vectors.bin";
/// The file of the centroids of runs, and of what is known of groups.
pub(crate) const CENTROIDS_NAME: &str = "centroids.bin";
/// The file of the rows of the groups' centroids.
pub(crate) const ROWS_NAME: &str = "rows.bin";
/// The file of the id at each place, with the checksum of its vector.
pub(crate) const PLACES_NAME: &str = "places.bin";
/// The file of the place of each id.
pub(crate) const POSITIONS_NAME: &str = "positions.bin";
/// Bytes of the shortest useful code.
pub(super) const LEAST_CODE_BYTES: u32 = 8;
/// The files that searches may read from a tier.
pub(crate) const STRIPED: &[&str] = &[VECTORS_NAME, CODES_NAME];

/// The parameters of a cluster index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterEntry {
    /// The file of the pages that hold the vectors. In the manifest, it is listed among the files.
    #[serde(skip)]
    pub file: FileEntry,
    /// The file of the centroids. In the manifest, it is listed among the files.
    #[serde(skip)]
    pub centroids: FileEntry,
    /// The file of the rows of the groups' centroids. In the manifest, it is listed among the files. `None`
    /// for older indexes, whose rows are in [`ClusterEntry::centroids`].
    #[serde(skip)]
    pub rows: Option<FileEntry>,
    /// The file of ids and checksums by place, for searches that read vectors alone, without their pages. In
    /// the manifest, it is listed among the files. `None` if a page holds one vector, and for older indexes.
    #[serde(skip)]
    pub places: Option<FileEntry>,
    /// The file of the place of each id. In the manifest, it is listed among the files. `None` for older
    /// indexes.
    #[serde(skip)]
    pub positions: Option<FileEntry>,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of a group.
    pub group_pages: u32,
    /// Number of groups.
    pub groups: u32,
    /// Number of runs of groups.
    pub runs: u32,
    /// The codes, in blocks, group by group.
    pub codes: CodesEntry,
    /// The recall for each number of groups scanned and of candidates whose pages are read.
    pub calibration: Calibration<ProbedPoint>,
    /// The recall if candidates are read alone, without the other vectors of their pages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lone_curves: Vec<Curve<ProbedPoint>>,
    /// The recall with shorter codes in memory, by falling length. Empty for older indexes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shorter: Vec<ShorterCodes>,
    /// The prune for each measured number of probes, by rising probes. Empty under the inner product and for
    /// older indexes; then all queries of an effort scan the same number of groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prunes: Vec<MeasuredPrune>,
}

/// Shorter codes, which are made from the stored codes while the index is opened, if the budget does not hold
/// those.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShorterCodes {
    /// Bytes of a code in memory.
    pub code_bytes: u32,
    /// The recall for each number of groups scanned and of candidates whose pages are read.
    pub curves: Vec<Curve<ProbedPoint>>,
}

impl ClusterEntry {
    /// Reads and checks the entry in the manifest of a cluster index.
    ///
    /// # Errors
    /// A sentence that names what is missing or inconsistent.
    pub fn read(manifest: &Manifest) -> Result<ClusterEntry, String> {
        let mut entry: ClusterEntry = manifest.structure(NAME)?;
        entry.file = manifest.file(VECTORS_NAME)?.clone();
        entry.centroids = manifest.file(CENTROIDS_NAME)?.clone();
        entry.rows = manifest.file(ROWS_NAME).ok().cloned();
        entry.places = manifest.file(PLACES_NAME).ok().cloned();
        entry.positions = manifest.file(POSITIONS_NAME).ok().cloned();
        entry.codes.fill(manifest)?;
        entry.check(manifest)?;
        Ok(entry)
    }

    /// Returns all files; the first is the one that searches read.
    pub fn files(&self) -> Vec<FileEntry> {
        let always = [&self.file, &self.codes.file, &self.codes.codec, &self.centroids];
        let some = [&self.rows, &self.places, &self.positions];
        always.into_iter().chain(some.into_iter().flatten()).cloned().collect()
    }

    /// Returns the layout of vectors in groups and pages.
    ///
    /// # Errors
    /// A sentence if a number is out of range.
    pub fn layout(&self, manifest: &Manifest) -> Result<GroupLayout, String> {
        let layout =
            GroupLayout::new(manifest.stored_element()?, manifest.dim, self.page_bytes, self.group_pages)?;
        Ok(layout.identified(manifest.identity()?))
    }

    fn check(&self, manifest: &Manifest) -> Result<(), String> {
        manifest.check_files(&self.files())?;
        let layout = self.layout(manifest)?;
        let (vectors, groups, runs) = (manifest.vectors, u64::from(self.groups), u64::from(self.runs));
        let full = vectors.div_ceil(layout.group_vectors() as u64);
        require(
            (full..=vectors).contains(&groups),
            "the number of groups does not fit the number of vectors",
        )?;
        require((1..=groups).contains(&runs), "the number of runs is out of range")?;
        require(
            self.file.bytes == layout.file_bytes(groups),
            "the length of the vectors' file does not fit the groups",
        )?;
        let code_bytes = u64::from(self.codes.code_bytes);
        require(
            self.centroids.bytes == self.centroid_bytes(&layout, manifest.metric()?),
            "the length of the centroids' file does not fit the groups",
        )?;
        require(
            self.rows.as_ref().is_none_or(|rows| rows.bytes == layout.row_bytes(groups)),
            "the length of the rows' file does not fit the groups",
        )?;
        require(
            self.places.as_ref().is_none_or(|places| places.bytes == Places::file_bytes(&layout, groups)),
            "the length of the places' file does not fit the groups",
        )?;
        require(
            self.positions.as_ref().is_none_or(|file| file.bytes == positions::file_bytes(vectors)),
            "the length of the positions' file does not fit the vectors",
        )?;
        // All places must fit into 32 bits, including those of the last group.
        let last_place = (groups - 1).checked_mul(layout.group_vectors() as u64);
        require(
            last_place.is_some_and(|last| last < MAX_VECTORS),
            "the groups have more places than 32 bits can number",
        )?;
        // The codes of a group are one read, and the length of a read has 32 bits.
        let group_codes = (layout.group_blocks() * SCAN_BLOCK) as u64 * code_bytes;
        require(group_codes <= u64::from(u32::MAX), "the codes of a group are too long for one read")?;
        require(
            self.codes.file.bytes == groups * group_codes,
            "the length of the codes' file does not fit their size",
        )?;
        let series = Some(|point: &ProbedPoint| point.probes);
        let limits = Limits { vectors, probes: self.groups, series };
        calibrate::check(&self.calibration, &limits)?;
        require(
            self.lone_curves.is_empty() || !self.calibration.curves.is_empty(),
            "there are lone_curves, but no other curves",
        )?;
        calibrate::check_curves(&self.lone_curves, &limits)?;
        scope::check(&self.prunes, self.groups)?;
        let mut longer = self.codes.code_bytes;
        for shorter in &self.shorter {
            require(
                (LEAST_CODE_BYTES..longer).contains(&shorter.code_bytes),
                "the lengths of shorter codes are not in falling order",
            )?;
            require(!shorter.curves.is_empty(), "shorter codes have no curves")?;
            calibrate::check_curves(&shorter.curves, &limits)?;
            longer = shorter.code_bytes;
        }
        Ok(())
    }

    /// Returns the bytes of the file of centroids.
    pub(super) fn centroid_bytes(&self, layout: &GroupLayout, metric: Metric) -> u64 {
        let groups = u64::from(self.groups);
        let whole = layout.centroid_bytes(groups, u64::from(self.runs), u64::from(self.codes.code_bytes));
        if self.rows.is_none() {
            return whole;
        }
        // The rows are in another file. Each group has a checksum of its row, and under cosine the square of
        // its centroid.
        let group_extra = if metric == Metric::Cosine { 8 } else { 4 };
        whole - layout.row_bytes(groups) + group_extra * groups
    }

    /// Returns the sizes of the file of centroids.
    pub(super) fn centroid_file(&self, layout: &GroupLayout, metric: Metric) -> CentroidFile {
        CentroidFile {
            groups: self.groups as usize,
            runs: self.runs as usize,
            bytes: self.centroid_bytes(layout, metric),
            rows_apart: self.rows.is_some(),
        }
    }

    /// Returns the bytes of the centroids in memory.
    pub(super) fn centroid_memory(&self) -> u64 {
        self.centroids.bytes + self.rows.as_ref().map_or(0, |rows| rows.bytes)
    }

    /// Returns the bytes of the codes of a group in the file.
    pub(crate) fn group_codes(&self) -> u64 {
        self.codes.file.bytes / u64::from(self.groups.max(1))
    }

    /// Returns the bytes of the blocks of a group, with codes of `code_bytes` bytes.
    pub(super) fn group_bytes(&self, code_bytes: u32) -> u64 {
        self.group_codes() / u64::from(self.codes.code_bytes.max(1)) * u64::from(code_bytes)
    }

    /// Returns the bytes of the blocks of all groups, with codes of `code_bytes` bytes.
    pub(super) fn all_bytes(&self, code_bytes: u32) -> u64 {
        u64::from(self.groups) * self.group_bytes(code_bytes)
    }

    /// Returns the curves of searches with codes of `code_bytes` bytes in memory that read pages.
    fn curves(&self, code_bytes: u32) -> &[Curve<ProbedPoint>] {
        let shorter = self.shorter.iter().find(|shorter| shorter.code_bytes == code_bytes);
        shorter.map_or(&self.calibration.curves, |shorter| &shorter.curves)
    }

    /// Returns the cheapest candidate list and number of probes for a recall. `None` without a calibration.
    pub(super) fn effort(
        &self,
        k: usize,
        recall: f32,
        shape: &ClusterShape,
        machine: &Machine<'_>,
    ) -> Option<Solved> {
        let full_codes = shape.code_bytes == self.codes.code_bytes;
        let curves = match shape.lone && full_codes && !self.lone_curves.is_empty() {
            true => &self.lone_curves,
            false => self.curves(shape.code_bytes),
        };
        let device = machine.device();
        let mut solved =
            probed::effort(curves, k, Target::Recall(recall), self.groups, |probes, candidates| {
                shape.estimate(probes, candidates, machine).price_ns(&device)
            })?;
        solved.effort.prune = scope::prune_of(&self.prunes, solved.effort.probes);
        Some(solved)
    }
}
