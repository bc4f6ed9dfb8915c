//! A file that is mapped and read by loads: whoever touches a page that is not in memory waits for it, as synchronous reads do
//! (section 6.5).

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

/// The mapped file as a tier. Its bytes are the kernel's page cache.
pub(super) struct MmapTier {
    bytes: Arc<Mmap>,
    profile: TierProfile,
}

impl MmapTier {
    /// Maps a file of which nothing is in the page cache afterwards, and of which each page is read alone.
    ///
    /// # Errors
    /// A file that cannot be opened or mapped.
    pub(super) fn cold(path: &Path) -> Result<MmapTier, Failure> {
        let file = File::open(path).map_err(|e| failed(path, e))?;
        // SAFETY: an index that was built by this run and that nobody changes; a file cut short by others ends the process, as
        // it would end any program that maps it.
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
        };
        let tier = MmapTier { bytes: Arc::new(bytes), profile };
        #[cfg(target_os = "linux")]
        tier.forget(&file);
        Ok(tier)
    }

    /// Gives back the page cache's pages of the file; other systems are not asked, and the count of faults shows it.
    #[cfg(target_os = "linux")]
    fn forget(&self, file: &File) {
        use std::os::fd::AsRawFd;
        // SAFETY: an open descriptor and no pointer. Advice that is refused leaves pages, which the count of faults shows.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
}

/// Page faults of this process so far that had to wait for a read; this system does not tell.
#[cfg(not(unix))]
pub(super) fn waited_faults() -> u64 {
    0
}

/// Page faults of this process so far that had to wait for a read.
#[cfg(unix)]
pub(super) fn waited_faults() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills the structure that it is given.
    let told = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: it was zeroed, and zeroes are such a structure.
    let usage = unsafe { usage.assume_init() };
    if told == 0 { usage.ru_majflt as u64 } else { 0 }
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
        let there =
            |read: &Read| (self.bytes.len() as u64).saturating_sub(read.offset).min(u64::from(read.len));
        self.done.extend(reads.iter().map(|read| Completion { id: read.id, result: Ok(there(read) as u32) }));
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
