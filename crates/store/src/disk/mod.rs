//! What the local store asks of a file system. The seam where tests put a disk that fails or loses power.

mod system;

pub use system::SystemDisk;

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What stands under a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// Anything else.
    Other,
}

/// What the system says of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Its length in bytes, of a file.
    pub len: u64,
    /// What tells it from all others: device and number.
    pub identity: (u64, u64),
}

/// What came of trying to lock a file.
#[derive(Debug)]
pub enum Locked {
    /// It is ours until the value is dropped, or the process ends.
    Held(Arc<dyn DiskFile>),
    /// Another one holds it.
    Busy,
    /// The file system knows no locks; the file is open nevertheless.
    Unknown(Arc<dyn DiskFile>),
}

/// The operations on files and folders that the local store is made of.
pub trait Disk: Debug + Send + Sync {
    /// What stands under a path; of a link, what it leads to.
    fn stat(&self, path: &Path) -> io::Result<Stat>;

    /// The names in a folder, in order; names that are no text are left out.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Opens a regular file for reading, without waiting for anything that is none.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a regular file for writing, or creates it empty.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for writing, or creates it if `create` is set, and tries to lock it.
    fn lock(&self, path: &Path, create: bool) -> io::Result<Locked>;

    /// Creates a folder; an error if something is there.
    fn create_folder(&self, path: &Path) -> io::Result<()>;

    /// Gives a file or folder another name; a file in the way is replaced at once.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// The same, but an error if anything is in the way.
    fn rename_aside(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Exchanges two names at once; [`io::ErrorKind::Unsupported`] where the system cannot.
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder outlive the machine.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    /// Whether this process may change what is in a folder, as far as that can be said beforehand.
    fn may_change(&self, folder: &Path) -> bool;
}

/// An open file.
pub trait DiskFile: Debug + Send + Sync {
    /// Its length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Reads some bytes; 0 at the end.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes some of `bytes`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Cuts the file, or lengthens it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes the bytes outlive the machine.
    fn sync(&self) -> io::Result<()>;

    /// What tells it from all others, as [`Stat::identity`].
    fn identity(&self) -> io::Result<(u64, u64)>;

    /// The system's own file, if it is one.
    fn file(&self) -> Option<&File>;
}

/// Reads as many bytes as `out` has; an error of kind [`io::ErrorKind::UnexpectedEof`] if there are fewer.
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

/// Writes all of `bytes`.
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
