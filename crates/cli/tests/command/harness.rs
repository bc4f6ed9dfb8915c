//! Small generated files, indexes over them, and runs of the command.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

/// Vectors of the shared index.
pub const VECTORS: usize = 400;
/// The dim of all shared vectors.
pub const DIM: usize = 12;
/// Queries of the shared files.
pub const QUERIES: usize = 25;

/// The outcome of a run of the command.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    pub fn of(output: Output) -> Outcome {
        let text = |bytes| String::from_utf8(bytes).expect("the command prints UTF-8");
        Outcome { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Checks for exit code 0 and an empty stderr; returns stdout.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        self.stdout
    }

    /// Checks for exit code 0 and exactly one JSON object on stdout; returns the object.
    #[track_caller]
    pub fn json(self) -> Value {
        let stdout = self.good();
        let value: Value = serde_json::from_str(&stdout).expect("stdout is one JSON value");
        assert!(value.is_object());
        value
    }

    /// Checks for the exit code `code`, at most the error object of `--json` on stdout, and a message on
    /// stderr that contains all `parts` and is not a panic.
    #[track_caller]
    pub fn fails(self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        if !self.stdout.is_empty() {
            let report: Value = serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("{self:?}"));
            assert_eq!(report["error"]["exit_code"], code, "{self:?}");
        }
        self.mentions(parts);
    }

    /// Checks for a message on stderr that contains all `parts` and is not a panic.
    #[track_caller]
    pub fn mentions(&self, parts: &[&str]) {
        for part in parts {
            assert!(self.stderr.contains(part), "'{part}' is missing in: {}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        assert!(!self.stderr.contains("internal error"), "{}", self.stderr);
    }
}

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

/// Returns `count` pseudo-random numbers from -1 to 1, the same in every run.
pub fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Returns the bytes of an `.fbin` with `count` and `dim` in its header, whatever the number of `values`.
pub fn fbin(count: u32, dim: u32, values: &[f32]) -> Vec<u8> {
    let header = [count, dim].into_iter().flat_map(u32::to_le_bytes);
    header.chain(values.iter().flat_map(|value| value.to_le_bytes())).collect()
}

/// Writes `count x dim` numbers to `folder/name`.
pub fn write_vectors(folder: &Path, name: &str, count: usize, dim: usize, seed: u64) {
    let content = fbin(count as u32, dim as u32, &numbers(count * dim, seed));
    std::fs::write(folder.join(name), content).unwrap();
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

/// Returns the names in `folder`, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
