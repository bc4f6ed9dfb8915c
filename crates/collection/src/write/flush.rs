//! Flush: the work of writing a frozen memtable as a segment, in the order of the ids. Other writes continue
//! meanwhile.

use super::background::Background;
use super::content::Content;
use super::measured::{MeasureLimits, NewMeasurements};
use super::rank::{Priority, run_yielding};
use super::segments::SegmentWriteGuard;
use super::target_segment::{Origin, ROWS_AT_ONCE, TargetSegment};
use crate::error::CollectionError;
use crate::memtable::MemTable;
use crate::segment::WriteOptions;
use crate::state::{Located, SegmentState, State};
use crate::version::SegmentEntry;
use bathyal_tier::process::Share;
use bathyal_vectors::progress::Progress;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Family of the indexes of hasty segments.
const FLAT: &str = "flat";

/// Number of calibration queries for a segment that writes wait for; calibration takes most of the time that
/// is left. The errors of several segments average out, and a merge calibrates again.
const HASTY_QUERIES: usize = 300;

/// A frozen memtable.
#[derive(Debug)]
pub(super) struct FrozenMemTable {
    pub(super) memtable: MemTable,
    /// Sequence number of the last record in it.
    pub(super) through: u64,
    /// True if writes may have to wait for the segment. Its indexes are then flat whatever its size: building
    /// only codes takes a third of the time. A later compaction builds the family of the schema
    /// (docs/decisions/collections.md).
    pub(super) hasty: bool,
}

/// The work of writing a frozen memtable as a segment.
pub(super) struct FlushWork {
    pub(super) content: Arc<Content>,
    /// The segments when the work began.
    pub(super) state: State,
    pub(super) frozen: Arc<FrozenMemTable>,
    /// The writer's epoch when the work began.
    pub(super) epoch: u64,
    /// Share of the cores; `None` means the same share as other work.
    pub(super) share: Option<Share>,
    /// Set when a write waits for the segment, or when the work starves. Work with a share is then cancelled.
    pub(super) urgent: Arc<AtomicBool>,
}

/// Result of [`FlushWork`].
pub(super) enum FlushResult<'a> {
    /// The segment was written.
    Written(FlushedSegment<'a>),
    /// The work has become urgent, and must be started again with all cores.
    Urgent,
    /// The segment could not be written.
    Failed(CollectionError),
}

/// A segment that was written from a memtable, but that no version names yet.
pub(super) struct FlushedSegment<'a> {
    /// `None` if the memtable has no live rows.
    entry: Option<SegmentEntry>,
    /// Rows of the memtable in the order of the segment.
    sorted: Vec<u32>,
    measurements: NewMeasurements,
    _writing: SegmentWriteGuard<'a>,
}

