//! The interface of a card: memory, and queues of copies and launches.

use crate::error::GpuError;
use std::fmt::{self, Debug};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// A card that does not respond within this time counts as lost. A launch takes milliseconds, or somewhat
/// more if others use the card, too.
pub const LAUNCH_LIMIT: Duration = Duration::from_secs(30);

/// The device that searches an index. As text: `cpu`, `gpu`, `gpu:N` for the driver's card number N,
/// `gpu,cpu` or `gpu:N,cpu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// The processor.
    #[default]
    Cpu,
    /// The graphics card of this number. Indexes that a card cannot search are an error.
    Gpu(u32),
    /// The graphics card of this number; the processor if there is no card, it cannot search the index, or it
    /// fails.
    GpuElseCpu(u32),
}

impl DeviceChoice {
    /// Opens the card, if one was chosen.
    ///
    /// # Errors
    /// As [`open`].
    pub fn card(self) -> Result<Option<Arc<dyn Card>>, GpuError> {
        match self {
            DeviceChoice::Cpu => Ok(None),
            DeviceChoice::Gpu(ordinal) | DeviceChoice::GpuElseCpu(ordinal) => open(ordinal).map(Some),
        }
    }

    /// Opens the card for work that cannot continue on the processor if the card fails.
    ///
    /// # Errors
    /// As [`open`]; [`GpuError::Unsuited`] for [`DeviceChoice::GpuElseCpu`].
    pub fn card_alone(self) -> Result<Option<Arc<dyn Card>>, GpuError> {
        if let DeviceChoice::GpuElseCpu(_) = self {
            let text = "builds and exact search cannot continue on the processor if the graphics card fails, \
                        as searches can: choose either gpu or cpu for the device";
            return Err(GpuError::Unsuited(text.into()));
        }
        self.card()
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceChoice, String> {
        let unknown = || {
            format!(
                "unknown device '{text}': it is one of cpu, gpu, gpu:N (the card number N), or gpu,cpu and \
                 gpu:N,cpu (the processor if the card cannot search)"
            )
        };
        let (first, fallback) =
            text.split_once(',').map_or((text, None), |(first, fallback)| (first, Some(fallback)));
        let card = match first.split_once(':') {
            Some(("gpu", number)) => number.parse().map(Some).map_err(|_| unknown())?,
            None if first == "gpu" => Some(0),
            None if first == "cpu" => None,
            _ => return Err(unknown()),
        };
        match (card, fallback) {
            (None, None) => Ok(DeviceChoice::Cpu),
            (Some(card), None) => Ok(DeviceChoice::Gpu(card)),
            (Some(card), Some("cpu")) => Ok(DeviceChoice::GpuElseCpu(card)),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            DeviceChoice::Cpu => write!(formatter, "cpu"),
            DeviceChoice::Gpu(0) => write!(formatter, "gpu"),
            DeviceChoice::Gpu(number) => write!(formatter, "gpu:{number}"),
            DeviceChoice::GpuElseCpu(number) => write!(formatter, "{},cpu", DeviceChoice::Gpu(number)),
        }
    }
}

/// A kernel: a function in `kernels/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kernel {
    /// `kernels/hop.cu`.
    Hop,
    /// `kernels/pages.cu`.
    Pages,
    /// `kernels/rerank.cu`.
    Rerank,
    /// `kernels/scan.cu`.
    Scan,
    /// `kernels/walk.cu`.
    Walk,
    /// `kernels/nearest.cu`.
    Nearest,
    /// `kernels/loss.cu`.
    Loss,
}

impl Kernel {
    /// All kernels.
    pub const ALL: [Kernel; 7] = [
        Kernel::Hop,
        Kernel::Pages,
        Kernel::Rerank,
        Kernel::Scan,
        Kernel::Walk,
        Kernel::Nearest,
        Kernel::Loss,
    ];

