//! A graphics card for tests: the kernels of `crates/gpu`, compiled for this machine's processor, on threads that are switched between
//! at barriers and in operations of a warp, in an order that a seed draws. What no kernel may do is an error, and memory ends at a page
//! that nobody may touch.
//!
//! It says whether kernels are right, and nothing of how fast they are.

use bathyal_gpu::GpuError;
use bathyal_gpu::card::{Card, CardMemory, CardProfile, CardQueue, LAUNCH_LIMIT, Launch, check_within};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// `simt_launch` of `cpp/kernels.cpp`: kernel, its argument, blocks, threads, bytes that these share, a seed, and room for what went
/// wrong.
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
        why: *mut c_char,
        why_bytes: u32,
    ) -> c_int;
}

/// Bytes of a sentence that says what went wrong.
const WHY_BYTES: usize = 512;
/// Memory begins at a multiple of this.
const ALIGNMENT: u64 = 256;

/// What an emulated card is like.
#[derive(Debug, Clone)]
pub struct EmulatedOptions {
    /// Draws the order in which threads go on.
    pub seed: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes that the threads of a block may share.
    pub shared_bytes: u32,
    /// The launch that fails, counted from 1; 0 for none: a card that is lost.
    pub fails_at: u64,
    /// How long a launch lasts at least.
    pub lasts: Duration,
    /// A card is taken for lost whose launch lasts longer.
    pub launch_limit: Duration,
    /// A folder into which launches are written before they run, each as a file of its number, for `cpp/replay.cpp`.
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
    taken: AtomicU64,
    /// Address and bytes of all that is allocated.
    memories: Mutex<Vec<(u64, u64)>>,
    /// Held by whoever touches memory while launches are recorded.
    recording: Mutex<()>,
}

impl CardState {
    fn memories(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps other queues from memory where launches are recorded, which have it as it was.
    fn alone(&self) -> Option<MutexGuard<'_, ()>> {
        let records = self.options.record.is_some();
        records.then(|| self.recording.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes a launch, and all memory as it is before, into `folder`.
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
            // SAFETY: it is allocated as long as it is in the list, and nothing else touches it.
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
    /// A card that runs the kernels of `crates/gpu`.
    pub fn new(options: EmulatedOptions) -> EmulatedCard {
        // SAFETY: it is what the build has compiled, and lives as long as the program.
        unsafe { EmulatedCard::with(simt_launch, options) }
    }

    /// A card that runs other kernels than these.
    ///
    /// # Safety
    /// `function` is as [`LaunchFunction`] says, for as long as the card and what was allocated there is used.
    pub unsafe fn with(function: LaunchFunction, options: EmulatedOptions) -> EmulatedCard {
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

    /// Bytes of its memory that are taken.
    pub fn taken_bytes(&self) -> u64 {
        self.state.taken.load(Ordering::Relaxed)
    }

    /// Launches so far.
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
        Ok(Box::new(Guarded::new(state, bytes)))
    }

    fn queue(&self) -> Result<Box<dyn CardQueue>, GpuError> {
        Ok(Box::new(EmulatedQueue { state: self.state.clone() }))
    }
}

/// Memory whose end is as near as its alignment allows to a page that nobody may touch, between zeros before and behind.
#[derive(Debug)]
struct Guarded {
    state: Arc<CardState>,
    mapping: *mut c_void,
    mapped: usize,
    address: u64,
    bytes: u64,
}

// SAFETY: it is plain memory; a queue touches none that another one writes.
unsafe impl Send for Guarded {}
// SAFETY: as above.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn new(state: Arc<CardState>, bytes: u64) -> Guarded {
        // SAFETY: it asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
        let room = bytes.next_multiple_of(page).max(page);
        let mapped = (room + 2 * page) as usize;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, of which the first and the last page lose all access.
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
        Guarded { state, mapping, mapped, address, bytes }
    }
}

impl CardMemory for Guarded {
    fn address(&self) -> u64 {
        self.address
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.state.taken.fetch_sub(self.bytes, Ordering::Relaxed);
        self.state.memories().retain(|(address, _)| *address != self.address);
        // SAFETY: mapped once, used by nobody any more.
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
        let _alone = self.state.alone();
        // SAFETY: it lies within the memory.
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
        let _alone = self.state.alone();
        let name = CString::new(kernel).unwrap_or_default();
        // A kernel's argument is aligned as its widest number is.
        let argument: Vec<u64> =
            launch.argument.as_chunks::<8>().0.iter().map(|b| u64::from_ne_bytes(*b)).collect();
        assert_eq!(8 * argument.len(), launch.argument.len(), "an argument of whole words");
        if let Some(folder) = &options.record {
            let recorded = self.state.record(folder, number, launch, &argument);
            recorded.map_err(|e| GpuError::Driver { operation: "record a launch", reason: e.to_string() })?;
        }
        let mut why = [0 as c_char; WHY_BYTES];
        // SAFETY: the argument is what the kernel takes, by its caller; the rest is as the function says.
        let code = unsafe {
            function(
                name.as_ptr(),
                argument.as_ptr().cast(),
                launch.blocks,
                launch.threads,
                launch.shared_bytes,
                options.seed.wrapping_add(number),
                why.as_mut_ptr(),
                WHY_BYTES as u32,
            )
        };
        if code == 0 {
            return Ok(());
        }
        // SAFETY: it was zeros, and what was written ends with one.
        let why = unsafe { CStr::from_ptr(why.as_ptr()) }.to_string_lossy().into_owned();
        Err(GpuError::Kernel {
            kernel,
            reason: if code == 2 { "there is none of that name".into() } else { why },
        })
    }

    /// Whatever was queued was done at once.
    fn finish(&mut self) -> Result<(), GpuError> {
        Ok(())
    }

    fn read(&mut self, from: &dyn CardMemory, offset: u64, out: &mut [u8]) -> Result<(), GpuError> {
        check_within(from, offset, out.len())?;
        let _alone = self.state.alone();
        let from = (from.address() + offset) as *const u8;
        // SAFETY: it lies within the memory, and nothing runs any more.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        Ok(())
    }
}
