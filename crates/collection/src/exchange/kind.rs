//! The format of a file of rows, by the ending of its name.

use crate::catch_panic::catch_panic;
use crate::error::CollectionError;
use bathyal_vectors::{FileFormat, VectorError};
use std::fs::File;
use std::path::Path;

/// The supported endings, for messages.
const ENDINGS: &str = ".parquet .arrow .feather .arrows .jsonl, and of vectors alone .fbin .f16bin .bf16bin \
                       .u8bin .i8bin .b1bin .fvecs .bvecs .npy";

/// Format of a file of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKind {
    Parquet,
    /// Arrow IPC. `stream` applies only to writing: a stream instead of a file.
    Arrow {
        stream: bool,
    },
    JsonLines,
    /// Only vectors.
    Vectors,
}

impl FileKind {
    /// Returns the format for the name of `path`.
    pub(super) fn from_path(path: &Path) -> Result<FileKind, CollectionError> {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        Ok(match ending.as_deref().unwrap_or_default() {
            "parquet" | "pq" => FileKind::Parquet,
            "arrow" | "feather" | "ipc" => FileKind::Arrow { stream: false },
            "arrows" => FileKind::Arrow { stream: true },
            "jsonl" | "ndjson" => FileKind::JsonLines,
            other if FileFormat::from_path(path).is_ok() || matches!(other, "ibin" | "ivecs") => {
                // Fails for files of ids, which hold no vectors.
                FileFormat::from_path(path)?;
                FileKind::Vectors
            }
            other => {
                return Err(CollectionError::Parameter(format!(
                    "{}: rows cannot be read from or written to files that end in {other:?}; the supported \
                     endings are {ENDINGS}",
                    path.display()
                )));
            }
        })
    }
}

/// Returns an error about the file at `path`.
pub(super) fn file_error(path: &Path, reason: impl std::fmt::Display) -> CollectionError {
    CollectionError::File { path: path.to_path_buf(), reason: reason.to_string() }
}

/// Returns a function that converts errors of the system, from reading or writing the file at `path`.
pub(super) fn io_error(path: &Path, action: &'static str) -> impl Fn(std::io::Error) -> CollectionError {
    move |source| CollectionError::Vectors(VectorError::Io { path: path.to_path_buf(), action, source })
}

/// Runs `read`, which reads the file at `path` with a library that panics on some damaged files.
pub(super) fn catch_panics<T>(
    path: &Path,
    read: impl FnOnce() -> Result<T, CollectionError>,
) -> Result<T, CollectionError> {
    catch_panic(read)
        .unwrap_or_else(|| Err(file_error(path, "is damaged, or not of the format that its ending says")))
}

/// Opens a file for reading.
pub(super) fn open(path: &Path) -> Result<File, CollectionError> {
    let metadata = std::fs::metadata(path).map_err(io_error(path, "find the file"))?;
    if metadata.is_dir() {
        return Err(file_error(path, "is a folder; give a file of rows"));
    }
    File::open(path).map_err(io_error(path, "open the file"))
}
