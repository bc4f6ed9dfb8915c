//! Merges several segments into one, without their deleted rows.

use super::flush::ROWS_AT_ONCE;
use super::rank::{Priority, run_yielding};
use super::shared::Shared;
use super::traffic::{RateLimiter, Traffic};
use crate::bits::RowBits;
use crate::error::CollectionError;
use crate::segment::{MergeSources, Segment, WriteOptions};
use crate::state::{Cursor, SegmentState, State};
use crate::version::SegmentEntry;
use bathyal_index::RowSet;
use bathyal_vectors::progress::Progress;
use std::sync::Arc;

/// Bytes of rows that are read at once: this many at most, and this part of the memory for merging. Rows are
/// read in the order of their ids, but an index stores them in another order. Reading many at once reads a
/// page with many short vectors only once.
const READ_BYTES: u64 = 32 << 20;
const READ_SHARE: u64 = 16;
/// Assumed size of column values in memory, relative to their size on disk.
const UNPACKED_RATIO: f64 = 4.0;

/// Outcome of a merge.
pub(super) struct MergedRows {
    /// Rows of the new segment; 0 if no rows were left, and so no segment was made.
    pub(super) rows: u64,
    /// True if an earlier merge, which was stopped, had written the rows.
    pub(super) resumed: bool,
}

