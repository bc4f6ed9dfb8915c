//! An open collection that all its handles and threads share, and how they wait for its writer.

use super::background::Background;
use super::commit::WriteQueue;
use super::content::Content;
use super::flush::{FlushResult, FlushWork};
use super::measured::NewMeasurements;
use super::writer::{FlushStep, Writer};
use super::writers::WriterEntry;
use crate::error::CollectionError;
use crate::location::CollectionLocation;
use crate::log::{ListedParts, remove};
use crate::options::CollectionOptions;
use crate::version::SegmentEntry;
use bathyal_tier::process::Share;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An open collection that all its handles and threads share.
///
/// A thread that holds several locks takes them in this order:
///
/// 1. `calibrating`;
/// 2. the lock of `background` for the removal of old objects;
/// 3. `writer`;
/// 4. the list of the process's writers (`writers.rs`), under which other writers are only tried;
/// 5. all others: those of `queue` and its writes, of `content` and its segments, and of the threads of
///    `background`. Under these, nothing is waited for.
pub(crate) struct Shared {
    /// Place, options and state: all that readers need.
    pub(crate) content: Arc<Content>,
    /// Writes that wait for the writer.
    pub(super) queue: WriteQueue,
    /// Held while the segments are measured with the queries of a calibration, before any other lock.
    pub(super) calibrating: Mutex<()>,
    pub(super) writer: Mutex<Writer>,
    /// Entry of the collection among those that this process writes to.
    pub(super) writer_entry: WriterEntry,
    pub(crate) background: Background,
}

impl Shared {
    /// Opens the latest version, or version `number`.
    pub(crate) fn open(
        place: CollectionLocation,
        options: CollectionOptions,
        number: Option<u64>,
    ) -> Result<Shared, CollectionError> {
        let (content, reader) = Content::open(place, options, number)?;
        let content = Arc::new(content);
        Ok(Shared {
            queue: WriteQueue::default(),
            calibrating: Mutex::default(),
            writer: Mutex::new(Writer::new(content.clone(), reader)),
            writer_entry: WriterEntry::default(),
            background: Background::new(content.options.background),
            content,
        })
    }

    pub(super) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads what another process has written. Returns true if there was anything.
    pub(crate) fn refresh(&self) -> Result<bool, CollectionError> {
        self.writer().refresh()
    }

    /// Releases the log, even while segments are written or merged in the background.
    pub(crate) fn release(&self) {
        self.writer().close();
    }

    /// Waits for the segment that is being written, stops merges, and releases the log.
    pub(crate) fn close(&self) {
        self.background.close();
        self.writer().close();
    }

