//! What can go wrong with an index, said so that the reader knows what to do.

use bathyal_gpu::GpuError;
use bathyal_kernels::quantize::QuantizeError;
use bathyal_store::StoreError;
use bathyal_store::size::{at_least, at_most};
use bathyal_tier::{ReadError, RunError, TierError};
use bathyal_vectors::VectorError;
use std::path::PathBuf;
use std::sync::Arc;

/// Why an index could not be built, opened or searched.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// A file of vectors or ids is not what it should be.
    #[error(transparent)]
    Vectors(#[from] VectorError),
    /// A file or device of the index could not be used.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// A graphics card does not do what it should.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// A graphics card does not search the index, and neither does the processor, which was to go on.
    #[error("the graphics card is not used ({card}), and this processor cannot go on without it: {source}")]
    WithoutCard {
        /// What the card's error was.
        card: String,
        /// What the processor's is.
        source: Arc<IndexError>,
    },
    /// Where the index is kept did not do what it was asked.
    #[error(transparent)]
    Store(StoreError),
    /// A query's bytes did not arrive.
    #[error("{}: {source}", file.display())]
    Read {
        /// The file that was read.
        file: PathBuf,
        /// What happened.
        source: ReadError,
    },
    /// The bytes arrived and are wrong: nothing is answered from them.
    #[error("{}: damaged at {place}: {reason}; run `bathyal verify` and restore the index from a copy or rebuild it", file.display())]
    Damaged {
        /// The damaged file.
        file: PathBuf,
        /// Where in the file.
        place: String,
        /// What was found and what was expected.
        reason: String,
    },
    /// The path leads to no index.
    #[error("{}: is not a Bathyal index: {reason}", path.display())]
    NotAnIndex {
        /// The path given.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// The index was written by a later version of Bathyal.
    #[error("{}: the index has format version {found}, this Bathyal reads up to {known}; upgrade Bathyal or rebuild the index with this version", path.display())]
    LaterVersion {
        /// The path given.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The latest version that this program reads.
        known: u32,
    },
    /// Something is already where the index should go.
    #[error("{}: already exists; choose another path, or, if it is an index, replace it with --overwrite (overwrite=True)", path.display())]
    Exists {
        /// The path given.
        path: PathBuf,
    },
    /// The memory that the caller allows is not enough.
    #[error("{what} needs {needed} bytes ({}) of memory, but only {given} bytes ({}) are allowed; {advice}", at_least(*needed), at_most(*given))]
    Memory {
        /// What was to be done.
        what: &'static str,
        /// Bytes needed.
        needed: u64,
        /// Bytes allowed.
        given: u64,
        /// What to do, in words: what is named helps with these very vectors and options.
        advice: String,
    },
    /// The system gives no memory for what was to be held at once.
    #[error("{bytes} bytes ({}) of memory cannot be had for {what}; close something, use a machine with more, or give a \
             build a budget of memory, within which families that divide a set do so", at_least(*bytes))]
    NoMemory {
        /// What was to be held.
        what: &'static str,
        /// Bytes asked for at once.
        bytes: u64,
    },
    /// A parameter makes no sense, or not with this index.
    #[error("{0}")]
    Parameter(String),
    /// Vectors that cannot be normalised.
    #[error(
        "cosine distance needs a direction, but {count} vectors are all zeros; the first are rows {rows:?}: remove them or choose the metric l2 or ip"
    )]
    ZeroVectors {
        /// How many there are.
        count: u64,
        /// The first of them.
        rows: Vec<u64>,
    },
    /// The codes could not be trained or read.
    #[error("vector codes: {0}")]
    Codes(#[from] QuantizeError),
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// The time allowed is over.
    #[error("the deadline passed before all queries were answered")]
    Deadline,
    /// The process that opened the index was forked, and this is the child.
    #[error("{}: was opened by process {opened_by}, and this is its child {here}, which has none of the index's search threads: open the index again here, or start the child without fork", path.display())]
    Forked {
        /// The index.
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
    /// Shorthand for damage.
    pub(crate) fn damaged(
        file: impl Into<PathBuf>,
        place: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        IndexError::Damaged { file: file.into(), place: place.into(), reason: reason.into() }
    }
}
/// The system gives no memory for what was to be held at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes of memory cannot be had for {what}")]
pub struct NoMemory {
    /// What was to be held.
    pub what: &'static str,
    /// Bytes asked for at once.
    pub bytes: u64,
}

impl From<NoMemory> for IndexError {
    fn from(NoMemory { what, bytes }: NoMemory) -> IndexError {
        IndexError::NoMemory { what, bytes }
    }
}

/// Why the bytes of a file do not become what searches keep in memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// They say what cannot be: a sentence.
    #[error("{0}")]
    Damaged(String),
    /// It does not fit.
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
    /// The error of the file at `path`, which has `place` in it.
    pub(crate) fn at(self, path: impl Into<PathBuf>, place: impl Into<String>) -> IndexError {
        match self {
            Unreadable::Damaged(reason) => IndexError::damaged(path, place, reason),
            Unreadable::NoMemory(refused) => refused.into(),
        }
    }
}