    /// Returns the name of the function.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Hop => "hop",
            Kernel::Pages => "pages",
            Kernel::Rerank => "rerank",
            Kernel::Scan => "scan",
            Kernel::Walk => "walk",
            Kernel::Nearest => "nearest",
            Kernel::Loss => "loss",
        }
    }

    /// Returns the PTX compiled from its source, for the driver.
    pub fn ptx(self) -> &'static str {
        match self {
            Kernel::Hop => include_str!("../kernels/hop.ptx"),
            Kernel::Pages => include_str!("../kernels/pages.ptx"),
            Kernel::Rerank => include_str!("../kernels/rerank.ptx"),
            Kernel::Scan => include_str!("../kernels/scan.ptx"),
            Kernel::Walk => include_str!("../kernels/walk.ptx"),
            Kernel::Nearest => include_str!("../kernels/nearest.ptx"),
            Kernel::Loss => include_str!("../kernels/loss.ptx"),
        }
    }
}

/// Properties of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardProfile {
    /// Name that the maker gives it; "emulated" in tests.
    pub name: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Maximum bytes of shared memory of a block.
    pub shared_bytes: u32,
}

/// A launch of blocks of threads.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// The kernel.
    pub kernel: Kernel,
    /// Number of blocks.
    pub blocks: u32,
    /// Threads of each block.
    pub threads: u32,
    /// Bytes of shared memory of each block.
    pub shared_bytes: u32,
    /// The kernel's single argument, with its layout in memory.
    pub argument: &'a [u8],
}

/// Memory of a card, freed when this is dropped.
pub trait CardMemory: Debug + Send + Sync {
    /// Returns its address for kernels, a multiple of 256.
    fn address(&self) -> u64;

    /// Returns its length in bytes.
    fn bytes(&self) -> u64;
}

/// A queue of a card, for one thread. Operations are executed in the order in which they are queued.
pub trait CardQueue: Debug + Send {
    /// Queues a copy of `bytes` to `to`, from byte `offset` on. The caller may change `bytes` as soon as this
    /// returns.
    ///
    /// # Errors
    /// [`GpuError`], of this operation or an earlier one.
    fn write(&mut self, to: &dyn CardMemory, offset: u64, bytes: &[u8]) -> Result<(), GpuError>;

    /// Queues a launch of a kernel.
    ///
    /// # Errors
    /// As [`CardQueue::write`].
    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), GpuError>;

    /// Waits for all queued operations, for at most [`LAUNCH_LIMIT`].
    ///
    /// # Errors
    /// As [`CardQueue::write`]; [`GpuError::Stuck`].
    fn finish(&mut self) -> Result<(), GpuError>;

    /// Waits for all queued operations, as [`CardQueue::finish`] does, and copies bytes of `from`, from byte
    /// `offset` on, to `out`.
    ///
    /// # Errors
    /// As [`CardQueue::finish`].
    fn read(&mut self, from: &dyn CardMemory, offset: u64, out: &mut [u8]) -> Result<(), GpuError>;
}

/// A graphics card.
pub trait Card: Debug + Send + Sync {
    /// Returns the properties of the card.
    fn profile(&self) -> &CardProfile;

    /// Returns the approximate bytes of free memory, which other programs may take at any time.
    fn free_bytes(&self) -> u64;

