//! Mapped memory: how it is had of each kind of place, and given back.

use super::lost::Watch;
#[cfg(unix)]
use super::numa;
use super::numa::Node;
use crate::backend::in_place::InPlace;
use crate::error::TierError;
use std::fs::File;
use std::io;
#[cfg(unix)]
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of a huge page on x86-64 and aarch64.
#[cfg(unix)]
const HUGE_PAGE: usize = 2 << 20;
/// The flag of Linux; some C libraries leave it out.
#[cfg(target_os = "linux")]
const MAP_SYNC: i32 = 0x8_0000;
/// The advice of Linux 5.14 and later; older ones refuse it, and pages are then entered one by one when read.
#[cfg(target_os = "linux")]
const MADV_POPULATE_READ: i32 = 22;

/// Bytes of a page of memory.
#[cfg(unix)]
pub(super) fn page_bytes() -> usize {
    // SAFETY: asks for a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096).max(4096)
}

/// Bytes of a page of memory, on all processors that Windows runs on.
#[cfg(windows)]
pub(super) fn page_bytes() -> usize {
    4096
}

/// A mapping, under watch for memory that goes away, and unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    // Before the memory: fields are dropped in this order.
    watch: Watch,
    memory: Memory,
}

#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory; whoever hands out references to it sees to their rules.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing refers to any more.
        #[cfg(unix)]
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.len)
        };
        // SAFETY: as above; all of what was reserved at once is given back, for which no length is said.
        #[cfg(windows)]
        unsafe {
            use windows_sys::Win32::System::Memory::{MEM_RELEASE, VirtualFree};
            VirtualFree(self.start.as_ptr().cast(), 0, MEM_RELEASE)
        };
    }
}

impl Memory {
    /// Zeros in pages of their own.
    #[cfg(windows)]
    fn zeros(len: usize) -> io::Result<Memory> {
        use windows_sys::Win32::System::Memory::{MEM_COMMIT, MEM_RESERVE, PAGE_READWRITE, VirtualAlloc};
        // SAFETY: new memory at an address of the system's choice.
        let start = unsafe { VirtualAlloc(std::ptr::null(), len, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE) };
        let start = NonNull::new(start.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Memory { start, len })
    }

    #[cfg(unix)]
    fn map(len: usize, access: i32, how: i32, file: Option<&File>) -> io::Result<Memory> {
        let descriptor = file.map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: a new mapping at an address of the system's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, how, descriptor, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(start.cast()) {
            Some(start) => Ok(Memory { start, len }),
            None => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
        }
    }

    /// Gives the ends back that are outside whole huge pages, `len` bytes of which remain.
    #[cfg(unix)]
    fn trim(self, len: usize) -> Memory {
        let start = self.start.as_ptr() as usize;
        let head = start.next_multiple_of(HUGE_PAGE) - start;
        let tail = self.len - head - len;
        let memory = std::mem::ManuallyDrop::new(self);
        let from = memory.start.as_ptr();
        // SAFETY: the mapping has `head + len + tail` bytes, all ours, and nothing refers to its ends.
        unsafe {
            if head > 0 {
                libc::munmap(from.cast(), head);
            }
            if tail > 0 {
                libc::munmap(from.add(head + len).cast(), tail);
            }
            Memory { start: memory.start.add(head), len }
        }
    }

    fn watched(self, granule: usize) -> Result<Mapping, TierError> {
        let watch = Watch::begin(self.start.as_ptr() as usize, self.len, granule)?;
        Ok(Mapping { watch, memory: self })
    }
}

