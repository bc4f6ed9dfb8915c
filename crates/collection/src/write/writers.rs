//! The collections that this process writes to: each holds a file, locked, so that with thousands of them those that were written to
//! longest ago give the writing up. The next write takes it up again.

use super::flush::Flush;
use super::shared::Shared;
use bathyal_tier::process::open_files_limit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, TryLockError, Weak};
use std::time::Instant;

/// Of the files that a process may have open, one of so many is a log that is written to.
const FILES_SHARE: u64 = 8;
/// Logs that are written to at most, however many files may be open.
const MOST_LOGS: u64 = 1024;

/// The collections that may hold a log.
static WRITERS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
/// From when on it is counted who wrote last.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// What is known of a collection that is written to.
#[derive(Debug, Default)]
pub(super) struct Wrote {
    /// When that was last, in nanoseconds since [`START`].
    at: AtomicU64,
    /// Whether it is among [`WRITERS`]; written under that lock, by whoever has the collection's own.
    listed: AtomicBool,
}

impl Shared {
    /// Notes that the collection, which holds its log, is written to. Where too many do, those that nothing was written to for the
    /// longest time let go of theirs.
    pub(super) fn note_writing(self: &Arc<Self>) {
        self.wrote.at.store(START.elapsed().as_nanos() as u64, Ordering::Relaxed);
        if self.wrote.listed.load(Ordering::Relaxed) {
            return;
        }
        let most = (open_files_limit() / FILES_SHARE).clamp(1, MOST_LOGS) as usize;
        let mut writers = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.wrote.listed.swap(true, Ordering::Relaxed) {
            writers.push(Arc::downgrade(self));
        }
        let mut all: Vec<Arc<Shared>> = writers.iter().filter_map(Weak::upgrade).collect();
        if all.len() > most {
            all.sort_unstable_by_key(|one| one.wrote.at.load(Ordering::Relaxed));
            let (mut over, mut others) = (all.len() - most, all.iter());
            while let (1.., Some(one)) = (over, others.next()) {
                if !Arc::ptr_eq(one, self) && one.rest() {
                    over -= 1;
                }
            }
        }
        writers.retain(|one| one.upgrade().is_some_and(|one| one.wrote.listed.load(Ordering::Relaxed)));
        drop(writers);
        // The last to have one of them closes it, which may take its time.
        drop(all);
    }

    /// Lets go of the log where nobody is at work; false where somebody is.
    pub(super) fn rest(&self) -> bool {
        let mut writing = match self.writing.try_lock() {
            Ok(writing) => writing,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let at_work = writing.beside.iter().any(|thread| !thread.is_finished());
        // Whoever merges without a thread, too, publishes what it has begun to write.
        let merges = matches!(self.merging.try_lock(), Err(TryLockError::WouldBlock));
        if at_work || merges || writing.large > 0 || !matches!(writing.flush, Flush::Idle) {
            return false;
        }
        writing.log = None;
        // Before somebody takes the writing up again, and would think that it is still listed.
        self.wrote.listed.store(false, Ordering::Relaxed);
        true
    }
}
