//! The live rows of a segment that match a filter. Each filter is evaluated once while the segment is open.

use super::{SegmentState, State};
use crate::error::CollectionError;
use crate::filter::BoundFilter;
use crate::memtable::check;
use crate::parallel::run_parallel;
use bathyal_index::RowSet;
use bathyal_tier::Control;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of filters whose rows a segment caches. It is small because no budget covers this memory.
const CACHED_FILTERS: usize = 16;
/// Number of segments that evaluate a filter in parallel; each takes memory for its columns.
const SCANNED_AT_ONCE: usize = 4;
/// Cache key of all rows.
const NO_FILTER: &str = "";

/// Sets of rows by the canonical text of a filter; the most recently used last.
type FilterCache = Mutex<VecDeque<(String, Arc<RowSet>)>>;

/// Cached sets of rows of a segment.
#[derive(Debug, Default)]
pub(super) struct Selections {
    /// The rows that match a filter, deleted or not. All states of the segment share this cache.
    matching: Arc<FilterCache>,
    /// The live rows that match a filter.
    live: FilterCache,
}

impl Selections {
    /// Returns the caches for another state of the segment, in which other rows are live.
    pub(super) fn without_live(&self) -> Selections {
        Selections { matching: self.matching.clone(), live: FilterCache::default() }
    }
}

fn cached(
    cache: &FilterCache,
    filter: &str,
    find: impl FnOnce() -> Result<RowSet, CollectionError>,
) -> Result<Arc<RowSet>, CollectionError> {
    let mut entries = cache.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = entries.iter().position(|(name, _)| name == filter) {
        let found = entries.remove(at);
        entries.extend(found);
        return entries
            .back()
            .map(|(_, rows)| rows.clone())
            .ok_or_else(|| CollectionError::Internal("a lost set".into()));
    }
    drop(entries);
    let rows = Arc::new(find()?);
    let mut entries = cache.lock().unwrap_or_else(PoisonError::into_inner);
    // Another thread may have computed the same set meanwhile; all then use the one in the cache.
    if let Some((_, existing)) = entries.iter().find(|(name, _)| name == filter) {
        return Ok(existing.clone());
    }
    entries.push_back((filter.to_string(), rows.clone()));
    if entries.len() > CACHED_FILTERS {
        entries.pop_front();
    }
    Ok(rows)
}

impl SegmentState {
    /// Returns the live rows that match `filter`.
    pub(crate) fn matching(
        &self,
        filter: Option<&BoundFilter>,
        control: &Control<'_>,
    ) -> Result<Arc<RowSet>, CollectionError> {
        let rows = self.segment.rows();
        let name = filter.map_or(NO_FILTER, BoundFilter::canonical);
        cached(&self.selections.live, name, || {
            let Some(filter) = filter else { return Ok(self.deleted.complement(rows)) };
            let matching = cached(&self.selections.matching, name, || {
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
            Ok(matching.and(&self.deleted.complement(rows)))
        })
    }
}

impl State {
    /// Returns the live rows of each part that match `filter`.
    pub(crate) fn matching(
        &self,
        filter: Option<&BoundFilter>,
        control: &Control<'_>,
    ) -> Result<Vec<Arc<RowSet>>, CollectionError> {
        if let Some(ids) = filter.and_then(BoundFilter::id_only) {
            return self.rows_with_ids(&ids);
        }
        // Without a filter no column is read.
        let reading_threads = if filter.is_some() { self.part_threads(0).min(SCANNED_AT_ONCE) } else { 1 };
        let mut sets = run_parallel(self.segments.len(), reading_threads, |at| {
            self.segments[at].matching(filter, control)
        })?;
        for memtable in &self.memtables {
            sets.push(Arc::new(memtable.matching(filter, control)?));
        }
        Ok(sets)
    }

    /// Looks up ids. Returns the live rows of each part that have one of them.
    fn rows_with_ids(&self, ids: &crate::ids::Ids) -> Result<Vec<Arc<RowSet>>, CollectionError> {
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.parts()];
        for at in self.find(ids)?.into_iter().flatten() {
            rows[at.part as usize].push(at.row);
        }
        let all = self.segments.iter().map(|segment| segment.segment.rows());
        let all = all.chain(self.memtables.iter().map(|memtable| memtable.rows()));
        Ok(all.zip(rows).map(|(all, rows)| Arc::new(RowSet::from_ids(all, rows.into_iter()))).collect())
    }
}
