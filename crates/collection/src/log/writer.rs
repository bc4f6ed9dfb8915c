//! The one that writes to a collection.

use super::record::{Batch, LogFormat};
use crate::error::CollectionError;
use crate::place::{LOG, MARK, Part, Place};
use crate::version::{self, Version, now};
use bathyal_store::{DraftExt, Durability, Replace, StoreError};
use roaring::RoaringBitmap;
use std::io;

/// Appends to the log of a collection and publishes its versions, as long as nobody else has taken that over.
#[derive(Debug)]
pub(crate) struct LogWriter {
    pub(super) place: Place,
    /// Of the collection.
    pub(super) id: String,
    /// Tells this writer from all others.
    pub(super) writer: String,
    /// The number of the version that was published last.
    pub(super) version: u64,
    /// The first record of the log.
    pub(super) first: u64,
    pub(super) log: Box<dyn bathyal_store::LogWriter>,
    pub(super) end: u64,
    /// Bytes that were appended and have not been asked for.
    pub(super) appended: u64,
    /// All before this byte of the log is on the disk.
    pub(super) settled: u64,
    /// The number of the next record.
    pub(super) next: u64,
    /// Whether it is known what is in the log.
    pub(super) usable: bool,
}

impl LogWriter {
    /// The number of the last record.
    pub(crate) fn last(&self) -> u64 {
        self.next - 1
    }