    /// Allocates `bytes` bytes of memory. `what` names its purpose in errors.
    ///
    /// # Errors
    /// [`GpuError::Memory`].
    fn allocate(&self, what: &'static str, bytes: u64) -> Result<Box<dyn CardMemory>, GpuError>;

    /// Opens a queue.
    ///
    /// # Errors
    /// [`GpuError`].
    fn queue(&self) -> Result<Box<dyn CardQueue>, GpuError>;
}

/// Opens the driver's card number `ordinal`.
///
/// # Errors
/// [`GpuError::NoDriver`], [`GpuError::NoCard`], [`GpuError::Driver`]; [`GpuError::LeftOut`] without the
/// feature `driver`.
#[cfg_attr(not(feature = "driver"), allow(unused_variables))]
pub fn open(ordinal: u32) -> Result<Arc<dyn Card>, GpuError> {
    #[cfg(feature = "driver")]
    return Ok(Arc::new(crate::cuda::CudaCard::open(ordinal)?));
    #[cfg(not(feature = "driver"))]
    return Err(GpuError::LeftOut);
}

/// Checks that `part` bytes from byte `offset` on are within `memory`.
///
/// # Errors
/// [`GpuError::Driver`] if they are not, which is a bug of the caller.
pub fn check_within(memory: &dyn CardMemory, offset: u64, part: usize) -> Result<(), GpuError> {
    let end = offset.checked_add(part as u64);
    if end.is_some_and(|end| end <= memory.bytes()) {
        return Ok(());
    }
    let reason = format!("{part} bytes at byte {offset} of {}", memory.bytes());
    Err(GpuError::Driver { operation: "copy", reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_parsed_and_formatted_alike() {
        for text in ["cpu", "gpu", "gpu:3", "gpu,cpu", "gpu:2,cpu"] {
            assert_eq!(text.parse::<DeviceChoice>().map(|device| device.to_string()), Ok(text.into()));
        }
        for text in [
            "",
            "GPU",
            "gpu:",
            "gpu:x",
            "gpu:-1",
            "cpu:0",
            "cuda",
            "cpu,gpu",
            "gpu,gpu",
            "gpu,",
            "gpu,cpu,cpu",
        ] {
            let error = text.parse::<DeviceChoice>().expect_err(text);
            assert!(error.contains("gpu:N"), "{error}");
        }
    }

    /// Computes the fingerprint of sources, as `kernels/compile.py` does.
    fn fingerprint(sources: &[&[u8]]) -> u64 {
        let bytes = sources.iter().copied().flatten();
        bytes.fold(0xcbf2_9ce4_8422_2325, |value, byte| {
            (value ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    #[test]
    fn the_ptx_was_compiled_from_the_present_sources() {
        let kernels = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
        let mut headers: Vec<_> = std::fs::read_dir(&kernels).expect("kernels").flatten().collect();
        headers.retain(|entry| entry.path().extension().is_some_and(|extension| extension == "h"));
        headers.sort_by_key(std::fs::DirEntry::path);
        let headers: Vec<Vec<u8>> =
            headers.iter().map(|header| std::fs::read(header.path()).expect("a header")).collect();
        for kernel in Kernel::ALL {
            let source = std::fs::read(kernels.join(kernel.name()).with_extension("cu")).expect("a source");
            let sources: Vec<&[u8]> = std::iter::once(&source).chain(&headers).map(Vec::as_slice).collect();
            let (ptx, name) = (kernel.ptx(), kernel.name());
            let expected = format!("// of sources {:016x}", fingerprint(&sources));
            assert_eq!(ptx.lines().next(), Some(&*expected), "{name}: run crates/gpu/kernels/compile.py");
            assert!(ptx.contains(&format!(".visible .entry {name}(")), "{name}");
            assert!(!ptx.contains(".extern .func"), "{name}");
            // Products and sums are rounded separately, as on a processor. `nearest` may fuse them, because a
            // processor computes its distances again.
            assert_eq!(ptx.contains("fma."), kernel == Kernel::Nearest, "{name}");
        }
    }

    #[test]
    fn work_that_cannot_continue_on_the_processor_accepts_one_device_only() {
        let error = DeviceChoice::GpuElseCpu(0).card_alone().expect_err("two devices").to_string();
        assert!(error.contains("either gpu or cpu"), "{error}");
        assert!(DeviceChoice::Cpu.card_alone().is_ok_and(|card| card.is_none()));
    }

    #[test]
    fn opening_a_missing_card_is_an_error() {
        match DeviceChoice::Gpu(99).card() {
            Err(error @ (GpuError::NoDriver | GpuError::NoCard { .. } | GpuError::Driver { .. })) => {
                assert!(!error.to_string().is_empty());
            }
            other => panic!("{other:?}"),
        }
    }
}
