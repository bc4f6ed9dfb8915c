//! The traits of a store: the required operations only. Derived operations are in the extension traits.

use crate::error::StoreError;
use crate::stripe::Parts;
use crate::traffic::Traffic;
use bathyal_tier::Tier;
use bathyal_tier::backend::file::FileOptions;
use std::fmt::Debug;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Decides if a draft may replace an existing generation of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// Any existing entry of the name is an error.
    Never,
    /// An existing generation is replaced; anything else of that name is refused.
    Generation,
}

/// The failure that bytes appended to a log survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Durability {
    /// The bytes survive a power failure of the machine; only a failing disk loses them.
    Disk,
    /// The bytes survive the end of the process. A power failure may lose them, later bytes possibly before
    /// earlier ones. Remote stores treat this as [`Durability::Disk`].
    System,
}

/// Generations by name.
///
/// A store without renames (an object store, the memory of another machine) writes the objects of a draft
/// under temporary names and publishes them by one conditional put of the object that lists them.
pub trait Store: Debug + Send + Sync {
    /// Returns the store's address, for messages.
    fn address(&self) -> &Path;

    /// Returns the names of the published generations, sorted.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not respond.
    fn list(&self) -> Result<Vec<String>, StoreError>;

    /// Opens the generation that is published as `name`. If it is replaced later, the opened value still
    /// reads the old objects, or returns [`StoreError::Replaced`].
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is none.
    fn open(&self, name: &str) -> Result<Arc<dyn Generation>, StoreError>;

    /// Returns the error that [`Store::begin`] would return, before any work is done.
    ///
    /// # Errors
    /// As [`Store::begin`].
    fn check(&self, name: &str, replace: Replace) -> Result<(), StoreError>;

    /// Begins a draft of the generation `name`. A draft that could not be published in the end is refused
    /// now.
    ///
    /// # Errors
    /// [`StoreError::Exists`] if the name is taken and `replace` forbids replacement,
    /// [`StoreError::Irreplaceable`] if the existing entry cannot be replaced.
    fn begin(&self, name: &str, replace: Replace) -> Result<Box<dyn Draft>, StoreError>;

    /// Takes over the drafts of `name` that no process writes any more, in a fixed order, and undoes
    /// interrupted publications. A returned draft is removed when it is dropped.
    ///
    /// # Errors
    /// As [`Store::begin`].
    fn abandoned(&self, name: &str, replace: Replace) -> Result<Vec<Box<dyn Draft>>, StoreError>;

    /// Removes a generation at once. Readers can still read objects that they have opened.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is none.
    fn delete(&self, name: &str) -> Result<(), StoreError>;

    /// Removes the generation `name`, its abandoned drafts, and all records that the store keeps of the name.
    /// The name must never be used again: a writer that still publishes under it gets no error about the
    /// removed generation. Does nothing if nothing is left. An interrupted call is completed by the next one.
    ///
    /// # Errors
    /// [`StoreError::NoGeneration`] if the entry of this name is no generation; [`StoreError`].
    fn erase(&self, name: &str) -> Result<(), StoreError>;

    /// Returns the names, sorted, that have leftovers for [`Store::erase`] to remove but no published
    /// generation.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not respond.
    fn leftovers(&self) -> Result<Vec<String>, StoreError>;
}

/// A set of named objects.
pub trait Generation: Debug + Send + Sync {
    /// Returns its address, for messages.
    fn address(&self) -> &Path;

    /// Returns the names of its objects, sorted.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not respond.
    fn list(&self) -> Result<Vec<String>, StoreError>;

    /// Opens the object `name`.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is none, [`StoreError::Irregular`] if the entry of this name is no
    /// object.
    fn get(&self, name: &str) -> Result<Arc<dyn Object>, StoreError>;

    /// Returns the log `name` of changes made after publication. The log may not have begun yet. It is
    /// removed when the generation is replaced or deleted. Drafts have no log.
    ///
    /// # Errors
    /// [`StoreError::Unchangeable`] if the generation accepts no changes.
    fn log(&self, name: &str) -> Result<Arc<dyn Log>, StoreError> {
        Err(StoreError::Unchangeable { path: self.address().join(name) })
    }

    /// Returns the counts of requests made through this value so far, for stores that may charge for each
    /// request. `None` for a local store.
    fn traffic(&self) -> Option<Arc<Traffic>> {
        None
    }
}

/// A growing file beside the objects of a generation. It has one writer at a time.
pub trait Log: Debug + Send + Sync {
    /// Returns its address, for messages.
    fn address(&self) -> &Path;

    /// Reads the bytes from offset `from` to the current end. The last bytes may be a record that a writer
    /// has appended in part. Returns no bytes if the log has not begun or is shorter than `from`.
    ///
    /// # Errors
    /// [`StoreError::Memory`] if the memory cannot be allocated; [`StoreError`].
    fn read(&self, from: u64) -> Result<Vec<u8>, StoreError>;

    /// Acquires the log for writing, exclusively among all processes, until the value is dropped. On a file
    /// system without locks, a second writer is not detected.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if the log has another writer.
    fn write(&self) -> Result<Box<dyn LogWriter>, StoreError>;
}

/// The exclusive writer of a log.
pub trait LogWriter: Debug + Send + Sync {
    /// Writes `parts` back to back at offset `at`, and drops all bytes that were at or beyond it. On return,
    /// they are durable as `durability` says; with [`Durability::Disk`], all earlier bytes are, too.
    ///
    /// # Errors
    /// [`StoreError::Replaced`] if another generation was published under the name, so the appended bytes
    /// will never be read. After any other [`StoreError`], an unknown share of the bytes was written; the
    /// next append at the same offset overwrites them.
    fn append(&mut self, at: u64, parts: &[&[u8]], durability: Durability) -> Result<(), StoreError>;

