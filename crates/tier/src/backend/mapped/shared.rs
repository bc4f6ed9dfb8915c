//! Places that several processes can map: files of DAX file systems and tmpfs, and DAX devices.
//!
//! A reader holds a shared lock (`flock`) on the file or device while it has the bytes mapped, and a loader
//! holds an exclusive lock, so that nothing changes under a reader and no two processes load at once. The
//! system drops the locks of a process that dies; the header's state is then still "loading", and the next
//! process loads again.

use super::header::{self, ContentIdentity, HEADER_BYTES, HeaderState, USED_BYTES};
use super::load::{self, Fill, LoadEvent, LoadProgress};
use super::medium::Medium;
use super::place::MappedOptions;
use super::region::{Backing, Mapping, Region};
use crate::backend::file::read_exact_at;
use crate::error::TierError;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time between two attempts to take a lock that another process holds.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of attempts at a place that is in use for another index: some two seconds.
const MOST_RETRIES: u32 = 100;

/// Maps the content `identity` at `path`; loads it with `fill` if it is not there.
pub(super) fn attach_or_load(
    path: &Path,
    options: &MappedOptions,
    identity: ContentIdentity,
    fill: Fill<'_>,
    progress: LoadProgress<'_>,
) -> Result<Region, TierError> {
    let path = file_in_folder(path, identity);
    let mut retries = Retries { progress, begun: false, for_writing: 0 };
    let mut damaged = false;
    loop {
        let place = OpenPlace::open(&path, identity)?;
        if !place.lock(false)? {
            // Another process is loading, perhaps the same content.
            retries.wait()?;
            continue;
        }
        if !place.is_current() {
            continue;
        }
        let found = place.read_header()?;
        if found == HeaderState::Ready(identity) && !damaged {
            if let Some(region) = place.attach(options.verify, identity, progress)? {
                return Ok(region);
            }
            damaged = true;
            continue;
        }
        place.refuse_foreign(found, options)?;
        place.unlock();
        if !place.lock(true)? {
            retries.wait()?;
            retries.for_writing += 1;
            if retries.for_writing > MOST_RETRIES && matches!(found, HeaderState::Ready(_)) {
                return Err(TierError::Parameter(format!(
                    "{}: other bytes are searched there, by this process or another; name another place (a \
                     folder holds a file for each index), or close that index",
                    path.display()
                )));
            }
            continue;
        }
        // Read again, since another process may have loaded it before this one got the lock.
        let found = place.read_header()?;
        if place.is_current() && (found != HeaderState::Ready(identity) || damaged) {
            place.refuse_foreign(found, options)?;
            place.load(identity, fill, progress)?;
            damaged = false;
        }
    }
}

/// Opens a file or device that must exist already.
pub(super) fn open_existing(options: &OpenOptions, path: &Path) -> Result<File, TierError> {
    let device = path.starts_with("/dev") && !path.starts_with("/dev/shm");
    options.open(path).map_err(|e| match device && !path.exists() {
        true => no_device(path),
        false => TierError::io("open", path, e),
    })
}

/// Maps up to `len` bytes of an existing file or device for reading.
pub(super) fn map_existing(path: &Path, len: u64) -> Result<Region, TierError> {
    let file = open_existing(File::options().read(true), path)?;
    let medium = Medium::of(&file, path)?;
    let existing = match medium.device_bytes {
        Some(bytes) => bytes,
        None => file.metadata().map_err(|e| TierError::io("read the length of", path, e))?.len(),
    };
    let len = usize::try_from(len.min(existing)).unwrap_or(usize::MAX) / medium.granule * medium.granule;
    if len == 0 {
        return Err(TierError::Parameter(format!(
            "{}: {existing} bytes are too few to map in pages of {} bytes",
            path.display(),
            medium.granule
        )));
    }
    map_for_reading(file, path, &medium, len)
}

/// Maps a new file in the folder `path`, filled with noise. The file has no name any more when this returns.
pub(super) fn map_temporary(path: &Path, len: u64, progress: LoadProgress<'_>) -> Result<Region, TierError> {
    let path = path.join(format!(".bathyal-probe-{}.region", std::process::id()));
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).open(&path);
    let file = file.map_err(|e| TierError::io("create", &path, e))?;
    // From here on the file is gone with its last descriptor or mapping, even if this process is killed.
    std::fs::remove_file(&path).map_err(|e| TierError::io("remove", &path, e))?;
    let medium = Medium::of(&file, &path)?;
    let len = usize::try_from(len).ok().and_then(|len| len.checked_next_multiple_of(medium.granule));
    let Some(len) = len.filter(|len| *len > 0) else {
        return Err(TierError::Parameter(
            "the bytes to measure must be more than 0 and fit into the address space".into(),
        ));
    };
    reserve(&file, &path, len)?;
    let (mapping, _) = Mapping::shared(&file, &path, len, medium.granule, true)?;
    load::fill(&mapping, 0, len, &load::fill_with_noise, progress)?;
    drop(mapping);
    map_for_reading(file, &path, &medium, len)
}