impl Mapping {
    /// Anonymous memory of at least `len` bytes, on `node` if given, and what its pages are, in words. Huge pages
    /// are taken from the system's pool where it has enough of them, else asked for by a hint.
    #[cfg(unix)]
    pub(super) fn anonymous(len: usize, node: Option<&Node>) -> Result<(Mapping, &'static str), TierError> {
        let failed = |source| TierError::System { operation: "map memory for the index", source };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let huge = len.max(1).checked_next_multiple_of(HUGE_PAGE).ok_or_else(too_long)?;
        let bind = |memory: &Memory| match node {
            Some(node) => numa::bind(memory.start.as_ptr(), memory.len, node),
            None => Ok(()),
        };
        #[cfg(target_os = "linux")]
        if free_huge_pages(node) >= (huge / HUGE_PAGE) as u64
            && let Ok(memory) = Memory::map(huge, access, how | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB, None)
        {
            bind(&memory)?;
            return Ok((memory.watched(HUGE_PAGE)?, "2 MiB pages of the pool (MAP_HUGETLB)"));
        }
        if huge == HUGE_PAGE {
            // Most of one huge page would be unused.
            let small = len.max(1).next_multiple_of(page_bytes());
            let memory = Memory::map(small, access, how, None).map_err(failed)?;
            bind(&memory)?;
            return Ok((memory.watched(page_bytes())?, "small pages"));
        }
        let roomy = huge.checked_add(HUGE_PAGE).ok_or_else(too_long)?;
        let memory = Memory::map(roomy, access, how, None).map_err(failed)?.trim(huge);
        #[cfg(target_os = "linux")]
        // SAFETY: our own mapping, nothing is in it yet.
        let advised =
            unsafe { libc::madvise(memory.start.as_ptr().cast(), memory.len, libc::MADV_HUGEPAGE) } == 0;
        #[cfg(not(target_os = "linux"))]
        let advised = false;
        bind(&memory)?;
        let pages = if advised { "2 MiB pages by request (MADV_HUGEPAGE)" } else { "small pages" };
        Ok((memory.watched(page_bytes())?, pages))
    }

    /// Anonymous memory of at least `len` bytes, and what its pages are, in words. No node is found here.
    #[cfg(windows)]
    pub(super) fn anonymous(len: usize, _node: Option<&Node>) -> Result<(Mapping, &'static str), TierError> {
        let whole = len.max(1).checked_next_multiple_of(page_bytes()).ok_or_else(too_long)?;
        let memory = Memory::zeros(whole)
            .map_err(|source| TierError::System { operation: "map memory for the index", source })?;
        Ok((memory.watched(page_bytes())?, "small pages"))
    }

    /// Files and devices as memory: refused, since nothing here says when one is cut short.
    #[cfg(windows)]
    pub(super) fn shared(
        _file: &File,
        path: &Path,
        _len: usize,
        _granule: usize,
        _writable: bool,
    ) -> Result<(Mapping, bool), TierError> {
        Err(TierError::Parameter(format!(
            "{}: memory that processes share is had on Linux and macOS; take the tier mapped without a path",
            path.display()
        )))
    }

    /// The first `len` bytes (a multiple of `granule`) of a file or device, shared, and whether stores go to a
    /// persistent medium without the page cache (MAP_SYNC).
    #[cfg(unix)]
    pub(super) fn shared(
        file: &File,
        path: &Path,
        len: usize,
        granule: usize,
        writable: bool,
    ) -> Result<(Mapping, bool), TierError> {
        let access = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        #[cfg(target_os = "linux")]
        {
            // Only DAX file systems grant it, which is how one is told from the others.
            let how = libc::MAP_SHARED_VALIDATE | MAP_SYNC;
            if let Ok(memory) = Memory::map(len, access, how, Some(file)) {
                return Ok((memory.watched(granule)?, true));
            }
        }
        let memory = Memory::map(len, access, libc::MAP_SHARED, Some(file))
            .map_err(|source| TierError::io("map", path, source))?;
        #[cfg(target_os = "linux")]
        // SAFETY: our own mapping; a hint, which tmpfs follows where it may.
        unsafe {
            libc::madvise(memory.start.as_ptr().cast(), memory.len, libc::MADV_HUGEPAGE)
        };
        Ok((memory.watched(granule)?, false))
    }

