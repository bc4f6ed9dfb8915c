//! Reads all vectors of a graph, page by page or record by record.

use super::layout::GraphLayout;
use super::search::Graph;
use crate::error::IndexError;
use crate::family::EachVector;
use crate::family::rows::StoredRows;
use crate::query::set::VectorSet;
use bathyal_tier::Span;

impl Graph {
    fn damaged_record(&self, place: u32, reason: String) -> IndexError {
        self.set.damaged(format!("record {place}"), reason)
    }

    /// Returns the number of records of a page of the padded layout. In other layouts, a node is read alone.
    fn nodes_per_unit(&self) -> u32 {
        let GraphLayout::Padded(layout) = &self.layout else { return 1 };
        layout.records_per_page().max(1) as u32
    }
}

impl StoredRows for Graph {
    fn set(&self) -> &VectorSet {
        &self.set
    }

    fn units(&self) -> u32 {
        let nodes = self.layout.nodes(self.set.vectors.into()) as u32;
        nodes.div_ceil(self.nodes_per_unit())
    }

    fn unit_of(&self, place: u32) -> Option<u32> {
        let GraphLayout::Padded(_) = &self.layout else { return None };
        Some(place / self.nodes_per_unit())
    }

    fn first_place(&self, unit: u32) -> Option<u32> {
        match &self.layout {
            GraphLayout::Padded(_) => None,
            GraphLayout::Local(layout) => Some(layout.places(unit).start),
            GraphLayout::Csr(_) => Some(unit),
        }
    }

    fn span(&self, unit: u32) -> Span {
        self.node_span(unit * self.nodes_per_unit())
    }

    fn read(&self, unit: u32, bytes: &[u8], each: &mut EachVector<'_>) -> Result<(), IndexError> {
        match &self.layout {
            GraphLayout::Padded(layout) => {
                let first = unit * self.nodes_per_unit();
                for id in first..(first + self.nodes_per_unit()).min(self.set.vectors) {
                    let record =
                        layout.decode(bytes, id).map_err(|reason| self.damaged_record(id, reason))?;
                    each(id, record.vector)?;
                }
                Ok(())
            }
            GraphLayout::Local(layout) => {
                let page = layout.decode(bytes, unit);
                let page = page.map_err(|reason| self.set.damaged(format!("page {unit}"), reason))?;
                let count = layout.places(unit).len();
                let rows = page.vectors.chunks_exact(self.set.row_bytes());
                page.ids().zip(rows).take(count).try_for_each(|(id, row)| each(id, row))
            }
            GraphLayout::Csr(layout) => {
                let record =
                    layout.decode(bytes, unit).map_err(|reason| self.damaged_record(unit, reason))?;
                each(record.id, record.vector)
            }
        }
    }
}
