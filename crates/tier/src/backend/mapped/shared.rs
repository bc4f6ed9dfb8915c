//! Places that several processes can map: files of DAX file systems and tmpfs, and DAX devices.
//!
//! Whoever reads the bytes holds a shared lock (`flock`) on the file or device for as long as it has them mapped,
//! whoever loads them an exclusive one, so that nothing changes under a reader and no two load at once. The system
//! drops the locks of a process that dies; the header then still says "loading", and the next one loads again.

use super::header::{self, Found, HEADER_BYTES, Identity, USED_BYTES};
use super::load::{self, Fill, GoOn, LoadEvent};
use super::medium::Medium;
use super::place::MappedOptions;
use super::region::{Backing, Mapping, Region};
use crate::backend::file::read_exact_at;
use crate::error::TierError;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Between two looks at a lock that another process holds.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Looks at a place that is in use for another index before giving up: some two seconds.
const MOST_LOOKS: u32 = 100;

/// Finds the content `identity` at `path`, or puts it there by `fill`, and maps it.
pub(super) fn attach_or_load(
    path: &Path,
    options: &MappedOptions,
    identity: Identity,
    fill: Fill<'_>,
    go_on: GoOn<'_>,
) -> Result<Region, TierError> {
    let path = name_within(path, identity);
    let mut waiting = Waiting { go_on, begun: false, looks: 0 };
    let mut distrusted = false;
    loop {
        let place = Opened::open(&path, identity)?;
        if !place.lock(false)? {
            // Someone loads: it may well be what we want.
            waiting.look()?;
            continue;
        }
        if !place.is_named() {
            continue;
        }
        let found = place.found()?;
        if found == Found::Ready(identity) && !distrusted {
            if let Some(region) = place.attach(options.verify, identity, go_on)? {
                return Ok(region);
            }
            distrusted = true;
            continue;
        }
        place.refuse_foreign(found, options)?;
        place.unlock();
        if !place.lock(true)? {
            waiting.look()?;
            waiting.looks += 1;
            if waiting.looks > MOST_LOOKS && matches!(found, Found::Ready(_)) {
                return Err(TierError::Parameter(format!(
                    "{}: other bytes are searched there, by this process or another; name another place (a folder holds \
                     a file for each index), or close that index",
                    path.display()
                )));
            }
            continue;
        }
        // Looked at again: another process may have loaded it before we got the lock.
        let found = place.found()?;
        if place.is_named() && (found != Found::Ready(identity) || distrusted) {
            place.refuse_foreign(found, options)?;
            place.load(identity, fill, go_on)?;
            distrusted = false;
        }
    }
}

/// Opens what has to be there already.
pub(super) fn open_there(options: &OpenOptions, path: &Path) -> Result<File, TierError> {
    let device = path.starts_with("/dev") && !path.starts_with("/dev/shm");
    options.open(path).map_err(|e| match device && !path.exists() {
        true => no_device(path),
        false => TierError::io("open", path, e),
    })
}

/// Maps up to `len` bytes of what lies at `path`, whatever it is, for reading.
pub(super) fn look(path: &Path, len: u64) -> Result<Region, TierError> {
    let file = open_there(File::options().read(true), path)?;
    let medium = Medium::of(&file, path)?;
    let there = match medium.device_bytes {
        Some(bytes) => bytes,
        None => file.metadata().map_err(|e| TierError::io("read the length of", path, e))?.len(),
    };
    let len = usize::try_from(len.min(there)).unwrap_or(usize::MAX) / medium.granule * medium.granule;
    if len == 0 {
        return Err(TierError::Parameter(format!(
            "{}: {there} bytes are too few to map in pages of {}",
            path.display(),
            medium.granule
        )));
    }
    view(file, path, &medium, len)
}

