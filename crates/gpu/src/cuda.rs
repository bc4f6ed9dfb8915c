//! NVIDIA cards, by the driver's own interface. The driver's library is opened when a card is opened.

use crate::card::{Card, CardMemory, CardProfile, CardQueue, Kernel, LAUNCH_LIMIT, Launch, check_within};
use crate::error::GpuError;
use cudarc::driver::{DriverError, result, sys};
use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time for which a wait polls without sleeping: most launches end within it.
const YIELD_TIME: Duration = Duration::from_millis(1);
/// Sleep between later polls.
const POLL_INTERVAL: Duration = Duration::from_micros(100);

/// Bytes of shared memory that a block may use without setting an attribute.
const DEFAULT_SHARED_BYTES: u32 = 48 << 10;

fn driver_error(operation: &'static str) -> impl Fn(DriverError) -> GpuError {
    move |error| GpuError::Driver { operation, reason: error.to_string() }
}

/// The device's primary context, which the whole process shares. It is kept as long as anything created in
/// it.
#[derive(Debug)]
struct Context {
    device: sys::CUdevice,
    context: sys::CUcontext,
    /// Loaded modules, with their PTX.
    modules: Vec<(&'static str, sys::CUmodule)>,
    /// The function of each kernel, in the order of [`Kernel::ALL`].
    functions: Vec<sys::CUfunction>,
    /// True if a kernel does not end. Freeing anything would wait for it, so memory and streams are leaked
    /// then.
    stuck: AtomicBool,
}

// SAFETY: the driver's handles may be used by any thread that has made the context current, which every use
// here does.
unsafe impl Send for Context {}
// SAFETY: as above; the driver synchronizes its calls.
unsafe impl Sync for Context {}

impl Context {
    fn open(device: sys::CUdevice) -> Result<Context, GpuError> {
        // SAFETY: the driver has returned the device.
        let context =
            unsafe { result::primary_ctx::retain(device) }.map_err(driver_error("open the card"))?;
        // If a later step fails, dropping this releases the context.
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
            let has_zero = |_| GpuError::Driver { operation, reason: "they contain a zero byte".into() };
            let (ptx, name) = (
                CString::new(kernel.ptx()).map_err(has_zero)?,
                CString::new(kernel.name()).map_err(has_zero)?,
            );
            let loaded =
                opened.modules.iter().find(|(ptx, _)| *ptx == kernel.ptx()).map(|(_, module)| *module);
            let module = match loaded {
                Some(module) => module,
                None => {
                    // SAFETY: the text ends in a zero byte, and is valid until the call returns.
                    let module = unsafe { result::module::load_data(ptx.as_ptr().cast()) };
                    let module = module.map_err(driver_error(operation))?;
                    opened.modules.push((kernel.ptx(), module));
                    module
                }
            };
            // SAFETY: the module is loaded.
            let function = unsafe { result::module::get_function(module, name) };
            opened.functions.push(function.map_err(driver_error("find a kernel"))?);
        }
        Ok(opened)
    }

    /// Makes the context current for the calling thread.
    fn enter(&self) -> Result<(), GpuError> {
        // SAFETY: the context is retained as long as `self` exists.
        unsafe { result::ctx::set_current(self.context) }.map_err(driver_error("make the card current"))
    }

    /// Makes the context current in order to free something. Returns false if freeing would block.
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
                // SAFETY: nothing runs any more, because queues and memory hold the context.
                let _ = unsafe { result::module::unload(*module) };
            }
        }
        // SAFETY: the context was retained once.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// An NVIDIA card.
#[derive(Debug)]
pub(crate) struct CudaCard {
    context: Arc<Context>,
    profile: CardProfile,
}

