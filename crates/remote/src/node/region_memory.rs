//! Memory of a region: pages that are allocated when the region is created, and that other processes of the
//! machine may map.

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
/// Allocation unit in bytes where huge pages are not available.
const PAGE: u64 = 4096;

/// Memory of a node with a key.
#[derive(Debug)]
pub(super) struct NodeRegion {
    /// Key of the region in operations and requests.
    pub(super) key: u64,
    pub(super) bytes: u64,
    /// `None` if the region is empty.
    memory: Option<RegionMemory>,
    /// Number of claims on its atomic operations: positive if devices execute them, negative if processors
    /// do.
    claims: AtomicI64,
    /// Bytes that all regions of the node take.
    used: Arc<AtomicU64>,
}

/// Executor of atomic operations. Operations are atomic among devices and among processors, but not between a
/// device and a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtomicsExecutor {
    /// RDMA devices, for clients connected by RDMA.
    Device,
    /// Processors of this machine: the node's, for clients connected by TCP, and those of clients that map
    /// the memory.
    Processor,
}

/// Restricts the atomic operations of a region to one kind of executor until it is dropped.
#[derive(Debug)]
pub(super) struct AtomicsClaim {
    region: Arc<NodeRegion>,
    step: i64,
}

impl Drop for AtomicsClaim {
    fn drop(&mut self) {
        self.region.claims.fetch_sub(self.step, Ordering::AcqRel);
    }
}

#[derive(Debug)]
struct RegionMemory {
    tier: WritableTier,
    #[cfg(target_os = "linux")]
    file: File,
}

/// The file that holds a region: its descriptor in this process, and its device and inode.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegionFile {
    pub(super) descriptor: i32,
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl NodeRegion {
    /// Returns the bytes of memory that a region of `bytes` bytes takes.
    pub(super) fn allocated_bytes(bytes: u64) -> u64 {
        let unit = if bytes >= HUGE { HUGE } else { PAGE };
        bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX)
    }

    /// Allocates a region. The caller has added its bytes to `used`; they are subtracted again if the
    /// allocation fails.
    pub(super) fn new(key: u64, bytes: u64, used: Arc<AtomicU64>) -> io::Result<NodeRegion> {
        let mut region = NodeRegion { key, bytes, memory: None, claims: AtomicI64::new(0), used };
        if bytes > 0 {
            region.memory = Some(RegionMemory::new(bytes)?);
        }
        Ok(region)
    }

    /// Returns its bytes; `None` if it is empty.
    pub(super) fn tier(&self) -> Option<&WritableTier> {
        self.memory.as_ref().map(|memory| &memory.tier)
    }

    /// Restricts atomic operations to `executor`. Returns `None` while the other kind has a claim.
    pub(super) fn claim(self: &Arc<NodeRegion>, executor: AtomicsExecutor) -> Option<AtomicsClaim> {
        let step = match executor {
            AtomicsExecutor::Device => 1,
            AtomicsExecutor::Processor => -1,
        };
        let next_claims = |claims: i64| (claims * step >= 0).then_some(claims + step);
        let claimed = self.claims.fetch_update(Ordering::AcqRel, Ordering::Acquire, next_claims);
        claimed.ok().map(|_| AtomicsClaim { region: self.clone(), step })
    }

    /// Returns true if devices execute the atomic operations of this region, so that processors must not.
    pub(super) fn has_device_atomics(&self) -> bool {
        self.claims.load(Ordering::Acquire) > 0
    }

    /// Returns the file that holds the region. `None` if the region is empty.
    #[cfg(target_os = "linux")]
    pub(super) fn file(&self) -> io::Result<Option<RegionFile>> {
        use std::os::unix::fs::MetadataExt;
        let Some(memory) = &self.memory else { return Ok(None) };
        let metadata = memory.file.metadata()?;
        let descriptor = memory.file.as_raw_fd();
        Ok(Some(RegionFile { descriptor, device: metadata.dev(), inode: metadata.ino() }))
    }

    /// Returns `None`: other processes can map the memory on Linux only.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn file(&self) -> io::Result<Option<RegionFile>> {
        Ok(None)
    }
}

impl Drop for NodeRegion {
    fn drop(&mut self) {
        // Free the memory before counting it as free.
        self.memory = None;
        self.used.fetch_sub(NodeRegion::allocated_bytes(self.bytes), Ordering::Relaxed);
    }
}

#[cfg(target_os = "linux")]
impl RegionMemory {
    fn new(bytes: u64) -> io::Result<RegionMemory> {
        let huge = (bytes >= HUGE).then(|| allocate(bytes, libc::MFD_HUGETLB | libc::MFD_HUGE_2MB));
        let file = match huge {
            Some(Ok(file)) => file,
            _ => allocate(bytes, 0)?,
        };
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mapped = MappedFile { len: Some(bytes), ..MappedFile::at(path).for_writing() };
        let tier = mapped.map().map_err(io::Error::other)?;
        Ok(RegionMemory { tier, file })
    }
}

#[cfg(not(target_os = "linux"))]
impl RegionMemory {
    fn new(bytes: u64) -> io::Result<RegionMemory> {
        let len = usize::try_from(bytes).map_err(io::Error::other)?;
        let tier = MappedTier::writable_zeros(&MappedOptions::default(), len).map_err(io::Error::other)?;
        Ok(RegionMemory { tier })
    }
}

/// Creates a file in memory and allocates its pages, so that a lack of memory is an error here and does not
/// kill the process at the first access.
#[cfg(target_os = "linux")]
fn allocate(bytes: u64, flags: libc::c_uint) -> io::Result<File> {
    // SAFETY: a name that ends in a zero, and flags.
    let descriptor = unsafe { libc::memfd_create(c"bathyal-region".as_ptr(), libc::MFD_CLOEXEC | flags) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, and nothing else owns it.
    let file = unsafe { File::from_raw_fd(descriptor) };
    let len = if flags == 0 { bytes } else { NodeRegion::allocated_bytes(bytes) };
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
    fn atomic_operations_have_one_kind_of_executor_at_a_time() {
        let region = Arc::new(NodeRegion::new(1, 0, Arc::new(AtomicU64::new(0))).unwrap());
        let first = region.claim(AtomicsExecutor::Device).unwrap();
        let second = region.claim(AtomicsExecutor::Device).unwrap();
        assert!(region.has_device_atomics() && region.claim(AtomicsExecutor::Processor).is_none());
        drop(first);
        assert!(region.claim(AtomicsExecutor::Processor).is_none());
        drop(second);
        let shared = region.claim(AtomicsExecutor::Processor).unwrap();
        assert!(!region.has_device_atomics() && region.claim(AtomicsExecutor::Device).is_none());
        drop(shared);
        assert!(region.claim(AtomicsExecutor::Device).is_some());
    }
}
