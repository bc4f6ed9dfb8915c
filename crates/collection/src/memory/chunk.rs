//! Rows that came one after the other, and an order of their ids.

use crate::error::CollectionError;
use crate::ids::Ids;
use crate::rows::Rows;
use std::cmp::Ordering;

/// See the module's description.
#[derive(Debug)]
pub(super) struct Chunk {
    first: u32,
    rows: Rows,
    /// Places in rising order of the ids. Of equal ids one row is there at most; the others were deleted.
    order: Vec<u32>,
    bytes: u64,
}

impl Chunk {
    /// Rows of which the first has the number `first`.
    pub(super) fn new(first: u32, rows: Rows) -> Chunk {
        let order = rows.ids().order();
        let bytes = rows.bytes() + 4 * order.len() as u64;
        Chunk { first, rows, order, bytes }
    }

    /// Number of its first row.
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// Its rows.
    pub(super) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// These rows and the `next` ones.
    pub(super) fn joined(&self, next: &Chunk) -> Result<Chunk, CollectionError> {
        Ok(Chunk::new(self.first, Rows::joined(&self.rows, &next.rows)?))
    }

    /// Whether any of `ids` may be here, if they are as many as one at least: by the smallest and the largest id here.
    pub(super) fn may_have(&self, ids: &Ids) -> bool {
        let (own, Some(smallest), Some(largest)) = (self.rows.ids(), self.order.first(), self.order.last())
        else {
            return false;
        };
        (0..ids.len()).any(|at| {
            ids.compare(at, own, *smallest as usize) != Ordering::Less
                && ids.compare(at, own, *largest as usize) != Ordering::Greater
        })
    }

    /// The number of the row with the id at `at`, of those that are `there`.
    pub(super) fn find(&self, ids: &Ids, at: usize, there: impl Fn(u32) -> bool) -> Option<u32> {
        let own = self.rows.ids();
        let begin =
            self.order.partition_point(|place| ids.compare(at, own, *place as usize) == Ordering::Greater);
        let same =
            self.order[begin..].iter().take_while(|place| ids.compare(at, own, **place as usize).is_eq());
        same.map(|place| self.first + place).find(|row| there(*row))
    }
}
