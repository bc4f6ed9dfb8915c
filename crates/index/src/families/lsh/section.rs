//! The section of a manifest that describes an LSH index.

use crate::calibrate::probed::{self, ProbedPoint};
use crate::calibrate::solve::{Solved, Target};
use crate::calibrate::{self, Calibration, Limits};
use crate::format::groups::GroupLayout;
use crate::format::ids::IDS_NAME;
use crate::format::manifest::{CodesEntry, FileEntry, Manifest, require};
use crate::format::tables::TableLayout;
use bathyal_kernels::Metric;
use bathyal_kernels::lsh::{Buckets, CompoundHashes, Ends, MOST_HASHES};
use serde::{Deserialize, Serialize};

pub(crate) use crate::format::manifest::{CODEC_NAME, CODES_NAME};

/// The family's name.
pub(crate) const NAME: &str = "lsh";
/// The vectors in the order of the data, and the tables behind them.
pub(crate) const TABLES_NAME: &str = "tables.bin";
/// The hash functions.
pub(crate) const HASHES_NAME: &str = "hashes.bin";
/// The first key of every block.
pub(crate) const FENCES_NAME: &str = "fences.bin";
/// The files that searches may read from a tier.
pub(crate) const STRIPED: &[&str] = &[TABLES_NAME];

/// The parameters of an LSH index. Its files are named in the manifest's list of files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LshEntry {
    /// The file of vectors and tables.
    #[serde(skip)]
    pub file: FileEntry,
    /// The hash functions.
    #[serde(skip)]
    pub functions: FileEntry,
    /// The first key of every block.
    #[serde(skip)]
    pub fences: FileEntry,
    /// The ids of the vectors, if they differ from the places.
    #[serde(skip)]
    pub ids: Option<FileEntry>,
    /// Bytes of a page of vectors.
    pub page_bytes: u32,
    /// Number of tables: L.
    pub tables: u32,
    /// Values of a compound hash: m.
    pub hashes: u32,
    /// Bytes of a block of a table.
    pub block_bytes: u32,
    /// The finest width of a hash, in the units of the vectors.
    pub cell: f32,
    /// True if behind the last cell of a value comes the first; false in indexes of earlier versions, whose
    /// outermost cells contain all values beyond them.
    #[serde(default)]
    pub circle: bool,
    /// Inner product only: the largest squared length of a vector. The extra value of each hashed point makes
    /// up the difference to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<f32>,
    /// The codes, one per vector.
    pub codes: CodesEntry,
    /// Recall as a function of blocks per table and candidates.
    pub calibration: Calibration<ProbedPoint>,
}

impl LshEntry {
    /// Reads and checks the section of an LSH index.
    ///
    /// # Errors
    /// A sentence that states what is wrong.
    pub fn read(manifest: &Manifest) -> Result<LshEntry, String> {
        let mut entry: LshEntry = manifest.structure(NAME)?;
        entry.file = manifest.file(TABLES_NAME)?.clone();
        entry.functions = manifest.file(HASHES_NAME)?.clone();
        entry.fences = manifest.file(FENCES_NAME)?.clone();
        entry.ids = manifest.file(IDS_NAME).ok().cloned();
        entry.codes.fill(manifest)?;
        entry.check(manifest)?;
        Ok(entry)
    }

    /// Returns all files; the file that searches read comes first.
    pub fn files(&self) -> Vec<FileEntry> {
        let files = [&self.file, &self.codes.file, &self.codes.codec, &self.functions, &self.fences];
        files.into_iter().chain(&self.ids).cloned().collect()
    }

    /// Returns the layout of the vectors: each page is a group.
    ///
    /// # Errors
    /// A sentence that states what is wrong.
    pub fn vectors_layout(&self, manifest: &Manifest) -> Result<GroupLayout, String> {
        let layout = GroupLayout::new(manifest.stored_element()?, manifest.dim, self.page_bytes, 1)?;
        Ok(layout.identified(manifest.identity()?))
    }

    /// Returns the number of pages of vectors.
    pub fn pages(&self, layout: &GroupLayout, vectors: u64) -> u64 {
        vectors.div_ceil(layout.group_vectors() as u64)
    }

    /// Returns the layout of the tables.
    ///
    /// # Errors
    /// A sentence that states what is wrong.
    pub fn table_layout(&self, manifest: &Manifest) -> Result<TableLayout, String> {
        let pages = self.vectors_layout(manifest)?;
        let begin = pages.file_bytes(self.pages(&pages, manifest.vectors));
        let layout = TableLayout::new(begin, self.block_bytes, self.tables, manifest.vectors)?;
        Ok(layout.identified(manifest.identity()?))
    }

    /// Returns the buckets of the keys, in the units of the data.
    ///
    /// # Errors
    /// A sentence that states what is wrong.
    pub fn buckets(&self, manifest: &Manifest) -> Result<Buckets, String> {
        let ends = if self.circle { Ends::Circle } else { Ends::Clamped };
        let unit_vectors =
            manifest.metric()? == Metric::Cosine && !manifest.stored_element()?.has_unit_vectors();
        let scale = if unit_vectors { 1.0 } else { manifest.stored_scale() };
        Ok(Buckets::new(f64::from(self.cell) * f64::from(scale), self.hashes as usize, ends))
    }

    /// Returns the number of values of a hashed point: under the inner product, one more than a vector has.
    pub fn point_dim(&self, manifest: &Manifest) -> usize {
        manifest.dim as usize + usize::from(self.longest.is_some())
    }

    fn check(&self, manifest: &Manifest) -> Result<(), String> {
        manifest.check_files(&self.files())?;
        let layout = self.table_layout(manifest)?;
        require((1..=MOST_HASHES as u32).contains(&self.hashes), "the number of hashes is out of range")?;
        require(
            self.file.bytes == layout.file_bytes(),
            "the tables' length does not follow from the vectors",
        )?;
        require(
            self.fences.bytes == layout.fence_bytes(),
            "the fences' length does not follow from the tables",
        )?;
        let ip = manifest.metric()? == Metric::InnerProduct;
        let longest = self.longest.is_none_or(|longest| longest.is_finite() && longest >= 0.0);
        require(
            longest && self.longest.is_some() == ip,
            "the longest length is missing, not finite, or given for another metric than ip",
        )?;
        require(self.cell.is_finite() && self.cell > 0.0, "the width of a cell is not a positive number")?;
        let functions =
            CompoundHashes::file_bytes(self.point_dim(manifest), self.tables as usize, self.hashes as usize);
        require(self.functions.bytes == functions, "the hashes' length does not follow from the tables")?;
        let codes = manifest.vectors * u64::from(self.codes.code_bytes);
        require(self.codes.file.bytes == codes, "the codes' length does not follow from their size")?;
        let series = Some(|point: &ProbedPoint| point.probes);
        let probes = u32::try_from(layout.blocks()).unwrap_or(u32::MAX);
        calibrate::check(&self.calibration, &Limits { vectors: manifest.vectors, probes, series })
    }

    /// Returns the cheapest blocks per table and candidates for a recall or a ratio; `price` takes both
    /// numbers.
    pub(crate) fn effort(&self, k: usize, target: Target, price: impl Fn(f64, f64) -> f64) -> Option<Solved> {
        probed::effort(&self.calibration.curves, k, target, u32::MAX, price)
    }
}
