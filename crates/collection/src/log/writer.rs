//! The writer of a collection.

use super::record::{Batch, LogFormat};
use crate::error::CollectionError;
use crate::location::{CollectionLocation, LOG, MARK, Part};
use crate::version::{self, Version, now};
use bathyal_store::{DraftExt, Durability, Replace, StoreError};
use roaring::RoaringBitmap;
use std::io;

/// Appends to the log of a collection and publishes its versions, until another writer takes over.
#[derive(Debug)]
pub(crate) struct LogWriter {
    pub(super) place: CollectionLocation,
    /// Identity of the collection.
    pub(super) id: String,
    /// Identity of this writer.
    pub(super) writer: String,
    /// Number of the version that was published last.
    pub(super) version: u64,
    /// Sequence number of the first record of the log.
    pub(super) first: u64,
    pub(super) log: Box<dyn bathyal_store::LogWriter>,
    pub(super) end: u64,
    /// Bytes that were appended since the last call of `take_appended`.
    pub(super) appended: u64,
    /// The log is on the disk up to this offset.
    pub(super) durable_end: u64,
    /// Sequence number of the next record.
    pub(super) next: u64,
    /// False if a failed operation has left the log in an unknown state.
    pub(super) usable: bool,
}

impl LogWriter {
    /// Returns the sequence number of the last record.
    pub(crate) fn last(&self) -> u64 {
        self.next - 1
    }

