//! Background work of an open collection: its threads, its end, and its share of the cores.

use super::rank::Priority;
use crate::error::CollectionError;
use bathyal_tier::process::Share;
use bathyal_vectors::progress::{Progress, Silent};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// For this long after a read, further reads are expected.
const READER_PERIOD: Duration = Duration::from_secs(10);
/// For this long after work has starved, low priority is not tried again.
const STARVED_PERIOD: Duration = Duration::from_secs(60);

/// The time from which [`LastTime`] counts.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The time of the last event of a kind.
#[derive(Debug, Default)]
struct LastTime {
    /// Milliseconds since [`START`], plus one; 0 means never.
    at: AtomicU64,
}

impl LastTime {
    fn note(&self) {
        self.at.store(START.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
    }

    /// Returns true if the event was less than `time` ago.
    fn is_within(&self, time: Duration) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        at > 0 && START.elapsed().saturating_sub(Duration::from_millis(at)) < time
    }
}

/// Background work of an open collection.
pub(crate) struct Background {
    /// True if work may run on background threads.
    pub(super) has_threads: bool,
    /// At most one thread writes a memtable as a segment, and one merges.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The last read.
    last_read: LastTime,
    /// The last time that low-priority work got too little processor time.
    last_starved: LastTime,
    /// Held while old objects are removed.
    cleaning: Mutex<()>,
    /// Set while the last handle is dropped.
    closing: AtomicBool,
    /// Set by `stop()`; background work then returns [`CollectionError::Cancelled`].
    stopping: AtomicBool,
}

impl Background {
    pub(super) fn new(has_threads: bool) -> Background {
        Background {
            has_threads,
            threads: Mutex::default(),
            last_read: LastTime::default(),
            last_starved: LastTime::default(),
            cleaning: Mutex::default(),
            closing: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on a background thread. Returns false if there may be none, or if the system cannot start
    /// one.
    pub(super) fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> bool {
        if !self.has_threads {
            return false;
        }
        let mut threads = self.threads();
        threads.extract_if(.., |thread| thread.is_finished()).for_each(|thread| drop(thread.join()));
        let spawned = std::thread::Builder::new().name(name.into()).spawn(work);
        spawned.map(|thread| threads.push(thread)).is_ok()
    }

    /// Returns true if a background thread runs.
    pub(super) fn is_working(&self) -> bool {
        self.threads().iter().any(|thread| !thread.is_finished())
    }

    /// Returns the number of threads that nobody has waited for.
    #[cfg(test)]
    pub(super) fn thread_count(&self) -> usize {
        self.threads().len()
    }

    /// Waits for background work.
    pub(crate) fn settle(&self) {
        let threads = std::mem::take(&mut *self.threads());
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// Cancels automatic merges, and waits for background work.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        // Whatever they leave unfinished is in the log.
        self.settle();
        self.closing.store(false, Ordering::Relaxed);
    }

    /// Stops background work, now and in future.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Keeps other threads from removing old objects, until the guard is dropped.
    pub(super) fn begin_cleaning(&self) -> MutexGuard<'_, ()> {
        self.cleaning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a read: merges that start later leave cores to readers.
    pub(crate) fn note_reading(&self) {
        self.last_read.note();
    }

    /// Records that low-priority work got too little processor time, or kept a write waiting.
    pub(super) fn note_starved(&self) {
        self.last_starved.note();
    }

    /// Returns true if reads are likely while segments are merged.
    pub(super) fn has_readers(&self) -> bool {
        self.last_read.is_within(READER_PERIOD)
    }

    /// Returns the share of the cores for work that only makes searches faster, if it should be less than
    /// usual. That is so while there are readers and no write waits for the work, unless such work has
    /// starved recently.
    pub(super) fn share(&self) -> Option<Share> {
        let rest = self.has_threads && self.has_readers() && !self.last_starved.is_within(STARVED_PERIOD);
        rest.then_some(Share::Rest)
    }

    /// Runs `work`. While there are readers it only gets idle processor time. If that is too little, its
    /// progress is cancelled, and it starts again with a share of its own. `work` must end when the progress
    /// it is given is cancelled.
    pub(super) fn run_low_priority<T>(
        &self,
        progress: &dyn Progress,
        mut work: impl FnMut(Priority<'_>, &dyn Progress) -> Result<T, CollectionError>,
    ) -> Result<T, CollectionError> {
        let starved = AtomicBool::new(false);
        if let Some(share) = self.share() {
            let until_starved = UntilSet { flags: [&starved], progress };
            match work(Priority { share, starved: &starved }, &until_starved) {
                Err(CollectionError::Cancelled)
                    if starved.load(Ordering::Relaxed) && !progress.cancelled() =>
                {
                    self.note_starved();
                }
                done => return done,
            }
        }
        work(Priority { share: Share::Tenth, starved: &starved }, progress)
    }

    /// Cancels work after `stop()`. Closing the collection does not cancel a flush: it ends soon, and would
    /// otherwise be done again after each opening.
    pub(super) fn until_stopped(&self) -> UntilSet<'_, 1> {
        UntilSet { flags: [&self.stopping], progress: &Silent }
    }

    /// Cancels an automatic merge after `stop()`, and when the collection is closed: it can take long, and
    /// can be done at any time.
    pub(super) fn until_closed(&self) -> UntilSet<'_, 2> {
        UntilSet { flags: [&self.closing, &self.stopping], progress: &Silent }
    }

    /// Cancels a low-priority flush after `stop()`, and when it has become `urgent`.
    pub(super) fn until_urgent<'a>(&'a self, urgent: &'a AtomicBool) -> UntilSet<'a, 2> {
        UntilSet { flags: [urgent, &self.stopping], progress: &Silent }
    }
}

/// Passes everything on to `progress`, and cancels the work also when one of the flags is set.
pub(super) struct UntilSet<'a, const N: usize> {
    flags: [&'a AtomicBool; N],
    progress: &'a dyn Progress,
}

impl<const N: usize> Progress for UntilSet<'_, N> {
    fn stage(&self, name: &str, total: u64) {
        self.progress.stage(name, total);
    }

    fn advance(&self, done: u64) {
        self.progress.advance(done);
    }

    fn cancelled(&self) -> bool {
        self.flags.iter().any(|flag| flag.load(Ordering::Relaxed)) || self.progress.cancelled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_recent_only_after_it_was_recorded() {
        let moment = LastTime::default();
        assert!(!moment.is_within(Duration::MAX));
        moment.note();
        assert!(moment.is_within(Duration::from_secs(3600)) && !moment.is_within(Duration::ZERO));
    }
}
