//! What can go wrong with a store, said so that the reader knows what to do.

use bathyal_tier::TierError;
use std::io;
use std::path::PathBuf;

/// What systems say of a sector that cannot be read: `EIO`; of Windows the data error and the read fault.
#[cfg(unix)]
const LOST: [i32; 1] = [5];
#[cfg(not(unix))]
const LOST: [i32; 2] = [23, 30];

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system refused an operation.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was being done, as a verb ("open", "write").
        operation: &'static str,
        /// What it was done to.
        path: PathBuf,
        /// The system's own reason.
        source: io::Error,
    },
    /// Nothing has this name.
    #[error("{}: there is no such {what}", path.display())]
    Missing {
        /// What was looked for: an object, an index.
        what: &'static str,
        /// Its name.
        path: PathBuf,
    },
    /// Something has this name already.
    #[error("{}: already exists", path.display())]
    Exists {
        /// The name.
        path: PathBuf,
    },
    /// What has this name cannot be replaced.
    #[error("{}: cannot be replaced: {reason}", path.display())]
    Irreplaceable {
        /// The name.
        path: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
    /// What has this name is no generation.
    #[error("{}: {reason}", path.display())]
    NoGeneration {
        /// The name.
        path: PathBuf,
        /// What it is, or what is missing.
        reason: String,
    },
    /// What should be a file, or a folder, is something else.
    #[error("{}: {reason}", path.display())]
    Irregular {
        /// The name.
        path: PathBuf,
        /// What it is.
        reason: String,
    },
    /// An object has fewer bytes than were wanted.
    #[error(
        "{}: {wanted} bytes from offset {offset} were wanted, it has {len}: it was cut, or is not the one that was meant; restore it from a copy or build it again",
        path.display()
    )]
    Short {
        /// The object.
        path: PathBuf,
        /// The first byte that was wanted.
        offset: u64,
        /// How many were wanted.
        wanted: u64,
        /// Bytes that there are.
        len: u64,
    },
    /// A part of a striped object is not what it should be.
    #[error("{}: {reason}", path.display())]
    Part {
        /// The part.
        path: PathBuf,
        /// What it is, and what to do.
        reason: String,
    },
    /// A part of a striped object is not where it should be.
    #[error("{}: {reason}", path.display())]
    PartMissing {
        /// Where it should be.
        path: PathBuf,
        /// Which one it is, and what to do.
        reason: String,
    },
    /// Folders that nothing can be striped over.
    #[error("stripe: {reason}")]
    Striping {
        /// What is wrong with them, and what to do.
        reason: String,
    },
    /// The system gives no memory for what was to be loaded.
    #[error("{}: {bytes} bytes ({:.0} MB) of memory cannot be had to load it; close something or use a machine with more", path.display(), *bytes as f64 / 1e6)]
    Memory {
        /// The object.
        path: PathBuf,
        /// Bytes asked for.
        bytes: u64,
    },
    /// A name that no object can have.
    #[error(
        "'{name}' cannot be the name of an object: names have no slashes, do not begin with a dot, and are none that the \
         store uses itself"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The generation was replaced by another one while it was read.
    #[error("{}: another build replaced it in this moment; open it again", path.display())]
    Replaced {
        /// Where it was.
        path: PathBuf,
    },
    /// Another writer has the log of changes.
    #[error("{}: is being changed by another writer; wait until it is done, or change the index there", path.display())]
    Busy {
        /// The log.
        path: PathBuf,
    },
    /// What is here has no log of changes.
    #[error("{}: nothing can be changed here", path.display())]
    Unchangeable {
        /// The log that was asked for.
        path: PathBuf,
    },
    /// A store that is elsewhere did not do what it was asked.
    #[error("cannot {operation} {}: {reason}", path.display())]
    Remote {
        /// What was being done, as a verb.
        operation: &'static str,
        /// What it was done to.
        path: PathBuf,
        /// Why not, as the store says, and what to do; without credentials.
        reason: String,
    },
    /// A store that is elsewhere does not let this caller do what it was asked. It did not do it; only what an earlier try of the same
    /// asked, whose answer was lost, may have been done.
    #[error("cannot {operation} {}: access is denied: {reason}", path.display())]
    Denied {
        /// What was being done, as a verb.
        operation: &'static str,
        /// What it was done to.
        path: PathBuf,
        /// What the store says, and what to do; without credentials.
        reason: String,
    },
    /// The bytes under the name of an object are no longer those that were there before.
    #[error(
        "{}: is not the object any more that was read before: something wrote over it; nothing is answered from a mixture: restore it, or open the index again",
        path.display()
    )]
    Changed {
        /// The object.
        path: PathBuf,
    },
    /// An address that leads to no store, or options that none takes.
    #[error("{0}")]
    Address(String),
    /// The caller asked for an end.
    #[error("cancelled")]
    Cancelled,
    /// The bytes could not be made a tier.
    #[error(transparent)]
    Tier(#[from] TierError),
}

impl StoreError {
    /// Shorthand for a refused operation.
    pub fn io(operation: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        StoreError::Io { operation, path: path.into(), source }
    }

    /// Whether a store that is elsewhere says it, or does not answer: what was brought there so far may be gone on with later.
    pub fn is_of_elsewhere(&self) -> bool {
        matches!(self, StoreError::Remote { .. } | StoreError::Denied { .. })
    }

    /// The same with `more` behind its reason, if it [is of elsewhere](Self::is_of_elsewhere).
    #[must_use]
    pub fn and(mut self, more: &str) -> Self {
        if let StoreError::Remote { reason, .. } | StoreError::Denied { reason, .. } = &mut self {
            reason.push_str(more);
        }
        self
    }

    /// Whether it says that bytes are not there, are others, or cannot be read from the disk, so that trying again is of no use.
    pub fn is_loss(&self) -> bool {
        match self {
            StoreError::Io { source, .. } => source.raw_os_error().is_some_and(|code| LOST.contains(&code)),
            StoreError::Missing { .. }
            | StoreError::NoGeneration { .. }
            | StoreError::Irregular { .. }
            | StoreError::Short { .. }
            | StoreError::Changed { .. } => true,
            _ => false,
        }
    }
}