/// Maps the first `len` bytes as they are, without a header.
fn map_for_reading(file: File, path: &Path, medium: &Medium, len: usize) -> Result<Region, TierError> {
    let (mapping, synchronous) = Mapping::shared(&file, path, len, medium.granule, false)?;
    let name = format!("{} ({})", path.display(), medium.describe(synchronous));
    let backing = Backing { file, is_file: medium.device_bytes.is_none() };
    let region = Region { mapping, skip: 0, len, backing: Some(backing), name };
    region.populate();
    Ok(region)
}

/// Returns the path of a file within `path`, named after its content, if `path` is a folder; else `path`.
fn file_in_folder(path: &Path, identity: ContentIdentity) -> PathBuf {
    match path.is_dir() {
        true => path.join(format!("bathyal-{:x}-{:08x}.region", identity.len, identity.crc32c)),
        false => path.to_path_buf(),
    }
}

/// Attempts to take the lock of another process.
struct Retries<'a> {
    progress: LoadProgress<'a>,
    /// True if the event that begins the wait was sent.
    begun: bool,
    /// Failed attempts to take an exclusive lock.
    for_writing: u32,
}

impl Retries<'_> {
    /// Waits until the next attempt.
    fn wait(&mut self) -> Result<(), TierError> {
        let event = if self.begun { LoadEvent::Done(0) } else { LoadEvent::Begin("waiting", 1) };
        self.begun = true;
        if !(self.progress)(event) {
            return Err(TierError::Cancelled);
        }
        std::thread::sleep(RETRY_INTERVAL);
        Ok(())
    }
}

/// An open file or device. Its lock is dropped with it.
struct OpenPlace<'a> {
    file: File,
    path: &'a Path,
    medium: Medium,
    /// Number of bytes to map.
    mapped: usize,
    writable: bool,
}

