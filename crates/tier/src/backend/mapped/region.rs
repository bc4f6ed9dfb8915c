//! Mapped memory: mapping and unmapping for each kind of place.

use super::lost::Watch;
#[cfg(unix)]
use super::numa;
use super::numa::NodeDescription;
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
/// The flag of Linux, which some C libraries lack.
#[cfg(target_os = "linux")]
const MAP_SYNC: i32 = 0x8_0000;
/// The advice of Linux 5.14 and later. Older kernels refuse it, and each page is then mapped at its first
/// read.
#[cfg(target_os = "linux")]
const MADV_POPULATE_READ: i32 = 22;

/// Returns the bytes of a page of memory.
#[cfg(unix)]
pub(super) fn page_bytes() -> usize {
    // SAFETY: the call returns a constant of the system and touches no memory.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096).max(4096)
}

/// Returns the bytes of a page of memory on all processors that Windows supports.
#[cfg(windows)]
pub(super) fn page_bytes() -> usize {
    4096
}

/// A mapping that is watched for lost memory, and unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    // Dropped before the memory: fields are dropped in this order.
    watch: Watch,
    memory: MappedMemory,
}

/// Mapped addresses, unmapped when dropped.
#[derive(Debug)]
struct MappedMemory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory; the code that makes references to it controls their aliasing.
unsafe impl Send for MappedMemory {}
// SAFETY: as above.
unsafe impl Sync for MappedMemory {}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which is no longer referred to.
        #[cfg(unix)]
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.len)
        };
        // SAFETY: as above; a length of 0 releases the whole reservation.
        #[cfg(windows)]
        unsafe {
            use windows_sys::Win32::System::Memory::{MEM_RELEASE, VirtualFree};
            VirtualFree(self.start.as_ptr().cast(), 0, MEM_RELEASE)
        };
    }
}

impl MappedMemory {
    /// Allocates zeroed pages.
    #[cfg(windows)]
    fn zeros(len: usize) -> io::Result<MappedMemory> {
        use windows_sys::Win32::System::Memory::{MEM_COMMIT, MEM_RESERVE, PAGE_READWRITE, VirtualAlloc};
        // SAFETY: new memory at an address of the system's choice.
        let start = unsafe { VirtualAlloc(std::ptr::null(), len, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE) };
        let start = NonNull::new(start.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(MappedMemory { start, len })
    }

    #[cfg(unix)]
    fn map(len: usize, access: i32, flags: i32, file: Option<&File>) -> io::Result<MappedMemory> {
        let descriptor = file.map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: a new mapping at an address of the system's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, descriptor, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(start.cast()) {
            Some(start) => Ok(MappedMemory { start, len }),
            None => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
        }
    }

    /// Unmaps the ends outside whole huge pages; `len` bytes remain.
    #[cfg(unix)]
    fn trim(self, len: usize) -> MappedMemory {
        let start = self.start.as_ptr() as usize;
        let head = start.next_multiple_of(HUGE_PAGE) - start;
        let tail = self.len - head - len;
        let memory = std::mem::ManuallyDrop::new(self);
        let from = memory.start.as_ptr();
        // SAFETY: our own mapping has `head + len + tail` bytes, and nothing refers to its ends.
        unsafe {
            if head > 0 {
                libc::munmap(from.cast(), head);
            }
            if tail > 0 {
                libc::munmap(from.add(head + len).cast(), tail);
            }
            MappedMemory { start: memory.start.add(head), len }
        }
    }

    fn watched(self, granule: usize) -> Result<Mapping, TierError> {
        let watch = Watch::begin(self.start.as_ptr() as usize, self.len, granule)?;
        Ok(Mapping { watch, memory: self })
    }
}

impl Mapping {
    /// Maps anonymous memory of at least `len` bytes, on `node` if given. Returns it with a description of
    /// its pages. Huge pages come from the system's pool if it has enough of them; otherwise they are
    /// requested by a hint.
    #[cfg(unix)]
    pub(super) fn anonymous(
        len: usize,
        node: Option<&NodeDescription>,
    ) -> Result<(Mapping, &'static str), TierError> {
        let failed = |source| TierError::System { operation: "map memory for the index", source };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let huge = len.max(1).checked_next_multiple_of(HUGE_PAGE).ok_or_else(too_long)?;
        let bind = |memory: &MappedMemory| match node {
            Some(node) => numa::bind(memory.start.as_ptr(), memory.len, node),
            None => Ok(()),
        };
        #[cfg(target_os = "linux")]
        if free_huge_pages(node) >= (huge / HUGE_PAGE) as u64
            && let Ok(memory) =
                MappedMemory::map(huge, access, flags | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB, None)
        {
            bind(&memory)?;
            return Ok((memory.watched(HUGE_PAGE)?, "2 MiB pages of the pool (MAP_HUGETLB)"));
        }
        if huge == HUGE_PAGE {
            // Most of one huge page would be unused.
            let small = len.max(1).next_multiple_of(page_bytes());
            let memory = MappedMemory::map(small, access, flags, None).map_err(failed)?;
            bind(&memory)?;
            return Ok((memory.watched(page_bytes())?, "small pages"));
        }
        let untrimmed = huge.checked_add(HUGE_PAGE).ok_or_else(too_long)?;
        let memory = MappedMemory::map(untrimmed, access, flags, None).map_err(failed)?.trim(huge);
        #[cfg(target_os = "linux")]
        // SAFETY: our own new mapping; the advice changes no content.
        let advised =
            unsafe { libc::madvise(memory.start.as_ptr().cast(), memory.len, libc::MADV_HUGEPAGE) } == 0;
        #[cfg(not(target_os = "linux"))]
        let advised = false;
        bind(&memory)?;
        let pages = if advised { "2 MiB pages by request (MADV_HUGEPAGE)" } else { "small pages" };
        Ok((memory.watched(page_bytes())?, pages))
    }

