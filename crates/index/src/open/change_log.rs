//! The log of an index's changes, and the state of an open index that follows from it.

use super::memory_plan::INSERTS_SHARE;
use crate::error::IndexError;
use crate::family::{MemorySplit, Opened, Stored};
use crate::format::changes::{CHANGES_NAME, Change, ChangeLog};
use crate::format::identity::Identity;
use crate::format::ids::load_ids;
use crate::format::manifest::Manifest;
use crate::query::changes::Changes;
use bathyal_store::{Durability, Generation, Log, LogWriter};
use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// The most bytes of memory of inserted vectors. Before they need more, the index has to be compacted.
pub const MOST_CHANGED_BYTES: u64 = 256 << 20;
/// Bytes of memory of an inserted vector in a bucket.
const PLACED_BYTES: u64 = 8;

/// The changes of an index since it was built, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ChangeCounts {
    /// Vectors that were inserted, including those that were deleted again.
    pub inserted: u64,
    /// Vectors that were deleted.
    pub deleted: u64,
    /// Bytes of memory that the changes take.
    pub memory_bytes: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
}

/// The log of an index, read before anything is loaded.
pub(super) struct FoundLog {
    log: Arc<dyn Log>,
    format: ChangeLog,
    bytes: Vec<u8>,
    /// Bytes of memory that its changes will take.
    memory_bytes: u64,
}

/// The changes of an open index, and its log.
pub(super) struct Changing {
    pub(super) log: Arc<dyn Log>,
    format: ChangeLog,
    state: RwLock<Arc<Changes>>,
    /// Locked during a change, since each state is computed from the previous one.
    writer: Mutex<Writer>,
}

/// The end of the log, where the next change is appended.
pub(super) struct Writer {
    pub(super) end: u64,
    /// The lock of the log against other processes, once this process has acquired it.
    pub(super) handle: Option<Box<dyn LogWriter>>,
}

fn damaged(log: &dyn Log, reason: String) -> IndexError {
    IndexError::damaged(log.address(), "the log of changes", reason)
}

/// Returns about the bytes of memory for so many inserted vectors, and for the bits of deleted vectors.
pub(super) fn memory_bytes(stored: &dyn Stored, manifest: &Manifest, inserted: u64) -> Result<u64, String> {
    let buckets = stored.buckets().unwrap_or(0) as u64;
    // The larger of both rows, since the given vectors are also in memory for a moment.
    let row = manifest.stored_row_bytes()?.max(manifest.element()?.row_bytes(manifest.dim as usize));
    let bits = manifest.vectors / 4;
    Ok(inserted * (row as u64 + buckets * PLACED_BYTES) + bits)
}

impl FoundLog {
    /// Reads the log of an index; `None` if its family or its store does not support changes.
    pub(super) fn read(
        directory: &dyn Generation,
        manifest: &Manifest,
        stored: &dyn Stored,
    ) -> Result<Option<FoundLog>, IndexError> {
        let Some(log) = stored.buckets().and_then(|_| directory.log(CHANGES_NAME).ok()) else {
            return Ok(None);
        };
        let wrong = |reason| IndexError::damaged(directory.address(), "the manifest", reason);
        let identity: Identity = manifest.identity().map_err(wrong)?;
        let given = manifest.element().map_err(wrong)?.row_bytes(manifest.dim as usize);
        let format = ChangeLog::new(identity, given);
        let bytes = log.read(0)?;
        let mut vectors = 0;
        let end = format.read(0, &bytes, |change| {
            if let Change::Insert { rows, .. } = change {
                vectors += (rows.len() / given) as u64;
            }
            Ok::<(), String>(())
        });
        end.map_err(|reason| damaged(log.as_ref(), reason))?;
        let memory_bytes = memory_bytes(stored, manifest, vectors).map_err(wrong)?;
        Ok(Some(FoundLog { log, format, bytes, memory_bytes }))
    }

    /// Returns the bytes of memory of the changes, and of the log itself, which is in memory until the index
    /// is open.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.memory_bytes + self.bytes.len() as u64
    }

    /// Applies the changes in the log to an index that has been loaded.
    pub(super) fn apply(self, mut changes: Changes, opened: &dyn Opened) -> Result<Changing, IndexError> {
        let FoundLog { log, format, bytes, .. } = self;
        let end = format.read(0, &bytes, |change| changes.apply(&change, |rows| place(opened, rows)));
        let end = end.map_err(|reason| damaged(log.as_ref(), reason))?;
        let (state, writer) = (RwLock::new(Arc::new(changes)), Mutex::new(Writer { end, handle: None }));
        Ok(Changing { log, format, state, writer })
    }
}

