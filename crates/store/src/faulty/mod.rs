//! Disks for tests: one that fails at a chosen operation, and one that loses power.
//!
//! [`Faults`] wraps any [`Disk`]: it counts the operations that change something, and at a chosen one it
//! kills the process, refuses the operation, or runs out of space. [`SimulatedDisk`] is a disk in memory that
//! records what was synced, and loses or reorders the rest on a power failure. With a local store on both,
//! tests run a build through every fault.

mod simulated_disk;

pub use simulated_disk::SimulatedDisk;

use crate::disk::{Disk, DiskFile, Locked, Stat};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A fault to inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// The process is killed: half of a write is done, and all later operations fail.
    Kill,
    /// This operation alone fails, with this error number of the system.
    Once(i32),
    /// This operation and all later ones that need space fail.
    Full,
    /// This operation and the next fail: for example, one that fails and one that would undo it.
    Twice(i32),
}

#[derive(Debug, Default)]
struct FaultyState {
    operations: usize,
    /// The fault, and the number of the operation to inject it at.
    fault: Option<(usize, DiskFault)>,
    /// A description of the operation that failed, once the fault was injected.
    failed_operation: Option<String>,
    is_killed: bool,
    is_full: bool,
    short_writes: bool,
    no_exchange: bool,
}

/// The effect of the injected faults on an operation.
enum Verdict {
    Do,
    DoHalf,
    Refuse(io::Error),
}

/// A disk with injected faults. Clones share its state.
#[derive(Debug, Clone)]
pub struct Faults {
    disk: Arc<dyn Disk>,
    state: Arc<Mutex<FaultyState>>,
}

fn killed() -> io::Error {
    io::Error::other("the process was killed")
}

impl Faults {
    /// Wraps `disk`, without faults at first.
    pub fn new(disk: Arc<dyn Disk>) -> Faults {
        Faults { disk, state: Arc::default() }
    }

    /// Makes every write write only half of its bytes, rounded up.
    #[must_use]
    pub fn with_short_writes(self) -> Faults {
        self.state().short_writes = true;
        self
    }

    /// Makes exchanges of names unsupported, as on network file systems.
    #[must_use]
    pub fn without_exchange(self) -> Faults {
        self.state().no_exchange = true;
        self
    }

    /// Injects `fault` at operation number `number`, counted from 0 from now on.
    pub fn inject(&self, number: usize, fault: DiskFault) {
        let mut state = self.state();
        (state.operations, state.fault, state.failed_operation) = (0, Some((number, fault)), None);
        (state.is_killed, state.is_full) = (false, false);
    }

    /// Ends all faults, as if a new process started on the disk that the old one left.
    pub fn clear(&self) {
        let mut state = self.state();
        (state.fault, state.failed_operation) = (None, None);
        (state.is_killed, state.is_full) = (false, false);
    }

    /// Returns a description of the operation that the fault was injected at; `None` if it was not reached.
    pub fn injected(&self) -> Option<String> {
        self.state().failed_operation.clone()
    }

    fn state(&self) -> MutexGuard<'_, FaultyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an operation that changes something, and decides what it does.
    fn count_operation(&self, what: &str, path: Option<&Path>, takes_space: bool) -> Verdict {
        let mut state = self.state();
        if state.is_killed {
            return Verdict::Refuse(killed());
        }
        let number = state.operations;
        state.operations += 1;
        let Some((at, fault)) = state.fault else { return Verdict::Do };
        if number == at {
            let path = path.map_or(String::new(), |path| path.display().to_string());
            state.failed_operation = Some(format!("operation {at}, {what} {path}: {fault:?}"));
            match fault {
                DiskFault::Once(errno) | DiskFault::Twice(errno) => {
                    return Verdict::Refuse(io::Error::from_raw_os_error(errno));
                }
                DiskFault::Full => state.is_full = true,
                DiskFault::Kill => {
                    state.is_killed = true;
                    return if what == "write" { Verdict::DoHalf } else { Verdict::Refuse(killed()) };
                }
            }
        }
        if let DiskFault::Twice(errno) = fault
            && number == at + 1
        {
            return Verdict::Refuse(io::Error::from_raw_os_error(errno));
        }
        if state.is_full && takes_space {
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
        match self.count_operation(what, Some(path), takes_space) {
            Verdict::Do => change(),
            Verdict::DoHalf => Err(killed()),
            Verdict::Refuse(error) => Err(error),
        }
    }

    fn unless_killed<T>(&self, operation: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.state().is_killed { Err(killed()) } else { operation() }
    }

    fn wrap(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(FaultyFile { file, faults: self.clone() })
    }
}

impl Disk for Faults {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.unless_killed(|| self.disk.stat(path))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.unless_killed(|| self.disk.list(folder))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.unless_killed(|| self.disk.open(path)).map(|file| self.wrap(file))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.change("create", path, true, || self.disk.create(path)).map(|file| self.wrap(file))
    }

    fn lock(&self, path: &Path, create: bool) -> io::Result<Locked> {
        let lock = || self.disk.lock(path, create);
        let locked = if create { self.change("create", path, true, lock) } else { self.unless_killed(lock) };
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

    fn rename_no_replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change("rename without replacing to", to, false, || self.disk.rename_no_replace(from, to))
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

/// A file of a disk with injected faults.
#[derive(Debug)]
struct FaultyFile {
    file: Arc<dyn DiskFile>,
    faults: Faults,
}

impl DiskFile for FaultyFile {
    fn length(&self) -> io::Result<u64> {
        self.faults.unless_killed(|| self.file.length())
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.faults.unless_killed(|| self.file.read_at(out, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        match self.faults.count_operation("write", None, true) {
            Verdict::Do if self.faults.state().short_writes => {
                self.file.write_at(&bytes[..bytes.len().div_ceil(2)], offset)
            }
            Verdict::Do => self.file.write_at(bytes, offset),
            Verdict::DoHalf => {
                let _ = self.file.write_at(&bytes[..bytes.len() / 2], offset);
                Err(killed())
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
        self.faults.unless_killed(|| self.file.identity())
    }

    fn file(&self) -> Option<&File> {
        self.file.file()
    }
}
