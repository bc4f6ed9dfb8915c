//! Changing an open index: inserts and deletes, which are in the index's log when they are acknowledged, and what other processes
//! have appended to that.

use super::Index;
use super::planning::ROOM_SHARE;
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

/// Bytes of memory that inserted vectors may take before they have to become part of the tables.
pub const MOST_CHANGED_BYTES: u64 = 256 << 20;
/// Bytes of memory of an inserted vector in a bucket.
const PLACED_BYTES: u64 = 8;

/// How far an index has changed since it was built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ChangeCounts {
    /// Vectors that were inserted, those that were deleted again among them.
    pub inserted: u64,
    /// Vectors that were deleted.
    pub deleted: u64,
    /// Bytes of memory that this takes.
    pub memory_bytes: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
}

/// The log of an index, as it was read before anything was loaded.
pub(super) struct FoundLog {
    log: Arc<dyn Log>,
    format: ChangeLog,
    bytes: Vec<u8>,
    /// Bytes of memory that what it says will take.
    memory_bytes: u64,
}

/// What an open index knows of its changes, and its way to make more.
pub(super) struct Changing {
    log: Arc<dyn Log>,
    format: ChangeLog,
    state: RwLock<Arc<Changes>>,
    /// Held while a change is made: a state follows from the one before.
    writer: Mutex<Writer>,
}

/// The place where the next change is appended.
pub(super) struct Writer {
    end: u64,
    pub(super) handle: Option<Box<dyn LogWriter>>,
}

fn damaged(log: &dyn Log, reason: String) -> IndexError {
    IndexError::damaged(log.address(), "the log of changes", reason)
}

/// Bytes of memory that so many inserted vectors take, about, and the bits of those that are deleted, which may be any.
fn memory_bytes(stored: &dyn Stored, manifest: &Manifest, inserted: u64) -> Result<u64, String> {
    let buckets = stored.buckets().unwrap_or(0) as u64;
    // They are there as they were given, too, for a moment.
    let row = manifest.stored_row_bytes()?.max(manifest.element()?.row_bytes(manifest.dim as usize));
    let bits = manifest.vectors / 4;
    Ok(inserted * (row as u64 + buckets * PLACED_BYTES) + bits)
}

impl FoundLog {
    /// Reads the log of an index; `None` where its family's do not change, or where nothing here does.
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

    /// Bytes of memory that what it says takes, with the log itself, which is there, too, until the index is open.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.memory_bytes + self.bytes.len() as u64
    }

    /// Applies what it says to an index that has been loaded.
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
    /// The state at this moment.
    pub(super) fn now(&self) -> Arc<Changes> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // Nothing in there is left half done by a panic: the state is set last.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, changes: Changes) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(changes);
    }

    /// Takes in what others have appended.
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

    /// Appends a change, and makes it part of what searches see; when this returns it outlives the machine.
    fn change(&self, writer: &mut Writer, change: &Change<'_>, changed: Changes) -> Result<(), IndexError> {
        let Writer { end, handle } = writer;
        // If it fails nobody knows whether others have read it: whoever changes the index next looks at what is there.
        let Some(mut held) = handle.take() else {
            return Err(IndexError::Internal("a change without its log".into()));
        };
        let mut bytes = if *end == 0 { self.format.head() } else { Vec::new() };
        let at = *end + bytes.len() as u64;
        bytes.extend(self.format.record(at, change));
        held.append(*end, &[&bytes], Durability::Disk)?;
        *handle = Some(held);
        *end += bytes.len() as u64;
        self.set(changed);
        Ok(())
    }
}