impl Shared {
    /// Merges the segments with these names. Rows that the current version deletes are left out. Rows that
    /// are deleted in the meantime are deleted in the new segment. If an earlier merge of the same segments
    /// was stopped, this call continues it.
    pub(super) fn merge(
        &self,
        names: &[String],
        (options, priority): (&WriteOptions, Priority<'_>),
        progress: &dyn Progress,
    ) -> Result<MergedRows, CollectionError> {
        let (state, epoch) = {
            let writing = self.writing();
            (self.state().without_memory(), writing.epoch)
        };
        let unfinished = run_yielding(priority, || self.take_stopped_merge(&state, names, progress))?;
        let name =
            unfinished.as_ref().map_or_else(|| self.segment_name(), |unfinished| unfinished.name().into());
        let written = self.segments.begin(name.clone());
        // The segment is now being written, not a leftover.
        self.segments.forget_stopped(&name);
        let merged = match &unfinished {
            Some(unfinished) => unfinished.merged().clone(),
            None => describe_merge(&state, names),
        };
        let resumed = unfinished.is_some();
        // Only the publication runs on this thread, since other writes wait for it.
        let entry = run_yielding(priority, || match unfinished {
            Some(unfinished) => {
                unfinished.finish(&Arc::new(state.schema().clone()), options, progress).map(Some)
            }
            None => self.write_merged((&state, &merged), (name, options), progress),
        });
        if let Err(CollectionError::Cancelled) = entry {
            // The merge may have come so far that another one can continue it.
            self.find_stopped_merges()?;
        }
        let entry = entry?;
        let _opened = entry.as_ref().map(|entry| self.open_ahead(names, entry, &state));
        let published = self.publish_merged(names, entry.clone(), (&merged, epoch));
        drop(written);
        match published {
            Ok(true) => {
                // Other stopped merges may have become useless.
                self.segments_of_stopped_merge();
                // The caller should not have to wait for the removal.
                self.clean();
                Ok(MergedRows { rows: entry.map_or(0, |entry| u64::from(entry.rows)), resumed })
            }
            Ok(false) => Err(CollectionError::Fenced { path: self.place.path().to_path_buf() }),
            Err(error) => Err(error),
        }
    }

    /// Writes the rows of the merged segments, except `merged.left_out`, as one segment; `None` if there are
    /// none.
    fn write_merged(
        &self,
        (state, merged): (&State, &MergeSources),
        (name, options): (String, &WriteOptions),
        progress: &dyn Progress,
    ) -> Result<Option<SegmentEntry>, CollectionError> {
        let selected: Vec<Arc<RowSet>> = state
            .segments
            .iter()
            .map(|segment| match merged.left_out.get(&segment.segment.entry().name) {
                Some(left_out) => Arc::new(left_out.complement(segment.segment.rows())),
                None => Arc::new(RowSet::from_words(segment.segment.rows(), Vec::new())),
            })
            .collect();
        let parts = (0..).zip(&selected).filter(|(_, set)| set.count() > 0).map(|(part, _)| part);
        let mut cursor = Cursor::new(state, parts, &selected, None)?;
        let left: u64 = selected.iter().map(|set| u64::from(set.count())).sum();
        if left == 0 {
            return Ok(None);
        }
        progress.stage("reading rows", left);
        let mut done = 0;
        let row_bytes = bytes_of_a_row(state, merged);
        let at_once = self.rows_at_once(state, row_bytes, options);
        let mut limiter = RateLimiter::new(self.options.compact_bytes_per_second);
        let next = || {
            let rows = cursor.next(state, at_once)?;
            limiter.wait_for((rows.len() as f64 * row_bytes) as u64, &|| progress.cancelled());
            done += rows.len() as u64;
            progress.advance(done);
            Ok(rows)
        };
        self.write_segment((&self.place, name, options), state, (next, Some(merged)), progress).map(Some)
    }

    /// Returns the number of rows to read at once. `row_bytes` is the size of a row on disk.
    fn rows_at_once(&self, state: &State, row_bytes: f64, options: &WriteOptions) -> usize {
        if self.options.compact_bytes_per_second.is_some() {
            return ROWS_AT_ONCE;
        }
        let read_bytes = options.memory_bytes.map_or(READ_BYTES, |given| READ_BYTES.min(given / READ_SHARE));
        let schema = state.schema();
        let vectors = schema.vectors.iter().map(|field| field.row_bytes()).sum::<usize>() as f64;
        // Without columns, the bytes besides the vectors are codes.
        let columns =
            if schema.columns.is_empty() { 0.0 } else { UNPACKED_RATIO * (row_bytes - vectors).max(0.0) };
        ((read_bytes as f64 / (vectors + columns)) as usize).max(ROWS_AT_ONCE)
    }

    /// Opens a new segment. If there is no memory budget, it also opens those indexes that are open in the
    /// merged segments, so that the first search after the merge does not have to. A budget would not have
    /// room for both.
    fn open_ahead(&self, names: &[String], entry: &SegmentEntry, state: &State) -> Arc<Segment> {
        let open = self.open_segment(state, entry);
        if self.options.index.memory_bytes.is_none() {
            let merged = state.segments.iter().map(|one| &one.segment);
            open.open_like(merged.filter(|one| names.contains(&one.entry().name)));
        }
        open
    }

    /// Publishes a version with the new segment instead of the merged ones. Returns false if these are gone,
    /// or if the log was acquired again since the merge began: another writer may then have removed the new
    /// segment.
    fn publish_merged(
        &self,
        names: &[String],
        entry: Option<SegmentEntry>,
        (merged, epoch): (&MergeSources, u64),
    ) -> Result<bool, CollectionError> {
        let mut writing = self.writing();
        let state = self.state();
        let is_merged = |segment: &SegmentState| names.contains(&segment.segment.entry().name);
        let found = state.segments.iter().filter(|segment| is_merged(segment)).count();
        if found != names.len() || writing.epoch != epoch {
            return Ok(false);
        }
        let Some(log) = &mut writing.log else { return Ok(false) };
        let mut version = (*state.version).clone();
        version.next_segment += 1;
        version.segments.retain(|segment| !names.contains(&segment.name));
        version.segments.extend(entry.clone());
        let kept = state.segments.iter().filter(|segment| !is_merged(segment));
        let mut deleted: Vec<_> = kept.clone().map(|segment| segment.published.to_bitmap()).collect();
        let mut next = (*state).clone();
        next.segments = kept.cloned().collect();
        if let Some(entry) = &entry {
            let open = self.open_segment(&state, entry);
            let mut segment = SegmentState::new(open.clone(), RowBits::default());
            for old in state.segments.iter().filter(|segment| is_merged(segment)) {
                let name = &old.segment.entry().name;
                let left_out = merged.left_out.get(name).ok_or_else(lost)?;
                // A flush may have published a version with more deleted rows in the meantime.
                for (bits, new_bits) in
                    [(&old.published, &mut segment.published), (&old.frozen, &mut segment.frozen)]
                {
                    let rows = rows_in(&open, old, bits, left_out)?;
                    rows.into_iter().for_each(|row| {
                        new_bits.add(row);
                    });
                }
                for row in rows_in(&open, old, &old.deleted, left_out)? {
                    segment.delete(row);
                }
            }
            deleted.push(segment.published.to_bitmap());
            next.segments.push(segment);
        }
        if let Err(error) = log.publish(&mut version, &deleted) {
            writing.log = None;
            return Err(error);
        }
        Traffic::add(&self.traffic.merged, entry.as_ref().map_or(0, |entry| entry.bytes));
        next.version = Arc::new(version);
        self.set_state(next);
        Ok(true)
    }
}

/// Returns the positions in the new segment of rows that are `deleted` in an old one and were not `left_out`.
fn rows_in(
    new: &Segment,
    old: &SegmentState,
    deleted: &RowBits,
    left_out: &RowBits,
) -> Result<Vec<u32>, CollectionError> {
    let since: Vec<u32> = deleted.iter().filter(|row| !left_out.has(*row)).collect();
    if since.is_empty() {
        return Ok(Vec::new());
    }
    let rows = new.find(&old.segment.ids_of(&since)?)?;
    rows.into_iter().map(|row| row.ok_or_else(lost)).collect()
}

/// Describes a merge of the segments with these names: rows that the latest version deletes are left out.
fn describe_merge(state: &State, names: &[String]) -> MergeSources {
    let some = state.segments.iter().map(|segment| (&segment.segment.entry().name, &segment.published));
    let some = some.filter(|(name, _)| names.contains(name));
    MergeSources { left_out: some.map(|(name, published)| (name.clone(), published.clone())).collect() }
}

/// Returns the average size on disk of a row of the merged segments.
fn bytes_of_a_row(state: &State, merged: &MergeSources) -> f64 {
    let entries = state.segments.iter().map(|segment| segment.segment.entry());
    let (bytes, rows) = entries
        .filter(|entry| merged.left_out.contains_key(&entry.name))
        .fold((0, 0), |(bytes, rows), entry| (bytes + entry.bytes, rows + u64::from(entry.rows)));
    bytes as f64 / rows.max(1) as f64
}

fn lost() -> CollectionError {
    CollectionError::Internal("a row was lost in a merge of segments".into())
}

impl State {
    /// Returns the rows of segments, deleted or not, divided by their live rows.
    pub(crate) fn space_amplification(&self) -> f64 {
        let rows: u64 = self.segments.iter().map(|segment| u64::from(segment.segment.rows())).sum();
        let live: u64 = self.segments.iter().map(|segment| u64::from(segment.live())).sum();
        rows as f64 / live.max(1) as f64
    }
}
