//! Runs of the command, and indexes over small generated files.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

pub use crate::program::{Outcome, fbin, names, numbers, write_vectors};

/// Vectors of the shared index.
pub const VECTORS: usize = 400;
/// The dim of all shared vectors.
pub const DIM: usize = 12;
/// Queries of the shared files.
pub const QUERIES: usize = 25;

/// Returns the command, to run in `folder` with `arguments`.
pub fn command<S: AsRef<OsStr>>(folder: &Path, arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bathyal"));
    command.current_dir(folder).args(arguments);
    command
}

/// Runs the command with `arguments`, split at spaces, in `folder`.
pub fn bathyal(folder: &Path, arguments: &str) -> Outcome {
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    Outcome::of(command(folder, &arguments).output().expect("the command starts"))
}

/// The indexes of the shared folder: one of the family `cluster`, one of `graph`.
pub const INDEXES: [&str; 2] = ["idx", "graph.idx"];

/// Returns a folder with `base.fbin`, `queries.fbin`, `gt.ibin` (k = 20), `idx` (of the default family) and
/// `graph.idx`, which is created once. Tests must not change it.
pub fn shared() -> &'static Path {
    static SHARED: OnceLock<TempDir> = OnceLock::new();
    // Statics are not dropped, so the folder is removed at the end of the process.
    extern "C" fn remove() {
        let _ = SHARED.get().map(|folder| std::fs::remove_dir_all(folder.path()));
    }
    SHARED
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            write_vectors(folder.path(), "base.fbin", VECTORS, DIM, 1);
            write_vectors(folder.path(), "queries.fbin", QUERIES, DIM, 2);
            bathyal(folder.path(), "groundtruth base.fbin queries.fbin gt.ibin -k 20").good();
            bathyal(folder.path(), "build base.fbin idx --metric l2").good();
            let graph =
                "build base.fbin graph.idx --family graph --metric l2 --max-degree 16 --search-list 40";
            bathyal(folder.path(), graph).good();
            // SAFETY: the function takes nothing and cannot panic.
            assert_eq!(unsafe { libc::atexit(remove) }, 0);
            folder
        })
        .path()
}

/// Returns a new folder with a copy of everything in [`shared`].
pub fn copy() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["base.fbin", "queries.fbin", "gt.ibin"] {
        std::fs::copy(shared().join(name), folder.path().join(name)).unwrap();
    }
    for index in INDEXES {
        std::fs::create_dir(folder.path().join(index)).unwrap();
        for file in index_files(&shared().join(index)) {
            let target = folder.path().join(index).join(file.file_name().unwrap());
            std::fs::copy(&file, target).unwrap();
        }
    }
    folder
}

/// Returns the files of an index, in the order of their names.
pub fn index_files(index: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = index.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 4, "{files:?}");
    files
}
