//! A simulated device: seeded, deterministic, and slow or faulty on demand.
//!
//! Tests of anything that depends on timing use it. Bytes appear in a read's buffer only at its completion;
//! until then the buffer holds [`POISON`], so that an answer that is computed too early is wrong. The device
//! records breaches of the contract by its callers: [`SimHandle::violations`].

mod queue;
pub(crate) mod random;
mod watchdog;

pub use random::LatencyDistribution;
pub use watchdog::Watchdog;

use self::queue::SimQueue;
use crate::backend::writable::Words;
use crate::contract::{Queue, Tier, TierProfile, WriteQueue, WriteTier};
use crate::error::{FaultKind, TierError};
use crate::lanes::Padded;
use crate::latencies::Latencies;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Byte that fills a buffer between submission and completion.
pub const POISON: u8 = 0xA5;

/// Clock of a simulated device. Clones share its time.
#[derive(Debug, Clone)]
pub enum SimClock {
    /// Nanoseconds that pass only when a queue is reaped, so that no test sleeps.
    Virtual(Arc<AtomicU64>),
    /// Nanoseconds since this moment.
    Real(Instant),
}

impl SimClock {
    /// Makes a clock at 0, whose time passes only when a queue is reaped.
    pub fn virtual_time() -> SimClock {
        SimClock::Virtual(Arc::new(AtomicU64::new(0)))
    }

    /// Makes a clock of real time.
    pub fn real_time() -> SimClock {
        SimClock::Real(Instant::now())
    }

    /// Returns the nanoseconds since the clock was made.
    pub fn now_ns(&self) -> u64 {
        match self {
            SimClock::Virtual(ns) => ns.load(Ordering::Relaxed),
            SimClock::Real(start) => start.elapsed().as_nanos() as u64,
        }
    }

    /// Advances virtual time to `ns`. Does nothing if `ns` is past or the clock is real.
    pub fn advance_to(&self, ns: u64) {
        if let SimClock::Virtual(now) = self {
            now.fetch_max(ns, Ordering::Relaxed);
        }
    }
}

/// A fault of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimFault {
    /// The device reports this error number; the buffer keeps its poison.
    Error(i32),
    /// The read fails with this kind; the buffer keeps its poison.
    Refuse(FaultKind),
    /// No more than this many bytes arrive.
    Short(u32),
    /// The read takes this much longer, and other reads overtake it.
    Delay(Duration),
    /// The read does not complete before [`SimHandle::release_stuck`] is called or the queue is dropped.
    Stuck,
    /// One bit arrives flipped: bit number `n` of the buffer, modulo its length in bits.
    Flip(u64),
    /// All bytes arrive, but from another offset: number `n` of the aligned offsets, modulo their count.
    Misdirect(u64),
}

/// Selection of the reads that a scripted fault applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The tier's n-th read, counted from 0 over all queues.
    Nth(u64),
    /// Every read that includes the byte at this offset.
    Touching(u64),
}

/// Probabilities of faults, each between 0 and 1. The fault of each read is drawn by them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FaultRates {
    /// An error (`EIO`).
    pub error: f64,
    /// A short read of a random length.
    pub short: f64,
    /// A delay of up to [`FaultRates::longest_delay`].
    pub delay: f64,
    /// A read that never completes.
    pub stuck: f64,
    /// A flipped bit.
    pub flip: f64,
    /// The bytes of another offset.
    pub misdirect: f64,
    /// A completion that is swapped with another of the same reap.
    pub reorder: f64,
    /// A submission of which fewer reads are taken than the depth allows (at least one is taken when nothing
    /// is in flight).
    pub refuse: f64,
    /// The longest delay.
    pub longest_delay: Duration,
}

impl FaultRates {
    /// No faults.
    pub const NONE: FaultRates = FaultRates {
        error: 0.0,
        short: 0.0,
        delay: 0.0,
        stuck: 0.0,
        flip: 0.0,
        misdirect: 0.0,
        reorder: 0.0,
        refuse: 0.0,
        longest_delay: Duration::from_millis(5),
    };
}

