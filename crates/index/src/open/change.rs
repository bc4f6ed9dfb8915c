//! Changes of an open index: inserts and deletes, which are in the index's log when the call returns, and
//! changes that other processes have appended to the log.

use super::Index;
use super::planning::INSERTS_SHARE;
use crate::error::IndexError;
use crate::extent;
use crate::family::{Opened, Stored};
use crate::format::changes::{CHANGES_NAME, Change, ChangeLog};
use crate::format::identity::Identity;
use crate::format::ids::load_ids;
use crate::format::manifest::{MAX_VECTORS, Manifest};
use crate::query::changes::Changes;
use bathyal_store::{Durability, Generation, Log, LogWriter};
use bathyal_vectors::VectorFile;
use serde::Serialize;
use std::ops::Range;
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
    log: Arc<dyn Log>,
    format: ChangeLog,
    state: RwLock<Arc<Changes>>,
    /// Locked during a change, since each state is computed from the previous one.
    writer: Mutex<Writer>,
}

/// The end of the log, where the next change is appended.
pub(super) struct Writer {
    end: u64,
    /// The lock of the log against other processes, once this process has acquired it.
    pub(super) handle: Option<Box<dyn LogWriter>>,
}

fn damaged(log: &dyn Log, reason: String) -> IndexError {
    IndexError::damaged(log.address(), "the log of changes", reason)
}