impl OpenPlace<'_> {
    fn open(path: &Path, identity: ContentIdentity) -> Result<OpenPlace<'_>, TierError> {
        let mut options = File::options();
        options.read(true).write(true);
        // A missing device must not be created as a file.
        options.create(!path.starts_with("/dev") || path.starts_with("/dev/shm"));
        let (file, writable) = match options.open(path) {
            Ok(file) => (file, true),
            // An index that another user has loaded can still be read.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EACCES | libc::EROFS | libc::EPERM)) => {
                let file = File::open(path).map_err(|_| TierError::io("open for loading", path, e))?;
                (file, false)
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && path.starts_with("/dev") => {
                return Err(no_device(path));
            }
            Err(e) => return Err(TierError::io("open", path, e)),
        };
        let medium = Medium::of(&file, path)?;
        let needed = usize::try_from(identity.len).ok().and_then(|len| len.checked_add(HEADER_BYTES));
        let mapped = needed.and_then(|needed| needed.checked_next_multiple_of(medium.granule));
        let Some(mapped) = mapped else {
            return Err(TierError::Parameter("the index is longer than the address space".into()));
        };
        if let Some(size) = medium.device_bytes.filter(|size| *size < mapped as u64) {
            return Err(TierError::Parameter(format!(
                "{}: the device has {size} bytes, but {mapped} are needed (with a header of {HEADER_BYTES}, \
                 and in whole pages of {})",
                path.display(),
                medium.granule
            )));
        }
        Ok(OpenPlace { file, path, medium, mapped, writable })
    }

    /// Tries to take an exclusive or a shared lock. Returns false if another process holds a conflicting
    /// lock.
    fn lock(&self, exclusive: bool) -> Result<bool, TierError> {
        let outcome = if exclusive { self.file.try_lock() } else { self.file.try_lock_shared() };
        match outcome {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(e)) => Err(TierError::io("lock", self.path, e)),
        }
    }

    fn unlock(&self) {
        // If this fails, so does the next attempt to lock.
        let _ = self.file.unlock();
    }

    /// Returns true if the path still leads to this file, which may have been removed before the lock was
    /// taken.
    fn is_current(&self) -> bool {
        let (Ok(at_path), Ok(open)) = (self.path.metadata(), self.file.metadata()) else { return false };
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            (at_path.dev(), at_path.ino()) == (open.dev(), open.ino())
        }
        // On this system an open file keeps its name.
        #[cfg(not(unix))]
        {
            let _ = (at_path, open);
            true
        }
    }

    fn map(&self, writable: bool) -> Result<(Mapping, bool), TierError> {
        Mapping::shared(&self.file, self.path, self.mapped, self.medium.granule, writable)
    }

    /// Reads the header. A file that is too short for the content in its header is not ready.
    fn read_header(&self) -> Result<HeaderState, TierError> {
        let mut bytes = [0; USED_BYTES];
        if self.medium.device_bytes.is_none() {
            let len =
                self.file.metadata().map_err(|e| TierError::io("read the length of", self.path, e))?.len();
            if len == 0 {
                return Ok(HeaderState::Empty);
            }
            if len < self.mapped as u64 {
                let present = len.min(USED_BYTES as u64) as usize;
                let read = read_exact_at(&self.file, &mut bytes[..present], 0);
                read.map_err(|e| TierError::io("read", self.path, e))?;
                return Ok(match header::decode(&bytes) {
                    HeaderState::Ready(_) => HeaderState::Loading { process: 0 },
                    other => other,
                });
            }
        }
        let (mapping, _) = self.map(false)?;
        // SAFETY: the mapping is longer than a header, and the lock keeps loaders out.
        bytes.copy_from_slice(unsafe { std::slice::from_raw_parts(mapping.start(), USED_BYTES) });
        if mapping.lost().is_some() {
            return Err(self.unreadable());
        }
        Ok(header::decode(&bytes))
    }

    fn unreadable(&self) -> TierError {
        TierError::Parameter(format!("{}: its first bytes cannot be read", self.path.display()))
    }

    /// Fails if a load would overwrite foreign data or is not permitted.
    fn refuse_foreign(&self, found: HeaderState, options: &MappedOptions) -> Result<(), TierError> {
        let path = self.path.display();
        if found == HeaderState::Foreign && !options.overwrite {
            return Err(TierError::Parameter(format!(
                "{path}: holds data that this version of Bathyal has not written; name another place, or add \
                 ,overwrite to replace the data"
            )));
        }
        if !self.writable {
            return Err(TierError::Parameter(format!(
                "{path}: the index is not loaded there, and this process may not write there"
            )));
        }
        Ok(())
    }

    /// Maps the content for reading. Returns `None` if `verify` finds another checksum than that of the
    /// header.
    fn attach(
        self,
        verify: bool,
        identity: ContentIdentity,
        progress: LoadProgress<'_>,
    ) -> Result<Option<Region>, TierError> {
        let (mapping, synchronous) = self.map(false)?;
        let name = format!("{} ({})", self.path.display(), self.medium.describe(synchronous));
        let backing = Backing { file: self.file, is_file: self.medium.device_bytes.is_none() };
        let len = identity.len as usize;
        let region = Region { mapping, skip: HEADER_BYTES, len, backing: Some(backing), name };
        region.populate();
        if verify {
            let found = load::checksum(region.bytes(), progress)?;
            region.check(true)?;
            if found != identity.crc32c {
                return Ok(None);
            }
        }
        Ok(Some(region))
    }

    /// Loads the content, and marks the header as ready last. The caller holds the exclusive lock.
    fn load(
        &self,
        identity: ContentIdentity,
        fill: Fill<'_>,
        progress: LoadProgress<'_>,
    ) -> Result<(), TierError> {
        if self.medium.device_bytes.is_none() {
            reserve(&self.file, self.path, self.mapped)?;
        }
        let (mapping, _) = self.map(true)?;
        let write_header = |ready| {
            let header = header::encode(identity, ready);
            // SAFETY: the mapping is writable, longer than a header and begins at a page; this process holds
            // the lock.
            unsafe { load::write_through(&header, mapping.start()) };
        };
        write_header(false);
        let found = load::fill(&mapping, HEADER_BYTES, identity.len as usize, fill, progress)?;
        if found != identity.crc32c {
            return Err(TierError::Checksum { found, expected: identity.crc32c });
        }
        self.persist()?;
        write_header(true);
        self.persist()?;
        match mapping.lost() {
            None => Ok(()),
            Some(_) => Err(self.unreadable()),
        }
    }

    /// Syncs a file's bytes to its medium. Stores to a device are there already, since they bypass the
    /// caches.
    fn persist(&self) -> Result<(), TierError> {
        if self.medium.device_bytes.is_some() {
            return Ok(());
        }
        self.file.sync_data().map_err(|e| TierError::io("sync", self.path, e))
    }
}

/// Makes the error for a missing device, with a list of the DAX devices. A device that has become a NUMA node
/// (driver `kmem`) cannot be mapped, and is not listed.
fn no_device(path: &Path) -> TierError {
    let devices = Path::new("/sys/bus/dax/devices").read_dir().into_iter().flatten().flatten();
    let devices =
        devices.filter(|entry| !entry.path().join("driver").read_link().is_ok_and(|to| to.ends_with("kmem")));
    let mut names: Vec<String> =
        devices.map(|entry| format!("/dev/{}", entry.file_name().to_string_lossy())).collect();
    names.sort();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    TierError::Parameter(format!(
        "{}: there is no such device; DAX devices here: {names} (docs/mapped-memory.md says how to make one)",
        path.display()
    ))
}

/// Sets a file's length and allocates its blocks, so that a full file system is an error now and not a fault
/// later.
fn reserve(file: &File, path: &Path, len: usize) -> Result<(), TierError> {
    let failed = |e| TierError::io("make room for the index in", path, e);
    file.set_len(len as u64).map_err(failed)?;
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        let len = libc::off_t::try_from(len)
            .map_err(|_| TierError::Parameter("the index is longer than a file can be".into()))?;
        // SAFETY: the descriptor is open.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len) } != 0 {
            let error = std::io::Error::last_os_error();
            if !matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) {
                return Err(failed(error));
            }
        }
    }
    Ok(())
}