/// A new file in the folder `path`, filled with noise, that has no name by the time this returns.
pub(super) fn scratch(path: &Path, len: u64, go_on: GoOn<'_>) -> Result<Region, TierError> {
    let path = path.join(format!(".bathyal-probe-{}.region", std::process::id()));
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).open(&path);
    let file = file.map_err(|e| TierError::io("create", &path, e))?;
    // From here on the file goes with its last descriptor or mapping, however this process ends.
    std::fs::remove_file(&path).map_err(|e| TierError::io("remove", &path, e))?;
    let medium = Medium::of(&file, &path)?;
    let len = usize::try_from(len).ok().and_then(|len| len.checked_next_multiple_of(medium.granule));
    let Some(len) = len.filter(|len| *len > 0) else {
        return Err(TierError::Parameter(
            "nothing, or more than the address space, cannot be measured".into(),
        ));
    };
    reserve(&file, &path, len)?;
    let (mapping, _) = Mapping::shared(&file, &path, len, medium.granule, true)?;
    load::fill(&mapping, 0, len, &load::noise, go_on)?;
    drop(mapping);
    view(file, &path, &medium, len)
}

/// The first `len` bytes as they are.
fn view(file: File, path: &Path, medium: &Medium, len: usize) -> Result<Region, TierError> {
    let (mapping, synchronous) = Mapping::shared(&file, path, len, medium.granule, false)?;
    let name = format!("{} ({})", path.display(), medium.describe(synchronous));
    let backing = Backing { file, is_file: medium.device_bytes.is_none() };
    let region = Region { mapping, skip: 0, len, backing: Some(backing), name };
    region.populate();
    Ok(region)
}

/// A file within `path` if that is a folder, named after its content.
fn name_within(path: &Path, identity: Identity) -> PathBuf {
    match path.is_dir() {
        true => path.join(format!("bathyal-{:x}-{:08x}.region", identity.len, identity.crc32c)),
        false => path.to_path_buf(),
    }
}

/// Waiting for another process.
struct Waiting<'a> {
    go_on: GoOn<'a>,
    begun: bool,
    looks: u32,
}

impl Waiting<'_> {
    fn look(&mut self) -> Result<(), TierError> {
        let event = if self.begun { LoadEvent::Done(0) } else { LoadEvent::Begin("waiting", 1) };
        self.begun = true;
        if !(self.go_on)(event) {
            return Err(TierError::Cancelled);
        }
        std::thread::sleep(LOOK_EVERY);
        Ok(())
    }
}

/// An open file or device; its lock goes with it.
struct Opened<'a> {
    file: File,
    path: &'a Path,
    medium: Medium,
    /// Bytes to be mapped.
    mapped: usize,
    writable: bool,
}