/// Returns about the bytes of memory for so many inserted vectors, and for the bits of deleted vectors.
fn memory_bytes(stored: &dyn Stored, manifest: &Manifest, inserted: u64) -> Result<u64, String> {
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

fn place(opened: &dyn Opened, rows: &[u8]) -> Vec<(u32, u32)> {
    opened.place(rows).unwrap_or_default()
}

impl Changing {
    /// Returns the current state.
    pub(super) fn now(&self) -> Arc<Changes> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A panic leaves nothing incomplete in it: the state is set last.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, changes: Changes) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(changes);
    }

    /// Applies the changes that other processes have appended to the log.
    fn catch_up(&self, writer: &mut Writer, opened: &dyn Opened) -> Result<(), IndexError> {
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
    fn change(&self, writer: &mut Writer, change: &Change<'_>, changed: Changes) -> Result<(), IndexError> {
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

impl Index {
    /// Inserts vectors and returns the range of their ids. Searches of this index that begin after the call
    /// find them. They are durable when the call returns. Either all of them are inserted or none.
    ///
    /// One process at a time changes an index: the first change locks it until the index is closed. Other
    /// processes see the changes when they open the index or [`refresh`](Index::refresh) it.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for vectors that do not fit the index, or for an index that does not take
    /// changes; [`IndexError::Memory`] if it has to be compacted first; [`IndexError::Store`] if another
    /// process changes it, or for device errors. Nothing is inserted then.
    pub fn insert(&self, vectors: &VectorFile) -> Result<Range<u32>, IndexError> {
        self.check_process()?;
        let vectors = &*self.in_own_element(vectors);
        let check = || {
            self.check_vectors(vectors, 0..vectors.count(), ("vectors", "row"))?;
            let (count, scale) = (vectors.count(), self.manifest.stored_scale());
            extent::check_set(vectors, self.metric(), vectors.block(0..count).largest())?;
            // Distances are computed in the units of stored vectors.
            if scale < 1.0 { extent::check_queries(vectors, 0..count, self.metric(), scale) } else { Ok(()) }
        };
        if let Some(placed) = self.opened.in_place() {
            check()?;
            return placed.insert(vectors);
        }
        let changing = self.changing()?;
        check()?;
        let mut writer = self.writer(changing)?;
        let mut changes = (*changing.now()).clone();
        let (first, count) = (changes.next(), vectors.count());
        let next = u64::from(first) + count as u64;
        if next > MAX_VECTORS {
            return Err(IndexError::Parameter(format!(
                "{}: {count} more vectors would need ids up to {next}, and an index has at most {MAX_VECTORS}; build the index \
                 again",
                self.directory.display()
            )));
        }
        if count == 0 {
            return Ok(first..first);
        }
        let wrong = |reason| IndexError::damaged(&self.directory, "the manifest", reason);
        let inserted = changes.counts().0 + count as u64;
        let needed = memory_bytes(&*self.stored, &self.manifest, inserted).map_err(wrong)?;
        self.check_changed_memory(needed)?;
        let mut rows = Vec::with_capacity(count * vectors.row_bytes());
        (0..count).for_each(|row| rows.extend_from_slice(vectors.row(row)));
        let change = Change::Insert { first, rows: &rows };
        changes.apply(&change, |rows| place(&*self.opened, rows)).map_err(IndexError::Internal)?;
        changing.change(&mut writer, &change, changes)?;
        Ok(first..next as u32)
    }

    /// Deletes the vectors `ids`, and returns the number of vectors that were deleted. Searches that begin
    /// after the call do not find them. The deletes are durable when the call returns. Ids whose vectors were
    /// deleted before are ignored. An id is never used again.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for ids that no vector ever had, or for an index that does not take changes;
    /// [`IndexError::Store`] if another process changes it, or for device errors. Nothing is deleted then.
    pub fn delete(&self, ids: &[u32]) -> Result<u64, IndexError> {
        self.check_process()?;
        let placed = self.opened.in_place();
        let changing = if placed.is_some() { None } else { Some(self.changing()?) };
        if let Some(id) = ids.iter().max().filter(|id| **id >= self.next_id()) {
            // Another process may have inserted it.
            self.refresh()?;
            let next = self.next_id();
            if *id >= next {
                return Err(IndexError::Parameter(format!(
                    "{}: there is no vector {id}: ids go up to {}; nothing was deleted",
                    self.directory.display(),
                    next - 1
                )));
            }
        }
        let Some(changing) = changing else { return placed.map_or(Ok(0), |placed| placed.delete(ids)) };
        let mut writer = self.writer(changing)?;
        let mut changes = (*changing.now()).clone();
        let deleted: Vec<[u8; 4]> =
            ids.iter().filter(|id| changes.delete(**id)).map(|id| id.to_le_bytes()).collect();
        if !deleted.is_empty() {
            changing.change(&mut writer, &Change::Delete(&deleted), changes)?;
        }
        Ok(deleted.len() as u64)
    }

    /// Applies the changes of other processes since the index was opened, or since the last call. Returns
    /// true if there were any. Running searches keep the state with which they began.
    ///
    /// # Errors
    /// [`IndexError::Store`] if the index was replaced, for example by a compaction: open it again.
    pub fn refresh(&self) -> Result<bool, IndexError> {
        if let Some(placed) = self.opened.in_place() {
            return placed.refresh();
        }
        let Some(changing) = &self.changing else { return Ok(false) };
        let mut writer = changing.writer();
        let before = writer.end;
        if writer.handle.is_none() {
            changing.catch_up(&mut writer, &*self.opened)?;
        }
        Ok(writer.end > before)
    }

    /// Returns the changes since the index was built, in numbers.
    pub fn changed(&self) -> ChangeCounts {
        let Some(changing) = &self.changing else { return ChangeCounts::default() };
        let (log_bytes, now) = (changing.writer().end, changing.now());
        let (inserted, deleted) = now.counts();
        ChangeCounts { inserted, deleted, memory_bytes: now.bytes(), log_bytes }
    }

    /// Returns the changes for a search that begins now; `None` if there are none.
    pub(super) fn changes(&self) -> Option<Arc<Changes>> {
        self.changing.as_ref().map(Changing::now).filter(|changes| !changes.is_empty())
    }

    /// Returns the changes of an index that supports them.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] if the index does not take changes, or is changed in place.
    pub(super) fn changing(&self) -> Result<&Changing, IndexError> {
        self.changing.as_ref().ok_or_else(|| {
            let family = &self.manifest.family;
            if self.opened.in_place().is_some() {
                return IndexError::Parameter(format!(
                    "{}: this index is changed in place and has no log to compact; inserted vectors are already part of it",
                    self.directory.display()
                ));
            }
            IndexError::Parameter(format!(
                "{}: an index of the family {family} does not change after its build; build it again with all vectors, or build \
                 one of the family lsh, which takes inserts and deletes",
                self.directory.display()
            ))
        })
    }

    /// Acquires the lock of the log against other processes, unless this process has it already.
    pub(super) fn writer<'a>(&self, changing: &'a Changing) -> Result<MutexGuard<'a, Writer>, IndexError> {
        if self.manifest.is_striped() {
            return Err(IndexError::Parameter(format!(
                "{}: an index that is striped over several disks does not take changes; copy it into one folder with `bathyal \
                 convert-stripes`, and change the copy",
                self.directory.display()
            )));
        }
        let mut writer = changing.writer();
        if writer.handle.is_none() {
            let handle = changing.log.write()?;
            // No other process appends from here on.
            changing.catch_up(&mut writer, &*self.opened)?;
            writer.handle = Some(handle);
        }
        Ok(writer)
    }

    /// Refuses changes that take `needed` bytes of memory if that is more than allowed.
    fn check_changed_memory(&self, needed: u64) -> Result<(), IndexError> {
        // A quarter: during an insert, the previous state is copied, and the new vectors are also in memory
        // as given and as their log record.
        let given = self
            .split
            .budget
            .map_or(MOST_CHANGED_BYTES, |_| (self.split.changes / 4).min(MOST_CHANGED_BYTES));
        if needed <= given {
            return Ok(());
        }
        let what = "keeping the inserted vectors";
        let Some(budget) = self.split.budget.filter(|_| given < MOST_CHANGED_BYTES) else {
            let advice = "compact the index first, which moves them into its tables".into();
            return Err(IndexError::Memory { what, needed, given, advice });
        };
        // The error names the whole budget, which the caller can change, and not the part of it for changes.
        let needed = (4 * INSERTS_SHARE).saturating_mul(needed.min(MOST_CHANGED_BYTES));
        let advice = "compact the index first, or open it with a budget of at least that much, of which a sixteenth is for inserts, or \
                      with none";
        Err(IndexError::Memory { what, needed, given: budget, advice: advice.into() })
    }
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