    /// Allocates anonymous memory of at least `len` bytes. Returns it with a description of its pages.
    /// Ignores the node: on this system none is ever found.
    #[cfg(windows)]
    pub(super) fn anonymous(
        len: usize,
        _node: Option<&NodeDescription>,
    ) -> Result<(Mapping, &'static str), TierError> {
        let page_aligned = len.max(1).checked_next_multiple_of(page_bytes()).ok_or_else(too_long)?;
        let memory = MappedMemory::zeros(page_aligned)
            .map_err(|source| TierError::System { operation: "map memory for the index", source })?;
        Ok((memory.watched(page_bytes())?, "small pages"))
    }

    /// Refuses to map a file or device: this system does not report that a mapped file was truncated.
    #[cfg(windows)]
    pub(super) fn shared(
        _file: &File,
        path: &Path,
        _len: usize,
        _granule: usize,
        _writable: bool,
    ) -> Result<(Mapping, bool), TierError> {
        Err(TierError::Parameter(format!(
            "{}: shared memory is supported on Linux and macOS only; use the tier `mapped` without a path",
            path.display()
        )))
    }

    /// Maps the first `len` bytes (a multiple of `granule`) of a file or device, shared. The flag returned is
    /// true if stores go to a persistent medium without the page cache (MAP_SYNC).
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
            // Only DAX file systems grant the flag, so it distinguishes them from others.
            let flags = libc::MAP_SHARED_VALIDATE | MAP_SYNC;
            if let Ok(memory) = MappedMemory::map(len, access, flags, Some(file)) {
                return Ok((memory.watched(granule)?, true));
            }
        }
        let memory = MappedMemory::map(len, access, libc::MAP_SHARED, Some(file))
            .map_err(|source| TierError::io("map", path, source))?;
        #[cfg(target_os = "linux")]
        // SAFETY: our own mapping; the advice is a hint, which tmpfs follows if it is configured to.
        unsafe {
            libc::madvise(memory.start.as_ptr().cast(), memory.len, libc::MADV_HUGEPAGE)
        };
        Ok((memory.watched(granule)?, false))
    }

    /// Returns the first address.
    pub(super) fn start(&self) -> *mut u8 {
        self.memory.start.as_ptr()
    }

    /// Returns the number of mapped bytes.
    pub(super) fn len(&self) -> usize {
        self.memory.len
    }

    /// Returns the offset of the first byte that could not be read, if any.
    pub(super) fn lost(&self) -> Option<usize> {
        self.watch.lost()
    }

    /// Makes the mapping read-only, as a precaution; a refusal by the system is ignored.
    pub(super) fn seal(&self) {
        // SAFETY: our own mapping, which is no longer written to.
        #[cfg(unix)]
        unsafe {
            libc::mprotect(self.start().cast(), self.len(), libc::PROT_READ)
        };
        // SAFETY: as above, and the result has room.
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
fn free_huge_pages(node: Option<&NodeDescription>) -> u64 {
    let pool = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    node.map_or_else(|| numa::read_number(pool).unwrap_or(0), NodeDescription::free_huge_pages)
}

/// The file or device behind a region, with a shared lock on it for as long as it is open.
#[derive(Debug)]
pub(super) struct Backing {
    pub(super) file: File,
    /// True for a file, whose length can be checked; false for a device.
    pub(super) is_file: bool,
}

/// Bytes of an index in mapped memory.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) mapping: Mapping,
    /// Offset of the bytes within the mapping.
    pub(super) skip: usize,
    /// Number of bytes.
    pub(super) len: usize,
    pub(super) backing: Option<Backing>,
    /// Description of the place.
    pub(super) name: String,
}

impl Region {
    /// Returns the bytes of the index.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: `skip + len` bytes were mapped and initialised by the loader. Bytes of a shared place
        // change only under an exclusive lock, which no process can take while `backing` holds a shared one.
        // A process that ignores locks can change them, as with any mapped file; checksums of records detect
        // that.
        unsafe { std::slice::from_raw_parts(self.mapping.start().add(self.skip), self.len) }
    }

    /// Enters all pages into the process's page table: a prefetch has no effect on a page that is not in it.
    pub(super) fn populate(&self) {
        #[cfg(target_os = "linux")]
        // SAFETY: our own mapping, whose pages are only read. An unreadable page faults later, when it is
        // used.
        unsafe {
            libc::madvise(self.mapping.start().cast(), self.mapping.len(), MADV_POPULATE_READ)
        };
    }

    /// Fails with [`TierError::Lost`] if bytes of the region are known to be missing. `thorough` also checks
    /// the length of the file.
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
