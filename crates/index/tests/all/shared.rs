//! A folder for what several tests read and none of them changes.

use std::path::Path;
use std::sync::{Mutex, OnceLock};
use tempfile::TempDir;

/// The folder, until the program ends.
static FOLDER: Mutex<Option<TempDir>> = Mutex::new(None);

/// A folder for indexes that are built once. It is removed when the program ends.
pub fn folder() -> &'static Path {
    static PATH: OnceLock<Box<Path>> = OnceLock::new();
    PATH.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().into();
        *FOLDER.lock().unwrap() = Some(folder);
        // SAFETY: `remove` is a function that lives as long as the program, and does not unwind.
        assert_eq!(unsafe { libc::atexit(remove) }, 0);
        path
    })
}

/// Removes the folder: nothing drops a static.
extern "C" fn remove() {
    if let Ok(mut folder) = FOLDER.lock() {
        drop(folder.take());
    }
}

/// Copies the files of an index, for a test that changes them.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in from.read_dir().unwrap().map(|entry| entry.unwrap()) {
        let name = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &name),
            false => drop(std::fs::copy(entry.path(), name).unwrap()),
        }
    }
}
