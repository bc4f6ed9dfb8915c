//! All rows in the order of their ids: those of all parts, merged.

use super::{Located, State};
use crate::error::CollectionError;
use crate::ids::{Id, Ids};
use bathyal_index::RowSet;
use std::cmp::Ordering;
use std::sync::Arc;

/// Ids of a part that are held at a time.
const AHEAD: u32 = 8192;

/// Where a walk is within a part.
#[derive(Debug)]
struct PartCursor {
    part: u32,
    /// The rows that it goes through: of a segment all, in this order; of a memory these.
    sorted: Option<Vec<u32>>,
    rows: u32,
    chosen: Arc<RowSet>,
    /// Ids from here on are held.
    first: u32,
    held: Ids,
    at: u32,
}

/// A walk over the rows of a state that are chosen, in the order of their ids.
#[derive(Debug)]
pub(crate) struct Cursor {
    parts: Vec<PartCursor>,
}

impl PartCursor {
    /// Goes to the next row that is chosen; false at the end.
    fn settle(&mut self, state: &State) -> Result<bool, CollectionError> {
        loop {
            if self.at >= self.rows {
                return Ok(false);
            }
            if !self.chosen.has(self.row()) {
                self.at += 1;
                continue;
            }
            if self.at < self.first || self.at >= self.first + self.held.len() as u32 {
                let end = self.rows.min(self.at + AHEAD);
                self.held = match (&self.sorted, state.memory_of(self.part)) {
                    (Some(sorted), Some(memory)) => memory.ids_of(&sorted[self.at as usize..end as usize])?,
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
        self.held.compare((self.at - self.first) as usize, &other.held, (other.at - other.first) as usize)
    }
}

impl Cursor {
    /// Over the rows `chosen` of each of the parts in `parts`, from the first on whose id is above `after`.
    pub(crate) fn over(
        state: &State,
        parts: impl IntoIterator<Item = u32>,
        chosen: &[Arc<RowSet>],
        after: Option<&Id>,
    ) -> Result<Cursor, CollectionError> {
        let mut cursors = Vec::new();
        for part in parts {
            let memory = state.memory_of(part);
            let sorted = memory.map(|memory| memory.sorted()).transpose()?;
            let rows = sorted
                .as_ref()
                .map_or_else(|| state.segments[part as usize].segment.rows(), |sorted| sorted.len() as u32);
            let begin = match (after, memory, &sorted) {
                (None, _, _) => 0,
                (Some(id), Some(memory), Some(sorted)) => memory.lower_bound(sorted, id)? as u32,
                (Some(id), _, _) => state.segments[part as usize].segment.lower_bound(id)?,
            };
            let held = Ids::none(state.schema().id_kind);
            let chosen = chosen[part as usize].clone();
            let mut cursor = PartCursor { part, sorted, rows, chosen, first: 0, held, at: begin };
            if !cursor.settle(state)? {
                continue;
            }
            let same = after.is_some_and(|id| cursor.held.get((cursor.at - cursor.first) as usize) == *id);
            if same {
                cursor.at += 1;
                if !cursor.settle(state)? {
                    continue;
                }
            }
            cursors.push(cursor);
        }
        Ok(Cursor { parts: cursors })
    }

    /// Up to `most` further rows; none at the end.
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
            if !cursor.settle(state)? {
                self.parts.swap_remove(nearest);
            }
        }
        Ok(rows)
    }
}
