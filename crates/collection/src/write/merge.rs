//! Merge: the work of writing several segments as one, without their deleted rows.

use super::content::Content;
use super::measured::{MeasureLimits, NewMeasurements};
use super::rank::{Priority, run_yielding};
use super::segments::SegmentWriteGuard;
use super::target_segment::{Origin, ROWS_AT_ONCE, TargetSegment};
use super::traffic::RateLimiter;
use crate::bits::RowBits;
use crate::error::CollectionError;
use crate::segment::{MergeSources, Segment, WriteOptions};
use crate::state::{Cursor, SegmentState, State};
use crate::version::SegmentEntry;
use bathyal_index::RowSet;
use bathyal_tier::process::Share;
use bathyal_vectors::progress::Progress;
use std::sync::Arc;

/// Bytes of rows that are read at once: this many at most, and this part of the memory for merging. Rows are
/// read in the order of their ids, but an index stores them in another order. Reading many at once reads a
/// page with many short vectors only once.
const READ_BYTES: u64 = 32 << 20;
const READ_SHARE: u64 = 16;
/// Assumed size of column values in memory, relative to their size on disk.
const UNPACKED_RATIO: f64 = 4.0;

/// The work of merging segments into one. Rows that the version deletes are left out.
pub(super) struct MergeWork {
    pub(super) content: Arc<Content>,
    /// The segments of the collection when the work began.
    pub(super) state: State,
    /// Names of the segments to merge.
    pub(super) names: Vec<String>,
    /// The writer's epoch when the work began.
    pub(super) epoch: u64,
    pub(super) options: WriteOptions,
}

/// A segment that others were merged into, but that no version names yet.
pub(super) struct MergedSegment<'a> {
    /// `None` if no rows were left.
    entry: Option<SegmentEntry>,
    sources: MergeSources,
    /// True if an earlier merge, which was stopped, had written the rows.
    resumed: bool,
    measurements: NewMeasurements,
    /// Keeps the segment open until searches see it.
    _open: Option<Arc<Segment>>,
    _writing: SegmentWriteGuard<'a>,
}

/// Outcome of a merge.
pub(super) struct MergedRows {
    /// Rows of the new segment; 0 if no rows were left, and so no segment was made.
    pub(super) rows: u64,
    /// True if an earlier merge, which was stopped, had written the rows.
    pub(super) resumed: bool,
}