    /// Bytes of the log that is appended to.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.end
    }

    /// Bytes that were appended to logs since this was last asked.
    pub(crate) fn take_appended(&mut self) -> u64 {
        std::mem::take(&mut self.appended)
    }

    /// Appends changes, which have consecutive numbers. Returns that of the last one. With [`Durability::Disk`] they outlive the
    /// machine then, and so does all that was appended before.
    ///
    /// # Errors
    /// [`CollectionError::Fenced`] if another one has taken over; [`CollectionError::Store`]. What of the changes is in the log is not
    /// known then, so nothing more is appended: the collection has to be taken over anew, which finds out.
    pub(crate) fn append(
        &mut self,
        mut batch: Batch,
        durability: Durability,
    ) -> Result<u64, CollectionError> {
        if !self.usable {
            return Err(self.unusable());
        }
        if batch.len() == 0 {
            return Ok(self.last());
        }
        let records = batch.len() as u64;
        let format = LogFormat::new(&self.id, self.first);
        let parts = batch.place(&format, self.end, self.next, self.settled);
        // Until it is done.
        self.usable = false;
        self.log.append(self.end, &parts, durability).map_err(|error| fenced(&self.place, error))?;
        self.usable = true;
        let bytes = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        self.end += bytes;
        self.appended += bytes;
        self.next += records;
        if durability == Durability::Disk {
            self.settled = self.end;
        }
        Ok(self.last())
    }

    /// Makes all that was appended outlive the machine.
    ///
    /// # Errors
    /// As [`LogWriter::append`].
    pub(crate) fn sync(&mut self) -> Result<(), CollectionError> {
        if !self.usable {
            return Err(self.unusable());
        }
        if self.settled < self.end {
            self.usable = false;
            self.log.sync().map_err(|error| fenced(&self.place, error))?;
            (self.usable, self.settled) = (true, self.end);
        }
        Ok(())
    }

    /// Ends the log with a seal, and begins the next one: what was appended so far can be removed once it is in segments.
    ///
    /// # Errors
    /// As [`LogWriter::append`].
    pub(crate) fn rotate(&mut self) -> Result<(), CollectionError> {
        let sealed = self.append(Batch::seal(), Durability::Disk)?;
        self.usable = false;
        let next =
            begin_log(&self.place, &self.id, sealed + 1).map_err(|error| fenced(&self.place, error))?;
        // Before anything is appended to it, the old one says that it is there.
        let format = LogFormat::new(&self.id, self.first);
        name_next(&mut *self.log, &format, (self.end, sealed)).map_err(|error| fenced(&self.place, error))?;
        // The lock of the old log is held until that of the new one is.
        self.log = next;
        (self.first, self.end, self.settled) = (sealed + 1, 0, 0);
        if !self.is_current()? {
            return Err(CollectionError::Fenced { path: self.place.path().to_path_buf() });
        }
        self.usable = true;
        Ok(())
    }

    /// Publishes `version` as the next one, and this writer's. `deleted` are the rows of each segment that are deleted. The records that
    /// its segments hold are on the disk before: what a version says is through is never behind what the logs say.
    ///
    /// # Errors
    /// [`CollectionError::Fenced`] if another one has taken over; [`CollectionError::Store`], where it is there or not, and is
    /// published again by the next call.
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
                // One of ours of which it was not known whether it is there.
                Err(CollectionError::Fenced { .. }) if self.is_ours(version.number)? => {
                    self.version = version.number;
                }
                published => {
                    published?;
                    self.version = version.number;
                    break;
                }
            }
        }
        // A number may be free because later versions have taken its place long ago.
        if self.is_current()? {
            return Ok(());
        }
        self.usable = false;
        Err(CollectionError::Fenced { path: self.place.path().to_path_buf() })
    }

    /// Whether nobody else has taken over. To be asked after a list was made of what is to be removed, and before anything is: what
    /// another one adds comes after its version.
    ///
    /// # Errors
    /// [`CollectionError`] if it cannot be known.
    pub(crate) fn is_current(&mut self) -> Result<bool, CollectionError> {
        match version::numbers(&self.place)?.last() {
            // Later ones may have come and gone while the list was made: then this one went before them.
            Some(newest) if *newest == self.version => self.is_ours(*newest),
            Some(newest) if *newest > self.version => self.is_ours(*newest),
            _ => Ok(false),
        }
    }

    fn is_ours(&self, number: u64) -> Result<bool, CollectionError> {
        match Version::load(&self.place, number) {
            Ok((version, _)) => Ok(version.writer == self.writer),
            // Later ones have taken its place.
            Err(CollectionError::Store(StoreError::Missing { .. } | StoreError::Replaced { .. })) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn unusable(&self) -> CollectionError {
        let reason =
            "an earlier write failed, so what is there is not known; open the collection again to write";
        StoreError::io(
            "append to",
            self.place.path().join(Part::Log(self.first).name()),
            io::Error::other(reason),
        )
        .into()
    }
}

/// Begins the log whose first record will be `first`, and becomes its writer.
///
/// # Errors
/// [`StoreError::Exists`] if another one has begun it, [`StoreError::Busy`] if another one writes to it; [`StoreError`].
pub(super) fn begin_log(
    place: &Place,
    id: &str,
    first: u64,
) -> Result<Box<dyn bathyal_store::LogWriter>, StoreError> {
    let name = Part::Log(first).name();
    let draft = place.store().begin(&name, Replace::Never)?;
    let text = serde_json::json!({ "bathyal_collection_log": 1, "collection": id, "first": first });
    draft.put(MARK, text.to_string().as_bytes())?;
    draft.publish(&[MARK], "")?;
    take_begun(place, first)
}

/// Becomes the writer of a log that was begun just now.
///
/// # Errors
/// [`StoreError::Busy`] where another one has found and sealed it meanwhile: what is appended at its beginning would take the place of
/// the seal, where nothing locks it.
pub(super) fn take_begun(place: &Place, first: u64) -> Result<Box<dyn bathyal_store::LogWriter>, StoreError> {
    let log = place.store().open(&Part::Log(first).name())?.log(LOG)?;
    let writer = log.write()?;
    // Read later than the place was taken that the writer's first bytes have: whoever comes after this is in their way.
    match log.read(0)?.is_empty() {
        true => Ok(writer),
        false => Err(StoreError::Busy { path: log.address().to_path_buf() }),
    }
}

/// Says in a log that ends at byte `at` with the seal `seal` that the next one was begun: the seal again, behind the first. From then
/// on a reader that does not find the next log knows that it is lost.
///
/// # Errors
/// [`StoreError`].
pub(super) fn name_next(
    log: &mut dyn bathyal_store::LogWriter,
    format: &LogFormat,
    (at, seal): (u64, u64),
) -> Result<(), StoreError> {
    log.append(at, &Batch::seal().place(format, at, seal, at), Durability::Disk)
}

/// What it means that nothing could be appended.
fn fenced(place: &Place, error: StoreError) -> CollectionError {
    match error {
        StoreError::Busy { .. }
        | StoreError::Replaced { .. }
        | StoreError::Missing { .. }
        | StoreError::Exists { .. } => CollectionError::Fenced { path: place.path().to_path_buf() },
        error => error.into(),
    }
}
