//! Cards of NVIDIA, by the driver's own interface: its library is opened when a card is asked for.

use crate::card::{Card, CardMemory, CardProfile, CardQueue, Kernel, LAUNCH_LIMIT, Launch, check_within};
use crate::error::GpuError;
use cudarc::driver::{DriverError, result, sys};
use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What is queued is asked for without a pause for so long: most launches are over then.
const BUSY: Duration = Duration::from_millis(1);
/// Pause between two later questions.
const PAUSE: Duration = Duration::from_micros(100);

/// Bytes that the threads of a block may share without having asked for more.
const USUAL_SHARED_BYTES: u32 = 48 << 10;

fn refused(operation: &'static str) -> impl Fn(DriverError) -> GpuError {
    move |error| GpuError::Driver { operation, reason: error.to_string() }
}

/// The context that all programs of a process share, kept for as long as anything of it is.
#[derive(Debug)]
struct Context {
    device: sys::CUdevice,
    context: sys::CUcontext,
    /// What was loaded, with what it was made of.
    modules: Vec<(&'static str, sys::CUmodule)>,
    /// A kernel each, in the order of [`Kernel::ALL`].
    functions: Vec<sys::CUfunction>,
    /// Whether a kernel does not end. The driver would wait for it at whatever is given back, which is left to it then.
    stuck: AtomicBool,
}

// SAFETY: the driver's handles may be used by any thread that has made the context current, as every use here does.
unsafe impl Send for Context {}
// SAFETY: as above; the driver locks what it has to.
unsafe impl Sync for Context {}

impl Context {
    fn open(device: sys::CUdevice) -> Result<Context, GpuError> {
        // SAFETY: the device is one that the driver has named.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(refused("open the card"))?;
        // What was opened is closed when a later step fails.
        let mut opened = Context {
            device,
            context,
            modules: Vec::new(),
            functions: Vec::new(),
            stuck: AtomicBool::new(false),
        };
        opened.enter()?;
        for kernel in Kernel::ALL {
            let operation = "load the kernels (is it older than CUDA 12.2?)";
            let held = |_| GpuError::Driver { operation, reason: "they hold a zero byte".into() };
            let (ptx, name) =
                (CString::new(kernel.ptx()).map_err(held)?, CString::new(kernel.name()).map_err(held)?);
            let known = opened.modules.iter().find(|(of, _)| *of == kernel.ptx()).map(|(_, module)| *module);
            let module = match known {
                Some(module) => module,
                None => {
                    // SAFETY: the text ends with a zero byte, and lives until the call returns.
                    let module = unsafe { result::module::load_data(ptx.as_ptr().cast()) };
                    let module = module.map_err(refused(operation))?;
                    opened.modules.push((kernel.ptx(), module));
                    module
                }
            };
            // SAFETY: the module was loaded.
            let function = unsafe { result::module::get_function(module, name) };
            opened.functions.push(function.map_err(refused("find a kernel"))?);
        }
        Ok(opened)
    }

    /// Makes it the calling thread's.
    fn enter(&self) -> Result<(), GpuError> {
        // SAFETY: the context is held for as long as `self` is.
        unsafe { result::ctx::set_current(self.context) }.map_err(refused("turn to the card"))
    }

    /// Makes it the calling thread's, to give something back; false where that would have to be waited for.
    fn enter_to_free(&self) -> bool {
        !self.stuck.load(Ordering::Relaxed) && self.enter().is_ok()
    }