impl FlushWork {
    /// Writes the segment.
    pub(super) fn run(&self, background: &Background) -> FlushResult<'_> {
        let until_stopped = background.until_stopped();
        match self.write(background) {
            Ok(segment) => FlushResult::Written(segment),
            Err(CollectionError::Cancelled) if self.share.is_some() && !until_stopped.cancelled() => {
                background.note_starved();
                FlushResult::Urgent
            }
            Err(error) => FlushResult::Failed(error),
        }
    }

    fn write(&self, background: &Background) -> Result<FlushedSegment<'_>, CollectionError> {
        let (content, frozen) = (&*self.content, &*self.frozen);
        let sorted = frozen.memtable.sorted()?;
        let name = content.segment_name();
        let writing = content.segments.begin(name.clone());
        if sorted.is_empty() {
            return Ok(FlushedSegment::new(None, sorted, writing));
        }
        let usual_options = content.options.for_writing();
        let flat = self.state.schema().vectors.iter().all(|field| field.family == FLAT);
        let hasty = frozen.hasty && sorted.len() >= usual_options.flat_below_rows && !flat;
        let options = match frozen.hasty {
            true => WriteOptions {
                flat_below_rows: usize::MAX,
                calibration_queries: HASTY_QUERIES,
                ..usual_options
            },
            false => usual_options,
        };
        let entry = match self.share {
            None => self.write_rows(name, &sorted, &options, &background.until_stopped())?,
            Some(share) => {
                let options = WriteOptions { threads: content.options.merge_threads(false), ..options };
                run_yielding(Priority { share, starved: &self.urgent }, || {
                    self.write_rows(name, &sorted, &options, &background.until_urgent(&self.urgent))
                })?
            }
        };
        Ok(FlushedSegment::new(Some(SegmentEntry { hasty, ..entry }), sorted, writing))
    }

    /// Measures the segment with calibrations that it was not measured with. If that becomes urgent, it is
    /// done again with all cores.
    pub(super) fn measure(
        &self,
        background: &Background,
        entry: &SegmentEntry,
        found: &mut NewMeasurements,
    ) -> Result<(), CollectionError> {
        let (content, options) = (&*self.content, self.content.options.for_writing());
        let limits = MeasureLimits::of_flush(&options);
        if let Some(share) = self.share.filter(|_| !self.urgent.load(Ordering::Relaxed)) {
            let limits = MeasureLimits { threads: content.options.merge_threads(false), ..limits };
            let measured = run_yielding(Priority { share, starved: &self.urgent }, || {
                content.measure_new(entry, found, limits, &background.until_urgent(&self.urgent))
            });
            match measured {
                Err(CollectionError::Cancelled) if !background.until_stopped().cancelled() => {}
                measured => return measured,
            }
        }
        content.measure_new(entry, found, limits, &background.until_stopped())
    }

    /// Writes the rows `sorted` of the memtable as a segment.
    fn write_rows(
        &self,
        name: String,
        sorted: &[u32],
        options: &WriteOptions,
        progress: &dyn Progress,
    ) -> Result<SegmentEntry, CollectionError> {
        let mut memtable_state = State::from_version(self.state.version.clone(), Vec::new());
        memtable_state.memtables = vec![self.frozen.memtable.clone()];
        let mut rows = sorted.chunks(ROWS_AT_ONCE);
        let next = || {
            let some = rows.next().unwrap_or_default();
            Ok(some.iter().map(|row| Located { part: 0, row: *row }).collect())
        };
        let origin = Origin::Rows(self.content.largest_segment_scales(&self.state));
        let segment = TargetSegment { place: &self.content.place, name, options, origin };
        segment.write(&memtable_state, next, progress)
    }
}

impl<'a> FlushedSegment<'a> {
    fn new(
        entry: Option<SegmentEntry>,
        sorted: Vec<u32>,
        writing: SegmentWriteGuard<'a>,
    ) -> FlushedSegment<'a> {
        FlushedSegment { entry, sorted, measurements: NewMeasurements::default(), _writing: writing }
    }

    /// Returns what is needed to measure the segment.
    pub(super) fn measurements(&mut self) -> (Option<&SegmentEntry>, &mut NewMeasurements) {
        (self.entry.as_ref(), &mut self.measurements)
    }

    /// Returns the bytes of its files.
    pub(super) fn bytes(&self) -> u64 {
        self.entry.as_ref().map_or(0, |entry| entry.bytes)
    }

    /// Returns `state` with the segment instead of its oldest memtable. The deleted rows to publish are those
    /// of the moment when the memtable was frozen.
    pub(super) fn replace_memtable(&self, state: &State, content: &Content) -> State {
        let mut next = state.clone();
        for segment in &mut next.segments {
            segment.published = segment.frozen.clone();
        }
        let memtable = next.memtables.remove(0);
        if let Some(entry) = &self.entry {
            let mut segment = SegmentState::new(content.open_segment(state, entry), Default::default());
            let deleted_since = (0..).zip(&self.sorted).filter(|(_, row)| memtable.deleted().has(**row));
            deleted_since.for_each(|(row, _)| {
                segment.delete(row);
            });
            next.segments.push(segment);
            self.measurements.note_in(&mut next, &entry.name);
        }
        next
    }
}