    /// Returns the bytes of the current log.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.end
    }

    /// Returns the bytes that were appended to logs since the last call.
    pub(crate) fn take_appended(&mut self) -> u64 {
        std::mem::take(&mut self.appended)
    }

    /// Appends changes under consecutive sequence numbers. Returns the last number. With
    /// [`Durability::Disk`], these changes and all earlier ones survive a crash of the machine.
    ///
    /// # Errors
    /// [`CollectionError::Fenced`] if another writer has taken over; [`CollectionError::Store`]. It is then
    /// unknown which of the changes are in the log. This writer appends nothing more; taking over again finds
    /// out.
    pub(crate) fn append(
        &mut self,
        mut batch: Batch,
        durability: Durability,
    ) -> Result<u64, CollectionError> {
        if !self.usable {
            return Err(self.unusable_error());
        }
        if batch.len() == 0 {
            return Ok(self.last());
        }
        let records = batch.len() as u64;
        let format = LogFormat::new(&self.id, self.first);
        let parts = batch.encode_at(&format, self.end, self.next, self.durable_end);
        // False until the append is done.
        self.usable = false;
        self.log.append(self.end, &parts, durability).map_err(|error| append_error(&self.place, error))?;
        self.usable = true;
        let bytes = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        self.end += bytes;
        self.appended += bytes;
        self.next += records;
        if durability == Durability::Disk {
            self.durable_end = self.end;
        }
        Ok(self.last())
    }

    /// Makes all appended changes survive a crash of the machine.
    ///
    /// # Errors
    /// As [`LogWriter::append`].
    pub(crate) fn sync(&mut self) -> Result<(), CollectionError> {
        if !self.usable {
            return Err(self.unusable_error());
        }
        if self.durable_end < self.end {
            self.usable = false;
            self.log.sync().map_err(|error| append_error(&self.place, error))?;
            (self.usable, self.durable_end) = (true, self.end);
        }
        Ok(())
    }

    /// Seals the log and begins the next one. The sealed log can be removed once its changes are in segments.
    ///
    /// # Errors
    /// As [`LogWriter::append`].
    pub(crate) fn rotate(&mut self) -> Result<(), CollectionError> {
        let sealed = self.append(Batch::seal(), Durability::Disk)?;
        self.usable = false;
        let next =
            begin_log(&self.place, &self.id, sealed + 1).map_err(|error| append_error(&self.place, error))?;
        // Before anything is appended to the new log, the old one is marked to say that it exists.
        let format = LogFormat::new(&self.id, self.first);
        mark_next_log(&mut *self.log, &format, (self.end, sealed))
            .map_err(|error| append_error(&self.place, error))?;
        // The lock of the old log is held until the new one is locked.
        self.log = next;
        (self.first, self.end, self.durable_end) = (sealed + 1, 0, 0);
        if !self.is_current()? {
            return Err(CollectionError::Fenced { path: self.place.path().to_path_buf() });
        }
        self.usable = true;
        Ok(())
    }

    /// Publishes `version` as the next version of this writer. `deleted` holds the deleted rows of each
    /// segment. The log is synced first, so that the version's `through` is never beyond the durable records.
    /// # Errors
    /// [`CollectionError::Fenced`] if another writer has taken over. After [`CollectionError::Store`] the
    /// version may or may not be published; the next call publishes it again.
    pub(crate) fn publish(
        &mut self,
        version: &mut Version,
        deleted: &[RoaringBitmap],
    ) -> Result<(), CollectionError> {
        self.sync()?;
        version.published = now();
        loop {
            version.number = self.version + 1;
            version.writer.clone_from(&self.writer);
            version.log = Some(self.first);
            match version.publish(&self.place, deleted) {
                // An earlier call of this writer has published a version without noticing.
                Err(CollectionError::Fenced { .. }) if self.is_ours(version.number)? => {
                    self.version = version.number;
                }
                result => {
                    result?;
                    self.version = version.number;
                    break;
                }
            }
        }
        // The number may be free only because later versions of another writer have replaced it.
        if self.is_current()? {
            return Ok(());
        }
        self.usable = false;
        Err(CollectionError::Fenced { path: self.place.path().to_path_buf() })
    }

    /// Returns true if no other writer has taken over. Before objects are removed, this must be called after
    /// they were listed: objects that another writer adds come after its version.
    ///
    /// # Errors
    /// [`CollectionError`] if the store cannot be read.
    pub(crate) fn is_current(&mut self) -> Result<bool, CollectionError> {
        match version::numbers(&self.place)?.last() {
            // The version of this writer may have been removed by others while the list was made.
            Some(newest) if *newest == self.version => self.is_ours(*newest),
            Some(newest) if *newest > self.version => self.is_ours(*newest),
            _ => Ok(false),
        }
    }

    fn is_ours(&self, number: u64) -> Result<bool, CollectionError> {
        match Version::load(&self.place, number) {
            Ok((version, _)) => Ok(version.writer == self.writer),
            // Later versions have replaced it.
            Err(CollectionError::Store(StoreError::Missing { .. } | StoreError::Replaced { .. })) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn unusable_error(&self) -> CollectionError {
        let reason =
            "an earlier write failed, so the state of the log is unknown; open the collection again to write";
        StoreError::io(
            "append to",
            self.place.path().join(Part::Log(self.first).name()),
            io::Error::other(reason),
        )
        .into()
    }
}

/// Begins the log whose first record will be `first`, and locks it.
///
/// # Errors
/// [`StoreError::Exists`] if another writer has begun it, [`StoreError::Busy`] if another writer writes to
/// it; [`StoreError`].
pub(super) fn begin_log(
    place: &CollectionLocation,
    id: &str,
    first: u64,
) -> Result<Box<dyn bathyal_store::LogWriter>, StoreError> {
    let name = Part::Log(first).name();
    let draft = place.store().begin(&name, Replace::Never)?;
    let text = serde_json::json!({ "bathyal_collection_log": 1, "collection": id, "first": first });
    draft.put(MARK, text.to_string().as_bytes())?;
    draft.publish(&[MARK], "")?;
    lock_new_log(place, first)
}

/// Locks a log that was begun just now.
///
/// # Errors
/// [`StoreError::Busy`] if another writer has sealed it in the meantime. In a store without locks, an append
/// at its begin would overwrite that seal.
pub(super) fn lock_new_log(
    place: &CollectionLocation,
    first: u64,
) -> Result<Box<dyn bathyal_store::LogWriter>, StoreError> {
    let log = place.store().open(&Part::Log(first).name())?.log(LOG)?;
    let writer = log.write()?;
    // This read comes after `write` has reserved the first bytes: a later writer conflicts with the
    // reservation.
    match log.read(0)?.is_empty() {
        true => Ok(writer),
        false => Err(StoreError::Busy { path: log.address().to_path_buf() }),
    }
}

/// Marks in a sealed log that the next log was begun, by a second copy of the seal. A reader that does not
/// find the next log then knows that it is lost. `at` is the end of the log, `seal` the sequence number of
/// its seal.
///
/// # Errors
/// [`StoreError`].
pub(super) fn mark_next_log(
    log: &mut dyn bathyal_store::LogWriter,
    format: &LogFormat,
    (at, seal): (u64, u64),
) -> Result<(), StoreError> {
    log.append(at, &Batch::seal().encode_at(format, at, seal, at), Durability::Disk)
}

/// Returns the error for a failed append: [`CollectionError::Fenced`] if another writer is the reason.
fn append_error(place: &CollectionLocation, error: StoreError) -> CollectionError {
    match error {
        StoreError::Busy { .. }
        | StoreError::Replaced { .. }
        | StoreError::Missing { .. }
        | StoreError::Exists { .. } => CollectionError::Fenced { path: place.path().to_path_buf() },
        error => error.into(),
    }
}