/// Returns the buckets of inserted vectors, and nothing for a family without buckets.
pub(super) fn place(opened: &dyn Opened, rows: &[u8]) -> Vec<(u32, u32)> {
    opened.place(rows).unwrap_or_default()
}

impl Changing {
    /// Returns the current state.
    pub(super) fn now(&self) -> Arc<Changes> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn writer(&self) -> MutexGuard<'_, Writer> {
        // A panic leaves nothing incomplete in it: the state is set last.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, changes: Changes) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(changes);
    }

    /// Applies the changes that other processes have appended to the log.
    pub(super) fn catch_up(&self, writer: &mut Writer, opened: &dyn Opened) -> Result<(), IndexError> {
        let bytes = self.log.read(writer.end)?;
        let mut changes = (*self.now()).clone();
        let end = self
            .format
            .read(writer.end, &bytes, |change| changes.apply(&change, |rows| place(opened, rows)))
            .map_err(|reason| damaged(self.log.as_ref(), reason))?;
        if end > writer.end {
            writer.end = end;
            self.set(changes);
        }
        Ok(())
    }

    /// Appends a change to the log, and makes `changed` the state of new searches. The change is durable when
    /// this returns.
    pub(super) fn change(
        &self,
        writer: &mut Writer,
        change: &Change<'_>,
        changed: Changes,
    ) -> Result<(), IndexError> {
        let Writer { end, handle } = writer;
        // If the append fails, the record may or may not be in the log. So the handle is dropped, and the
        // next change first reads what the log contains.
        let Some(mut log_writer) = handle.take() else {
            return Err(IndexError::Internal("a change without its log".into()));
        };
        let mut bytes = if *end == 0 { self.format.head() } else { Vec::new() };
        let at = *end + bytes.len() as u64;
        bytes.extend(self.format.record(at, change));
        log_writer.append(*end, &[&bytes], Durability::Disk)?;
        *handle = Some(log_writer);
        *end += bytes.len() as u64;
        self.set(changed);
        Ok(())
    }
}

/// Refuses changes that take `needed` bytes of memory if that is more than the division of the memory allows.
pub(super) fn check_changed_memory(split: &MemorySplit, needed: u64) -> Result<(), IndexError> {
    // A quarter: during an insert, the previous state is copied, and the new vectors are also in memory as
    // given and as their log record.
    let share = |_| (split.changes / 4).min(MOST_CHANGED_BYTES);
    let given = split.budget.map_or(MOST_CHANGED_BYTES, share);
    if needed <= given {
        return Ok(());
    }
    let what = "keeping the inserted vectors";
    let Some(budget) = split.budget.filter(|_| given < MOST_CHANGED_BYTES) else {
        let advice = "compact the index first, which moves them into its tables".into();
        return Err(IndexError::Memory { what, needed, given, advice });
    };
    // The error names the whole budget, which the caller can change, and not the part of it for changes.
    let needed = (4 * INSERTS_SHARE).saturating_mul(needed.min(MOST_CHANGED_BYTES));
    let advice = "compact the index first, or open it with a budget of at least that much, of which a \
                  sixteenth is for inserts, or with none";
    Err(IndexError::Memory { what, needed, given: budget, advice: advice.into() })
}

/// Returns the changes in the log of the index in `directory` without opening it, and the bytes of an
/// unfinished record at the end of the log.
pub(crate) fn summary(
    directory: &dyn Generation,
    manifest: &Manifest,
    stored: &dyn Stored,
) -> Result<(ChangeCounts, u64), IndexError> {
    let Some(found) = FoundLog::read(directory, manifest, stored)? else { return Ok(Default::default()) };
    let wrong = |reason| IndexError::damaged(directory.address(), "the manifest", reason);
    let form = crate::form::Form::from_manifest(manifest).map_err(wrong)?;
    let built = load_ids(directory, manifest)?;
    let mut changes = Changes::none(built, form, manifest.dim as usize);
    let end = found.format.read(0, &found.bytes, |change| changes.apply(&change, |_| Vec::new()));
    let log_bytes = end.map_err(|reason| damaged(found.log.as_ref(), reason))?;
    let (inserted, deleted) = changes.counts();
    let unfinished = found.bytes.len() as u64 - log_bytes;
    Ok((ChangeCounts { inserted, deleted, memory_bytes: found.memory_bytes, log_bytes }, unfinished))
}
