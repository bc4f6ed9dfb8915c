//! An emulated graphics card for tests: the kernels of `crates/gpu`, compiled for this machine's processor.
//!
//! The threads of a block are fibers, which switch at barriers and in operations of a warp, in an order that
//! a seed draws. An invalid operation of a kernel is an error, and memory ends at a page without access. The
//! emulation shows if kernels are correct, not how fast they are.

use bathyal_gpu::GpuError;
use bathyal_gpu::card::{Card, CardMemory, CardProfile, CardQueue, LAUNCH_LIMIT, Launch, check_within};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Type of `simt_launch` in `cpp/kernels.cpp`. The parameters are the name of the kernel, its argument, the
/// number of blocks, the threads of a block, the bytes of shared memory of a block, a seed, and a buffer for
/// an error message with its length.
pub type LaunchFunction =
    unsafe extern "C" fn(*const c_char, *const c_void, u32, u32, u32, u64, *mut c_char, u32) -> c_int;

unsafe extern "C" {
    fn simt_launch(
        kernel: *const c_char,
        argument: *const c_void,
        blocks: u32,
        threads: u32,
        shared_bytes: u32,
        seed: u64,
        message: *mut c_char,
        message_bytes: u32,
    ) -> c_int;
}

/// Maximum bytes of an error message.
const MESSAGE_BYTES: usize = 512;
/// Addresses of memory are multiples of this.
const ALIGNMENT: u64 = 256;

/// Properties of an emulated card.
#[derive(Debug, Clone)]
pub struct EmulatedOptions {
    /// Seed of the order in which threads continue.
    pub seed: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Maximum bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// Number of the launch that fails, as on a lost card, counted from 1; 0 for none.
    pub fails_at: u64,
    /// Minimum duration of a launch.
    pub lasts: Duration,
    /// Maximum duration of a launch. If a launch takes longer, the card counts as lost.
    pub launch_limit: Duration,
    /// Folder to which launches are written before they run, for `cpp/replay.cpp`. A launch's file has its
    /// number as name.
    pub record: Option<PathBuf>,
}

impl Default for EmulatedOptions {
    fn default() -> EmulatedOptions {
        EmulatedOptions {
            seed: 1,
            memory_bytes: 1 << 30,
            shared_bytes: 48 << 10,
            fails_at: 0,
            lasts: Duration::ZERO,
            launch_limit: LAUNCH_LIMIT,
            record: None,
        }
    }
}

/// An emulated card.
#[derive(Debug)]
pub struct EmulatedCard {
    profile: CardProfile,
    state: Arc<CardState>,
}

#[derive(Debug)]
struct CardState {
    function: LaunchFunction,
    options: EmulatedOptions,
    launches: AtomicU64,
    /// Bytes of allocated memory.
    taken: AtomicU64,
    /// Address and bytes of each allocation.
    memories: Mutex<Vec<(u64, u64)>>,
    /// Held by each access to memory if launches are recorded.
    recording: Mutex<()>,
}

