//! A mapped file that is read by loads: a thread that touches a page not in memory waits for it, as with
//! synchronous reads (section 6.5).

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bathyal_console::Failure;
use bathyal_tier::error::TierError;
use bathyal_tier::{Completion, Queue, Read, Span, Tier, TierProfile, WriteTier};
use memmap2::Mmap;

use super::build::failed;

/// The mapped file as a tier. Its bytes are in the kernel's page cache.
pub(super) struct MmapTier {
    bytes: Arc<Mmap>,
    profile: TierProfile,
}

impl MmapTier {
    /// Maps a file, empties the page cache of it, and turns off read-ahead.
    ///
    /// # Errors
    /// A file that cannot be opened or mapped.
    pub(super) fn cold(path: &Path) -> Result<MmapTier, Failure> {
        let file = File::open(path).map_err(|e| failed(path, e))?;
        // SAFETY: this run built the index and nothing changes it. If another process truncates the file,
        // this process ends by a signal, as any program that maps a file does.
        let bytes = unsafe { Mmap::map(&file) }.map_err(|e| failed(path, e))?;
        #[cfg(unix)]
        bytes.advise(memmap2::Advice::Random).map_err(|e| failed(path, e))?;
        let profile = TierProfile {
            kind: "mmap".into(),
            method: "loads of a mapped file".into(),
            granularity: 4096,
            alignment: 1,
            addressable: true,
            latency_ns: 0,
            iops: 0.0,
            bandwidth_bytes_per_s: 0.0,
            depth: 64,
            issue_ns: 0,
            rates: Vec::new(),
        };
        let tier = MmapTier { bytes: Arc::new(bytes), profile };
        #[cfg(target_os = "linux")]
        tier.drop_cached_pages(&file);
        Ok(tier)
    }

    /// Drops the file's pages from the page cache. Other systems have no such call; the count of faults shows
    /// the difference.
    #[cfg(target_os = "linux")]
    fn drop_cached_pages(&self, file: &File) {
        use std::os::fd::AsRawFd;
        // SAFETY: the descriptor is open and no pointer is passed. If the advice is refused, pages remain
        // cached, and the count of faults shows it.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
}

/// Returns 0: this system does not count the page faults that waited for a read.
#[cfg(not(unix))]
pub(super) fn waited_faults() -> u64 {
    0
}

/// Returns the page faults of this process so far that waited for a read.
#[cfg(unix)]
pub(super) fn waited_faults() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is valid for writes, and the call fills it.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: the structure was zeroed, and all zeroes are a valid `rusage`.
    let usage = unsafe { usage.assume_init() };
    if result == 0 { usage.ru_majflt as u64 } else { 0 }
}

struct MmapQueue {
    bytes: Arc<Mmap>,
    done: Vec<Completion>,
}

impl Tier for MmapTier {
    fn profile(&self) -> &TierProfile {
        &self.profile
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn open(&self, _depth: u32) -> Result<Box<dyn Queue>, TierError> {
        Ok(Box::new(MmapQueue { bytes: self.bytes.clone(), done: Vec::new() }))
    }

    fn writable(&self) -> Option<&dyn WriteTier> {
        None
    }

    fn is_shared(&self) -> bool {
        false
    }
}

impl Queue for MmapQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        let available =
            |read: &Read| (self.bytes.len() as u64).saturating_sub(read.offset).min(u64::from(read.len));
        self.done
            .extend(reads.iter().map(|read| Completion { id: read.id, result: Ok(available(read) as u32) }));
        Ok(reads.len())
    }

    fn reap(&mut self, done: &mut Vec<Completion>, _wait: Option<Duration>) -> Result<(), TierError> {
        done.append(&mut self.done);
        Ok(())
    }

    fn map(&self, span: Span) -> Option<&[u8]> {
        self.bytes.get(span.offset as usize..span.end() as usize)
    }

    fn lend(&self) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, _region: *mut u8, _len: usize) -> Result<(), TierError> {
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn waker(&mut self) -> Option<Waker> {
        None
    }
}
