//! The file system of this machine.

use super::{Disk, DiskFile, FileKind, Locked, Stat};
use bathyal_tier::backend::file::{open_regular, read_at, write_at};
#[cfg(unix)]
use std::ffi::CString;
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The file system of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemDisk;

/// Returns the path itself, or `.` for the empty path.
fn non_empty(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

#[cfg(unix)]
fn c_string(path: &Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Renames with the flags of `renameat2`; [`io::ErrorKind::Unsupported`] if the kernel or the file system
/// lacks them.
#[cfg(target_os = "linux")]
fn rename_with(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let (from, to) = (c_string(from)?, c_string(to)?);
    // Called by its number, as the C library of old systems has no function for it.
    // SAFETY: both names are C strings that outlive the call.
    let done = unsafe {
        libc::syscall(libc::SYS_renameat2, libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags)
    };
    if done == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // An old kernel returns ENOSYS; a file system without the flag returns EINVAL or EOPNOTSUPP.
        Some(libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP) => {
            Err(io::Error::new(io::ErrorKind::Unsupported, error))
        }
        _ => Err(error),
    }
}

/// Renames with the flags of `renamex_np`; [`io::ErrorKind::Unsupported`] if the file system lacks them.
#[cfg(target_os = "macos")]
fn rename_with(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let (from, to) = (c_string(from)?, c_string(to)?);
    // SAFETY: both names are C strings that outlive the call.
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

/// Returns the unique identity of the entry at `path`, whose metadata are `found`.
#[cfg(unix)]
fn identity_of(_path: &Path, found: &std::fs::Metadata) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Ok((found.dev(), found.ino()))
}

#[cfg(unix)]
fn identity_of_file(file: &File) -> io::Result<(u64, u64)> {
    identity_of(Path::new(""), &file.metadata()?)
}

/// Returns the unique identity of the entry at `path`.
#[cfg(windows)]
fn identity_of(path: &Path, _found: &std::fs::Metadata) -> io::Result<(u64, u64)> {
    use std::os::windows::fs::OpenOptionsExt;
    use windows_sys::Win32::Storage::FileSystem::FILE_FLAG_BACKUP_SEMANTICS;
    // This flag allows folders to be opened. No access is needed to read the identity.
    identity_of_file(&File::options().access_mode(0).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(path)?)
}

#[cfg(windows)]
fn identity_of_file(file: &File) -> io::Result<(u64, u64)> {
    use std::os::windows::io::AsRawHandle;
    use windows_sys::Win32::Storage::FileSystem::{BY_HANDLE_FILE_INFORMATION, GetFileInformationByHandle};
    let mut found = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the handle is open, and the result is a struct of the type that the call fills.
    if unsafe { GetFileInformationByHandle(file.as_raw_handle(), &mut found) } == 0 {
        return Err(io::Error::last_os_error());
    }
    let number = u64::from(found.nFileIndexHigh) << 32 | u64::from(found.nFileIndexLow);
    Ok((found.dwVolumeSerialNumber.into(), number))
}

impl Disk for SystemDisk {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let found = non_empty(path).metadata()?;
        let kind = match found.file_type() {
            kind if kind.is_file() => FileKind::File,
            kind if kind.is_dir() => FileKind::Folder,
            _ => FileKind::Other,
        };
        Ok(Stat { kind, len: found.len(), identity: identity_of(non_empty(path), &found)? })
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in non_empty(folder).read_dir()? {
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

    fn rename_no_replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        match rename_with(from, to, NO_REPLACE) {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                // Rename never replaces a non-empty folder. In the race between the check and the rename, at
                // worst an empty folder that appears just now is replaced.
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

    #[cfg(unix)]
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(non_empty(path))?.sync_all()
    }

    /// Checks only that the folder exists: NTFS keeps names in a journal and has no call to sync a folder
    /// alone.
    #[cfg(windows)]
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        if non_empty(path).metadata()?.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    /// Checks only that the folder exists: on Windows, access control lists make an attempt the only reliable
    /// test.
    #[cfg(windows)]
    fn may_change(&self, folder: &Path) -> bool {
        non_empty(folder).metadata().is_ok_and(|found| found.is_dir())
    }

    #[cfg(unix)]
    fn may_change(&self, folder: &Path) -> bool {
        let Ok(folder) = c_string(non_empty(folder)) else { return false };
        // SAFETY: the name is a C string that outlives the call.
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
        read_at(&self.0, out, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        write_at(&self.0, bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        identity_of_file(&self.0)
    }

    fn file(&self) -> Option<&File> {
        Some(&self.0)
    }
}
