//! What a store has to offer, and nothing more; what follows from it is in the extension traits.

use crate::error::StoreError;
use crate::stripe::Parts;
use crate::traffic::Traffic;
use bathyal_tier::Tier;
use bathyal_tier::backend::file::FileOptions;
use std::fmt::Debug;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Whether a draft may take the place of what stands under its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// Nothing may stand there.
    Never,
    /// A generation may, and is replaced; anything else is refused.
    Generation,
}

/// What has to fail before bytes are lost that were appended to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Durability {
    /// The disk: the bytes outlive the machine's loss of power.
    Disk,
    /// The system: the bytes outlive the process. Power that is lost may take them, and the last of them sooner than the first.
    /// Stores that are elsewhere keep them as they do with [`Durability::Disk`].
    System,
}

/// Generations by name.
///
/// A store without renames (an object store, the memory of another machine) writes the objects of a draft under names
/// of their own and publishes by one conditional put of what names them.
pub trait Store: Debug + Send + Sync {
    /// Where the store is, for messages.
    fn address(&self) -> &Path;

    /// The names of the generations that are published, in order.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not answer.
    fn list(&self) -> Result<Vec<String>, StoreError>;

    /// The generation that is published as `name`. One that is replaced meanwhile stays what it was, or says that it
    /// is gone ([`StoreError::Replaced`]).
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is none.
    fn open(&self, name: &str) -> Result<Arc<dyn Generation>, StoreError>;

    /// Refuses what [`Store::begin`] would refuse, before anything is done for it.
    ///
    /// # Errors
    /// As [`Store::begin`].
    fn check(&self, name: &str, replace: Replace) -> Result<(), StoreError>;

    /// Begins a generation that will be called `name`. What cannot be published in the end is refused now.
    ///
    /// # Errors
    /// [`StoreError::Exists`] if something is there and may not be replaced, [`StoreError::Irreplaceable`] if it cannot
    /// be.
    fn begin(&self, name: &str, replace: Replace) -> Result<Box<dyn Draft>, StoreError>;

    /// Takes over the drafts of `name` that nobody writes any more, in a fixed order, and undoes publications that were
    /// broken off in the middle. Drafts that are dropped are removed.
    ///
    /// # Errors
    /// As [`Store::begin`].
    fn abandoned(&self, name: &str, replace: Replace) -> Result<Vec<Box<dyn Draft>>, StoreError>;

    /// Removes a generation at once; readers that have its objects keep them.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is none.
    fn delete(&self, name: &str) -> Result<(), StoreError>;

    /// Removes the generation `name`, its drafts that nobody writes any more, and whatever the store remembers of the name,
    /// which must never be given again: whoever still publishes under it learns nothing of what was there. Nothing happens where
    /// nothing is left; what a call that was broken off has left the next one removes.
    ///
    /// # Errors
    /// [`StoreError::NoGeneration`] if something else is there; [`StoreError`].
    fn erase(&self, name: &str) -> Result<(), StoreError>;

    /// The names of which something is left that [`Store::erase`] removes, although no generation is published as one of them, in
    /// order.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not answer.
    fn traces(&self) -> Result<Vec<String>, StoreError>;
}

/// A set of named objects.
pub trait Generation: Debug + Send + Sync {
    /// Where it is, for messages.
    fn address(&self) -> &Path;

    /// The names of its objects, in order.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not answer.
    fn list(&self) -> Result<Vec<String>, StoreError>;

    /// The object `name`.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is none, [`StoreError::Irregular`] if something else is there.
    fn get(&self, name: &str) -> Result<Arc<dyn Object>, StoreError>;

    /// The log `name` of what is changed after the generation was published. It need not have begun, and goes when the
    /// generation is replaced or deleted. Drafts have none.
    ///
    /// # Errors
    /// [`StoreError::Unchangeable`] where nothing can be changed.
    fn log(&self, name: &str) -> Result<Arc<dyn Log>, StoreError> {
        Err(StoreError::Unchangeable { path: self.address().join(name) })
    }

    /// What its objects have been asked for so far, through this value, where each request is counted and may be paid for.
    /// `None` of a store that is here.
    fn traffic(&self) -> Option<Arc<Traffic>> {
        None
    }
}

/// Bytes beside the objects of a generation that grow, by one writer at a time.
pub trait Log: Debug + Send + Sync {
    /// Where it is, for messages.
    fn address(&self) -> &Path;

    /// Its bytes from `from` on, as far as they are written at this moment; the last of them may be half of what a writer is
    /// about to append. None where it has not begun, or is shorter.
    ///
    /// # Errors
    /// [`StoreError::Memory`] if the system has not so much; [`StoreError`].
    fn read(&self, from: u64) -> Result<Vec<u8>, StoreError>;

    /// Becomes its only writer, in whatever process, until the value is dropped. A file system without locks cannot say
    /// whether there is another one.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if another one writes.
    fn write(&self) -> Result<Box<dyn LogWriter>, StoreError>;
}

/// The one that may append to a log.
pub trait LogWriter: Debug + Send + Sync {
    /// Puts `parts`, one after the other, behind the first `at` bytes, in the place of whatever is there. When this returns they are as
    /// durable as `durability` says, and with [`Durability::Disk`] so is all that is before them.
    ///
    /// # Errors
    /// [`StoreError::Replaced`] if another generation has taken the place of this one: nobody will read what was appended.
    /// [`StoreError`]; what of them was written is unknown then, and the next append puts it right.
    fn append(&mut self, at: u64, parts: &[&[u8]], durability: Durability) -> Result<(), StoreError>;

