//! The folder of the indexes that several tests read and no test changes.

use std::path::Path;
use std::sync::{Mutex, OnceLock};
use tempfile::TempDir;

/// The folder, which is removed when the program ends.
static FOLDER: Mutex<Option<TempDir>> = Mutex::new(None);

/// Returns the folder of indexes that are built once. It is removed when the program ends.
pub fn folder() -> &'static Path {
    static PATH: OnceLock<Box<Path>> = OnceLock::new();
    PATH.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().into();
        *FOLDER.lock().unwrap() = Some(folder);
        // SAFETY: `remove` is a function of this program and does not unwind.
        assert_eq!(unsafe { libc::atexit(remove) }, 0);
        path
    })
}

/// Removes the folder. Statics are not dropped when a program ends.
extern "C" fn remove() {
    if let Ok(mut folder) = FOLDER.lock() {
        drop(folder.take());
    }
}
