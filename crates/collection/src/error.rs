//! Errors of collections. Each message says what to do.

use arrow_schema::ArrowError;
use bathyal_index::IndexError;
use bathyal_store::StoreError;
use bathyal_store::size::{at_least, at_most};
use bathyal_vectors::VectorError;
use parquet::errors::ParquetError;
use std::path::{Path, PathBuf};

/// Error of creating, opening, changing or searching a collection.
#[derive(Debug, thiserror::Error)]
pub enum CollectionError {
    /// An argument is invalid, or does not fit this collection.
    #[error("{0}")]
    Parameter(String),
    /// Rows to add have ids that exist already, or the same id occurs twice among them.
    #[error(
        "{}: {count} of the ids {what}: {}; nothing was written{advice}",
        path.display(), first.join(", ")
    )]
    Duplicate {
        /// The collection.
        path: PathBuf,
        /// Number of such ids.
        count: usize,
        /// The problem, as a part of the sentence: the ids exist already, or occur twice.
        what: &'static str,
        /// The first of these ids.
        first: Vec<String>,
        /// Advice to the user.
        advice: &'static str,
    },
    /// No collection is at the path.
    #[error("{}: is not a collection: {reason}", path.display())]
    NotACollection {
        /// The path given.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The new collection's path is taken.
    #[error("{}: already exists; open it, or choose another path", path.display())]
    Exists {
        /// The path given.
        path: PathBuf,
    },
    /// The collection was written by a later version of Bathyal.
    #[error(
        "{}: the collection has format version {found}, this Bathyal reads up to {known}; upgrade Bathyal",
        path.display()
    )]
    LaterVersion {
        /// The path given.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The latest version that this program reads.
        known: u32,
    },
    /// Another writer has the collection open.
    #[error(
        "{}: another process, or another handle in this process, writes to this collection; only one may at \
         a time",
        path.display()
    )]
    Busy {
        /// The collection.
        path: PathBuf,
    },
    /// Another writer has taken over.
    #[error(
        "{}: another process has taken over writing to this collection. Acknowledged writes are kept; a \
         write that was not acknowledged may or may not be there. Open the collection again to write",
        path.display()
    )]
    Fenced {
        /// The collection.
        path: PathBuf,
    },
    /// A write failed; its rows may or may not be stored.
    #[error(
        "{}: the write was not acknowledged: {reason}. Earlier writes that were acknowledged are kept; this \
         one is there whole or not at all",
        path.display()
    )]
    NotWritten {
        /// The collection.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The stored bytes differ from those that were written.
    #[error(
        "{}: damaged at {place}: {reason}; run `bathyal collection verify` to see what else is, and restore \
         the collection from a copy, or save what is whole with `bathyal collection repair`",
        path.display()
    )]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// Where in the file.
        place: String,
        /// The found and the expected value.
        reason: String,
    },
    /// The memory limit is too small.
    #[error(
        "{what} needs {needed} bytes ({}) of memory, but only {given} ({}) are allowed; {advice}",
        at_least(*needed), at_most(*given)
    )]
    Memory {
        /// The work that needs the memory.
        what: &'static str,
        /// Bytes needed.
        needed: u64,
        /// Bytes allowed.
        given: u64,
        /// Advice to the user.
        advice: String,
    },
    /// A filter cannot be parsed.
    #[error("{0}")]
    Filter(String),
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
    /// An index of the collection could not be built, opened or searched.
    #[error(transparent)]
    Index(IndexError),
    /// Vectors are invalid.
    #[error(transparent)]
    Vectors(#[from] VectorError),
    /// A computation on columns failed.
    #[error("columns: {0}")]
    Arrow(#[from] ArrowError),
    /// A file of columns could not be read or written.
    #[error("{}: {source}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: ParquetError,
    },
    /// A file of rows is invalid.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The problem, its position, and the expected value.
        reason: String,
    },
    /// A file was not imported to its end.
    #[error("{source}; {}", rows_written(path, *.written))]
    Imported {
        /// The file.
        path: PathBuf,
        /// Number of its first rows that were written.
        written: u64,
        /// Why the others were not.
        source: Box<CollectionError>,
    },
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// The time allowed is over.
    #[error("the deadline passed before the work was done")]
    Deadline,
    /// A bug in this program.
    #[error("this should not happen; please report it: {0}")]
    Internal(String),
}

/// Describes how much of a file was written.
fn rows_written(path: &Path, rows: u64) -> String {
    let file = match path.to_str() {
        Some("-") => "standard input".into(),
        _ => path.display().to_string(),
    };
    match rows {
        0 => format!("nothing from {file} was written"),
        1 => format!("of {file} the first row was written"),
        rows => format!("of {file} the first {rows} rows were written"),
    }
}

impl CollectionError {
    /// Returns an error for damaged bytes at `place` of the file at `path`.
    pub(crate) fn damaged(
        path: impl Into<PathBuf>,
        place: impl Into<String>,
        reason: impl Into<String>,
    ) -> CollectionError {
        CollectionError::Damaged { path: path.into(), place: place.into(), reason: reason.into() }
    }
}

impl CollectionError {
    /// Returns true if the error means that stored data is missing or damaged. Trying again does not help.
    pub(crate) fn is_loss(&self) -> bool {
        match self {
            CollectionError::Damaged { .. } | CollectionError::Arrow(_) => true,
            CollectionError::Store(error) => error.is_loss(),
            CollectionError::Index(error) => bathyal_index::is_loss(error),
            _ => false,
        }
    }

    /// Returns true if something newer has replaced the object that was to be read.
    pub(crate) fn has_moved(&self) -> bool {
        let moved =
            |error: &StoreError| matches!(error, StoreError::Missing { .. } | StoreError::Replaced { .. });
        match self {
            CollectionError::Store(error) | CollectionError::Index(IndexError::Store(error)) => moved(error),
            _ => false,
        }
    }
}

impl From<StoreError> for CollectionError {
    fn from(error: StoreError) -> CollectionError {
        match error {
            StoreError::Cancelled => CollectionError::Cancelled,
            error => CollectionError::Store(error),
        }
    }
}

impl From<IndexError> for CollectionError {
    fn from(error: IndexError) -> CollectionError {
        match error {
            IndexError::Cancelled => CollectionError::Cancelled,
            IndexError::Deadline => CollectionError::Deadline,
            error => CollectionError::Index(error),
        }
    }
}
