//! What a manifest says of a cluster index.

use super::cost::ClusterShape;
use super::scope::{self, Pruned};
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

/// The family's name.
pub(crate) const NAME: &str = "cluster";
/// The vectors in the order of their groups.
pub(crate) const VECTORS_NAME: &str = "vectors.bin";
/// The centroids of groups and runs.
pub(crate) const CENTROIDS_NAME: &str = "centroids.bin";
/// The rows of the groups' centroids.
pub(crate) const ROWS_NAME: &str = "rows.bin";
/// The codes of all groups.
pub(crate) const CODES_NAME: &str = "codes.bin";
/// Whose vector lies at each place, with its checksum.
pub(crate) const PLACES_NAME: &str = "places.bin";
/// Where the vector of each id lies.
pub(crate) const POSITIONS_NAME: &str = "positions.bin";
/// The trained codec.
pub(crate) const CODEC_NAME: &str = "codec.bin";
/// No shorter code says enough of a vector.
pub(super) const LEAST_CODE_BYTES: u32 = 8;
/// What searches may read from a tier.
pub(crate) const STRIPED: &[&str] = &[VECTORS_NAME, CODES_NAME];

/// The parameters of a cluster index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterEntry {
    /// The file of pages that hold the vectors. Named among the manifest's files.
    #[serde(skip)]
    pub file: FileEntry,
    /// The means of groups and runs. Named among the manifest's files.
    #[serde(skip)]
    pub centroids: FileEntry,
    /// The rows of the groups' centroids. Named among the manifest's files; none of an index that was built when they were
    /// among [`ClusterEntry::centroids`].
    #[serde(skip)]
    pub rows: Option<FileEntry>,
    /// What searches keep that read vectors alone. Named among the manifest's files; none where a page holds a vector, and of an
    /// index that was built before vectors were read alone from tiers.
    #[serde(skip)]
    pub places: Option<FileEntry>,
    /// Where the vector of each id lies. Named among the manifest's files; none of an index that was built before vectors were
    /// looked for by their ids without reading all.
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
    /// Recall against groups scanned and candidates whose pages are read.
    pub calibration: Calibration<ProbedPoint>,
    /// The same where candidates are read alone, without what else is on their pages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lone_curves: Vec<Curve<ProbedPoint>>,
    /// What searches reach that keep fewer bytes of each code in memory, by falling bytes; none of an index that was built
    /// before this was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shorter: Vec<ShorterCodes>,
    /// Where queries of an effort of the calibration stop, by rising probes; none under the inner product, and of an index that
    /// was built before this was measured: all queries then scan as many groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prunes: Vec<Pruned>,
}

/// Codes that are made of the index's own while it is opened, where a budget does not hold these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShorterCodes {
    /// Bytes of a code in memory.
    pub code_bytes: u32,
    /// Recall against groups scanned and candidates whose pages are read.
    pub curves: Vec<Curve<ProbedPoint>>,
}

impl ClusterEntry {
    /// Reads and checks what the manifest of a cluster index says.
    ///
    /// # Errors
    /// A sentence.
    pub fn read(manifest: &Manifest) -> Result<ClusterEntry, String> {
        let mut entry: ClusterEntry = manifest.structure(NAME)?;
        entry.file = manifest.file(VECTORS_NAME)?.clone();
        entry.centroids = manifest.file(CENTROIDS_NAME)?.clone();
        entry.rows = manifest.file(ROWS_NAME).ok().cloned();
        entry.places = manifest.file(PLACES_NAME).ok().cloned();
        entry.positions = manifest.file(POSITIONS_NAME).ok().cloned();
        entry.codes.fill(manifest, CODES_NAME, CODEC_NAME)?;
        entry.check(manifest)?;
        Ok(entry)
    }

    /// All files, the one that searches read first.
    pub fn files(&self) -> Vec<FileEntry> {
        let always = [&self.file, &self.codes.file, &self.codes.codec, &self.centroids];
        let some = [&self.rows, &self.places, &self.positions];
        always.into_iter().chain(some.into_iter().flatten()).cloned().collect()
    }

