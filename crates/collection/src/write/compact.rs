//! Decides which segments are merged, and when.

use super::content::Content;
use super::measured::NewMeasurements;
use super::merge::MergedRows;
use super::rank::Priority;
use super::shared::Shared;
use super::writer::Writer;
use crate::error::CollectionError;
use crate::segment::WriteOptions;
use crate::state::{SegmentState, State};
use crate::version::SegmentEntry;
use bathyal_index::cost::merging::{self, MAX_SEGMENT_ROWS, SegmentRows};
use bathyal_vectors::progress::Progress;
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;

/// Options of a compaction.
#[derive(Debug, Clone, Copy, Default)]
pub struct CompactOptions {
    /// True to merge all segments into one, without deleted rows. If false, only merges are done that a
    /// collection would do automatically.
    pub full: bool,
}

/// Result of a compaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct CompactionReport {
    /// Number of segments before.
    pub segments_before: usize,
    /// Number of segments after.
    pub segments_after: usize,
    /// Rows of the new segments.
    pub rows_written: u64,
    /// Rows among them that stopped merges had already written, and that this compaction has continued.
    pub rows_resumed: u64,
    /// Bytes of all segments before.
    pub bytes_before: u64,
    /// Bytes of all segments after.
    pub bytes_after: u64,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Keeps other threads from merging, and the log open, until it is dropped.
pub(super) struct MergingGuard<'a>(&'a Shared);

impl<'a> MergingGuard<'a> {
    /// Begins merging. Returns `None` if another thread merges.
    fn begin(shared: &'a Shared) -> Option<MergingGuard<'a>> {
        shared.writer().begin_merging().then(|| MergingGuard(shared))
    }

    /// Waits until no other thread merges.
    pub(super) fn wait_for(shared: &'a Shared) -> MergingGuard<'a> {
        let mut writer = shared.writer();
        while !writer.begin_merging() {
            writer = Writer::wait(writer);
        }
        MergingGuard(shared)
    }

    /// Merges the segments with these names.
    pub(super) fn merge(
        &self,
        names: &[String],
        options: &WriteOptions,
        priority: Priority<'_>,
        progress: &dyn Progress,
    ) -> Result<MergedRows, CollectionError> {
        let shared = self.0;
        let work = shared.writer().begin_merge(names, options.clone())?;
        let mut segment = work.run(priority, progress)?;
        let (entry, found) = segment.measurements();
        let measure = |entry: &SegmentEntry, found: &mut NewMeasurements| {
            work.measure(entry, found, (priority, progress))
        };
        let mut writer = shared.writer_for(entry, found, measure)?;
        writer.finish_merge(&work, &segment)?;
        drop(writer);
        // Other stopped merges may have become useless.
        shared.content.segments_of_stopped_merge();
        // The caller should not have to wait for the removal.
        shared.clean();
        Ok(segment.outcome())
    }
}

impl Drop for MergingGuard<'_> {
    fn drop(&mut self) {
        self.0.writer().end_merging();
    }
}

impl Shared {
    /// Flushes, then merges segments.
    pub(crate) fn compact(
        self: &Arc<Self>,
        options: &CompactOptions,
        progress: &dyn Progress,
    ) -> Result<CompactionReport, CollectionError> {
        let started = Instant::now();
        let content = &*self.content;
        let (segments_before, bytes_before) = sizes(&content.state());
        // No write waits for this flush.
        self.flush_all(self.background.share())?;
        let merging = MergingGuard::wait_for(self);
        // The log may have been released before; it is kept from here on.
        self.writer().acquire()?;
        let (mut rows_written, mut rows_resumed) = (0, 0);
        loop {
            let state = content.state();
            let names = match options.full {
                true => all_segments(&state),
                false => content.worth_merging().or_else(|| hasty_segments(&state)),
            };
            let Some(names) = names else { break };
            let writing = content.options.for_merging(!self.background.has_readers());
            let merged = self.background.run_low_priority(progress, |priority, progress| {
                merging.merge(&names, &writing, priority, progress)
            });
            let merged = merged.map_err(|error| self.writer().fenced_if_superseded(error))?;
            rows_written += merged.rows;
            rows_resumed += if merged.resumed { merged.rows } else { 0 };
            if options.full {
                break;
            }
        }
        // Merged segments are not in use any more, except by searches and snapshots.
        self.clean();
        let (segments_after, bytes_after) = sizes(&content.state());
        Ok(CompactionReport {
            segments_before,
            segments_after,
            rows_written,
            rows_resumed,
            bytes_before,
            bytes_after,
            seconds: started.elapsed().as_secs_f64(),
        })
    }