impl Index {
    /// Inserts vectors, which get the ids of the range that is returned. They are found by all searches of this index that begin
    /// after this, and when it returns they outlive the machine. All of them are inserted or none.
    ///
    /// One process at a time changes an index: the first change takes it until the index is closed. Others see
    /// what it did when they open the index or [`refresh`](Index::refresh).
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for vectors that do not fit the index, or an index that does not change;
    /// [`IndexError::Memory`] when it has to be compacted first; [`IndexError::Store`] when another process changes it or the
    /// device refuses: nothing was inserted then.
    pub fn insert(&self, vectors: &VectorFile) -> Result<Range<u32>, IndexError> {
        self.check_process()?;
        let vectors = &*self.as_held(vectors);
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
                "{}: {count} vectors more would need ids up to {next}, and there are none beyond {MAX_VECTORS}; build the index anew",
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

    /// Deletes the vectors `ids`: searches that begin after this do not find them, and when it returns that outlives the machine.
    /// Ids whose vectors were deleted before are passed over. Returns how many were deleted. No id is given twice.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for ids that no vector ever had, or an index that does not change; [`IndexError::Store`] when
    /// another process changes it or the device refuses: nothing was deleted then.
    pub fn delete(&self, ids: &[u32]) -> Result<u64, IndexError> {
        self.check_process()?;
        let placed = self.opened.in_place();
        let changing = if placed.is_some() { None } else { Some(self.changing()?) };
        if let Some(id) = ids.iter().max().filter(|id| **id >= self.next_id()) {
            // Others may have inserted it.
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
        let there: Vec<[u8; 4]> =
            ids.iter().filter(|id| changes.delete(**id)).map(|id| id.to_le_bytes()).collect();
        if !there.is_empty() {
            changing.change(&mut writer, &Change::Delete(&there), changes)?;
        }
        Ok(there.len() as u64)
    }

    /// Sees what other processes have changed since the index was opened, or since the last time. Returns whether there was
    /// anything. Searches that are under way keep to what they began with.
    ///
    /// # Errors
    /// [`IndexError::Store`] if the index was replaced, as by a compaction: open it again.
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

    /// How far it has changed since it was built.
    pub fn changed(&self) -> ChangeCounts {
        let Some(changing) = &self.changing else { return ChangeCounts::default() };
        let (log_bytes, now) = (changing.writer().end, changing.now());
        let (inserted, deleted) = now.counts();
        ChangeCounts { inserted, deleted, memory_bytes: now.bytes(), log_bytes }
    }

    /// The state of changes that a search that begins now keeps to; `None` where there are none.
    pub(super) fn changes(&self) -> Option<Arc<Changes>> {
        self.changing.as_ref().map(Changing::now).filter(|changes| !changes.is_empty())
    }

    /// The changes of an index that has them.
    pub(super) fn changing(&self) -> Result<&Changing, IndexError> {
        self.changing.as_ref().ok_or_else(|| {
            let family = &self.manifest.family;
            if self.opened.in_place().is_some() {
                return IndexError::Parameter(format!(
                    "{}: is changed where it lies, without a log that would have to be compacted; what was inserted is part of it",
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

    /// Becomes the one that changes the index, if it is not yet.
    pub(super) fn writer<'a>(&self, changing: &'a Changing) -> Result<MutexGuard<'a, Writer>, IndexError> {
        if self.manifest.is_striped() {
            return Err(IndexError::Parameter(format!(
                "{}: is striped over several disks and does not change; make a copy in one folder with `bathyal \
                 convert-stripes` and change that",
                self.directory.display()
            )));
        }
        let mut writer = changing.writer();
        if writer.handle.is_none() {
            let handle = changing.log.write()?;
            // Nobody else appends from here on.
            changing.catch_up(&mut writer, &*self.opened)?;
            writer.handle = Some(handle);
        }
        Ok(writer)
    }

    /// Refuses changes that take `needed` bytes of memory if that is more than there may be.
    fn check_changed_memory(&self, needed: u64) -> Result<(), IndexError> {
        // What is there is copied while more is added, and that is there as it was given and as its record.
        let given = self
            .split
            .budget
            .map_or(MOST_CHANGED_BYTES, |_| (self.split.changes / 4).min(MOST_CHANGED_BYTES));
        if needed <= given {
            return Ok(());
        }
        let what = "keeping the inserted vectors";
        let Some(budget) = self.split.budget.filter(|_| given < MOST_CHANGED_BYTES) else {
            let advice = "compact the index first: that makes them part of its tables".into();
            return Err(IndexError::Memory { what, needed, given, advice });
        };
        // Said as the whole budget of which that is a part, which is what a caller can change.
        let needed = (4 * ROOM_SHARE).saturating_mul(needed.min(MOST_CHANGED_BYTES));
        let advice = "compact the index first, or open it with a budget of at least that much, of which a sixteenth is for inserts, or \
                      with none";
        Err(IndexError::Memory { what, needed, given: budget, advice: advice.into() })
    }
}

/// What a log says of an index whose files lie in `directory`, for those who look at it without opening it.
pub(super) fn summary(
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