    /// Waits until there is room in memory for further rows: starts a flush, and waits for the one before it.
    /// `share` is the flush's share of the cores; `None` means the same share as other work. `hasty` is true
    /// if further rows will follow.
    pub(super) fn make_room<'a>(
        self: &'a Arc<Self>,
        mut writer: MutexGuard<'a, Writer>,
        share: Option<Share>,
        hasty: bool,
    ) -> Result<MutexGuard<'a, Writer>, CollectionError> {
        writer.acquire()?;
        while let Some(step) = writer.resume_flush(share.is_none())? {
            writer = self.take_step(writer, step);
            // The log may have failed while this thread waited for a flush.
            writer.acquire()?;
        }
        Ok(match writer.begin_flush(share, hasty)? {
            Some(work) => self.run_flush(writer, work),
            None => writer,
        })
    }

    /// Writes all rows in memory as a segment, with `share` of the cores, and waits until it is published.
    pub(crate) fn flush_all(self: &Arc<Self>, share: Option<Share>) -> Result<(), CollectionError> {
        let mut writer = self.writer();
        writer.acquire()?;
        self.note_writing();
        writer = self.make_room(writer, share, false)?;
        while let Some(step) = writer.resume_flush(false)? {
            writer = self.take_step(writer, step);
        }
        Ok(())
    }

    fn take_step<'a>(
        self: &'a Arc<Self>,
        writer: MutexGuard<'a, Writer>,
        step: FlushStep,
    ) -> MutexGuard<'a, Writer> {
        match step {
            FlushStep::Wait => Writer::wait(writer),
            FlushStep::Run(work) => self.run_flush(writer, work),
        }
    }

    /// Runs the work, on a background thread if possible.
    fn run_flush<'a>(
        self: &'a Arc<Self>,
        writer: MutexGuard<'a, Writer>,
        work: FlushWork,
    ) -> MutexGuard<'a, Writer> {
        let (shared, work) = (self.clone(), Arc::new(work));
        let own_work = work.clone();
        if self.background.spawn("bathyal-flush", move || shared.flush(own_work)) {
            return writer;
        }
        drop(writer);
        self.flush(work);
        self.writer()
    }

    /// Writes a frozen memtable, publishes it, and merges segments that are worth it.
    fn flush(&self, work: Arc<FlushWork>) {
        let published = self.write_and_publish(&work);
        // The merge below may take long, and the rows of the memtable are not needed for it.
        drop(work);
        if published {
            self.clean();
        }
        if self.content.options.compact {
            self.compact_some();
        }
    }

    /// Returns the lock of the writer once the segment `entry` was measured by `measure` with all
    /// calibrations of the current version, which does not change while the lock is held.
    ///
    /// # Errors
    /// Those of `measure`.
    pub(super) fn writer_for(
        &self,
        entry: Option<&SegmentEntry>,
        found: &mut NewMeasurements,
        mut measure: impl FnMut(&SegmentEntry, &mut NewMeasurements) -> Result<(), CollectionError>,
    ) -> Result<MutexGuard<'_, Writer>, CollectionError> {
        loop {
            let writer = self.writer();
            match entry.filter(|_| !found.cover(&self.content.state().version)) {
                None => return Ok(writer),
                Some(entry) => {
                    drop(writer);
                    measure(entry, found)?;
                }
            }
        }
    }

    /// Writes a frozen memtable, measures the segment, and publishes it. Returns false if that failed.
    fn write_and_publish(&self, work: &FlushWork) -> bool {
        let mut result = work.run(&self.background);
        let measured = match &mut result {
            FlushResult::Written(segment) => {
                let (entry, found) = segment.measurements();
                self.writer_for(entry, found, |entry, found| work.measure(&self.background, entry, found))
            }
            FlushResult::Urgent | FlushResult::Failed(_) => Ok(self.writer()),
        };
        match measured {
            Ok(mut writer) => writer.finish_flush(work, result),
            Err(error) => self.writer().finish_flush(work, FlushResult::Failed(error)),
        }
    }

    /// Removes versions that are not kept, and segments and logs that only they need. Objects in use, and
    /// those that could not be removed, are removed after the next version or when the log is next acquired.
    /// Other writes are not blocked.
    pub(super) fn clean(&self) {
        let _cleaning = self.background.begin_cleaning();
        let _ = self.try_clean();
    }

    fn try_clean(&self) -> Result<(), CollectionError> {
        let place = &self.content.place;
        let listed = ListedParts::list(place)?;
        let unneeded = self.writer().unneeded(listed)?;
        remove(place, &unneeded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collection::Collection;
    use crate::ids::{IdKind, Ids};
    use crate::rows::Rows;
    use crate::schema::{Schema, VectorField};
    use crate::snapshot::Snapshot;
    use crate::write::Operation;
    use bathyal_kernels::{Element, Metric};
    use bathyal_tier::Control;
    use bathyal_vectors::VectorFile;

    /// Creates a collection in `folder`, and writes ten rows.
    fn ten_rows(folder: &std::path::Path, options: CollectionOptions) -> Arc<Shared> {
        let schema = Schema {
            id_kind: IdKind::Number,
            vectors: vec![VectorField::new("v", 4, Element::U8, Metric::L2)],
            columns: Vec::new(),
        };
        drop(Collection::create(folder.join("c"), schema.clone(), &options).unwrap());
        let place = CollectionLocation::at(folder.join("c"), &options.store).unwrap();
        let shared = Arc::new(Shared::open(place, options, None).unwrap());
        let vectors = VectorFile::from_rows(Element::U8, 4, (0..40).collect()).unwrap();
        let ids = Ids::Numbers((0..10).collect::<Vec<u64>>().into());
        let rows = Rows::new(&schema, ids, vec![vectors], None).unwrap();
        shared.write(Operation::Add(rows)).unwrap();
        shared
    }

    #[test]
    fn a_flush_that_becomes_urgent_is_started_again_with_all_cores() {
        let folder = tempfile::tempdir().unwrap();
        let options = CollectionOptions { background: false, ..CollectionOptions::default() };
        let shared = ten_rows(folder.path(), options);
        let content = || {
            let state = shared.content.state();
            (state.segments.len(), Snapshot::new(state).count(None, Control::default()).unwrap())
        };
        let work = shared.writer().begin_flush(Some(Share::Rest), true).unwrap().unwrap();
        // A write waits for the segment.
        assert!(matches!(shared.writer().resume_flush(true), Ok(Some(FlushStep::Wait))));
        shared.flush(Arc::new(work));
        assert_eq!(content(), (0, 10));
        assert!(!shared.writer().release());
        // A waiting caller starts the flush again.
        shared.flush_all(None).unwrap();
        assert_eq!(content(), (1, 10));
        assert!(shared.writer().release());
    }

    #[test]
    fn results_of_an_earlier_epoch_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let options = CollectionOptions { background: false, ..CollectionOptions::default() };
        let shared = ten_rows(folder.path(), options);
        let work = shared.writer().begin_flush(None, true).unwrap().unwrap();
        let result = work.run(&shared.background);
        {
            // As after a failed append.
            let mut writer = shared.writer();
            writer.close();
            writer.acquire().unwrap();
            assert!(!writer.finish_flush(&work, result));
        }
        assert_eq!((shared.content.state().segments.len(), shared.content.state().live()), (0, 10));
        shared.flush_all(None).unwrap();
        assert_eq!((shared.content.state().segments.len(), shared.content.state().live()), (1, 10));
    }

    #[test]
    fn the_log_is_kept_during_work_and_wrong_transitions_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let options = CollectionOptions { background: false, ..CollectionOptions::default() };
        let shared = ten_rows(folder.path(), options);
        let (options, state) = (shared.content.options.for_merging(false), shared.content.state());
        let is_internal = |error: CollectionError| matches!(error, CollectionError::Internal(_));
        let mut writer = shared.writer();
        assert!(writer.begin_merge(&[], options.clone()).err().is_some_and(is_internal));
        assert!(writer.begin_merging() && !writer.begin_merging() && !writer.release());
        writer.end_merging();
        writer.begin_large().unwrap();
        assert!(writer.publish_batch((*state).clone()).err().is_some_and(is_internal));
        assert!(writer.takes_records() && writer.reserve() && !writer.reserve() && !writer.takes_records());
        // The ten rows are not in a segment.
        assert!(writer.publish_batch((*state).clone()).err().is_some_and(is_internal));
        writer.end_reservation();
        assert!(!writer.release());
        writer.end_large();
        let work = writer.begin_flush(None, false).unwrap().unwrap();
        assert!(writer.begin_flush(None, false).err().is_some_and(is_internal) && !writer.release());
        assert!(!writer.finish_flush(&work, FlushResult::Failed(CollectionError::Cancelled)));
        assert!(matches!(writer.resume_flush(false), Err(CollectionError::Cancelled)) && !writer.release());
        let Ok(Some(FlushStep::Run(work))) = writer.resume_flush(false) else { panic!("no work") };
        assert!(writer.finish_flush(&work, work.run(&shared.background)));
        assert!(
            writer.resume_flush(false).unwrap().is_none()
                && writer.begin_flush(None, false).unwrap().is_none()
        );
        assert!(writer.begin_merging());
        writer.close();
        let fenced = writer.begin_merge(&[], options).err();
        assert!(matches!(fenced, Some(CollectionError::Fenced { .. })));
    }

    #[test]
    fn a_flush_has_its_own_thread_while_another_thread_merges() {
        let folder = tempfile::tempdir().unwrap();
        let shared = ten_rows(folder.path(), CollectionOptions::default());
        let (end, ends) = std::sync::mpsc::channel::<()>();
        assert!(shared.background.spawn("merges", move || {
            let _ = ends.recv();
        }));
        shared.flush_all(None).unwrap();
        assert_eq!((shared.content.state().segments.len(), shared.background.thread_count()), (1, 2));
        end.send(()).unwrap();
        shared.background.settle();
        assert_eq!(shared.background.thread_count(), 0);
    }
}
