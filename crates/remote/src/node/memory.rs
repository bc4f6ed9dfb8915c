//! The memory of a region: pages that other processes of the machine may map, taken when the region is made.

#[cfg(target_os = "linux")]
use bathyal_tier::backend::mapped::MappedFile;
#[cfg(not(target_os = "linux"))]
use bathyal_tier::backend::mapped::{MappedOptions, MappedTier};
use bathyal_tier::backend::writable::WritableTier;
#[cfg(target_os = "linux")]
use std::fs::File;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Bytes of a huge page.
const HUGE: u64 = 2 << 20;
/// Bytes that memory is taken in where no huge page is to be had.
const PAGE: u64 = 4096;

/// Memory under a key.
#[derive(Debug)]
pub(super) struct Region {
    /// What it is asked for by.
    pub(super) key: u64,
    pub(super) bytes: u64,
    /// `None` of one without bytes.
    memory: Option<Memory>,
    /// Claims on its numbers: of devices above zero, of processors below.
    claims: AtomicI64,
    /// What is taken by all regions.
    used: Arc<AtomicU64>,
}

/// Who changes a number as one step: for all others of its kind, but not for the other kind, as devices are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Changer {
    /// An RDMA device, for peers that it connects.
    Device,
    /// A processor of this machine: the node's for peers by TCP, and that of a peer with which memory is shared.
    Processor,
}

/// For as long as it is there, numbers of a region are changed by one kind alone.
#[derive(Debug)]
pub(super) struct Claim {
    region: Arc<Region>,
    step: i64,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.region.claims.fetch_sub(self.step, Ordering::AcqRel);
    }
}

#[derive(Debug)]
struct Memory {
    tier: WritableTier,
    #[cfg(target_os = "linux")]
    file: File,
}

impl Region {
    /// Bytes of memory that one of so many bytes takes.
    pub(super) fn taken_bytes(bytes: u64) -> u64 {
        let unit = if bytes >= HUGE { HUGE } else { PAGE };
        bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX)
    }

    /// Takes its memory, which is counted in `used` already, and is counted no more when it cannot be had.
    pub(super) fn new(key: u64, bytes: u64, used: Arc<AtomicU64>) -> io::Result<Region> {
        let mut region = Region { key, bytes, memory: None, claims: AtomicI64::new(0), used };
        if bytes > 0 {
            region.memory = Some(Memory::new(bytes)?);
        }
        Ok(region)
    }

    /// Its bytes; `None` of one without.
    pub(super) fn tier(&self) -> Option<&WritableTier> {
        self.memory.as_ref().map(|memory| &memory.tier)
    }

    /// Lets those of one kind alone change numbers in it; `None` while the other kind may.
    pub(super) fn claim(self: &Arc<Region>, by: Changer) -> Option<Claim> {
        let step = match by {
            Changer::Device => 1,
            Changer::Processor => -1,
        };
        let more = |claims: i64| (claims * step >= 0).then_some(claims + step);
        let claimed = self.claims.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        claimed.ok().map(|_| Claim { region: self.clone(), step })
    }

    /// Whether devices may change numbers in it, and processors must not.
    pub(super) fn is_of_devices(&self) -> bool {
        self.claims.load(Ordering::Acquire) > 0
    }

    /// By which descriptor this process has it, and what that leads to: device and inode. `None` where others cannot have it.
    #[cfg(target_os = "linux")]
    pub(super) fn shared(&self) -> io::Result<Option<(i32, u64, u64)>> {
        use std::os::unix::fs::MetadataExt;
        let Some(memory) = &self.memory else { return Ok(None) };
        let about = memory.file.metadata()?;
        Ok(Some((memory.file.as_raw_fd(), about.dev(), about.ino())))
    }

    /// None: memory of other processes is not to be had.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn shared(&self) -> io::Result<Option<(i32, u64, u64)>> {
        Ok(None)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Given back before it is counted as free.
        self.memory = None;
        self.used.fetch_sub(Region::taken_bytes(self.bytes), Ordering::Relaxed);
    }
}

#[cfg(target_os = "linux")]
impl Memory {
    fn new(bytes: u64) -> io::Result<Memory> {
        let huge = (bytes >= HUGE).then(|| take(bytes, libc::MFD_HUGETLB | libc::MFD_HUGE_2MB));
        let file = match huge {
            Some(Ok(file)) => file,
            _ => take(bytes, 0)?,
        };
        let place = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mapped = MappedFile { len: Some(bytes), ..MappedFile::at(place).for_writing() };
        let tier = mapped.map().map_err(io::Error::other)?;
        Ok(Memory { tier, file })
    }
}

#[cfg(not(target_os = "linux"))]
impl Memory {
    fn new(bytes: u64) -> io::Result<Memory> {
        let len = usize::try_from(bytes).map_err(io::Error::other)?;
        let tier = MappedTier::writable_zeros(&MappedOptions::default(), len).map_err(io::Error::other)?;
        Ok(Memory { tier })
    }
}

/// A file in memory whose pages are there, or an error instead of a process that is killed when it touches them.
#[cfg(target_os = "linux")]
fn take(bytes: u64, flags: libc::c_uint) -> io::Result<File> {
    // SAFETY: a name that ends in a zero, and flags.
    let descriptor = unsafe { libc::memfd_create(c"bathyal-region".as_ptr(), libc::MFD_CLOEXEC | flags) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: open, and nobody else's.
    let file = unsafe { File::from_raw_fd(descriptor) };
    let len = if flags == 0 { bytes } else { Region::taken_bytes(bytes) };
    file.set_len(len)?;
    let len = libc::off_t::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    // SAFETY: a descriptor and numbers.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, len) } {
        0 => Ok(file),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_changed_by_one_kind_at_a_time() {
        let region = Arc::new(Region::new(1, 0, Arc::new(AtomicU64::new(0))).unwrap());
        let first = region.claim(Changer::Device).unwrap();
        let second = region.claim(Changer::Device).unwrap();
        assert!(region.is_of_devices() && region.claim(Changer::Processor).is_none());
        drop(first);
        assert!(region.claim(Changer::Processor).is_none());
        drop(second);
        let shared = region.claim(Changer::Processor).unwrap();
        assert!(!region.is_of_devices() && region.claim(Changer::Device).is_none());
        drop(shared);
        assert!(region.claim(Changer::Device).is_some());
    }
}
