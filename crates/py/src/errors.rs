//! Conversion of the library's errors to Python exceptions.

use arrow_schema::ArrowError;
use bathyal_collection::CollectionError;
use bathyal_gpu::GpuError;
use bathyal_index::IndexError;
use bathyal_store::StoreError;
use bathyal_tier::{FaultKind, ReadError, TierError};
use bathyal_vectors::VectorError;
use bathyal_vectors::groundtruth::GroundTruthError;
use pyo3::exceptions::{
    PyException, PyKeyboardInterrupt, PyMemoryError, PyOSError, PyTimeoutError, PyValueError,
};
use pyo3::prelude::*;
use std::io;
use std::path::Path;

pyo3::create_exception!(
    bathyal,
    Error,
    PyException,
    "An error of Bathyal itself: a path without an index, an index of a later version, a defect."
);
pyo3::create_exception!(
    bathyal,
    DamagedIndexError,
    Error,
    "The bytes of an index are not those that were written; nothing was answered from them."
);

pyo3::create_exception!(
    bathyal,
    DuplicateIdError,
    PyValueError,
    "Rows to be added have ids that exist already, or the same id twice; nothing was written."
);

/// Phrases in messages of the library that name the command or its options, and their replacements in Python.
///
/// A longer phrase precedes its own beginning.
const IN_PYTHON: &[(&str, &str)] = &[
    ("replace it with --overwrite (overwrite=True)", "replace it with overwrite=True"),
    ("so --overwrite will not delete it", "so overwrite=True will not delete it"),
    ("--stripe (stripe=)", "stripe="),
    ("leave --tier gpu (tier) out", "leave tier='gpu' out"),
    ("--tier gpu", "tier='gpu'"),
    ("leave --device gpu (device) out", "leave device out"),
    ("leave --device gpu out", "leave device out"),
    ("leave --device out", "leave device out"),
    ("--device gpu (device)", "device='gpu'"),
    ("--device gpu", "device='gpu'"),
    ("leave --delay (delay) out", "leave delay out"),
    ("mini_batch (--mini-batch)", "mini_batch"),
    ("--keep-uncertain (keep_uncertain)", "keep_uncertain=True"),
    ("tables (--tables)", "tables"),
    ("--code-bytes", "code_bytes"),
    ("--in-flight", "in_flight"),
    ("lower -k or", "lower k or"),
    (
        "run `bathyal collection verify` to see what else is, and restore the collection from a copy, or \
         save what is whole with `bathyal collection repair`",
        "call verify() of the collection, which says what is damaged, and restore it from a copy, or save \
         what is whole with bathyal.Collection.repair()",
    ),
    ("create one with `bathyal collection create`", "create one with bathyal.Collection.create()"),
    ("run `bathyal verify`", "call bathyal.verify()"),
    ("write a copy in the layout ", "write a copy with bathyal.convert_layout() in the layout "),
    ("(`bathyal compact`)", "with bathyal.compact()"),
    ("make one with `bathyal calibrate`", "make one with Index.calibrate()"),
    ("(`bathyal copy`)", "with bathyal.copy()"),
    ("(`bathyal copy INDEX remote://HOST:PORT/NAME`)", "with bathyal.copy(index, 'remote://HOST:PORT/NAME')"),
    ("with `bathyal convert-stripes`", "with bathyal.convert_stripes()"),
    ("with `bathyal convert`", "with bathyal.convert(), or arrays with astype()"),
    ("run `bathyal groundtruth` with -k ", "call bathyal.groundtruth() with k="),
    ("run `bathyal groundtruth`", "call bathyal.groundtruth()"),
    ("`bathyal groundtruth` writes it", "bathyal.write_ids() writes it"),
];

/// Returns a message of the library with the phrases for Python.
fn in_python(message: String) -> String {
    let replaced = |message: String, (typed, called): &(&str, &str)| match message.contains(typed) {
        true => message.replace(typed, called),
        false => message,
    };
    IN_PYTHON.iter().fold(message, replaced)
}

/// Returns a message of the library as the exceptions of this module contain it.
#[pyfunction]
pub(crate) fn message_in_python(message: String) -> String {
    in_python(message)
}

