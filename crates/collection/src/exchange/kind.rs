//! What a file of rows is, by the ending of its name.

use crate::catch_panic::catch_panic;
use crate::error::CollectionError;
use bathyal_vectors::{FileFormat, VectorError};
use std::fs::File;
use std::path::Path;

/// The endings that are understood, for messages.
const ENDINGS: &str = ".parquet .arrow .feather .arrows .jsonl, and of vectors alone .fbin .f16bin .bf16bin .u8bin .i8bin .b1bin .fvecs .bvecs .npy";

/// What a file of rows is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKind {
    Parquet,
    /// Arrow IPC; when it is written, as a stream or as a file.
    Arrow {
        stream: bool,
    },
    JsonLines,
    /// Vectors and nothing else.
    Vectors,
}

impl FileKind {
    /// What the name of `path` says.
    pub(super) fn of(path: &Path) -> Result<FileKind, CollectionError> {
        let found = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        Ok(match found.as_deref().unwrap_or_default() {
            "parquet" | "pq" => FileKind::Parquet,
            "arrow" | "feather" | "ipc" => FileKind::Arrow { stream: false },
            "arrows" => FileKind::Arrow { stream: true },
            "jsonl" | "ndjson" => FileKind::JsonLines,
            other if FileFormat::of(path).is_ok() || matches!(other, "ibin" | "ivecs") => {
                // Says of ids that they are no vectors.
                FileFormat::of(path)?;
                FileKind::Vectors
            }
            other => {
                return Err(CollectionError::Parameter(format!(
                    "{}: there is no way to read or write rows in files that end in {other:?}; there is {ENDINGS}",
                    path.display()
                )));
            }
        })
    }
}

/// What is wrong with the file at `path`.
pub(super) fn bad(path: &Path, reason: impl std::fmt::Display) -> CollectionError {
    CollectionError::File { path: path.to_path_buf(), reason: reason.to_string() }
}

/// What the system says against reading or writing the file at `path`.
pub(super) fn refused(path: &Path, action: &'static str) -> impl Fn(std::io::Error) -> CollectionError {
    move |source| CollectionError::Vectors(VectorError::Io { path: path.to_path_buf(), action, source })
}

/// What `read` reads of the file at `path` by a library that panics at some damaged files.
pub(super) fn guarded<T>(
    path: &Path,
    read: impl FnOnce() -> Result<T, CollectionError>,
) -> Result<T, CollectionError> {
    catch_panic(read).unwrap_or_else(|| Err(bad(path, "is damaged, or no file of this kind")))
}

/// Opens a file to read it.
pub(super) fn open(path: &Path) -> Result<File, CollectionError> {
    let found = std::fs::metadata(path).map_err(refused(path, "find the file"))?;
    if found.is_dir() {
        return Err(bad(path, "is a folder; give a file of rows"));
    }
    File::open(path).map_err(refused(path, "open the file"))
}