impl Opened<'_> {
    fn open(path: &Path, identity: Identity) -> Result<Opened<'_>, TierError> {
        let mut options = File::options();
        options.read(true).write(true);
        // A device that is not there must not become a file.
        options.create(!path.starts_with("/dev") || path.starts_with("/dev/shm"));
        let (file, writable) = match options.open(path) {
            Ok(file) => (file, true),
            // What another user has loaded can still be read.
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
                "{}: the device has {size} bytes, {mapped} are needed (a header of {HEADER_BYTES} included, in \
                 whole pages of {})",
                path.display(),
                medium.granule
            )));
        }
        Ok(Opened { file, path, medium, mapped, writable })
    }

    /// Tries to lock it; false where another process stands in the way.
    fn lock(&self, alone: bool) -> Result<bool, TierError> {
        let tried = if alone { self.file.try_lock() } else { self.file.try_lock_shared() };
        match tried {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(e)) => Err(TierError::io("lock", self.path, e)),
        }
    }

    fn unlock(&self) {
        // Where it fails the next attempt to lock says so.
        let _ = self.file.unlock();
    }

    /// Whether the path still leads to this file: it may have been removed before the lock was had.
    fn is_named(&self) -> bool {
        let (Ok(named), Ok(held)) = (self.path.metadata(), self.file.metadata()) else { return false };
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            (named.dev(), named.ino()) == (held.dev(), held.ino())
        }
        // An open file keeps its name here.
        #[cfg(not(unix))]
        {
            let _ = (named, held);
            true
        }
    }

    fn map(&self, writable: bool) -> Result<(Mapping, bool), TierError> {
        Mapping::shared(&self.file, self.path, self.mapped, self.medium.granule, writable)
    }

    /// What is there. A file that is too short for what its header announces is not ready.
    fn found(&self) -> Result<Found, TierError> {
        let mut bytes = [0; USED_BYTES];
        if self.medium.device_bytes.is_none() {
            let len =
                self.file.metadata().map_err(|e| TierError::io("read the length of", self.path, e))?.len();
            if len == 0 {
                return Ok(Found::Nothing);
            }
            if len < self.mapped as u64 {
                let there = len.min(USED_BYTES as u64) as usize;
                let read = read_exact_at(&self.file, &mut bytes[..there], 0);
                read.map_err(|e| TierError::io("read", self.path, e))?;
                return Ok(match header::decode(&bytes) {
                    Found::Ready(_) => Found::Loading { process: 0 },
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

    /// Sees that nobody else's data are overwritten.
    fn refuse_foreign(&self, found: Found, options: &MappedOptions) -> Result<(), TierError> {
        let path = self.path.display();
        if found == Found::Foreign && !options.overwrite {
            return Err(TierError::Parameter(format!(
                "{path}: holds something that this version of Bathyal has not put there; name another place, or \
                 add ,overwrite to lose what is there"
            )));
        }
        if !self.writable {
            return Err(TierError::Parameter(format!(
                "{path}: the index is not loaded there, and this process may not write there"
            )));
        }
        Ok(())
    }

    /// Maps what is there for reading; `None` if `verify` finds other bytes than the header announces.
    fn attach(self, verify: bool, identity: Identity, go_on: GoOn<'_>) -> Result<Option<Region>, TierError> {
        let (mapping, synchronous) = self.map(false)?;
        let name = format!("{} ({})", self.path.display(), self.medium.describe(synchronous));
        let backing = Backing { file: self.file, is_file: self.medium.device_bytes.is_none() };
        let len = identity.len as usize;
        let region = Region { mapping, skip: HEADER_BYTES, len, backing: Some(backing), name };
        region.populate();
        if verify {
            let found = load::checksum(region.bytes(), go_on)?;
            region.check(true)?;
            if found != identity.crc32c {
                return Ok(None);
            }
        }
        Ok(Some(region))
    }

    /// Puts the content there, the header last. The exclusive lock is held.
    fn load(&self, identity: Identity, fill: Fill<'_>, go_on: GoOn<'_>) -> Result<(), TierError> {
        if self.medium.device_bytes.is_none() {
            reserve(&self.file, self.path, self.mapped)?;
        }
        let (mapping, _) = self.map(true)?;
        let say = |ready| {
            let header = header::encode(identity, ready);
            // SAFETY: the mapping is writable, longer than a header and begins at a page; the lock is ours.
            unsafe { load::write_through(&header, mapping.start()) };
        };
        say(false);
        let found = load::fill(&mapping, HEADER_BYTES, identity.len as usize, fill, go_on)?;
        if found != identity.crc32c {
            return Err(TierError::Checksum { found, expected: identity.crc32c });
        }
        self.persist()?;
        say(true);
        self.persist()?;
        match mapping.lost() {
            None => Ok(()),
            Some(_) => Err(self.unreadable()),
        }
    }

    /// Has a file's bytes reach its medium. Stores to a device have, by the way they are written.
    fn persist(&self) -> Result<(), TierError> {
        if self.medium.device_bytes.is_some() {
            return Ok(());
        }
        self.file.sync_data().map_err(|e| TierError::io("sync", self.path, e))
    }
}

/// Says which DAX devices there are instead. One that has become a NUMA node (driver `kmem`) cannot be mapped.
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

/// Gives a file its length and its blocks, so that a full file system is an error now and not a fault later.
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
