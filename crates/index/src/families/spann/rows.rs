//! The vectors of posting lists. A unit is a range of places or, if lists hold copies, a list.

use super::search::Lists;
use crate::error::IndexError;
use crate::family::EachVector;
use crate::family::rows::StoredRows;
use crate::format::postings::{BLOCK_BYTES, PostingLayout, check_blocks};
use crate::query::set::VectorSet;
use bathyal_tier::Span;
use std::ops::Range;

/// Approximate bytes of rows by place that are read together. A single vector then costs no more than a few
/// blocks.
const UNIT_BYTES: usize = 4 * BLOCK_BYTES;

/// The rows of posting lists, by units.
pub(super) struct ListRows<'a> {
    lists: &'a Lists,
    /// Rows of a unit, if rows are stored by place; `None` if a unit is a list with copies.
    places: Option<u32>,
}

impl Lists {
    /// Returns true if lists hold copies of vectors, and not their codes or addresses.
    fn has_copies(&self) -> bool {
        self.postings.layout() == PostingLayout::Coupled && self.codes.is_none()
    }

    pub(super) fn list_rows(&self) -> ListRows<'_> {
        let fitting = || (UNIT_BYTES / self.postings.place_bytes().max(1)).max(1) as u32;
        ListRows { lists: self, places: (!self.has_copies()).then(fitting) }
    }
}

impl ListRows<'_> {
    /// Returns the places of a unit.
    fn places_of(&self, unit: u32, rows: u32) -> Range<u32> {
        let first = unit * rows;
        first..first.saturating_add(rows).min(self.lists.set.vectors)
    }

    /// Returns the range of bytes of a unit's rows.
    fn range(&self, unit: u32) -> Range<u64> {
        match self.places {
            Some(rows) => {
                let places = self.places_of(unit, rows);
                self.lists.postings.places_range(places.start, places.len() as u32)
            }
            None => self.lists.postings.rows_range(unit),
        }
    }

    fn damaged(&self, unit: u32, reason: impl Into<String>) -> IndexError {
        let unit_name = if self.places.is_some() { "rows" } else { "list" };
        self.lists.set.damaged(format!("{unit_name} {unit}"), reason)
    }
}

impl StoredRows for ListRows<'_> {
    fn set(&self) -> &VectorSet {
        &self.lists.set
    }

    fn units(&self) -> u32 {
        match self.places {
            Some(rows) => self.lists.set.vectors.div_ceil(rows),
            None => self.lists.postings.lists() as u32,
        }
    }

    fn unit_of(&self, place: u32) -> Option<u32> {
        // Decoupled rows are in the order of the data.
        let ordered = self.lists.postings.layout() == PostingLayout::Decoupled;
        self.places.filter(|_| ordered).map(|rows| place / rows)
    }

    fn span(&self, unit: u32) -> Span {
        // Checksums are those of whole blocks.
        let (range, block) = (self.range(unit), BLOCK_BYTES as u64);
        let start = range.start / block * block;
        let end = range.end.next_multiple_of(block).min(self.lists.postings.file_bytes());
        Span { offset: start, len: (end.max(start) - start) as u32 }
    }

    fn read(&self, unit: u32, bytes: &[u8], visit: &mut EachVector<'_>) -> Result<(), IndexError> {
        let Lists { checksums, identity, postings, set, .. } = self.lists;
        let (span, range) = (self.span(unit), self.range(unit));
        if !checksums.is_empty() {
            let first = (span.offset / BLOCK_BYTES as u64) as usize;
            check_blocks(*identity, checksums, first, bytes)
                .map_err(|block| set.damaged(format!("block {block}"), "its checksum differs"))?;
        }
        let (start, end) = ((range.start - span.offset) as usize, (range.end - span.offset) as usize);
        let bytes = bytes.get(start..end).ok_or_else(|| self.damaged(unit, "its bytes are missing"))?;
        let (row_bytes, id_of) =
            (set.row_bytes(), |id: &[u8]| id.first_chunk().map_or(u32::MAX, |id| u32::from_le_bytes(*id)));
        let Some(rows) = self.places else {
            let (rows, ids) = bytes.split_at(postings.stored_of(unit) as usize * row_bytes);
            let mut pairs = ids.chunks_exact(4).map(id_of).zip(rows.chunks_exact(row_bytes));
            return pairs.try_for_each(|(id, row)| visit(id, row));
        };
        let coded = self.lists.codes.is_some();
        for (place, row) in self.places_of(unit, rows).zip(bytes.chunks_exact(postings.place_bytes())) {
            let (row, tail) = row.split_at(row_bytes);
            let id = match postings.layout() {
                PostingLayout::Decoupled => place,
                _ if coded => id_of(tail),
                _ => self.lists.ids.get(place),
            };
            visit(id, row)?;
        }
        Ok(())
    }
}