impl CardState {
    fn memories(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Excludes other queues from memory if launches are recorded, because a record contains all memory.
    fn exclusive_access(&self) -> Option<MutexGuard<'_, ()>> {
        let records = self.options.record.is_some();
        records.then(|| self.recording.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes a launch, and the content of all memory before it, to `folder`.
    fn record(
        &self,
        folder: &Path,
        number: u64,
        launch: &Launch<'_>,
        argument: &[u64],
    ) -> std::io::Result<()> {
        let mut file = std::io::BufWriter::new(std::fs::File::create(folder.join(number.to_string()))?);
        let memories = self.memories();
        file.write_all(&(memories.len() as u64).to_ne_bytes())?;
        for (address, bytes) in memories.iter() {
            file.write_all(&address.to_ne_bytes())?;
            file.write_all(&bytes.to_ne_bytes())?;
            // SAFETY: memory in the list is allocated, and `recording` excludes other accesses.
            file.write_all(unsafe { std::slice::from_raw_parts(*address as *const u8, *bytes as usize) })?;
        }
        let mut name = [0; 32];
        name[..launch.kernel.name().len()].copy_from_slice(launch.kernel.name().as_bytes());
        file.write_all(&name)?;
        for number in [launch.blocks, launch.threads, launch.shared_bytes] {
            file.write_all(&number.to_ne_bytes())?;
        }
        file.write_all(&self.options.seed.wrapping_add(number).to_ne_bytes())?;
        file.write_all(&(argument.len() as u64).to_ne_bytes())?;
        argument.iter().try_for_each(|word| file.write_all(&word.to_ne_bytes()))?;
        file.flush()
    }
}

impl EmulatedCard {
    /// Creates a card that runs the kernels of `crates/gpu`.
    pub fn new(options: EmulatedOptions) -> EmulatedCard {
        // SAFETY: the function is linked to the program, and has the type of `cpp/kernels.cpp`.
        unsafe { EmulatedCard::with_function(simt_launch, options) }
    }

    /// Creates a card that runs other kernels, by their `function`.
    ///
    /// # Safety
    /// `function` must be as described for [`LaunchFunction`], as long as the card, its memory or its queues
    /// exist.
    pub unsafe fn with_function(function: LaunchFunction, options: EmulatedOptions) -> EmulatedCard {
        let profile = CardProfile {
            name: "emulated".into(),
            memory_bytes: options.memory_bytes,
            shared_bytes: options.shared_bytes,
        };
        let (launches, taken) = (AtomicU64::new(0), AtomicU64::new(0));
        let (memories, recording) = (Mutex::default(), Mutex::default());
        let state = CardState { function, options, launches, taken, memories, recording };
        EmulatedCard { profile, state: Arc::new(state) }
    }

    /// Returns the bytes of its memory that are allocated.
    pub fn taken_bytes(&self) -> u64 {
        self.state.taken.load(Ordering::Relaxed)
    }

    /// Returns the number of launches so far.
    pub fn launches(&self) -> u64 {
        self.state.launches.load(Ordering::Relaxed)
    }
}

impl Card for EmulatedCard {
    fn profile(&self) -> &CardProfile {
        &self.profile
    }

    fn free_bytes(&self) -> u64 {
        self.state.options.memory_bytes.saturating_sub(self.taken_bytes())
    }

    fn allocate(&self, what: &'static str, bytes: u64) -> Result<Box<dyn CardMemory>, GpuError> {
        let before = self.state.taken.fetch_add(bytes, Ordering::Relaxed);
        let state = self.state.clone();
        if before + bytes > state.options.memory_bytes {
            state.taken.fetch_sub(bytes, Ordering::Relaxed);
            let free = state.options.memory_bytes - before;
            return Err(GpuError::Memory { what, needed: bytes, free });
        }
        Ok(Box::new(GuardedMemory::new(state, bytes)))
    }

    fn queue(&self) -> Result<Box<dyn CardQueue>, GpuError> {
        Ok(Box::new(EmulatedQueue { state: self.state.clone() }))
    }
}

/// Memory between two pages without access. It ends as near to the second one as its alignment allows. The
/// bytes around it are zeros.
#[derive(Debug)]
struct GuardedMemory {
    state: Arc<CardState>,
    mapping: *mut c_void,
    mapped: usize,
    address: u64,
    bytes: u64,
}

// SAFETY: the mapping belongs to this value alone, and any thread may access and unmap it. Queues access it
// by its address, under the rules of `CardQueue`.
unsafe impl Send for GuardedMemory {}
// SAFETY: as above.
unsafe impl Sync for GuardedMemory {}

impl GuardedMemory {
    fn new(state: Arc<CardState>, bytes: u64) -> GuardedMemory {
        // SAFETY: the call takes no pointers.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
        let room = bytes.next_multiple_of(page).max(page);
        let mapped = (room + 2 * page) as usize;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the mapping is new, and both pages that lose access are within it.
        let mapping = unsafe {
            let mapping = libc::mmap(std::ptr::null_mut(), mapped, access, private, -1, 0);
            assert_ne!(mapping, libc::MAP_FAILED, "no memory for the emulated card");
            libc::mprotect(mapping, page as usize, libc::PROT_NONE);
            libc::mprotect(mapping.byte_add(mapped - page as usize), page as usize, libc::PROT_NONE);
            mapping
        };
        let end = mapping as u64 + mapped as u64 - page;
        let address = (end - bytes) / ALIGNMENT * ALIGNMENT;
        state.memories().push((address, bytes));
        GuardedMemory { state, mapping, mapped, address, bytes }
    }
}

impl CardMemory for GuardedMemory {
    fn address(&self) -> u64 {
        self.address
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for GuardedMemory {
    fn drop(&mut self) {
        self.state.taken.fetch_sub(self.bytes, Ordering::Relaxed);
        self.state.memories().retain(|(address, _)| *address != self.address);
        // SAFETY: the mapping was created once, and nothing uses it any more.
        unsafe { libc::munmap(self.mapping, self.mapped) };
    }
}

#[derive(Debug)]
struct EmulatedQueue {
    state: Arc<CardState>,
}

impl CardQueue for EmulatedQueue {
    fn write(&mut self, to: &dyn CardMemory, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
        check_within(to, offset, bytes.len())?;
        let to = (to.address() + offset) as *mut u8;
        let _access = self.state.exclusive_access();
        // SAFETY: the bytes are within the memory.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), GpuError> {
        let CardState { function, options, launches, .. } = &*self.state;
        let kernel = launch.kernel.name();
        let number = launches.fetch_add(1, Ordering::Relaxed) + 1;
        if number == options.fails_at {
            return Err(GpuError::Driver { operation: "launch a kernel", reason: "the card is lost".into() });
        }
        if !options.lasts.is_zero() {
            std::thread::sleep(options.lasts.min(options.launch_limit));
        }
        if options.lasts > options.launch_limit {
            return Err(GpuError::Stuck { seconds: options.launch_limit.as_secs() });
        }
        let _access = self.state.exclusive_access();
        let name = CString::new(kernel).unwrap_or_default();
        // A kernel's argument has the alignment of its widest field.
        let argument: Vec<u64> =
            launch.argument.as_chunks::<8>().0.iter().map(|b| u64::from_ne_bytes(*b)).collect();
        assert_eq!(8 * argument.len(), launch.argument.len(), "the argument must consist of whole words");
        if let Some(folder) = &options.record {
            let recorded = self.state.record(folder, number, launch, &argument);
            recorded.map_err(|e| GpuError::Driver { operation: "record a launch", reason: e.to_string() })?;
        }
        let mut message = [0 as c_char; MESSAGE_BYTES];
        // SAFETY: the caller has built the argument for this kernel, and the buffer has the given length.
        let code = unsafe {
            function(
                name.as_ptr(),
                argument.as_ptr().cast(),
                launch.blocks,
                launch.threads,
                launch.shared_bytes,
                options.seed.wrapping_add(number),
                message.as_mut_ptr(),
                MESSAGE_BYTES as u32,
            )
        };
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the buffer was zeroed, and a written message ends in a zero byte.
        let message = unsafe { CStr::from_ptr(message.as_ptr()) }.to_string_lossy().into_owned();
        let reason = if code == 2 { "there is no kernel of this name".into() } else { message };
        Err(GpuError::Kernel { kernel, reason })
    }

    /// Returns at once, because operations are executed when they are queued.
    fn finish(&mut self) -> Result<(), GpuError> {
        Ok(())
    }

    fn read(&mut self, from: &dyn CardMemory, offset: u64, out: &mut [u8]) -> Result<(), GpuError> {
        check_within(from, offset, out.len())?;
        let _access = self.state.exclusive_access();
        let from = (from.address() + offset) as *const u8;
        // SAFETY: the bytes are within the memory, and no launch of this queue is running.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        Ok(())
    }
}
