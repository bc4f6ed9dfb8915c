//! Errors of the library as the exceptions that a Python user expects.

use bathyal_gpu::GpuError;
use bathyal_index::IndexError;
use bathyal_store::StoreError;
use bathyal_tier::{ReadError, TierError};
use bathyal_vectors::VectorError;
use bathyal_vectors::groundtruth::GroundTruthError;
use pyo3::PyErr;
use pyo3::exceptions::{
    PyBlockingIOError, PyException, PyFileExistsError, PyFileNotFoundError, PyKeyboardInterrupt,
    PyMemoryError, PyOSError, PyTimeoutError, PyValueError,
};
use std::io;
use std::path::Path;

pyo3::create_exception!(
    bathyal,
    Error,
    PyException,
    "What only Bathyal can get wrong: a path that is no index, an index of a later version, a defect."
);
pyo3::create_exception!(
    bathyal,
    DamagedIndexError,
    Error,
    "The bytes of an index are not those that were written; nothing was answered from them."
);

/// An error of the library on its way to Python.
pub(crate) struct Failure(PyErr);

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        failure.0
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Failure {
        Failure(error)
    }
}

impl From<IndexError> for Failure {
    fn from(error: IndexError) -> Failure {
        let message = error.to_string();
        Failure(match error {
            IndexError::Vectors(error) => return error.into(),
            IndexError::Tier(error) => tier(&error, message),
            IndexError::Store(error) => store(&error, message),
            IndexError::Read { source, .. } => read(&source, message),
            IndexError::Damaged { .. } => DamagedIndexError::new_err(message),
            // Of an address it was found that something is there.
            IndexError::NotAnIndex { path, .. } if !is_address(&path) && !path.exists() => {
                PyFileNotFoundError::new_err(message)
            }
            IndexError::NotAnIndex { .. }
            | IndexError::LaterVersion { .. }
            | IndexError::Internal(_)
            | IndexError::Forked { .. } => Error::new_err(message),
            IndexError::WithoutCard { source, .. } if is_memory(&source) => PyMemoryError::new_err(message),
            IndexError::WithoutCard { .. } => PyOSError::new_err(message),
            IndexError::Gpu(GpuError::Memory { .. }) => PyMemoryError::new_err(message),
            IndexError::Gpu(GpuError::Unsuited(_)) => PyValueError::new_err(message),
            IndexError::Gpu(_) => PyOSError::new_err(message),
            IndexError::Exists { .. } => PyFileExistsError::new_err(message),
            IndexError::Memory { .. } | IndexError::NoMemory { .. } => PyMemoryError::new_err(message),
            IndexError::Cancelled => PyKeyboardInterrupt::new_err(message),
            IndexError::Deadline => PyTimeoutError::new_err(message),
            // Whatever else there is was wrong before any work began.
            _ => PyValueError::new_err(message),
        })
    }
}

impl From<VectorError> for Failure {
    fn from(error: VectorError) -> Failure {
        let message = error.to_string();
        Failure(match error {
            VectorError::Io { source, .. } => system(&source, message),
            VectorError::Changed { .. } => PyOSError::new_err(message),
            VectorError::Cancelled => PyKeyboardInterrupt::new_err(message),
            _ => PyValueError::new_err(message),
        })
    }
}

impl From<GroundTruthError> for Failure {
    fn from(error: GroundTruthError) -> Failure {
        let message = error.to_string();
        Failure(match error {
            GroundTruthError::Vectors(error) => return error.into(),
            GroundTruthError::Cancelled => PyKeyboardInterrupt::new_err(message),
            GroundTruthError::Screen(error) => match error.downcast::<GpuError>() {
                Ok(error) => return IndexError::from(*error).into(),
                Err(_) => Error::new_err(message),
            },
            _ => PyValueError::new_err(message),
        })
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Failure {
        Failure(Error::new_err(format!("internal error: {error}; please report it")))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        IndexError::from(error).into()
    }
}

/// Whether a path leads to a store that is elsewhere.
fn is_address(path: &Path) -> bool {
    path.to_string_lossy().contains("://")
}

/// Whether an error is that there is too little memory.
fn is_memory(error: &IndexError) -> bool {
    matches!(error, IndexError::Memory { .. } | IndexError::NoMemory { .. })
}

fn tier(error: &TierError, message: String) -> PyErr {
    match error {
        TierError::Io { source, .. } | TierError::System { source, .. } => system(source, message),
        TierError::Contract(_) => Error::new_err(message),
        TierError::Lost { .. } => PyOSError::new_err(message),
        _ => PyValueError::new_err(message),
    }
}

fn store(error: &StoreError, message: String) -> PyErr {
    match error {
        StoreError::Io { source, .. } => system(source, message),
        StoreError::Missing { .. } | StoreError::PartMissing { .. } => PyFileNotFoundError::new_err(message),
        StoreError::Exists { .. } => PyFileExistsError::new_err(message),
        StoreError::Memory { .. } => PyMemoryError::new_err(message),
        StoreError::Short { .. }
        | StoreError::Irregular { .. }
        | StoreError::Part { .. }
        | StoreError::Changed { .. } => DamagedIndexError::new_err(message),
        StoreError::Busy { .. } => PyBlockingIOError::new_err(message),
        StoreError::Irreplaceable { .. } | StoreError::Replaced { .. } | StoreError::Remote { .. } => {
            PyOSError::new_err(message)
        }
        StoreError::Tier(error) => tier(error, message),
        _ => PyValueError::new_err(message),
    }
}

fn read(error: &ReadError, message: String) -> PyErr {
    match error {
        ReadError::Device { errno: 0, .. } => PyOSError::new_err(message),
        ReadError::Device { errno, .. } => PyOSError::new_err((*errno, message)),
        ReadError::Budget { .. } => PyMemoryError::new_err(message),
        // Bytes that are missing, or an address that leads outside the file.
        _ => DamagedIndexError::new_err(message),
    }
}

/// `OSError(errno, message)` makes itself the subclass that belongs to the number.
fn system(error: &io::Error, message: String) -> PyErr {
    match error.raw_os_error() {
        Some(errno) => PyOSError::new_err((errno, message)),
        None => io::Error::new(error.kind(), message).into(),
    }
}