    /// Makes all that is in the log as durable as [`Durability::Disk`] says, whoever appended it.
    ///
    /// # Errors
    /// As [`LogWriter::append`].
    fn sync(&mut self) -> Result<(), StoreError>;
}

/// Told how many of how many bytes of long work are done; `false` ends it.
pub type Attend<'a> = dyn Fn(u64, u64) -> bool + Sync + 'a;

/// A generation under construction, which nobody else sees. Its objects may still change.
///
/// Dropped before it was published it is removed.
pub trait Draft: Generation {
    /// Continues the object `name` after its first `from` bytes, or begins it; what lies beyond is dropped.
    ///
    /// # Errors
    /// [`StoreError::Short`] if there are fewer bytes.
    fn append(&self, name: &str, from: u64) -> Result<Box<dyn Append>, StoreError>;

    /// Puts `bytes` under `name`, in the place of what is there or new, at once. When this returns they outlive the
    /// machine, and so does every object that was synced before.
    ///
    /// # Errors
    /// [`StoreError`]; what was there is there then.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError>;

    /// Removes an object; nothing happens if there is none.
    ///
    /// # Errors
    /// [`StoreError`].
    fn delete(&self, name: &str) -> Result<(), StoreError>;

    /// The note of a draft whose writer was killed while he published it: all that is left to do is
    /// [`Draft::publish`].
    fn sealed(&self) -> Option<&str>;

    /// Takes over the objects `names` of another generation, byte for byte, as if they had been appended here and synced; an
    /// object that was taken over in part before the process was killed is continued. `attend` as for [`Draft::upload`].
    /// Returns the CRC-32C of each.
    ///
    /// # Errors
    /// [`StoreError::Cancelled`]; [`StoreError`].
    fn adopt(
        &self,
        from: &dyn Generation,
        names: &[&str],
        attend: &Attend<'_>,
    ) -> Result<Vec<u32>, StoreError>;

    /// Brings the objects `names`, all of which were synced and do not change any more, to where they will be published from,
    /// so that this can be attended: `attend` is told how many of how many bytes are there, and ends it with `false`. From
    /// then on all that is left to do is [`Draft::publish`], with `note`, which a later process finds. Nothing to do for a
    /// store that is here.
    ///
    /// # Errors
    /// [`StoreError::Cancelled`]; [`StoreError`]. What is there already is not brought again.
    fn upload(&self, _names: &[&str], _note: &str, _attend: &Attend<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    /// Makes the draft what stands under its name, with the objects `names` and no others, all of which were synced.
    /// Whenever the process or the machine fails, the name leads to what it led to before or to all of this.
    /// `note` is what a later process recognises the draft by if this one is killed meanwhile.
    ///
    /// # Errors
    /// [`StoreError`]; what stood under the name stands there then, or the draft does and may not outlive the machine.
    fn publish(self: Box<Self>, names: &[&str], note: &str) -> Result<(), StoreError>;

    /// Leaves the draft as it is, for [`Store::abandoned`] to find.
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
    /// [`StoreError`]; what of them was written is unknown then.
    fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError>;

    /// Returns when what was appended outlives the machine, the object's name perhaps excepted: that does as soon as
    /// [`Draft::replace`] or [`Draft::publish`] has returned.
    ///
    /// # Errors
    /// [`StoreError`].
    fn sync(&self) -> Result<(), StoreError>;
}

/// Where the bytes of an object lie, for readers that can do better than to copy ranges.
#[derive(Debug)]
pub enum Backing {
    /// In a file of this system.
    File(File),
    /// In memory.
    Memory(Arc<[u8]>),
    /// In parts, unit after unit in turn.
    Parts(Parts),
    /// Somewhere that only its store can reach.
    Elsewhere,
}

/// Bytes that do not change.
pub trait Object: Debug + Send + Sync {
    /// Where it is, for messages, and for tiers that load files themselves if its [`Backing`] is one.
    fn address(&self) -> &Path;

    /// Its length in bytes when it was opened.
    fn len(&self) -> u64;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that are best read at once by one who wants all of them: where each read takes a while, many.
    fn piece_bytes(&self) -> usize {
        256 << 10
    }

    /// Reads as many bytes as `out` has from `offset` on.
    ///
    /// # Errors
    /// [`StoreError::Short`] if not all of them lie within the object.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError>;

    /// Where its bytes lie.
    ///
    /// # Errors
    /// [`StoreError`].
    fn backing(&self) -> Result<Backing, StoreError>;

    /// Its bytes as a tier that queries read; `options` are for files.
    ///
    /// # Errors
    /// [`StoreError`].
    fn tier(&self, options: FileOptions) -> Result<Arc<dyn Tier>, StoreError>;

    /// The same for changing its bytes where they lie, of the very generation that it was opened in: a tier that is
    /// [writable](Tier::writable).
    ///
    /// # Errors
    /// [`StoreError::Unchangeable`] where nothing is changed but through drafts; [`StoreError::Replaced`] if another generation
    /// stands under the name now; [`StoreError`].
    fn changeable(&self) -> Result<Arc<dyn Tier>, StoreError> {
        Err(StoreError::Unchangeable { path: self.address().to_path_buf() })
    }
}
