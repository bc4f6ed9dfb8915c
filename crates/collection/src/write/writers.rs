//! The collections that this process writes to. Each keeps its log open and locked. With thousands of them,
//! those that were written to least recently release their logs; the next write acquires the log again.

use super::shared::Shared;
use bathyal_tier::process::open_files_limit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, TryLockError, Weak};
use std::time::Instant;

/// The open-files limit of the process, divided by this, is the most open logs.
const FILES_PER_LOG: u64 = 8;
/// The most open logs, whatever the open-files limit.
const MAX_OPEN_LOGS: u64 = 1024;

/// The collections that may have their log open.
static WRITERS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
/// The time from which writes are timed.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Entry of a collection that is written to.
#[derive(Debug, Default)]
pub(super) struct WriterEntry {
    /// Time of the last write, in nanoseconds since [`START`].
    last_write_ns: AtomicU64,
    /// True if it is among [`WRITERS`]. Changed only under that lock, by the holder of the collection's own
    /// lock.
    listed: AtomicBool,
}

impl Shared {
    /// Records a write to the collection, which has its log open. If too many collections do, those with the
    /// oldest last write release their logs.
    pub(super) fn note_writing(self: &Arc<Self>) {
        self.writer_entry.last_write_ns.store(START.elapsed().as_nanos() as u64, Ordering::Relaxed);
        if self.writer_entry.listed.load(Ordering::Relaxed) {
            return;
        }
        let max_logs = (open_files_limit() / FILES_PER_LOG).clamp(1, MAX_OPEN_LOGS) as usize;
        let mut writers = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.writer_entry.listed.swap(true, Ordering::Relaxed) {
            writers.push(Arc::downgrade(self));
        }
        let mut all: Vec<Arc<Shared>> = writers.iter().filter_map(Weak::upgrade).collect();
        if all.len() > max_logs {
            all.sort_unstable_by_key(|shared| shared.writer_entry.last_write_ns.load(Ordering::Relaxed));
            let (mut excess, mut others) = (all.len() - max_logs, all.iter());
            while let (1.., Some(shared)) = (excess, others.next()) {
                if !Arc::ptr_eq(shared, self) && shared.release_log() {
                    excess -= 1;
                }
            }
        }
        writers.retain(|shared| {
            shared.upgrade().is_some_and(|shared| shared.writer_entry.listed.load(Ordering::Relaxed))
        });
        drop(writers);
        // Dropping the last reference closes a collection, which can take time; so the lock is released
        // first.
        drop(all);
    }

    /// Releases the log if the collection is idle. Returns false if it is not.
    pub(super) fn release_log(&self) -> bool {
        let mut writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        if self.background.is_working() || !writer.release() {
            return false;
        }
        // This must come before the lock is released: a new write would otherwise find itself still listed.
        self.writer_entry.listed.store(false, Ordering::Relaxed);
        true
    }
}
