//! What a card offers: memory, and queues of copies and launches.

use crate::error::GpuError;
use std::fmt::{self, Debug};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// A card that does not answer for so long is taken for lost. A launch takes milliseconds, or some more where others use the card, too.
pub const LAUNCH_LIMIT: Duration = Duration::from_secs(30);

/// What searches an index. As text: `cpu`, `gpu`, or `gpu:N` for the driver's card number N, and `gpu,cpu` or `gpu:N,cpu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// This processor.
    #[default]
    Cpu,
    /// The graphics card of this number, where the index is one that cards search.
    Gpu(u32),
    /// The same, and this processor where the card does not: where there is none, where it does not suit, where it fails.
    GpuElseCpu(u32),
}

impl DeviceChoice {
    /// The card, where one was chosen.
    ///
    /// # Errors
    /// As [`open`].
    pub fn card(self) -> Result<Option<Arc<dyn Card>>, GpuError> {
        match self {
            DeviceChoice::Cpu => Ok(None),
            DeviceChoice::Gpu(ordinal) | DeviceChoice::GpuElseCpu(ordinal) => open(ordinal).map(Some),
        }
    }

    /// The same for work that does not go on without a card that it has begun with.
    ///
    /// # Errors
    /// As [`open`]; [`GpuError::Unsuited`] where the processor was to go on.
    pub fn card_alone(self) -> Result<Option<Arc<dyn Card>>, GpuError> {
        if let DeviceChoice::GpuElseCpu(_) = self {
            let text = "builds and exact search do not go on without the graphics card that they began with, as searches do: take \
                        either gpu or cpu for the device";
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
                "unknown device '{text}': it is one of cpu, gpu, gpu:N (the card number N), or gpu,cpu and gpu:N,cpu (this processor where \
                 the card does not)"
            )
        };
        let (first, then) = text.split_once(',').map_or((text, None), |(first, then)| (first, Some(then)));
        let card = match first.split_once(':') {
            Some(("gpu", number)) => number.parse().map(Some).map_err(|_| unknown())?,
            None if first == "gpu" => Some(0),
            None if first == "cpu" => None,
            _ => return Err(unknown()),
        };
        match (card, then) {
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

/// A kernel: a function of `kernels/`.
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
    /// All of them.
    pub const ALL: [Kernel; 7] = [
        Kernel::Hop,
        Kernel::Pages,
        Kernel::Rerank,
        Kernel::Scan,
        Kernel::Walk,
        Kernel::Nearest,
        Kernel::Loss,
    ];

    /// The name of the function.
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

    /// What was made of its source, for the driver.
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

/// What is known of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardProfile {
    /// As its maker calls it; "emulated" in tests.
    pub name: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes that the threads of a block may share.
    pub shared_bytes: u32,
}

/// A launch of blocks of threads.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// What runs.
    pub kernel: Kernel,
    /// Blocks.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
    /// Bytes that these share.
    pub shared_bytes: u32,
    /// The kernel's one argument, as it lies in memory.
    pub argument: &'a [u8],
}

/// Memory of a card, given back when this is dropped.
pub trait CardMemory: Debug + Send + Sync {
    /// Where it begins, for kernels: a multiple of 256.
    fn address(&self) -> u64;

    /// Its bytes.
    fn bytes(&self) -> u64;
}

/// A queue: what it is given happens in that order. Of one thread.
pub trait CardQueue: Debug + Send {
    /// Copies `bytes` to `to`, from byte `offset` on. They may be changed as soon as this returns.
    ///
    /// # Errors
    /// [`GpuError`]; also of what was queued before.
    fn write(&mut self, to: &dyn CardMemory, offset: u64, bytes: &[u8]) -> Result<(), GpuError>;

    /// Has a kernel run.
    ///
    /// # Errors
    /// As [`CardQueue::write`].
    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), GpuError>;

    /// Waits for all that was queued, for [`LAUNCH_LIMIT`] at most.
    ///
    /// # Errors
    /// As [`CardQueue::write`]; [`GpuError::Stuck`].
    fn finish(&mut self) -> Result<(), GpuError>;

    /// Waits likewise for all that was queued, and copies what lies in `from` from byte `offset` on.
    ///
    /// # Errors
    /// As [`CardQueue::finish`].
    fn read(&mut self, from: &dyn CardMemory, offset: u64, out: &mut [u8]) -> Result<(), GpuError>;
}

/// A graphics card.
pub trait Card: Debug + Send + Sync {
    /// What is known of it.
    fn profile(&self) -> &CardProfile;

    /// Bytes of its memory that are free, about: others may take some at any time.
    fn free_bytes(&self) -> u64;

    /// Takes `bytes` bytes of its memory for `what`.
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

/// The card of this number that the driver has.
///
/// # Errors
/// [`GpuError::NoDriver`], [`GpuError::NoCard`], [`GpuError::Driver`]; [`GpuError::LeftOut`] without the feature `driver`.
#[cfg_attr(not(feature = "driver"), allow(unused_variables))]
pub fn open(ordinal: u32) -> Result<Arc<dyn Card>, GpuError> {
    #[cfg(feature = "driver")]
    return Ok(Arc::new(crate::cuda::CudaCard::open(ordinal)?));
    #[cfg(not(feature = "driver"))]
    return Err(GpuError::LeftOut);
}

/// Checks that `part`, from byte `offset` on, lies within `memory`.
///
/// # Errors
/// [`GpuError::Driver`]: a defect of the caller.
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
    fn a_device_is_named_as_it_is_written() {
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

    /// As `kernels/compile.py` reckons it.
    fn fingerprint(sources: &[&[u8]]) -> u64 {
        let bytes = sources.iter().copied().flatten();
        bytes.fold(0xcbf2_9ce4_8422_2325, |value, byte| {
            (value ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    #[test]
    fn what_the_driver_gets_was_made_of_the_sources() {
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
            // A sum of a product rounds twice, as a processor's does; but for what a processor measures again.
            assert_eq!(ptx.contains("fma."), kernel == Kernel::Nearest, "{name}");
        }
    }

    #[test]
    fn what_does_not_go_on_is_told_one_device() {
        let error = DeviceChoice::GpuElseCpu(0).card_alone().expect_err("two devices").to_string();
        assert!(error.contains("either gpu or cpu"), "{error}");
        assert!(DeviceChoice::Cpu.card_alone().is_ok_and(|card| card.is_none()));
    }

    #[test]
    fn where_no_card_is_that_is_said() {
        match DeviceChoice::Gpu(99).card() {
            Err(error @ (GpuError::NoDriver | GpuError::NoCard { .. } | GpuError::Driver { .. })) => {
                assert!(!error.to_string().is_empty());
            }
            other => panic!("{other:?}"),
        }
    }
}
