//! Errors of stores, each with what to do about it.

use bathyal_tier::TierError;
use std::io;
use std::path::PathBuf;

/// Error codes of a sector that cannot be read: `EIO` on Unix; a data error and a read fault on Windows.
#[cfg(unix)]
const UNREADABLE_SECTOR_CODES: [i32; 1] = [5];
#[cfg(not(unix))]
const UNREADABLE_SECTOR_CODES: [i32; 2] = [23, 30];

/// The reason why an operation of a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system refused an operation.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb ("open", "write").
        operation: &'static str,
        /// The path of the operation.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Nothing has this name.
    #[error("{}: there is no such {what}", path.display())]
    Missing {
        /// The kind of entry: a file, an index.
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
    /// The existing entry of this name cannot be replaced.
    #[error("{}: cannot be replaced: {reason}", path.display())]
    Irreplaceable {
        /// The name.
        path: PathBuf,
        /// The reason, and what to do.
        reason: String,
    },
    /// The entry of this name is no generation.
    #[error("{}: {reason}", path.display())]
    NoGeneration {
        /// The name.
        path: PathBuf,
        /// The kind of entry it is, or what it lacks.
        reason: String,
    },
    /// An entry that should be a file or a folder is something else.
    #[error("{}: {reason}", path.display())]
    Irregular {
        /// The name.
        path: PathBuf,
        /// The kind of entry it is.
        reason: String,
    },
    /// A read goes beyond the end of an object.
    #[error(
        "{}: cannot read {wanted} bytes from offset {offset} on, as it has only {len} bytes: it was cut, or \
         it is another file; restore it from a copy or build it again",
        path.display()
    )]
    Short {
        /// The object.
        path: PathBuf,
        /// The offset of the first byte of the read.
        offset: u64,
        /// The length of the read in bytes.
        wanted: u64,
        /// The length of the object in bytes.
        len: u64,
    },
    /// A part of a striped object is not what it should be.
    #[error("{}: {reason}", path.display())]
    Part {
        /// The part.
        path: PathBuf,
        /// The problem, and what to do.
        reason: String,
    },
    /// A part of a striped object is not where it should be.
    #[error("{}: {reason}", path.display())]
    PartMissing {
        /// The path where it should be.
        path: PathBuf,
        /// The number of the part, and what to do.
        reason: String,
    },
    /// The given folders or units cannot be used for striping.
    #[error("stripe: {reason}")]
    Striping {
        /// The problem, and what to do.
        reason: String,
    },
    /// The system cannot allocate the memory to load an object.
    #[error(
        "{}: the system has not enough memory to load it: {bytes} bytes ({:.0} MB); close other programs or \
         use a machine with more memory",
        path.display(), *bytes as f64 / 1e6
    )]
    Memory {
        /// The object.
        path: PathBuf,
        /// The requested bytes.
        bytes: u64,
    },
    /// A name that no object can have.
    #[error(
        "'{name}' cannot be the name of an object: names contain no slashes, do not begin with a dot, and \
         are not reserved by the store"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The generation was replaced by another one while it was open.
    #[error("{}: another build has just replaced it; open it again", path.display())]
    Replaced {
        /// The path that it had.
        path: PathBuf,
    },
    /// The log of changes has another writer.
    #[error(
        "{}: is being changed by another writer; wait until it is done, or change the index there",
        path.display()
    )]
    Busy {
        /// The log.
        path: PathBuf,
    },
    /// The entry accepts no changes.
    #[error("{}: it accepts no changes", path.display())]
    Unchangeable {
        /// The log or object that was to be changed.
        path: PathBuf,
    },
    /// An operation of a remote store failed.
    #[error("cannot {operation} {}: {reason}", path.display())]
    Remote {
        /// The operation, as a verb.
        operation: &'static str,
        /// The path of the operation.
        path: PathBuf,
        /// The reason that the store gives, and what to do; without credentials.
        reason: String,
    },
    /// A remote store denies access. It did not do the operation, but an earlier attempt of the same
    /// operation, whose response was lost, may have been done.
    #[error("cannot {operation} {}: access is denied: {reason}", path.display())]
    Denied {
        /// The operation, as a verb.
        operation: &'static str,
        /// The path of the operation.
        path: PathBuf,
        /// The store's message, and what to do; without credentials.
        reason: String,
    },
    /// The bytes of an object were overwritten after they were first read.
    #[error(
        "{}: the object was overwritten after it was first read, and old and new bytes are never mixed in an \
         answer; restore it, or open the index again",
        path.display()
    )]
    Changed {
        /// The object.
        path: PathBuf,
    },
    /// An address that names no store, or invalid options.
    #[error("{0}")]
    Address(String),
    /// The caller cancelled the operation.
    #[error("cancelled")]
    Cancelled,
    /// The tier over the bytes could not be opened.
    #[error(transparent)]
    Tier(#[from] TierError),
}

impl StoreError {
    /// Makes an error for an operation that the system refused.
    pub fn io(operation: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        StoreError::Io { operation, path: path.into(), source }
    }

    /// Returns true if a remote store refused or did not respond. Data that was uploaded so far can then be
    /// used by a later attempt.
    pub fn is_remote(&self) -> bool {
        matches!(self, StoreError::Remote { .. } | StoreError::Denied { .. })
    }

    /// Appends `more` to the reason of a [remote](Self::is_remote) error; returns other errors
    /// unchanged.
    #[must_use]
    pub fn with_advice(mut self, more: &str) -> Self {
        if let StoreError::Remote { reason, .. } | StoreError::Denied { reason, .. } = &mut self {
            reason.push_str(more);
        }
        self
    }

    /// Returns true if bytes are missing, are different or cannot be read from the disk, so a retry is of no
    /// use.
    pub fn is_loss(&self) -> bool {
        match self {
            StoreError::Io { source, .. } => {
                source.raw_os_error().is_some_and(|code| UNREADABLE_SECTOR_CODES.contains(&code))
            }
            StoreError::Missing { .. }
            | StoreError::NoGeneration { .. }
            | StoreError::Irregular { .. }
            | StoreError::Short { .. }
            | StoreError::Changed { .. } => true,
            _ => false,
        }
    }
}