    /// Merges segments that are worth it, unless another thread is merging. A failed merge is tried again
    /// after the next segment.
    pub(super) fn compact_some(&self) {
        let Some(merging) = MergingGuard::begin(self) else { return };
        let until_closed = self.background.until_closed();
        while let Some(names) = self.content.worth_merging() {
            let options = self.content.options.for_merging(false);
            let merged = self.background.run_low_priority(&until_closed, |priority, progress| {
                merging.merge(&names, &options, priority, progress)
            });
            if merged.is_err() {
                return;
            }
        }
    }

    /// Merges segments that are worth it, on a background thread if the options allow one.
    pub(super) fn compact_in_background(self: &Arc<Self>) {
        let content = &*self.content;
        let none = content.segments.stopped().is_empty() && worth_merging(&content.state()).is_none();
        if !content.options.compact || none {
            return;
        }
        if !content.options.background {
            return self.compact_some();
        }
        // A running merge looks for further work at its end. Without a thread, the next segment tries again.
        if !self.writer().is_merging() {
            let shared = self.clone();
            self.background.spawn("bathyal-merge", move || shared.compact_some());
        }
    }
}

impl Content {
    /// Returns the segments to merge now: first those of a stopped merge.
    fn worth_merging(&self) -> Option<Vec<String>> {
        self.segments_of_stopped_merge().or_else(|| worth_merging(&self.state()))
    }
}

/// Returns the number of segments, and their bytes.
fn sizes(state: &State) -> (usize, u64) {
    (state.segments.len(), state.segments.iter().map(|segment| segment.segment.entry().bytes).sum())
}

/// Returns the names of some segments.
fn names<'a>(state: &'a State, positions: impl IntoIterator<Item = &'a usize>) -> Vec<String> {
    positions.into_iter().map(|position| state.segments[*position].segment.entry().name.clone()).collect()
}

/// Returns the hasty segments; `None` if there are none.
fn hasty_segments(state: &State) -> Option<Vec<String>> {
    let position = |position: &usize| state.segments[*position].segment.entry().hasty;
    let selected: Vec<usize> = (0..state.segments.len()).filter(position).collect();
    (!selected.is_empty()).then(|| names(state, &selected))
}

/// Returns all segments for a full compaction. Returns `None` if nothing is to do: there is one segment,
/// without deleted rows and not hasty. Returns `None` also if there are too many rows for one segment.
fn all_segments(state: &State) -> Option<Vec<String>> {
    let rows: u64 = state.segments.iter().map(|segment| u64::from(segment.live())).sum();
    let is_clean = |segment: &SegmentState| segment.published.count() == 0 && !segment.segment.entry().hasty;
    let clean = state.segments.len() <= 1 && state.segments.iter().all(is_clean);
    (!clean && rows < MAX_SEGMENT_ROWS).then(|| names(state, &(0..state.segments.len()).collect::<Vec<_>>()))
}

/// Returns the names of the segments to merge now.
fn worth_merging(state: &State) -> Option<Vec<String>> {
    let rows = state.segments.iter().map(|segment| SegmentRows {
        rows: u64::from(segment.segment.rows()),
        deleted: u64::from(segment.published.count()),
    });
    let positions = merging::worth_merging(&rows.collect::<Vec<_>>())?;
    Some(names(state, &positions))
}
