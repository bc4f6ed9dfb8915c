//! The vectors of an index of partitions, partition by partition.

use super::growth::group_reader::{FetchStep, PartitionFetch};
use super::growth::overflow::PartitionChanges;
use super::inserts::Growth;
use super::search::Partitions;
use super::subindex::SubIndex;
use crate::error::IndexError;
use crate::family::EachVector;
use crate::family::rows::{Moving, StoredRows};
use crate::query::set::VectorSet;
use bathyal_tier::Span;

impl Partitions {
    /// Calls `visit` for each vector of a checked partition.
    fn visit_vectors(
        &self,
        subindex: &[u8],
        changes: &PartitionChanges,
        visit: &mut EachVector<'_>,
    ) -> Result<(), IndexError> {
        let row_bytes = self.set.row_bytes();
        // A partition whose vectors were all deleted has no bytes.
        if !subindex.is_empty() {
            let index = SubIndex::read(subindex, row_bytes).map_err(IndexError::Internal)?;
            for (at, row) in (0..index.count() as u32).zip(index.rows.chunks_exact(row_bytes)) {
                let id = index.id(at);
                if !changes.has_deleted(id) {
                    visit(id, row)?;
                }
            }
        }
        changes.ids.iter().zip(changes.rows.chunks_exact(row_bytes)).try_for_each(|(id, row)| visit(*id, row))
    }
}

impl StoredRows for Partitions {
    fn set(&self) -> &VectorSet {
        &self.set
    }

    fn units(&self) -> u32 {
        self.entry.partitions
    }

    fn span(&self, unit: u32) -> Span {
        Partitions::span(self, unit)
    }

    fn read(&self, unit: u32, bytes: &[u8], visit: &mut EachVector<'_>) -> Result<(), IndexError> {
        self.check(unit, bytes)?;
        self.visit_vectors(bytes, &PartitionChanges::default(), visit)
    }

    fn moving(&self, unit: u32) -> Option<Box<dyn Moving + '_>> {
        let growth = self.growth.as_ref()?;
        let (fetch, span) = growth.reader.begin(unit, None);
        Some(Box::new(MovingPartition { partitions: self, growth, unit, fetch, span }))
    }
}

/// The read of a partition that takes inserts, and may be moved while it is read.
struct MovingPartition<'a> {
    partitions: &'a Partitions,
    growth: &'a Growth,
    unit: u32,
    fetch: PartitionFetch,
    span: Span,
}

impl Moving for MovingPartition<'_> {
    fn span(&self) -> Span {
        self.span
    }

    fn arrived(&mut self, bytes: &[u8], visit: &mut EachVector<'_>) -> Result<bool, IndexError> {
        let next = self.fetch.arrived(&self.growth.reader, bytes);
        let damaged = |reason| self.partitions.set.damaged(format!("partition {}", self.unit), reason);
        match next.map_err(damaged)? {
            FetchStep::Done(loaded) => {
                self.partitions.visit_vectors(loaded.subindex.bytes(), &loaded.changes, visit)?;
                return Ok(true);
            }
            FetchStep::Read(span) => self.span = span,
            FetchStep::Moved => (self.fetch, self.span) = self.growth.reader.begin(self.unit, None),
        }
        Ok(false)
    }
}