    /// Where vectors lie within groups.
    ///
    /// # Errors
    /// A sentence.
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
        require((full..=vectors).contains(&groups), "the groups do not hold the vectors")?;
        require((1..=groups).contains(&runs), "the number of runs is out of range")?;
        require(
            self.file.bytes == layout.file_bytes(groups),
            "the vectors' length does not follow from the groups",
        )?;
        let code_bytes = u64::from(self.codes.code_bytes);
        require(
            self.centroids.bytes == self.centroid_bytes(&layout, manifest.metric()?),
            "the centroids' length does not follow from the groups",
        )?;
        require(
            self.rows.as_ref().is_none_or(|rows| rows.bytes == layout.row_bytes(groups)),
            "the rows' length does not follow from the groups",
        )?;
        require(
            self.places.as_ref().is_none_or(|places| places.bytes == Places::file_bytes(&layout, groups)),
            "the places' length does not follow from the groups",
        )?;
        require(
            self.positions.as_ref().is_none_or(|file| file.bytes == positions::file_bytes(vectors)),
            "the positions' length does not follow from the vectors",
        )?;
        // Places are numbers of 32 bits, the last group's included.
        let places = (groups - 1).checked_mul(layout.group_vectors() as u64);
        require(
            places.is_some_and(|last| last < MAX_VECTORS),
            "there are more places than numbers for them",
        )?;
        // The codes of a group are read at once, and the length of a read has 32 bits.
        let group_codes = (layout.group_blocks() * SCAN_BLOCK) as u64 * code_bytes;
        require(group_codes <= u64::from(u32::MAX), "the codes of a group are too long for a read")?;
        require(
            self.codes.file.bytes == groups * group_codes,
            "the codes' length does not follow from their size",
        )?;
        let series = Some(|point: &ProbedPoint| point.probes);
        let limits = Limits { vectors, probes: self.groups, series };
        calibrate::check(&self.calibration, &limits)?;
        require(
            self.lone_curves.is_empty() || !self.calibration.curves.is_empty(),
            "there are lone curves without others",
        )?;
        calibrate::check_curves(&self.lone_curves, &limits)?;
        scope::check(&self.prunes, self.groups)?;
        let mut longer = self.codes.code_bytes;
        for shorter in &self.shorter {
            require(
                (LEAST_CODE_BYTES..longer).contains(&shorter.code_bytes),
                "the lengths of shorter codes do not fall",
            )?;
            require(!shorter.curves.is_empty(), "there are shorter codes without curves")?;
            calibrate::check_curves(&shorter.curves, &limits)?;
            longer = shorter.code_bytes;
        }
        Ok(())
    }

    /// Bytes of the file of centroids.
    pub(super) fn centroid_bytes(&self, layout: &GroupLayout, metric: Metric) -> u64 {
        let groups = u64::from(self.groups);
        let whole = layout.centroid_bytes(groups, u64::from(self.runs), u64::from(self.codes.code_bytes));
        if self.rows.is_none() {
            return whole;
        }
        // A checksum for each row, and what groups are behind by where that is known.
        let of_group = if metric == Metric::Cosine { 8 } else { 4 };
        whole - layout.row_bytes(groups) + of_group * groups
    }

    /// Bytes of the centroids in memory.
    pub(super) fn centroid_memory(&self) -> u64 {
        self.centroids.bytes + self.rows.as_ref().map_or(0, |rows| rows.bytes)
    }

    /// Bytes of the codes of a group.
    pub(crate) fn group_codes(&self) -> u64 {
        self.codes.file.bytes / u64::from(self.groups.max(1))
    }

    /// Bytes that codes of so many bytes take for a group, in blocks.
    pub(super) fn group_bytes(&self, code_bytes: u32) -> u64 {
        self.group_codes() / u64::from(self.codes.code_bytes.max(1)) * u64::from(code_bytes)
    }

    /// Bytes of codes of all groups, of so many bytes each.
    pub(super) fn all_bytes(&self, code_bytes: u32) -> u64 {
        u64::from(self.groups) * self.group_bytes(code_bytes)
    }

    /// The curves of searches that keep codes of so many bytes, and read pages.
    fn curves(&self, code_bytes: u32) -> &[Curve<ProbedPoint>] {
        let shorter = self.shorter.iter().find(|shorter| shorter.code_bytes == code_bytes);
        shorter.map_or(&self.calibration.curves, |shorter| &shorter.curves)
    }

    /// The cheapest candidate list and number of probes for a recall.
    pub(super) fn effort(
        &self,
        k: usize,
        recall: f32,
        shape: &ClusterShape,
        machine: &Machine<'_>,
    ) -> Option<Solved> {
        let all = shape.code_bytes == self.codes.code_bytes;
        let curves = match shape.lone && all && !self.lone_curves.is_empty() {
            true => &self.lone_curves,
            false => self.curves(shape.code_bytes),
        };
        let device = machine.device();
        let mut solved = probed::effort(curves, k, Target::Recall(recall), |probes, candidates| {
            shape.demand(probes, candidates, machine).price_ns(&device)
        })?;
        solved.effort.prune = scope::prune_of(&self.prunes, solved.effort.probes);
        Some(solved)
    }
}
