//! The operations that the local store needs of a file system. Tests replace them by a disk that fails or
//! loses power.

mod system;

pub use system::SystemDisk;

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The kind of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// Anything else, such as a pipe or a device.
    Other,
}

/// Metadata of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The kind of the entry.
    pub kind: FileKind,
    /// The length in bytes, if it is a file.
    pub len: u64,
    /// Its unique identity: device number and inode number.
    pub identity: (u64, u64),
}

/// The result of an attempt to lock a file.
#[derive(Debug)]
pub enum Locked {
    /// The lock was acquired. It is held until the value is dropped or the process ends.
    Held(Arc<dyn DiskFile>),
    /// Another open file holds the lock.
    Busy,
    /// The file system supports no locks; the file is open nevertheless.
    Unknown(Arc<dyn DiskFile>),
}

/// The file and folder operations of the local store.
pub trait Disk: Debug + Send + Sync {
    /// Returns the metadata of a path; of a link, those of its target.
    fn stat(&self, path: &Path) -> io::Result<Stat>;

    /// Returns the names in a folder, sorted; names that are not Unicode are left out.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Opens a regular file for reading. For a pipe or another irregular file it returns an error without
    /// blocking.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a regular file for writing, or creates it empty.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for writing, or creates it if `create` is set, and tries to lock it.
    fn lock(&self, path: &Path, create: bool) -> io::Result<Locked>;

    /// Creates a folder; an error if something is there.
    fn create_folder(&self, path: &Path) -> io::Result<()>;

    /// Renames a file or folder; a file at `to` is replaced atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Renames a file or folder; an error if `to` exists.
    fn rename_no_replace(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Exchanges two names atomically; [`io::ErrorKind::Unsupported`] if the file system cannot.
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder survive a power failure.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    /// Returns true if this process may change the entries of a folder, as far as that can be tested
    /// beforehand.
    fn may_change(&self, folder: &Path) -> bool;
}

/// An open file.
pub trait DiskFile: Debug + Send + Sync {
    /// Returns its length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Reads some bytes at `offset` and returns their number; 0 at the end.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes some of `bytes` at `offset` and returns their number.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Truncates the file, or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes the bytes survive a power failure.
    fn sync(&self) -> io::Result<()>;

    /// Returns its unique identity, as in [`Stat::identity`].
    fn identity(&self) -> io::Result<(u64, u64)>;

    /// Returns the operating system's file, if there is one.
    fn file(&self) -> Option<&File>;
}

/// Fills `out` with the bytes from `offset` on; an error of kind [`io::ErrorKind::UnexpectedEof`] if there
/// are fewer.
pub fn read_exact(file: &dyn DiskFile, mut out: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !out.is_empty() {
        match file.read_at(out, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                out = &mut out[read..];
                offset += read as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Writes all of `bytes` at `offset`.
pub fn write_all(file: &dyn DiskFile, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