    /// The first address.
    pub(super) fn start(&self) -> *mut u8 {
        self.memory.start.as_ptr()
    }

    /// Bytes mapped.
    pub(super) fn len(&self) -> usize {
        self.memory.len
    }

    /// Offset of the first byte that could not be reached.
    pub(super) fn lost(&self) -> Option<usize> {
        self.watch.lost()
    }

    /// Takes the right to write away.
    pub(super) fn seal(&self) {
        // SAFETY: our own mapping, which nobody writes any more. Where it is refused nothing is lost but a precaution.
        #[cfg(unix)]
        unsafe {
            libc::mprotect(self.start().cast(), self.len(), libc::PROT_READ)
        };
        // SAFETY: as above, and the answer has room.
        #[cfg(windows)]
        unsafe {
            use windows_sys::Win32::System::Memory::{PAGE_READONLY, VirtualProtect};
            let mut before = 0;
            VirtualProtect(self.start().cast(), self.len(), PAGE_READONLY, &mut before)
        };
    }
}

fn too_long() -> TierError {
    TierError::Parameter("the index is longer than the address space".into())
}

#[cfg(target_os = "linux")]
fn free_huge_pages(node: Option<&Node>) -> u64 {
    let pool = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    node.map_or_else(|| numa::read_number(pool).unwrap_or(0), Node::free_huge_pages)
}

/// The file or device behind a region; its lock is shared with all who read it, for as long as they do.
#[derive(Debug)]
pub(super) struct Backing {
    pub(super) file: File,
    /// Whether its length can be asked for: not that of a device.
    pub(super) is_file: bool,
}

/// Bytes of an index in mapped memory.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) mapping: Mapping,
    /// Where the bytes begin.
    pub(super) skip: usize,
    /// How many there are.
    pub(super) len: usize,
    pub(super) backing: Option<Backing>,
    /// The place in words.
    pub(super) name: String,
}

impl Region {
    /// The bytes of the index.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: `skip + len` bytes were mapped and initialised by the loader. Bytes of a shared place change only
        // under an exclusive lock, which is not to be had while `backing` holds a shared one; a process that
        // ignores locks can change them, as with any mapped file, and checksums of records are there for that.
        unsafe { std::slice::from_raw_parts(self.mapping.start().add(self.skip), self.len) }
    }

    /// Enters all pages into the process's page table: a prefetch of a page that is not there does nothing.
    pub(super) fn populate(&self) {
        #[cfg(target_os = "linux")]
        // SAFETY: our own mapping; pages are only read. What cannot be read faults later, where it is handled.
        unsafe {
            libc::madvise(self.mapping.start().cast(), self.mapping.len(), MADV_POPULATE_READ)
        };
    }

    /// Fails once bytes of the region were found missing; `thorough` asks for the file's length too.
    pub(super) fn check(&self, thorough: bool) -> Result<(), TierError> {
        let needed = (self.skip + self.len) as u64;
        let file = self.backing.as_ref().filter(|backing| backing.is_file);
        let lost = self.mapping.lost();
        if lost.is_none() && !(thorough && file.is_some()) {
            return Ok(());
        }
        let found = file.and_then(|backing| backing.file.metadata().ok()).map(|file| file.len());
        if lost.is_none() && found.is_none_or(|found| found >= needed) {
            return Ok(());
        }
        let found = found.map_or(String::new(), |found| format!(", the file has {found} bytes"));
        Err(TierError::Lost {
            place: self.name.clone(),
            what: match lost {
                Some(offset) => format!("the byte at offset {offset} of {needed} could not be read{found}"),
                None => format!("{needed} bytes are needed{found}"),
            },
        })
    }
}

impl InPlace for Arc<Region> {
    fn bytes(&self) -> &[u8] {
        Region::bytes(self)
    }

    #[inline]
    fn check(&self, thorough: bool) -> Result<(), TierError> {
        Region::check(self, thorough)
    }
}