    /// Makes the whole log durable in the sense of [`Durability::Disk`], including bytes of earlier writers.
    ///
    /// # Errors
    /// As [`LogWriter::append`].
    fn sync(&mut self) -> Result<(), StoreError>;
}

/// Callback for the progress of a long operation. It receives the bytes done and the bytes in all, and
/// returns `false` to cancel the operation.
pub type ProgressFn<'a> = dyn Fn(u64, u64) -> bool + Sync + 'a;

/// A generation under construction, which readers cannot see. Its objects may still change.
///
/// A draft that is dropped before it is published is removed.
pub trait Draft: Generation {
    /// Opens the object `name` for appending after its first `from` bytes, or creates it. Bytes beyond `from`
    /// are dropped.
    ///
    /// # Errors
    /// [`StoreError::Short`] if the object has fewer than `from` bytes.
    fn append(&self, name: &str, from: u64) -> Result<Box<dyn Append>, StoreError>;

    /// Replaces the content of the object `name` by `bytes` atomically, or creates it. On return, the object
    /// and all objects that were synced before survive a power failure.
    ///
    /// # Errors
    /// [`StoreError`]; the object then has its old content.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError>;

    /// Removes an object. Does nothing if there is none.
    ///
    /// # Errors
    /// [`StoreError`].
    fn delete(&self, name: &str) -> Result<(), StoreError>;

    /// Returns the note of a draft whose writer was killed while it published the draft. Such a draft only
    /// needs [`Draft::publish`].
    fn publication_note(&self) -> Option<&str>;

    /// Copies the objects `names` of another generation byte for byte, as if they had been appended here and
    /// synced. If an earlier process copied an object in part, the copy is continued. `progress` is the
    /// callback described at [`Draft::upload`]. Returns the CRC-32C of each object.
    ///
    /// # Errors
    /// [`StoreError::Cancelled`]; [`StoreError`].
    fn adopt(
        &self,
        from: &dyn Generation,
        names: &[&str],
        progress: &ProgressFn<'_>,
    ) -> Result<Vec<u32>, StoreError>;

    /// Copies the objects `names` to the place that they will be published from, for stores where that takes
    /// long. The objects must be synced and must not change any more. `progress` receives the bytes copied
    /// and the bytes in all, and returns `false` to cancel. Afterwards, only [`Draft::publish`] with `note`
    /// is left to do; a later process finds the note ([`Draft::publication_note`]). Does nothing in a local
    /// store.
    ///
    /// # Errors
    /// [`StoreError::Cancelled`]; [`StoreError`]. The next call does not copy again what was copied.
    fn upload(&self, _names: &[&str], _note: &str, _progress: &ProgressFn<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    /// Publishes the draft under its name with exactly the objects `names`, all of which must be synced. If
    /// the process or the machine fails at any point, the name leads either to the old generation or to the
    /// complete new one. A later process recognises the draft by `note` if this one is killed during the
    /// call.
    ///
    /// # Errors
    /// [`StoreError`]; the name then leads to the old generation, or to the draft, which may not survive a
    /// power failure.
    fn publish(self: Box<Self>, names: &[&str], note: &str) -> Result<(), StoreError>;

    /// Keeps the draft as it is, for [`Store::abandoned`] to find.
    ///
    /// # Errors
    /// [`StoreError`].
    fn leave(self: Box<Self>) -> Result<(), StoreError>;
}

/// An object that is being written from front to back.
pub trait Append: Debug + Send + Sync {
    /// Appends all of `bytes`.
    ///
    /// # Errors
    /// [`StoreError`]; an unknown share of the bytes was written then.
    fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError>;

    /// Makes the appended bytes survive a power failure. The name of a new object survives one only after the
    /// next [`Draft::replace`] or [`Draft::publish`].
    ///
    /// # Errors
    /// [`StoreError`].
    fn sync(&self) -> Result<(), StoreError>;
}

/// The location of an object's bytes, for readers that have a faster way than copying ranges.
#[derive(Debug)]
pub enum Backing {
    /// A local file.
    File(File),
    /// This process's memory.
    Memory(Arc<[u8]>),
    /// Parts of a stripe, over which the units are distributed in turn.
    Parts(Parts),
    /// A location that only the store can reach.
    Elsewhere,
}

/// An immutable sequence of bytes.
pub trait Object: Debug + Send + Sync {
    /// Returns its address, for messages, and for tiers that open the file themselves if the [`Backing`] is a
    /// file.
    fn address(&self) -> &Path;

    /// Returns its length in bytes at the time it was opened.
    fn len(&self) -> u64;

    /// Returns true if it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes to request per read when reading the whole object; more where each read
    /// has a high latency.
    fn piece_bytes(&self) -> usize {
        256 << 10
    }

    /// Fills `out` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`StoreError::Short`] if the object ends before `out` is filled.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError>;

    /// Returns the location of its bytes.
    ///
    /// # Errors
    /// [`StoreError`].
    fn backing(&self) -> Result<Backing, StoreError>;

    /// Opens its bytes as a tier for queries. `options` apply to files only.
    ///
    /// # Errors
    /// [`StoreError`].
    fn tier(&self, options: FileOptions) -> Result<Arc<dyn Tier>, StoreError>;

    /// Opens its bytes as a [writable](Tier::writable) tier that changes them in place, in the generation
    /// that the object was opened in.
    ///
    /// # Errors
    /// [`StoreError::Unchangeable`] if the store changes objects only through drafts;
    /// [`StoreError::Replaced`] if another generation was published under the name; [`StoreError`].
    fn writable_tier(&self) -> Result<Arc<dyn Tier>, StoreError> {
        Err(StoreError::Unchangeable { path: self.address().to_path_buf() })
    }
}