/// Properties of a simulated device.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// Seed of all random numbers.
    pub seed: u64,
    /// The device's clock; several devices with a common time share one.
    pub clock: SimClock,
    /// Latency of one read.
    pub latency: LatencyDistribution,
    /// Limit of reads a second over all queues; 0 for no limit.
    pub iops: f64,
    /// Limit of bytes a second over all queues; 0 for no limit.
    pub bandwidth_bytes_per_s: f64,
    /// Limit of reads in flight on one queue, for any depth that the queue is opened with.
    pub depth: u32,
    /// Bytes that the device moves at least; a shorter read takes as much bandwidth.
    pub granularity: u32,
    /// Alignment of offsets, lengths and buffers in bytes; a power of two.
    pub alignment: u32,
    /// True if bytes are read in place ([`Queue::map`]).
    pub addressable: bool,
    /// Random faults.
    pub rates: FaultRates,
    /// Scripted faults. The first that matches a read applies to it, and no random one.
    pub script: Vec<(When, SimFault)>,
}

impl Default for SimOptions {
    /// Makes a fast datacentre SSD without faults, in virtual time.
    fn default() -> Self {
        SimOptions {
            seed: 0,
            clock: SimClock::virtual_time(),
            latency: LatencyDistribution::Constant { ns: 75_000 },
            iops: 0.0,
            bandwidth_bytes_per_s: 0.0,
            depth: 1024,
            granularity: 512,
            alignment: 512,
            addressable: false,
            rates: FaultRates::NONE,
            script: Vec::new(),
        }
    }
}

/// A breach of the contract by the caller of a simulated queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// A buffer overlaps that of another read in flight.
    Overlap {
        /// The later read's offset.
        offset: u64,
    },
    /// A buffer was written to while its read was in flight.
    Changed {
        /// The read's offset.
        offset: u64,
    },
    /// Offset, length or buffer address is not a multiple of the alignment, or the length is 0.
    Misaligned {
        /// The read's offset.
        offset: u64,
        /// The read's length.
        len: u32,
        /// The buffer's address.
        buffer: usize,
    },
    /// A read without a buffer on a tier that is not addressable.
    NoBuffer {
        /// The read's offset.
        offset: u64,
    },
}

/// Counts of a simulated device's reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SimStats {
    /// Reads taken.
    pub reads: u64,
    /// Reads that failed by [`SimFault::Error`] or [`SimFault::Refuse`].
    pub errors: u64,
    /// Reads shortened by [`SimFault::Short`].
    pub shorts: u64,
    /// Reads delayed by [`SimFault::Delay`].
    pub delays: u64,
    /// Reads that got stuck.
    pub stuck: u64,
    /// Reads with a flipped bit.
    pub flips: u64,
    /// Reads that returned the bytes of another offset.
    pub misdirected: u64,
    /// Reads still in flight when their queue was dropped.
    pub abandoned: u64,
}

/// Source of a simulated tier's bytes.
enum Content {
    Bytes(Vec<u8>),
    Tier(Arc<dyn Tier>),
    /// Bytes that queues may change.
    Words(Words),
}

/// State that all queues of one device share.
struct SimDevice {
    options: SimOptions,
    content: Content,
    state: Padded<Mutex<SimState>>,
    /// Stuck reads with numbers below this have been released. It is kept outside `state`, since a waiting
    /// queue reads it again and again.
    released: Padded<AtomicU64>,
}

#[derive(Default)]
struct SimState {
    stats: SimStats,
    latencies: Latencies,
    queues: u64,
    violations: Vec<Violation>,
    /// Buffers in flight: first byte to one past the last.
    buffers: BTreeMap<usize, usize>,
    /// Time at which the next read may begin, in nanoseconds.
    next_start: f64,
    /// Time at which the link is free again, in nanoseconds.
    link_free: f64,
}

