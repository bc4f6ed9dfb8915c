//! The errors of an index. Each text states what is wrong and what to do.

use bathyal_gpu::GpuError;
use bathyal_kernels::quantize::QuantizeError;
use bathyal_store::StoreError;
use bathyal_store::size::{at_least, at_most};
use bathyal_tier::{ReadError, RunError, TierError};
use bathyal_vectors::VectorError;
use std::path::PathBuf;
use std::sync::Arc;

/// An error of building, opening or searching an index.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// A file of vectors or ids is invalid.
    #[error(transparent)]
    Vectors(#[from] VectorError),
    /// A file or device of the index could not be used.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// A graphics card failed.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// A graphics card cannot search the index, and neither can the processor, which was to replace it.
    #[error(
        "the graphics card cannot be used ({card}), and this processor cannot go on without it: {source}"
    )]
    WithoutCard {
        /// The error of the card.
        card: String,
        /// The error of the processor.
        source: Arc<IndexError>,
    },
    /// The store of the index failed.
    #[error(transparent)]
    Store(StoreError),
    /// A read of a query failed.
    #[error("{}: {source}", file.display())]
    Read {
        /// The file that was read.
        file: PathBuf,
        /// The error of the read.
        source: ReadError,
    },
    /// The bytes were read and are wrong: no answer is computed from them.
    #[error("{}: damaged at {place}: {reason}; run `bathyal verify` and restore the index from a copy or \
             rebuild it", file.display())]
    Damaged {
        /// The damaged file.
        file: PathBuf,
        /// The place in the file.
        place: String,
        /// The difference between the found and the expected content.
        reason: String,
    },
    /// There is no index at the path.
    #[error("{}: is not a Bathyal index: {reason}", path.display())]
    NotAnIndex {
        /// The given path.
        path: PathBuf,
        /// A sentence that states what is missing.
        reason: String,
    },
    /// The index was written by a later version of Bathyal.
    #[error("{}: the index has format version {found}, this Bathyal reads up to {known}; upgrade Bathyal or \
             rebuild the index with this version", path.display())]
    LaterVersion {
        /// The given path.
        path: PathBuf,
        /// The version of the index.
        found: u32,
        /// The latest version that this program reads.
        known: u32,
    },
    /// Something else exists at the path of a new index.
    #[error("{}: already exists; choose another path, or, if it is an index, replace it with --overwrite \
             (overwrite=True)", path.display())]
    Exists {
        /// The given path.
        path: PathBuf,
    },
    /// The memory budget is not enough.
    #[error(
        "{what} needs {needed} bytes ({}) of memory, but only {given} bytes ({}) are allowed; {advice}",
        at_least(*needed),
        at_most(*given)
    )]
    Memory {
        /// The work that needs the memory.
        what: &'static str,
        /// Bytes needed.
        needed: u64,
        /// Bytes allowed.
        given: u64,
        /// The advice for these vectors and options: each measure that it names helps.
        advice: String,
    },
    /// The system refused to allocate memory.
    #[error("the system has no {bytes} bytes ({}) of memory for {what}; close other programs, use a machine \
             with more memory, or give the build a memory budget, which families that divide the data \
             keep", at_least(*bytes))]
    NoMemory {
        /// The data that needs the memory.
        what: &'static str,
        /// Bytes of the refused allocation.
        bytes: u64,
    },
    /// A parameter is invalid, or does not fit this index.
    #[error("{0}")]
    Parameter(String),
    /// Vectors that cannot be normalised.
    #[error(
        "cosine distance needs a direction, but {count} vectors are all zeros; the first are rows {rows:?}: \
         remove them or choose the metric l2 or ip"
    )]
    ZeroVectors {
        /// Number of such vectors.
        count: u64,
        /// The rows of the first of them.
        rows: Vec<u64>,
    },
    /// The codes could not be trained or read.
    #[error("vector codes: {0}")]
    Codes(#[from] QuantizeError),
    /// The caller cancelled the work.
    #[error("cancelled")]
    Cancelled,
    /// The deadline has passed.
    #[error("the deadline passed before all queries were answered")]
    Deadline,
    /// The process that opened the index was forked, and this is the child process.
    #[error("{}: was opened by process {opened_by}, and this is its child process {here}, which does not \
             have the index's search threads: open the index again in the child, or start the child without \
             fork", path.display())]
    Forked {
        /// The path of the index.
        path: PathBuf,
        /// The process that opened it.
        opened_by: u32,
        /// This process.
        here: u32,
    },
    /// A defect of Bathyal itself.
    #[error("internal error: {0}; please report it")]
    Internal(String),
}

impl From<RunError> for IndexError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Cancelled => IndexError::Cancelled,
            RunError::Deadline => IndexError::Deadline,
            RunError::Tier(e) => IndexError::Tier(e),
            RunError::Stalled => IndexError::Internal(error.to_string()),
        }
    }
}

impl From<StoreError> for IndexError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Exists { path } => IndexError::Exists { path },
            StoreError::NoGeneration { path, reason } => IndexError::NotAnIndex { path, reason },
            StoreError::Tier(error) => IndexError::Tier(error),
            StoreError::Cancelled => IndexError::Cancelled,
            StoreError::Address(what) => IndexError::Parameter(what),
            error => IndexError::Store(error),
        }
    }
}

impl IndexError {
    /// Creates [`IndexError::Damaged`].
    pub(crate) fn damaged(
        file: impl Into<PathBuf>,
        place: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        IndexError::Damaged { file: file.into(), place: place.into(), reason: reason.into() }
    }
}
/// The system refused to allocate memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system has no {bytes} bytes of memory for {what}")]
pub struct NoMemory {
    /// The data that needs the memory.
    pub what: &'static str,
    /// Bytes of the refused allocation.
    pub bytes: u64,
}

impl From<NoMemory> for IndexError {
    fn from(NoMemory { what, bytes }: NoMemory) -> IndexError {
        IndexError::NoMemory { what, bytes }
    }
}

/// An error of loading a file into memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The content is invalid, as this sentence states.
    #[error("{0}")]
    Damaged(String),
    /// There is not enough memory.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
}

impl From<String> for Unreadable {
    fn from(reason: String) -> Unreadable {
        Unreadable::Damaged(reason)
    }
}

impl From<&str> for Unreadable {
    fn from(reason: &str) -> Unreadable {
        Unreadable::Damaged(reason.into())
    }
}

impl Unreadable {
    /// Returns the error for the file at `path`; `place` names its content.
    pub(crate) fn at(self, path: impl Into<PathBuf>, place: impl Into<String>) -> IndexError {
        match self {
            Unreadable::Damaged(reason) => IndexError::damaged(path, place, reason),
            Unreadable::NoMemory(refused) => refused.into(),
        }
    }
}
