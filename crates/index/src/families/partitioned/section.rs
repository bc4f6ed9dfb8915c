//! The manifest section of an index of partitions.

use super::growth::entry::{BuiltPartitions, GrowthEntry};
use super::growth::layout::GrowthLayout;
use super::subindex::options::MOST_REPLICAS;
use super::subindex::table::ENTRY_BYTES;
use crate::calibrate::probed::ProbedPoint;
use crate::calibrate::{self, Calibration, Limits};
use crate::format::manifest::{FileEntry, Manifest, require};
use serde::{Deserialize, Serialize};

/// The family's name.
pub(super) const NAME: &str = "partitioned";
/// The name of the file of sub-indexes.
pub(super) const FILE_NAME: &str = "partitions.bin";
/// The name of the file with the position of each sub-index.
pub(super) const TABLE_NAME: &str = "table.bin";
/// The name of the file of the meta index.
pub(super) const META_NAME: &str = "meta.bin";
/// The files that searches read from a tier.
pub(super) const STRIPED: &[&str] = &[FILE_NAME];
/// The longest sub-index: a read has a 32-bit length, and an aligned buffer.
pub(super) const MOST_BYTES: u64 = 1 << 31;

/// The parameters of an index of partitions. The manifest lists its files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartitionedEntry {
    /// The file of sub-indexes.
    #[serde(skip)]
    pub file: FileEntry,
    /// The file with the position of each sub-index.
    #[serde(skip)]
    pub table: FileEntry,
    /// The file of the meta index.
    #[serde(skip)]
    pub meta: FileEntry,
    /// Bytes of all partitions as they were built.
    #[serde(skip)]
    pub read_bytes: u64,
    /// Number of partitions.
    pub partitions: u32,
    /// Requested vectors of a partition on average.
    pub partition_vectors: u32,
    /// The source of the pivots: "sampled" or "balanced".
    pub pivots: String,
    /// The most partitions that contain one vector.
    pub replicas: u32,
    /// Links of a vector in the upper layers.
    pub links: u32,
    /// The length of the candidate list during the build of the graphs.
    pub construction_list: u32,
    /// Vectors in all partitions, with a vector counted once for each of its partitions.
    pub copies: u64,
    /// The number of vectors in the largest partition.
    pub most_vectors: u32,
    /// Bytes of the longest sub-index. If the index takes inserts: bytes of the longest possible read, with
    /// the overflow.
    pub longest_bytes: u32,
    /// The parameters for inserts; `None` if the index takes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth: Option<GrowthEntry>,
    /// The recall for numbers of partitions and lengths of the candidate list.
    pub calibration: Calibration<ProbedPoint>,
}

impl PartitionedEntry {
    /// Reads and checks the section in a manifest.
    ///
    /// # Errors
    /// A description of the first invalid field.
    pub fn read(manifest: &Manifest) -> Result<PartitionedEntry, String> {
        let mut entry: PartitionedEntry = manifest.structure(NAME)?;
        let files =
            [(&mut entry.file, FILE_NAME), (&mut entry.table, TABLE_NAME), (&mut entry.meta, META_NAME)];
        for (file, name) in files {
            *file = manifest.file(name)?.clone();
        }
        entry.check(manifest)?;
        let layout = entry.layout(manifest.stored_row_bytes()?);
        entry.read_bytes = match (&entry.growth, layout) {
            (Some(growth), Some(layout)) => {
                let groups = u64::from(growth.built_units) * growth.unit_bytes;
                groups + u64::from(layout.groups()) * layout.overflow_bytes()
            }
            _ => entry.file.bytes,
        };
        Ok(entry)
    }

    /// Returns all files; the first is the one that searches read.
    pub fn files(&self) -> Vec<FileEntry> {
        [&self.file, &self.table, &self.meta].map(FileEntry::clone).to_vec()
    }

    /// Returns the mean bytes of a partition as it was built.
    pub fn mean_bytes(&self) -> f64 {
        self.read_bytes as f64 / f64::from(self.partitions)
    }

    /// Returns the layout of the file, if the index takes inserts.
    pub(super) fn layout(&self, row_bytes: usize) -> Option<GrowthLayout> {
        let longest = self.longest_bytes;
        self.growth
            .as_ref()
            .map(|growth| GrowthLayout { longest, ..GrowthLayout::new(self.partitions, row_bytes, growth) })
    }

    fn check(&self, manifest: &Manifest) -> Result<(), String> {
        manifest.check_files(&self.files())?;
        let partitions = u64::from(self.partitions);
        require((1..=manifest.vectors).contains(&partitions), "the number of partitions is out of range")?;
        require((1..=MOST_REPLICAS).contains(&self.replicas), "replicas is out of range")?;
        let most = manifest.vectors * u64::from(self.replicas);
        require((manifest.vectors..=most).contains(&self.copies), "copies is out of range")?;
        require(
            self.table.bytes == partitions * ENTRY_BYTES as u64,
            "the length of the table does not match the number of partitions",
        )?;
        let longest = u64::from(self.longest_bytes);
        require(
            longest > 0 && longest <= MOST_BYTES && longest <= self.file.bytes,
            "longest_bytes is out of range",
        )?;
        require(
            self.most_vectors > 0 && u64::from(self.most_vectors) <= manifest.vectors,
            "most_vectors is out of range",
        )?;
        require((2..=1024).contains(&self.links), "links is out of range")?;
        if let Some(growth) = &self.growth {
            let built = BuiltPartitions {
                partitions: self.partitions,
                most_vectors: self.most_vectors,
                file_bytes: self.file.bytes,
                vectors: manifest.vectors,
                row_bytes: manifest.stored_row_bytes()?,
            };
            require(self.replicas == 1, "replicas must be 1 in an index with growth")?;
            growth.check(&built)?;
        }
        let series = Some(|point: &ProbedPoint| point.probes);
        let limits = Limits { vectors: manifest.vectors, probes: self.partitions, series };
        calibrate::check(&self.calibration, &limits)
    }
}