impl SimDevice {
    fn state(&self) -> MutexGuard<'_, SimState> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A simulated tier. See the module documentation.
pub struct SimTier {
    device: Arc<SimDevice>,
    profile: TierProfile,
    len: u64,
}

impl SimTier {
    /// Makes a device that holds `bytes`.
    pub fn new(bytes: Vec<u8>, options: SimOptions) -> SimTier {
        let len = bytes.len() as u64;
        SimTier::build(Content::Bytes(bytes), len, options)
    }

    /// Makes a device with the bytes of another tier, which is read when a simulated read completes. The
    /// device is not addressable.
    pub fn over(tier: Arc<dyn Tier>, options: SimOptions) -> SimTier {
        let len = tier.len();
        SimTier::build(Content::Tier(tier), len, SimOptions { addressable: false, ..options })
    }

    /// Makes a writable device with a copy of `bytes`. It is not addressable.
    pub fn writable_copy(bytes: &[u8], options: SimOptions) -> SimTier {
        let options = SimOptions { addressable: false, alignment: 1, ..options };
        SimTier::build(Content::Words(Words::copy_of(bytes)), bytes.len() as u64, options)
    }

    fn build(content: Content, len: u64, options: SimOptions) -> SimTier {
        let time = match options.clock {
            SimClock::Virtual(_) => "virtual",
            SimClock::Real(_) => "real",
        };
        let profile = TierProfile {
            kind: "sim".into(),
            method: format!("simulated in {time} time, seed {}", options.seed),
            granularity: options.granularity.max(1),
            alignment: options.alignment.max(1),
            addressable: options.addressable,
            latency_ns: options.latency.mean_ns(),
            iops: options.iops,
            bandwidth_bytes_per_s: options.bandwidth_bytes_per_s,
            depth: options.depth.max(1),
            issue_ns: 0,
            rates: Vec::new(),
        };
        let device =
            Arc::new(SimDevice { options, content, state: Padded::default(), released: Padded::default() });
        SimTier { device, profile, len }
    }

    /// Returns a handle to the device, which any thread may use at any time.
    pub fn handle(&self) -> SimHandle {
        SimHandle { device: self.device.clone() }
    }
}

impl Tier for SimTier {
    fn profile(&self) -> &TierProfile {
        &self.profile
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError> {
        Ok(Box::new(SimQueue::new(self.device.clone(), self.len, depth)?))
    }

    fn writable(&self) -> Option<&dyn WriteTier> {
        matches!(self.device.content, Content::Words(_)).then_some(self)
    }

    fn is_shared(&self) -> bool {
        self.writable().is_some()
    }
}

impl WriteTier for SimTier {
    fn open_write(&self, depth: u32) -> Result<Box<dyn WriteQueue>, TierError> {
        Ok(Box::new(SimQueue::new(self.device.clone(), self.len, depth)?))
    }
}

/// Handle to the state of a simulated device. Clones refer to the same device; any thread may hold one.
#[derive(Clone)]
pub struct SimHandle {
    device: Arc<SimDevice>,
}

impl SimHandle {
    /// Returns the device's clock.
    pub fn clock(&self) -> SimClock {
        self.device.options.clock.clone()
    }

    /// Returns all breaches of the contract so far; none in a correct program.
    pub fn violations(&self) -> Vec<Violation> {
        self.device.state().violations.clone()
    }

    /// Returns the counts so far.
    pub fn stats(&self) -> SimStats {
        self.device.state().stats
    }

    /// Returns a quantile of the latencies of all reads so far in nanoseconds, with queueing at the device:
    /// `share` is 0.5 for the median and 0.99 for the 99th percentile. The result is rounded up by 6% at
    /// most. Stuck reads do not count.
    pub fn latency_ns(&self, share: f64) -> u64 {
        self.device.state().latencies.quantile_ns(share)
    }

    /// Releases all reads that are stuck now, so that they complete.
    pub fn release_stuck(&self) {
        let reads = self.device.state().stats.reads;
        self.device.released.0.fetch_max(reads, Ordering::AcqRel);
    }
}
