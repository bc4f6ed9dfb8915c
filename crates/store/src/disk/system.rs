//! The disk of this machine.

use super::{Disk, DiskFile, Kind, Locked, Stat};
use bathyal_tier::backend::file::open_regular;
use std::ffi::CString;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// The file system of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemDisk;

/// The folder that an empty path stands for.
fn here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Renames with the system's `flags`; [`io::ErrorKind::Unsupported`] where it knows none of them.
#[cfg(target_os = "linux")]
fn rename_with(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let (from, to) = (c_string(from)?, c_string(to)?);
    // By its number: the C library of old systems has no function of that name.
    // SAFETY: both names are C strings that live until the call has returned.
    let done = unsafe {
        libc::syscall(libc::SYS_renameat2, libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags)
    };
    if done == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // What an old kernel, and what a file system without the flag says.
        Some(libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP) => {
            Err(io::Error::new(io::ErrorKind::Unsupported, error))
        }
        _ => Err(error),
    }
}

/// Renames with the system's `flags`; [`io::ErrorKind::Unsupported`] where the file system knows none of them.
#[cfg(target_os = "macos")]
fn rename_with(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let (from, to) = (c_string(from)?, c_string(to)?);
    // SAFETY: both names are C strings that live until the call has returned.
    if unsafe { libc::renamex_np(from.as_ptr(), to.as_ptr(), flags) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOTSUP | libc::EINVAL) => Err(io::Error::new(io::ErrorKind::Unsupported, error)),
        _ => Err(error),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn rename_with(_: &Path, _: &Path, _: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
const NO_REPLACE: u32 = libc::RENAME_NOREPLACE;
#[cfg(target_os = "linux")]
const EXCHANGE: u32 = libc::RENAME_EXCHANGE;
#[cfg(target_os = "macos")]
const NO_REPLACE: u32 = libc::RENAME_EXCL;
#[cfg(target_os = "macos")]
const EXCHANGE: u32 = libc::RENAME_SWAP;
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
const NO_REPLACE: u32 = 1;
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
const EXCHANGE: u32 = 2;

impl Disk for SystemDisk {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let found = here(path).metadata()?;
        let kind = match found.file_type() {
            kind if kind.is_file() => Kind::File,
            kind if kind.is_dir() => Kind::Folder,
            _ => Kind::Other,
        };
        Ok(Stat { kind, len: found.len(), identity: (found.dev(), found.ino()) })
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in here(folder).read_dir()? {
            names.extend(entry?.file_name().into_string());
        }
        names.sort();
        Ok(names)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(SystemFile(open_regular(path, File::options().read(true), 0)?)))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = File::options();
        options.read(true).write(true).create(true);
        Ok(Arc::new(SystemFile(open_regular(path, &options, 0)?)))
    }

    fn lock(&self, path: &Path, create: bool) -> io::Result<Locked> {
        let file = open_regular(path, File::options().write(true).create(create), 0)?;
        let tried = file.try_lock();
        let file = Arc::new(SystemFile(file));
        Ok(match tried {
            Ok(()) => Locked::Held(file),
            Err(TryLockError::WouldBlock) => Locked::Busy,
            Err(TryLockError::Error(_)) => Locked::Unknown(file),
        })
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn rename_aside(&self, from: &Path, to: &Path) -> io::Result<()> {
        match rename_with(from, to, NO_REPLACE) {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                // A folder that is not empty is never replaced, so at worst an empty one is that appears right now.
                if to.symlink_metadata().is_ok() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                std::fs::rename(from, to)
            }
            done => done,
        }
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        rename_with(one, other, EXCHANGE)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(here(path))?.sync_all()
    }

    fn may_change(&self, folder: &Path) -> bool {
        let Ok(folder) = c_string(here(folder)) else { return false };
        // SAFETY: the name is a C string that lives until the call has returned.
        unsafe { libc::access(folder.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
    }
}

/// A file of this machine.
#[derive(Debug)]
struct SystemFile(File);

impl DiskFile for SystemFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(out, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        let found = self.0.metadata()?;
        Ok((found.dev(), found.ino()))
    }

    fn file(&self) -> Option<&File> {
        Some(&self.0)
    }
}