/// An error of the library, converted to an exception.
pub(crate) struct Failure(PyErr);

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        failure.0
    }
}

impl Failure {
    /// The error if the path of an index is a collection.
    pub(crate) fn is_collection(path: &Path) -> Failure {
        let path = path.display();
        Failure(Error::new_err(format!(
            "{path}: is a collection, not an index; open it with bathyal.Collection.open()"
        )))
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Failure {
        Failure(error)
    }
}

impl From<IndexError> for Failure {
    fn from(error: IndexError) -> Failure {
        let message = in_python(error.to_string());
        Failure(match error {
            IndexError::Vectors(error) => return error.into(),
            IndexError::Tier(error) => tier(&error, message),
            IndexError::Store(error) => store(&error, message),
            IndexError::Read { file, source } => read(&source, message, &file),
            IndexError::Damaged { .. } => DamagedIndexError::new_err(message),
            // For an address, opening has found that something exists there.
            IndexError::NotAnIndex { path, .. } if !is_address(&path) && !path.exists() => {
                let message = "the path does not exist; check it".into();
                of_file(libc::ENOENT, message, &path)
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
            IndexError::Exists { path } => of_file(libc::EEXIST, message, &path),
            IndexError::Memory { .. } | IndexError::NoMemory { .. } => PyMemoryError::new_err(message),
            IndexError::Cancelled => PyKeyboardInterrupt::new_err(message),
            IndexError::Deadline => PyTimeoutError::new_err(message),
            // All other errors are bad arguments, found before any work began.
            _ => PyValueError::new_err(message),
        })
    }
}

impl From<CollectionError> for Failure {
    fn from(error: CollectionError) -> Failure {
        let message = in_python(error.to_string());
        Failure(match error {
            CollectionError::Store(error) => return error.into(),
            CollectionError::Index(error) => return error.into(),
            CollectionError::Vectors(error) => return error.into(),
            CollectionError::Imported { source, .. } => return imported(*source, message),
            CollectionError::File { .. } => PyValueError::new_err(message),
            CollectionError::Duplicate { .. } => DuplicateIdError::new_err(message),
            CollectionError::NotACollection { path, .. } if is_address(&path) || !path.exists() => {
                let message =
                    "there is no collection; check the path, or create one with bathyal.Collection.create()"
                        .into();
                of_file(libc::ENOENT, message, &path)
            }
            CollectionError::NotACollection { .. }
            | CollectionError::LaterVersion { .. }
            | CollectionError::Internal(_) => Error::new_err(message),
            CollectionError::Exists { path } => of_file(libc::EEXIST, message, &path),
            CollectionError::Busy { path } => of_file(libc::EAGAIN, message, &path),
            CollectionError::Fenced { path } | CollectionError::NotWritten { path, .. } => {
                of_file(libc::EIO, message, &path)
            }
            CollectionError::Damaged { .. } | CollectionError::Parquet { .. } => {
                DamagedIndexError::new_err(message)
            }
            CollectionError::Memory { .. } => PyMemoryError::new_err(message),
            CollectionError::Cancelled => PyKeyboardInterrupt::new_err(message),
            CollectionError::Deadline => PyTimeoutError::new_err(message),
            CollectionError::Parameter(_) | CollectionError::Filter(_) | CollectionError::Arrow(_) => {
                PyValueError::new_err(message)
            }
        })
    }
}

/// Returns the error that interrupted an import, with a note of how many rows were written.
fn imported(source: CollectionError, message: String) -> Failure {
    let Failure(error) = source.into();
    Python::attach(|py| {
        // Python 3.11 and later have notes.
        let value = error.value(py);
        let _ = value.call_method1("add_note", (message,));
    });
    Failure(error)
}

impl From<ArrowError> for Failure {
    fn from(error: ArrowError) -> Failure {
        CollectionError::from(error).into()
    }
}

impl From<VectorError> for Failure {
    fn from(error: VectorError) -> Failure {
        let message = in_python(error.to_string());
        Failure(match error {
            VectorError::Io { path, action, source } => {
                let doing = format!("cannot {action}");
                system(&source, message, Some((&path, &doing)))
            }
            VectorError::Changed { path, .. } => of_file(libc::EIO, message, &path),
            VectorError::Cancelled => PyKeyboardInterrupt::new_err(message),
            _ => PyValueError::new_err(message),
        })
    }
}

impl From<GroundTruthError> for Failure {
    fn from(error: GroundTruthError) -> Failure {
        let message = in_python(error.to_string());
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

/// Returns true if a path is an address of a store.
fn is_address(path: &Path) -> bool {
    path.to_string_lossy().contains("://")
}

/// Returns true if an error is a lack of memory.
fn is_memory(error: &IndexError) -> bool {
    matches!(error, IndexError::Memory { .. } | IndexError::NoMemory { .. })
}

fn tier(error: &TierError, message: String) -> PyErr {
    match error {
        TierError::Io { source, path, operation } => {
            system(source, message, Some((path, &format!("cannot {operation}"))))
        }
        TierError::System { source, .. } => system(source, message, None),
        TierError::Contract(_) => Error::new_err(message),
        TierError::Lost { .. } => PyOSError::new_err(message),
        _ => PyValueError::new_err(message),
    }
}

fn store(error: &StoreError, message: String) -> PyErr {
    match error {
        StoreError::Io { source, path, operation } => {
            system(source, message, Some((path, &format!("cannot {operation}"))))
        }
        StoreError::Missing { path, .. } | StoreError::PartMissing { path, .. } => {
            of_file(libc::ENOENT, message, path)
        }
        StoreError::Exists { path } => of_file(libc::EEXIST, message, path),
        StoreError::Memory { .. } => PyMemoryError::new_err(message),
        StoreError::Short { .. }
        | StoreError::Irregular { .. }
        | StoreError::Part { .. }
        | StoreError::Changed { .. } => DamagedIndexError::new_err(message),
        StoreError::Busy { path } => of_file(libc::EAGAIN, message, path),
        StoreError::Irreplaceable { path, .. } => of_file(libc::EEXIST, message, path),
        StoreError::Replaced { path } => of_file(libc::EIO, message, path),
        StoreError::Remote { .. } => PyOSError::new_err(message),
        StoreError::Denied { path, .. } => of_file(libc::EACCES, message, path),
        StoreError::Tier(error) => tier(error, message),
        _ => PyValueError::new_err(message),
    }
}

fn read(error: &ReadError, message: String, file: &Path) -> PyErr {
    match error {
        ReadError::Device { kind: FaultKind::Denied, .. } => of_file(libc::EACCES, message, file),
        ReadError::Device { errno: 0, .. } => PyOSError::new_err(message),
        ReadError::Device { errno, .. } => of_file(*errno, message, file),
        ReadError::Budget { .. } => PyMemoryError::new_err(message),
        // Bytes are missing, or an address is outside the file.
        _ => DamagedIndexError::new_err(message),
    }
}

/// Returns `OSError(errno, message, filename)`, which Python turns into the subclass of that number. Its text
/// contains the file name, so the message must not.
fn of_file(errno: i32, message: String, path: &Path) -> PyErr {
    let named = format!("{}: ", path.display());
    let words = message.strip_prefix(&named).map_or_else(|| message.clone(), str::to_owned);
    PyOSError::new_err((errno, words, path.as_os_str().to_owned()))
}

/// Converts a failed system call; `file` is the path and the phrase for the operation, if known.
fn system(error: &io::Error, message: String, file: Option<(&Path, &str)>) -> PyErr {
    let Some(errno) = error.raw_os_error() else { return io::Error::new(error.kind(), message).into() };
    let Some((path, doing)) = file else { return PyOSError::new_err((errno, message)) };
    // `OSError` prints the number itself.
    let why = error.to_string();
    let why = why.strip_suffix(&format!(" (os error {errno})")).unwrap_or(&why);
    let words = format!("{doing}: {why}");
    if cfg!(windows) {
        // The number is a Windows error code, which Python converts to an errno, ignoring the first argument.
        return PyOSError::new_err((0, words, path.as_os_str().to_owned(), errno));
    }
    of_file(errno, words, path)
}
