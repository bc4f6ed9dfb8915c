//! The vectors of partitions, partition by partition.

use super::growth::overflow::Late;
use super::growth::reading::{Fetching, Next};
use super::inserts::Growth;
use super::search::Partitions;
use super::subindex::SubIndex;
use crate::error::IndexError;
use crate::family::EachVector;
use crate::family::rows::{Moving, Rows};
use crate::query::set::VectorSet;
use bathyal_tier::Span;

impl Partitions {
    /// Tells `each` of the vectors of a partition that is sound.
    fn tell(&self, subindex: &[u8], late: &Late, each: &mut EachVector<'_>) -> Result<(), IndexError> {
        let row_bytes = self.set.row_bytes();
        // One whose vectors were all deleted has no bytes.
        if !subindex.is_empty() {
            let index = SubIndex::read(subindex, row_bytes).map_err(IndexError::Internal)?;
            for (at, row) in (0..index.count() as u32).zip(index.rows.chunks_exact(row_bytes)) {
                let id = index.id(at);
                if !late.has_deleted(id) {
                    each(id, row)?;
                }
            }
        }
        late.ids.iter().zip(late.rows.chunks_exact(row_bytes)).try_for_each(|(id, row)| each(*id, row))
    }
}

impl Rows for Partitions {
    fn set(&self) -> &VectorSet {
        &self.set
    }

    fn units(&self) -> u32 {
        self.entry.partitions
    }

    fn span(&self, unit: u32) -> Span {
        Partitions::span(self, unit)
    }

    fn read(&self, unit: u32, bytes: &[u8], each: &mut EachVector<'_>) -> Result<(), IndexError> {
        self.check(unit, bytes)?;
        self.tell(bytes, &Late::default(), each)
    }

    fn moving(&self, unit: u32) -> Option<Box<dyn Moving + '_>> {
        let growth = self.growth.as_ref()?;
        let (fetching, span) = growth.reading.begin(unit, None);
        Some(Box::new(Growing { partitions: self, growth, unit, fetching, span }))
    }
}

/// A partition that takes inserts, on its way.
struct Growing<'a> {
    partitions: &'a Partitions,
    growth: &'a Growth,
    unit: u32,
    fetching: Fetching,
    span: Span,
}

impl Moving for Growing<'_> {
    fn span(&self) -> Span {
        self.span
    }

    fn arrived(&mut self, bytes: &[u8], each: &mut EachVector<'_>) -> Result<bool, IndexError> {
        let next = self.fetching.arrived(&self.growth.reading, bytes);
        let damaged = |reason| self.partitions.set.damaged(format!("partition {}", self.unit), reason);
        match next.map_err(damaged)? {
            Next::Here(held) => {
                self.partitions.tell(held.subindex.bytes(), &held.late, each)?;
                return Ok(true);
            }
            Next::Read(span) => self.span = span,
            Next::Moved => (self.fetching, self.span) = self.growth.reading.begin(self.unit, None),
        }
        Ok(false)
    }
}
