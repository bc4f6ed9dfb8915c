//! What can go wrong with a collection, said so that the reader knows what to do.

use arrow_schema::ArrowError;
use bathyal_index::IndexError;
use bathyal_store::StoreError;
use bathyal_store::size::{at_least, at_most};
use bathyal_vectors::VectorError;
use parquet::errors::ParquetError;
use std::path::{Path, PathBuf};

/// Why a collection could not be created, opened, changed or searched.
#[derive(Debug, thiserror::Error)]
pub enum CollectionError {
    /// An argument makes no sense, or not with this collection.
    #[error("{0}")]
    Parameter(String),
    /// Rows that are to be added have ids that are there, or the same id twice.
    #[error("{}: {count} of the ids {what}: {}; nothing was written{advice}", path.display(), first.join(", "))]
    Duplicate {
        /// The collection.
        path: PathBuf,
        /// How many.
        count: usize,
        /// Whether they are there already, or twice among the rows.
        what: &'static str,
        /// Some of them.
        first: Vec<String>,
        /// What to do.
        advice: &'static str,
    },
    /// The path leads to no collection.
    #[error("{}: is not a collection: {reason}", path.display())]
    NotACollection {
        /// The path given.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// Something is already where the collection should go.
    #[error("{}: already exists; open it, or choose another path", path.display())]
    Exists {
        /// The path given.
        path: PathBuf,
    },
    /// The collection was written by a later version of Bathyal.
    #[error("{}: the collection has format version {found}, this Bathyal reads up to {known}; upgrade Bathyal", path.display())]
    LaterVersion {
        /// The path given.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The latest version that this program reads.
        known: u32,
    },
    /// Another one writes to the collection.
    #[error("{}: another process, or another handle of this one, writes to this collection; only one may at a time", path.display())]
    Busy {
        /// The collection.
        path: PathBuf,
    },
    /// Another one has taken over the writing.
    #[error("{}: another process has taken over writing to this collection; what was acknowledged here is kept, what was not may be there or not. Open it again to write", path.display())]
    Fenced {
        /// The collection.
        path: PathBuf,
    },
    /// What was to be written could not be, and may be there or not.
    #[error("{}: the write was not acknowledged: {reason}; what was acknowledged before is kept, and this is there whole or not at all", path.display())]
    NotWritten {
        /// The collection.
        path: PathBuf,
        /// What happened.
        reason: String,
    },
    /// What is read is not what was written.
    #[error("{}: damaged at {place}: {reason}; run `bathyal collection verify` to see what else is, and restore the collection from a copy, or save what is whole with `bathyal collection repair`", path.display())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// Where in it.
        place: String,
        /// What was found and what was expected.
        reason: String,
    },
    /// The memory that the caller allows is not enough.
    #[error("{what} needs {needed} bytes ({}) of memory, but only {given} ({}) are allowed; {advice}", at_least(*needed), at_most(*given))]
    Memory {
        /// What was to be done.
        what: &'static str,
        /// Bytes needed.
        needed: u64,
        /// Bytes allowed.
        given: u64,
        /// What to do.
        advice: String,
    },
    /// A filter that cannot be understood.
    #[error("{0}")]
    Filter(String),
    /// Where the collection is kept did not do what it was asked.
    #[error(transparent)]
    Store(StoreError),
    /// An index of the collection could not be built, opened or searched.
    #[error(transparent)]
    Index(IndexError),
    /// Vectors are not what they should be.
    #[error(transparent)]
    Vectors(#[from] VectorError),
    /// Columns could not be computed with.
    #[error("columns: {0}")]
    Arrow(#[from] ArrowError),
    /// A file of columns could not be read or written.
    #[error("{}: {source}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: ParquetError,
    },
    /// A file of rows is not what it should be.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was found, where, and what was expected.
        reason: String,
    },
    /// A file was not written to a collection to its end.
    #[error("{source}; {}", rows_written(path, *.written))]
    Imported {
        /// The file.
        path: PathBuf,
        /// Its first rows, which were written.
        written: u64,
        /// Why no more were.
        source: Box<CollectionError>,
    },
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// The time allowed is over.
    #[error("the deadline passed before the work was done")]
    Deadline,
    /// The program is wrong.
    #[error("this should not happen; please report it: {0}")]
    Internal(String),
}

/// Says how much of the file `path` was written.
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
    /// Bytes at `place` of the file at `path` that are wrong.
    pub(crate) fn damaged(
        path: impl Into<PathBuf>,
        place: impl Into<String>,
        reason: impl Into<String>,
    ) -> CollectionError {
        CollectionError::Damaged { path: path.into(), place: place.into(), reason: reason.into() }
    }
}

impl CollectionError {
    /// Whether it says that what was written is not there, or is something else now, so that trying again is of no use.
    pub(crate) fn is_loss(&self) -> bool {
        match self {
            CollectionError::Damaged { .. } | CollectionError::Arrow(_) => true,
            CollectionError::Store(error) => error.is_loss(),
            CollectionError::Index(error) => bathyal_index::is_loss(error),
            _ => false,
        }
    }

    /// Whether what was to be read has been replaced by something newer.
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
