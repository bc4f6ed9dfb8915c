//! A disk that fails when a test says so, and one that loses power.
//!
//! [`Faults`] stands before any [`Disk`]: it counts the operations that change something, and from a chosen one on it
//! kills the process, refuses one operation, or has no space left. [`Platter`] is a disk in memory that knows what was
//! synced, and forgets or reorders the rest when power is lost. A local store on both of them is what a build meets on a
//! bad day, and every day of it can be tried.

mod platter;

pub use platter::Platter;

use crate::disk::{Disk, DiskFile, Locked, Stat};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The process is killed: of a write one half is done, and nothing is done from then on.
    Kill,
    /// This operation is refused with the system's error number, and no other one.
    Once(i32),
    /// No operation that takes space works from here on.
    Full,
    /// This operation and the next are refused: what fails, and what would have made up for it.
    Twice(i32),
}

#[derive(Debug, Default)]
struct State {
    operations: usize,
    /// The fault, and the number of the operation that it strikes at.
    fault: Option<(usize, Fault)>,
    /// The operation that it struck at, in words.
    struck: Option<String>,
    dead: bool,
    full: bool,
    short_writes: bool,
    no_exchange: bool,
}

/// What an operation is allowed to do.
enum Verdict {
    Do,
    DoHalf,
    Refuse(io::Error),
}

/// A disk with faults. Clones share them.
#[derive(Debug, Clone)]
pub struct Faults {
    disk: Arc<dyn Disk>,
    state: Arc<Mutex<State>>,
}

fn dead() -> io::Error {
    io::Error::other("the process was killed")
}

impl Faults {
    /// A disk that works like `disk`, until told otherwise.
    pub fn new(disk: Arc<dyn Disk>) -> Faults {
        Faults { disk, state: Arc::default() }
    }

    /// Lets every write do less than it was asked.
    #[must_use]
    pub fn with_short_writes(self) -> Faults {
        self.state().short_writes = true;
        self
    }

    /// Lets no names be exchanged, as on network file systems.
    #[must_use]
    pub fn without_exchange(self) -> Faults {
        self.state().no_exchange = true;
        self
    }

    /// Lets `fault` strike at the operation `number`, counted from 0 from now on.
    pub fn strike(&self, number: usize, fault: Fault) {
        let mut state = self.state();
        (state.operations, state.fault, state.struck) = (0, Some((number, fault)), None);
        (state.dead, state.full) = (false, false);
    }

    /// Ends all faults: a new process, on the disk as the old one left it.
    pub fn heal(&self) {
        let mut state = self.state();
        (state.fault, state.struck) = (None, None);
        (state.dead, state.full) = (false, false);
    }

    /// The operation that the fault struck at, in words; `None` if it has not.
    pub fn struck(&self) -> Option<String> {
        self.state().struck.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an operation that changes something.
    fn judge(&self, what: &str, path: Option<&Path>, takes_space: bool) -> Verdict {
        let mut state = self.state();
        if state.dead {
            return Verdict::Refuse(dead());
        }
        let number = state.operations;
        state.operations += 1;
        let Some((at, fault)) = state.fault else { return Verdict::Do };
        if number == at {
            let path = path.map_or(String::new(), |path| path.display().to_string());
            state.struck = Some(format!("operation {at}, {what} {path}: {fault:?}"));
            match fault {
                Fault::Once(errno) | Fault::Twice(errno) => {
                    return Verdict::Refuse(io::Error::from_raw_os_error(errno));
                }
                Fault::Full => state.full = true,
                Fault::Kill => {
                    state.dead = true;
                    return if what == "write" { Verdict::DoHalf } else { Verdict::Refuse(dead()) };
                }
            }
        }
        if let Fault::Twice(errno) = fault
            && number == at + 1
        {
            return Verdict::Refuse(io::Error::from_raw_os_error(errno));
        }
        if state.full && takes_space {
            return Verdict::Refuse(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        Verdict::Do
    }

    fn change<T>(
        &self,
        what: &str,
        path: &Path,
        takes_space: bool,
        change: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        match self.judge(what, Some(path), takes_space) {
            Verdict::Do => change(),
            Verdict::DoHalf => Err(dead()),
            Verdict::Refuse(error) => Err(error),
        }
    }

    fn look<T>(&self, look: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.state().dead { Err(dead()) } else { look() }
    }

    fn wrap(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(FaultyFile { file, faults: self.clone() })
    }
}

impl Disk for Faults {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.look(|| self.disk.stat(path))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.look(|| self.disk.list(folder))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.look(|| self.disk.open(path)).map(|file| self.wrap(file))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.change("create", path, true, || self.disk.create(path)).map(|file| self.wrap(file))
    }

    fn lock(&self, path: &Path, create: bool) -> io::Result<Locked> {
        let lock = || self.disk.lock(path, create);
        let locked = if create { self.change("create", path, true, lock) } else { self.look(lock) };
        Ok(match locked? {
            Locked::Held(file) => Locked::Held(self.wrap(file)),
            Locked::Unknown(file) => Locked::Unknown(self.wrap(file)),
            Locked::Busy => Locked::Busy,
        })
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.change("create the folder", path, true, || self.disk.create_folder(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change("rename to", to, false, || self.disk.rename(from, to))
    }

    fn rename_aside(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change("rename aside to", to, false, || self.disk.rename_aside(from, to))
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        if self.state().no_exchange {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.change("exchange with", other, false, || self.disk.exchange(one, other))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change("remove", path, false, || self.disk.remove_file(path))
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.change("remove the folder", path, false, || self.disk.remove_folder(path))
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.change("sync the folder", path, false, || self.disk.sync_folder(path))
    }

    fn may_change(&self, folder: &Path) -> bool {
        self.disk.may_change(folder)
    }
}

/// A file of a disk with faults.
#[derive(Debug)]
struct FaultyFile {
    file: Arc<dyn DiskFile>,
    faults: Faults,
}

impl DiskFile for FaultyFile {
    fn length(&self) -> io::Result<u64> {
        self.faults.look(|| self.file.length())
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.faults.look(|| self.file.read_at(out, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        match self.faults.judge("write", None, true) {
            Verdict::Do if self.faults.state().short_writes => {
                self.file.write_at(&bytes[..bytes.len().div_ceil(2)], offset)
            }
            Verdict::Do => self.file.write_at(bytes, offset),
            Verdict::DoHalf => {
                let _ = self.file.write_at(&bytes[..bytes.len() / 2], offset);
                Err(dead())
            }
            Verdict::Refuse(error) => Err(error),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.faults.change("set the length", Path::new(""), false, || self.file.set_len(len))
    }

    fn sync(&self) -> io::Result<()> {
        self.faults.change("sync", Path::new(""), true, || self.file.sync())
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        self.faults.look(|| self.file.identity())
    }

    fn file(&self) -> Option<&File> {
        self.file.file()
    }
}