impl CudaCard {
    pub(crate) fn open(ordinal: u32) -> Result<CudaCard, GpuError> {
        // SAFETY: the call loads the driver's library, whose initializers have no requirements.
        if !unsafe { sys::is_culib_present() } {
            return Err(GpuError::NoDriver);
        }
        result::init().map_err(driver_error("initialize"))?;
        let count = result::device::get_count().map_err(driver_error("count the cards"))?.max(0) as u32;
        if ordinal >= count {
            return Err(GpuError::NoCard { ordinal, count });
        }
        let device = result::device::get(ordinal as i32).map_err(driver_error("find the card"))?;
        let name = result::device::get_name(device).map_err(driver_error("query the card's name"))?;
        let shared = sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        // SAFETY: the driver has returned the device.
        let (memory_bytes, shared) =
            unsafe { (result::device::total_mem(device), result::device::get_attribute(device, shared)) };
        let profile = CardProfile {
            name,
            memory_bytes: memory_bytes.map_err(driver_error("query the card's memory"))? as u64,
            shared_bytes: shared.map_err(driver_error("query the shared memory of blocks"))?.max(0) as u32,
        };
        let context = Arc::new(Context::open(device)?);
        if profile.shared_bytes > DEFAULT_SHARED_BYTES {
            let most = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            for function in &context.functions {
                // SAFETY: the function is of a loaded module of the context.
                unsafe {
                    result::function::set_function_attribute(*function, most, profile.shared_bytes as i32)
                }
                .map_err(driver_error("raise the shared memory of blocks"))?;
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
        // If the driver does not report it, an allocation that does not fit will fail.
        let memory = self.context.enter().ok().and_then(|()| result::mem_get_info().ok());
        memory.map_or(self.profile.memory_bytes, |(free, _)| free as u64)
    }

    fn allocate(&self, what: &'static str, bytes: u64) -> Result<Box<dyn CardMemory>, GpuError> {
        self.context.enter()?;
        // SAFETY: the context is current; the memory is freed once, when it is dropped.
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
            .map_err(driver_error("open a queue"))?;
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
            // SAFETY: the memory was allocated once and is not used any more; the driver waits for kernels
            // that still run.
            let _ = unsafe { result::free_sync(self.address) };
        }
    }
}

#[derive(Debug)]
struct CudaQueue {
    context: Arc<Context>,
    stream: sys::CUstream,
}

// SAFETY: any thread may use a stream, and only one does at a time.
unsafe impl Send for CudaQueue {}

impl CardQueue for CudaQueue {
    fn write(&mut self, to: &dyn CardMemory, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
        check_within(to, offset, bytes.len())?;
        self.context.enter()?;
        // SAFETY: the bytes are within the card's memory. The driver copies pageable memory before this
        // returns.
        unsafe { result::memcpy_htod_async(to.address() + offset, bytes, self.stream) }
            .map_err(driver_error("copy to the card"))
    }

    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), GpuError> {
        self.context.enter()?;
        let mut arguments = [launch.argument.as_ptr().cast_mut().cast::<c_void>()];
        let function = self.context.function(launch.kernel);
        let (blocks, threads) = ((launch.blocks, 1, 1), (launch.threads, 1, 1));
        // SAFETY: the argument has the layout of the kernel's single parameter, and is copied by the call.
        // The memory that it points to exists at least until the queue has finished.
        unsafe {
            result::launch_kernel(function, blocks, threads, launch.shared_bytes, self.stream, &mut arguments)
        }
        .map_err(driver_error("launch a kernel"))
    }

    /// Polls like the driver does when it waits, in order to stop waiting for a kernel that does not end.
    fn finish(&mut self) -> Result<(), GpuError> {
        self.context.enter()?;
        let began = Instant::now();
        loop {
            // SAFETY: the stream is open.
            let state = unsafe { sys::cuStreamQuery(self.stream) };
            if state != sys::CUresult::CUDA_ERROR_NOT_READY {
                return state.result().map_err(driver_error("finish what was queued"));
            }
            let waited = began.elapsed();
            if waited >= LAUNCH_LIMIT {
                self.context.stuck.store(true, Ordering::Relaxed);
                return Err(GpuError::Stuck { seconds: LAUNCH_LIMIT.as_secs() });
            }
            if waited < YIELD_TIME { std::thread::yield_now() } else { std::thread::sleep(POLL_INTERVAL) }
        }
    }

    fn read(&mut self, from: &dyn CardMemory, offset: u64, out: &mut [u8]) -> Result<(), GpuError> {
        check_within(from, offset, out.len())?;
        // A copy into pageable memory would wait for the kernel without a limit.
        self.finish()?;
        // SAFETY: the bytes are within the card's memory; a copy into pageable memory has ended before this
        // returns.
        let copied = unsafe { result::memcpy_dtoh_async(out, from.address() + offset, self.stream) };
        self.finish()?;
        copied.map_err(driver_error("copy from the card"))
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
