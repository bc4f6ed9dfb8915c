//! Changes of an open index: inserts and deletes, which are in the index's log when the call returns, and
//! changes that other processes have appended to the log.

use super::Index;
use super::change_log::{ChangeCounts, Changing, Writer, check_changed_memory, memory_bytes, place};
use crate::error::IndexError;
use crate::extent;
use crate::families;
use crate::family::Capability;
use crate::format::changes::Change;
use crate::format::manifest::MAX_VECTORS;
use crate::query::changes::Changes;
use bathyal_vectors::VectorFile;
use std::ops::Range;
use std::sync::{Arc, MutexGuard};

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
            self.stored.check_vectors(vectors, 0..vectors.count(), ("vectors", "row"))?;
            let (count, scale) = (vectors.count(), self.stored.manifest().stored_scale());
            extent::check_set(vectors, self.metric(), vectors.block(0..count).largest())?;
            // Distances are computed in the units of stored vectors.
            if scale < 1.0 { extent::check_queries(vectors, 0..count, self.metric(), scale) } else { Ok(()) }
        };
        if let Some(placed) = self.loaded.opened().in_place() {
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
            return Err(self.stored.refusal(format!(
                "{count} more vectors would need ids up to {next}, and an index has at most {MAX_VECTORS}; \
                 build the index again"
            )));
        }
        if count == 0 {
            return Ok(first..first);
        }
        let inserted = changes.counts().0 + count as u64;
        let needed = memory_bytes(self.stored.family(), self.stored.manifest(), inserted);
        check_changed_memory(self.plan.split(), needed.map_err(|reason| self.stored.damaged(reason))?)?;
        let mut rows = Vec::with_capacity(count * vectors.row_bytes());
        (0..count).for_each(|row| rows.extend_from_slice(vectors.row(row)));
        let change = Change::Insert { first, rows: &rows };
        changes.apply(&change, |rows| place(&**self.loaded.opened(), rows)).map_err(IndexError::Internal)?;
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
        let placed = self.loaded.opened().in_place();
        let changing = if placed.is_some() { None } else { Some(self.changing()?) };
        if let Some(id) = ids.iter().max().filter(|id| **id >= self.next_id()) {
            // Another process may have inserted it.
            self.refresh()?;
            let next = self.next_id();
            if *id >= next {
                let last = next - 1;
                return Err(self
                    .stored
                    .refusal(format!("there is no vector {id}: ids go up to {last}; nothing was deleted")));
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
        if let Some(placed) = self.loaded.opened().in_place() {
            return placed.refresh();
        }
        let Some(changing) = &self.changing else { return Ok(false) };
        let mut writer = changing.writer();
        let before = writer.end;
        if writer.handle.is_none() {
            changing.catch_up(&mut writer, &**self.loaded.opened())?;
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
            if self.loaded.opened().in_place().is_some() {
                return self.stored.refusal(
                    "this index is changed in place and has no log to compact; inserted vectors are already \
                     part of it",
                );
            }
            self.stored.refusal(families::refusal(&self.stored.manifest().family, Capability::Changes))
        })
    }

    /// Acquires the lock of the log against other processes, unless this process has it already.
    pub(super) fn writer<'a>(&self, changing: &'a Changing) -> Result<MutexGuard<'a, Writer>, IndexError> {
        if self.stored.manifest().is_striped() {
            return Err(self.stored.refusal(
                "an index that is striped over several disks does not take changes; copy it into one folder \
                 with `bathyal convert-stripes`, and change the copy",
            ));
        }
        let mut writer = changing.writer();
        if writer.handle.is_none() {
            let handle = changing.log.write()?;
            // No other process appends from here on.
            changing.catch_up(&mut writer, &**self.loaded.opened())?;
            writer.handle = Some(handle);
        }
        Ok(writer)
    }
}