    fn function(&self, kernel: Kernel) -> sys::CUfunction {
        let at = Kernel::ALL.iter().position(|known| *known == kernel);
        at.and_then(|at| self.functions.get(at).copied()).unwrap_or(std::ptr::null_mut())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.stuck.load(Ordering::Relaxed) {
            return;
        }
        if self.enter().is_ok() {
            for (_, module) in &self.modules {
                // SAFETY: nothing that runs is left: queues and memory hold the context.
                let _ = unsafe { result::module::unload(*module) };
            }
        }
        // SAFETY: it was retained once.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// A card.
#[derive(Debug)]
pub(crate) struct CudaCard {
    context: Arc<Context>,
    profile: CardProfile,
}

impl CudaCard {
    pub(crate) fn open(ordinal: u32) -> Result<CudaCard, GpuError> {
        // SAFETY: it looks for a library, whose start has no conditions.
        if !unsafe { sys::is_culib_present() } {
            return Err(GpuError::NoDriver);
        }
        result::init().map_err(refused("begin"))?;
        let count = result::device::get_count().map_err(refused("count the cards"))?.max(0) as u32;
        if ordinal >= count {
            return Err(GpuError::NoCard { ordinal, count });
        }
        let device = result::device::get(ordinal as i32).map_err(refused("find the card"))?;
        let name = result::device::get_name(device).map_err(refused("name the card"))?;
        let shared = sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        // SAFETY: the device is one that the driver has named.
        let (memory_bytes, shared) =
            unsafe { (result::device::total_mem(device), result::device::get_attribute(device, shared)) };
        let profile = CardProfile {
            name,
            memory_bytes: memory_bytes.map_err(refused("tell the card's memory"))? as u64,
            shared_bytes: shared.map_err(refused("tell what blocks share"))?.max(0) as u32,
        };
        let context = Arc::new(Context::open(device)?);
        if profile.shared_bytes > USUAL_SHARED_BYTES {
            let most = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            for function in &context.functions {
                // SAFETY: the function is one of the context's modules.
                unsafe {
                    result::function::set_function_attribute(*function, most, profile.shared_bytes as i32)
                }
                .map_err(refused("let blocks share more memory"))?;
            }
        }
        Ok(CudaCard { context, profile })
    }
}

impl Card for CudaCard {
    fn profile(&self) -> &CardProfile {
        &self.profile
    }

    fn free_bytes(&self) -> u64 {
        // Where the driver does not say, taking it will.
        let known = self.context.enter().ok().and_then(|()| result::mem_get_info().ok());
        known.map_or(self.profile.memory_bytes, |(free, _)| free as u64)
    }

    fn allocate(&self, what: &'static str, bytes: u64) -> Result<Box<dyn CardMemory>, GpuError> {
        self.context.enter()?;
        // SAFETY: the context is the thread's; the memory is freed once, with it.
        match unsafe { result::malloc_sync(bytes.max(1) as usize) } {
            Ok(address) => Ok(Box::new(CudaMemory { context: self.context.clone(), address, bytes })),
            Err(_) => {
                let free = result::mem_get_info().map_or(0, |(free, _)| free as u64);
                Err(GpuError::Memory { what, needed: bytes, free })
            }
        }
    }

    fn queue(&self) -> Result<Box<dyn CardQueue>, GpuError> {
        self.context.enter()?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)
            .map_err(refused("open a queue"))?;
        Ok(Box::new(CudaQueue { context: self.context.clone(), stream }))
    }
}

#[derive(Debug)]
struct CudaMemory {
    context: Arc<Context>,
    address: sys::CUdeviceptr,
    bytes: u64,
}

impl CardMemory for CudaMemory {
    fn address(&self) -> u64 {
        self.address
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        if self.context.enter_to_free() {
            // SAFETY: it was taken once and is nobody's any more; what runs still is waited for by the driver.
            let _ = unsafe { result::free_sync(self.address) };
        }
    }
}

#[derive(Debug)]
struct CudaQueue {
    context: Arc<Context>,
    stream: sys::CUstream,
}

// SAFETY: a stream may be used by any thread, of which this is one at a time.
unsafe impl Send for CudaQueue {}

impl CardQueue for CudaQueue {
    fn write(&mut self, to: &dyn CardMemory, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
        check_within(to, offset, bytes.len())?;
        self.context.enter()?;
        // SAFETY: the bytes lie within the card's memory. The driver copies pageable memory aside before this returns.
        unsafe { result::memcpy_htod_async(to.address() + offset, bytes, self.stream) }
            .map_err(refused("copy to the card"))
    }

    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), GpuError> {
        self.context.enter()?;
        let mut arguments = [launch.argument.as_ptr().cast_mut().cast::<c_void>()];
        let function = self.context.function(launch.kernel);
        let (blocks, threads) = ((launch.blocks, 1, 1), (launch.threads, 1, 1));
        // SAFETY: the argument is laid out as the kernel's one parameter is, and is copied by the call; what it points at lives at
        // least until the queue is waited for.
        unsafe {
            result::launch_kernel(function, blocks, threads, launch.shared_bytes, self.stream, &mut arguments)
        }
        .map_err(refused("launch a kernel"))
    }

    /// Asks as the driver does itself where it waits, so that it ends where a kernel does not.
    fn finish(&mut self) -> Result<(), GpuError> {
        self.context.enter()?;
        let began = Instant::now();
        loop {
            // SAFETY: the stream is open.
            let state = unsafe { sys::cuStreamQuery(self.stream) };
            if state != sys::CUresult::CUDA_ERROR_NOT_READY {
                return state.result().map_err(refused("finish what was queued"));
            }
            let waited = began.elapsed();
            if waited >= LAUNCH_LIMIT {
                self.context.stuck.store(true, Ordering::Relaxed);
                return Err(GpuError::Stuck { seconds: LAUNCH_LIMIT.as_secs() });
            }
            if waited < BUSY { std::thread::yield_now() } else { std::thread::sleep(PAUSE) }
        }
    }

    fn read(&mut self, from: &dyn CardMemory, offset: u64, out: &mut [u8]) -> Result<(), GpuError> {
        check_within(from, offset, out.len())?;
        // A copy into memory that is not pinned would wait for the kernel, however long.
        self.finish()?;
        // SAFETY: the bytes lie within the card's memory; into memory that is not pinned they are copied before this returns.
        let copied = unsafe { result::memcpy_dtoh_async(out, from.address() + offset, self.stream) };
        self.finish()?;
        copied.map_err(refused("copy from the card"))
    }
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        if self.context.enter_to_free() {
            let _ = self.finish();
            // SAFETY: nothing is queued any more.
            let _ = unsafe { result::stream::destroy(self.stream) };
        }
    }
}
