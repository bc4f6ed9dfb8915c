//! The manifest's description of partitions that take inserts.

use super::layout::{GrowthLayout, MOST_UNITS};
use crate::format::manifest::require;
use serde::{Deserialize, Serialize};

/// The manifest's description of partitions that take inserts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrowthEntry {
    /// Vectors and deletions that the overflow of two partitions holds.
    pub overflow_vectors: u32,
    /// Bytes of a unit. A group takes a whole number of units.
    pub unit_bytes: u64,
    /// The number of units.
    pub units: u32,
    /// The number of units that the groups of the build occupy.
    pub built_units: u32,
    /// Ids of vectors are below this.
    pub ids: u32,
    /// The most vectors of a partition.
    pub most_vectors: u32,
}

/// The properties of the built index, from the rest of the manifest.
pub(in super::super) struct BuiltPartitions {
    pub(in super::super) partitions: u32,
    /// Vectors of the largest partition.
    pub(in super::super) most_vectors: u32,
    pub(in super::super) file_bytes: u64,
    pub(in super::super) vectors: u64,
    pub(in super::super) row_bytes: usize,
}

impl GrowthEntry {
    pub(in super::super) fn check(&self, built: &BuiltPartitions) -> Result<(), String> {
        let slots = u64::from(self.overflow_vectors);
        require((1..=1_000_000).contains(&slots), "overflow_vectors is out of range")?;
        require(
            self.unit_bytes.is_power_of_two() && (4096..=1 << 31).contains(&self.unit_bytes),
            "unit_bytes is out of range",
        )?;
        require((1..MOST_UNITS).contains(&u64::from(self.units)), "units is out of range")?;
        require(self.built_units <= self.units, "built_units is out of range")?;
        require(u64::from(self.ids) >= built.vectors, "ids is out of range")?;
        require(
            self.most_vectors >= built.most_vectors,
            "most_vectors is less than the vectors of a built partition",
        )?;
        let layout = GrowthLayout::new(built.partitions, built.row_bytes, self);
        require(layout.file_bytes() == built.file_bytes, "the length of the file does not match its units")
    }
}