impl MergeWork {
    /// Writes the new segment. If an earlier merge of the same segments was stopped, this call continues it.
    ///
    /// # Errors
    /// [`CollectionError::Cancelled`] by `progress`; [`CollectionError`].
    pub(super) fn run(
        &self,
        priority: Priority<'_>,
        progress: &dyn Progress,
    ) -> Result<MergedSegment<'_>, CollectionError> {
        let content = &*self.content;
        let unfinished =
            run_yielding(priority, || content.take_stopped_merge(&self.state, &self.names, progress))?;
        let name =
            unfinished.as_ref().map_or_else(|| content.segment_name(), |unfinished| unfinished.name().into());
        let writing = content.segments.begin(name.clone());
        // The segment is now being written, not a leftover.
        content.segments.forget_stopped(&name);
        let sources = match &unfinished {
            Some(unfinished) => unfinished.merged().clone(),
            None => describe_merge(&self.state, &self.names),
        };
        let resumed = unfinished.is_some();
        // Only the publication runs on this thread, since other writes wait for it.
        let entry = run_yielding(priority, || match unfinished {
            Some(unfinished) => {
                let schema = Arc::new(self.state.schema().clone());
                unfinished.finish(&schema, &self.options, progress).map(Some)
            }
            None => self.write(name, &sources, progress),
        });
        if let Err(CollectionError::Cancelled) = entry {
            // The merge may have come so far that another one can continue it.
            content.find_stopped_merges()?;
        }
        let entry = entry?;
        let open = entry.as_ref().map(|entry| self.open_ahead(entry));
        let measurements = NewMeasurements::default();
        Ok(MergedSegment { entry, sources, resumed, measurements, _open: open, _writing: writing })
    }

    /// Writes the rows of the merged segments, except `sources.left_out`, as one segment; `None` if there are
    /// none.
    fn write(
        &self,
        name: String,
        sources: &MergeSources,
        progress: &dyn Progress,
    ) -> Result<Option<SegmentEntry>, CollectionError> {
        let (content, state) = (&*self.content, &self.state);
        let selected: Vec<Arc<RowSet>> = state
            .segments
            .iter()
            .map(|segment| match sources.left_out.get(&segment.segment.entry().name) {
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
        let row_bytes = bytes_of_a_row(state, sources);
        let at_once = self.rows_at_once(row_bytes);
        let mut limiter = RateLimiter::new(content.options.compact_bytes_per_second);
        let next = || {
            let rows = cursor.next(state, at_once)?;
            limiter.wait_for((rows.len() as f64 * row_bytes) as u64, &|| progress.cancelled());
            done += rows.len() as u64;
            progress.advance(done);
            Ok(rows)
        };
        let (place, options, origin) = (&content.place, &self.options, Origin::Merge(sources));
        TargetSegment { place, name, options, origin }.write(state, next, progress).map(Some)
    }

    /// Returns the number of rows to read at once. `row_bytes` is the size of a row on disk.
    fn rows_at_once(&self, row_bytes: f64) -> usize {
        if self.content.options.compact_bytes_per_second.is_some() {
            return ROWS_AT_ONCE;
        }
        let memory_bytes = self.options.memory_bytes;
        let read_bytes = memory_bytes.map_or(READ_BYTES, |given| READ_BYTES.min(given / READ_SHARE));
        let schema = self.state.schema();
        let vectors = schema.vectors.iter().map(|field| field.row_bytes()).sum::<usize>() as f64;
        // Without columns, the bytes besides the vectors are codes.
        let columns =
            if schema.columns.is_empty() { 0.0 } else { UNPACKED_RATIO * (row_bytes - vectors).max(0.0) };
        ((read_bytes as f64 / (vectors + columns)) as usize).max(ROWS_AT_ONCE)
    }

    /// Opens the new segment. If there is no memory budget, it also opens those indexes that are open in the
    /// merged segments, so that the first search after the merge does not have to. A budget would not have
    /// room for both.
    fn open_ahead(&self, entry: &SegmentEntry) -> Arc<Segment> {
        let open = self.content.open_segment(&self.state, entry);
        if self.content.options.index.memory_bytes.is_none() {
            let merged = self.state.segments.iter().filter(|segment| self.is_source(segment));
            open.open_like(merged.map(|segment| &segment.segment));
        }
        open
    }

    /// Returns true if the segment is one of those to merge.
    fn is_source(&self, segment: &SegmentState) -> bool {
        self.names.contains(&segment.segment.entry().name)
    }

    /// Returns true if all segments to merge are in `state`.
    pub(super) fn has_sources_in(&self, state: &State) -> bool {
        state.segments.iter().filter(|segment| self.is_source(segment)).count() == self.names.len()
    }

    /// Measures the new segment with calibrations that it was not measured with.
    pub(super) fn measure(
        &self,
        entry: &SegmentEntry,
        found: &mut NewMeasurements,
        (priority, progress): (Priority<'_>, &dyn Progress),
    ) -> Result<(), CollectionError> {
        let limits = MeasureLimits::of_merge(&self.options);
        // With a share of its own it cannot starve, for which the whole merge would be done again.
        let priority = Priority { share: Share::Tenth, ..priority };
        run_yielding(priority, || self.content.measure_new(entry, found, limits, progress))
    }
}

impl MergedSegment<'_> {
    /// Returns what is needed to measure the segment.
    pub(super) fn measurements(&mut self) -> (Option<&SegmentEntry>, &mut NewMeasurements) {
        (self.entry.as_ref(), &mut self.measurements)
    }

    /// Returns the outcome of the merge.
    pub(super) fn outcome(&self) -> MergedRows {
        let rows = self.entry.as_ref().map_or(0, |entry| u64::from(entry.rows));
        MergedRows { rows, resumed: self.resumed }
    }

    /// Returns the bytes of its files.
    pub(super) fn bytes(&self) -> u64 {
        self.entry.as_ref().map_or(0, |entry| entry.bytes)
    }

    /// Returns `state` with the segment instead of those that were merged. Rows that were deleted in the
    /// meantime are deleted in the new segment.
    pub(super) fn replace_sources(&self, work: &MergeWork, state: &State) -> Result<State, CollectionError> {
        let mut next = state.clone();
        next.segments.retain(|segment| !work.is_source(segment));
        let Some(entry) = &self.entry else { return Ok(next) };
        let open = work.content.open_segment(state, entry);
        let mut segment = SegmentState::new(open.clone(), RowBits::default());
        for old in state.segments.iter().filter(|segment| work.is_source(segment)) {
            let left_out = self.sources.left_out.get(&old.segment.entry().name).ok_or_else(lost)?;
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
        next.segments.push(segment);
        self.measurements.note_in(&mut next, &entry.name);
        Ok(next)
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
