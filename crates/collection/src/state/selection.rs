//! Which rows of a segment are there and match a filter: looked at once for each filter, as long as the segment is open.

use super::{SegmentState, State};
use crate::error::CollectionError;
use crate::filter::BoundFilter;
use crate::memory::check;
use crate::together::together;
use bathyal_index::RowSet;
use bathyal_tier::Control;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Filters of which a segment keeps the rows: more would be memory that nobody planned.
const KEPT: usize = 16;
/// Segments whose columns are looked at for a filter at the same time: each takes memory meanwhile.
const SCANNED_AT_ONCE: usize = 4;
/// The name of no filter.
const NONE: &str = "";

/// Rows by the canonical text of a filter, the latest used first.
type Kept = Mutex<VecDeque<(String, Arc<RowSet>)>>;

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Selections {
    /// The rows that match, deleted or not; shared by all states of the segment.
    matching: Arc<Kept>,
    /// Those of them that are there.
    live: Kept,
}

impl Selections {
    /// The same of another state of the segment.
    pub(super) fn without_live(&self) -> Selections {
        Selections { matching: self.matching.clone(), live: Kept::default() }
    }
}

fn kept(
    kept: &Kept,
    filter: &str,
    find: impl FnOnce() -> Result<RowSet, CollectionError>,
) -> Result<Arc<RowSet>, CollectionError> {
    let mut lists = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = lists.iter().position(|(name, _)| name == filter) {
        let found = lists.remove(at);
        lists.extend(found);
        return lists
            .back()
            .map(|(_, rows)| rows.clone())
            .ok_or_else(|| CollectionError::Internal("a lost set".into()));
    }
    drop(lists);
    let rows = Arc::new(find()?);
    let mut lists = kept.lock().unwrap_or_else(PoisonError::into_inner);
    // Of two that have found the same at once, both are right; the one that is kept is the one that others meet.
    if let Some((_, there)) = lists.iter().find(|(name, _)| name == filter) {
        return Ok(there.clone());
    }
    lists.push_back((filter.to_string(), rows.clone()));
    if lists.len() > KEPT {
        lists.pop_front();
    }
    Ok(rows)
}

impl SegmentState {
    /// The rows that are there and match.
    pub(crate) fn matching(
        &self,
        filter: Option<&BoundFilter>,
        control: &Control<'_>,
    ) -> Result<Arc<RowSet>, CollectionError> {
        let rows = self.segment.rows();
        let name = filter.map_or(NONE, BoundFilter::canonical);
        kept(&self.selections.live, name, || {
            let Some(filter) = filter else { return Ok(self.deleted.others(rows)) };
            let matching = kept(&self.selections.matching, name, || {
                let mut words = vec![0_u64; (rows as usize).div_ceil(64)];
                self.segment.scan(filter.columns(), filter.needs_ids(), &mut |first, batch| {
                    check(control)?;
                    for at in filter.evaluate(&batch)?.set_indices() {
                        let row = first as usize + at;
                        words[row / 64] |= 1 << (row % 64);
                    }
                    Ok(())
                })?;
                Ok(RowSet::from_words(rows, words))
            })?;
            Ok(matching.and(&self.deleted.others(rows)))
        })
    }
}

impl State {
    /// The rows of each part that are there and match.
    pub(crate) fn matching(
        &self,
        filter: Option<&BoundFilter>,
        control: &Control<'_>,
    ) -> Result<Vec<Arc<RowSet>>, CollectionError> {
        if let Some(ids) = filter.and_then(BoundFilter::id_only) {
            return self.with_ids(&ids);
        }
        // Without a filter nothing is read.
        let callers = if filter.is_some() { self.callers(0).min(SCANNED_AT_ONCE) } else { 1 };
        let mut sets =
            together(self.segments.len(), callers, |at| self.segments[at].matching(filter, control))?;
        for memory in &self.memories {
            sets.push(Arc::new(memory.matching(filter, control)?));
        }
        Ok(sets)
    }

    /// The rows of each part that are there and have one of these ids, which are looked up.
    fn with_ids(&self, ids: &crate::ids::Ids) -> Result<Vec<Arc<RowSet>>, CollectionError> {
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.parts()];
        for at in self.find(ids)?.into_iter().flatten() {
            rows[at.part as usize].push(at.row);
        }
        let all = self.segments.iter().map(|segment| segment.segment.rows());
        let all = all.chain(self.memories.iter().map(|memory| memory.rows()));
        Ok(all.zip(rows).map(|(all, rows)| Arc::new(RowSet::from_ids(all, rows.into_iter()))).collect())
    }
}
