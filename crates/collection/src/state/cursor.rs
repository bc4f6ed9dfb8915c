//! Iteration over selected rows in the order of their ids: merges all parts.

use super::{Located, State};
use crate::error::CollectionError;
use crate::ids::{Id, Ids};
use bathyal_index::RowSet;
use std::cmp::Ordering;
use std::sync::Arc;

/// Number of ids that a part reads ahead.
const AHEAD: u32 = 8192;

/// Position of an iteration within a part.
#[derive(Debug)]
struct PartCursor {
    part: u32,
    /// Of a memtable, its rows in the order of their ids. `None` for a segment, whose rows are in that order.
    sorted: Option<Vec<u32>>,
    rows: u32,
    selected: Arc<RowSet>,
    /// Position of the first of `ids`.
    first: u32,
    /// Ids that were read ahead.
    ids: Ids,
    /// The current position.
    at: u32,
}

/// Iterator over the selected rows of a state, in the order of their ids.
#[derive(Debug)]
pub(crate) struct Cursor {
    parts: Vec<PartCursor>,
}

impl PartCursor {
    /// Moves on to the next selected row and reads its id. Returns false at the end.
    fn advance(&mut self, state: &State) -> Result<bool, CollectionError> {
        loop {
            if self.at >= self.rows {
                return Ok(false);
            }
            if !self.selected.has(self.row()) {
                self.at += 1;
                continue;
            }
            if self.at < self.first || self.at >= self.first + self.ids.len() as u32 {
                let end = self.rows.min(self.at + AHEAD);
                self.ids = match (&self.sorted, state.memtable_of(self.part)) {
                    (Some(sorted), Some(memtable)) => {
                        memtable.ids_of(&sorted[self.at as usize..end as usize])?
                    }
                    _ => state.segments[self.part as usize].segment.ids(self.at..end)?,
                };
                self.first = self.at;
            }
            return Ok(true);
        }
    }

    fn row(&self) -> u32 {
        self.sorted.as_ref().map_or(self.at, |sorted| sorted[self.at as usize])
    }

    fn compare(&self, other: &PartCursor) -> Ordering {
        self.ids.compare((self.at - self.first) as usize, &other.ids, (other.at - other.first) as usize)
    }
}

impl Cursor {
    /// Begins an iteration over the rows `selected` (one set for each part of the state) of the parts
    /// `parts`. It starts with the smallest id above `after`.
    pub(crate) fn new(
        state: &State,
        parts: impl IntoIterator<Item = u32>,
        selected: &[Arc<RowSet>],
        after: Option<&Id>,
    ) -> Result<Cursor, CollectionError> {
        let mut cursors = Vec::new();
        for part in parts {
            let memtable = state.memtable_of(part);
            let sorted = memtable.map(|memtable| memtable.sorted()).transpose()?;
            let rows = sorted
                .as_ref()
                .map_or_else(|| state.segments[part as usize].segment.rows(), |sorted| sorted.len() as u32);
            let start = match (after, memtable, &sorted) {
                (None, _, _) => 0,
                (Some(id), Some(memtable), Some(sorted)) => memtable.lower_bound(sorted, id)? as u32,
                (Some(id), _, _) => state.segments[part as usize].segment.lower_bound(id)?,
            };
            let ids = Ids::none(state.schema().id_kind);
            let selected = selected[part as usize].clone();
            let mut cursor = PartCursor { part, sorted, rows, selected, first: 0, ids, at: start };
            if !cursor.advance(state)? {
                continue;
            }
            let same = after.is_some_and(|id| cursor.ids.get((cursor.at - cursor.first) as usize) == *id);
            if same {
                cursor.at += 1;
                if !cursor.advance(state)? {
                    continue;
                }
            }
            cursors.push(cursor);
        }
        Ok(Cursor { parts: cursors })
    }

    /// Returns up to `most` further rows; none at the end.
    pub(crate) fn next(&mut self, state: &State, most: usize) -> Result<Vec<Located>, CollectionError> {
        let mut rows = Vec::new();
        while rows.len() < most && !self.parts.is_empty() {
            let mut nearest = 0;
            for at in 1..self.parts.len() {
                if self.parts[at].compare(&self.parts[nearest]).is_lt() {
                    nearest = at;
                }
            }
            let cursor = &mut self.parts[nearest];
            rows.push(Located { part: cursor.part, row: cursor.row() });
            cursor.at += 1;
            if !cursor.advance(state)? {
                self.parts.swap_remove(nearest);
            }
        }
        Ok(rows)
    }
}
