//! A simulated device: seeded, deterministic, slow or broken on demand.
//!
//! Whatever depends on timing is tested here. Bytes appear in a read's buffer only at its completion; until
//! then the buffer holds [`POISON`], so that an answer computed too early is wrong instead of lucky. What a
//! caller does wrong is written down and can be asked for: [`SimHandle::violations`].

mod queue;
pub(crate) mod random;
mod watchdog;

pub use random::Latency;
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

/// What a buffer is filled with between submission and completion.
pub const POISON: u8 = 0xA5;

/// The time of a simulated device. Clones share it.
#[derive(Debug, Clone)]
pub enum SimClock {
    /// Nanoseconds that pass only when a queue waits: no test ever sleeps.
    Virtual(Arc<AtomicU64>),
    /// Nanoseconds since this moment.
    Real(Instant),
}

impl SimClock {
    /// A clock that stands at 0 and passes only when a queue waits.
    pub fn virtual_time() -> SimClock {
        SimClock::Virtual(Arc::new(AtomicU64::new(0)))
    }

    /// A clock that passes by itself.
    pub fn real_time() -> SimClock {
        SimClock::Real(Instant::now())
    }

    /// Nanoseconds since the clock was made.
    pub fn now_ns(&self) -> u64 {
        match self {
            SimClock::Virtual(ns) => ns.load(Ordering::Relaxed),
            SimClock::Real(start) => start.elapsed().as_nanos() as u64,
        }
    }

    /// Lets virtual time pass up to `ns`; does nothing to real time or to what is past.
    pub fn advance_to(&self, ns: u64) {
        if let SimClock::Virtual(now) = self {
            now.fetch_max(ns, Ordering::Relaxed);
        }
    }
}

/// Something that goes wrong with one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The device reports this error number; the buffer keeps its poison.
    Error(i32),
    /// The read fails like this; the buffer keeps its poison.
    Refuse(FaultKind),
    /// No more than this many bytes arrive.
    Short(u32),
    /// The read takes this much longer, and others overtake it.
    Delay(Duration),
    /// The read never completes, until [`SimHandle::release_stuck`] or the queue is dropped.
    Stuck,
    /// One bit arrives flipped: bit number `n` of the buffer, counted modulo its length.
    Flip(u64),
    /// All bytes arrive, and are those of another place: number `n` of those that are aligned as this read has to be, counted
    /// modulo how many there are.
    Misdirect(u64),
}

/// Which reads a scripted fault befalls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The tier's n-th read, counted from 0 over all queues.
    Nth(u64),
    /// Every read that touches the byte at this offset.
    Touching(u64),
}

/// Chances of faults, each between 0 and 1 and drawn for every read.
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
    /// The bytes of another place.
    pub misdirect: f64,
    /// A completion that changes places with another of the same reap.
    pub reorder: f64,
    /// A submission of which fewer reads are taken than there is room for (at least one is taken when
    /// nothing is in flight).
    pub refuse: f64,
    /// The longest delay.
    pub longest_delay: Duration,
}

impl FaultRates {
    /// Nothing goes wrong.
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

/// The device to simulate.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// Everything random follows from this.
    pub seed: u64,
    /// The device's time; share one to keep several devices in step.
    pub clock: SimClock,
    /// Latency of one read.
    pub latency: Latency,
    /// Reads a second at most, over all queues; 0 is no limit.
    pub iops: f64,
    /// Bytes a second at most, over all queues; 0 is no limit.
    pub bandwidth_bytes_per_s: f64,
    /// Reads in flight that one queue of the device holds at most, whatever depth it is opened with.
    pub depth: u32,
    /// Bytes that the device moves at least; shorter reads take as much bandwidth.
    pub granularity: u32,
    /// What offsets, lengths and buffers must be multiples of; a power of two.
    pub alignment: u32,
    /// Whether bytes are read in place ([`Queue::map`]).
    pub addressable: bool,
    /// Faults by chance.
    pub rates: FaultRates,
    /// Faults by script; the first that fits befalls a read, before any by chance.
    pub script: Vec<(When, Fault)>,
}

impl Default for SimOptions {
    /// A fast, faultless datacentre SSD in virtual time.
    fn default() -> Self {
        SimOptions {
            seed: 0,
            clock: SimClock::virtual_time(),
            latency: Latency::Constant { ns: 75_000 },
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
    /// Somebody wrote into a buffer while its read was in flight.
    Changed {
        /// The read's offset.
        offset: u64,
    },
    /// Offset, length or buffer is not a multiple of the alignment, or the length is 0.
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

/// What a simulated device has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SimStats {
    /// Reads taken.
    pub reads: u64,
    /// Reads that failed by [`Fault::Error`] or [`Fault::Refuse`].
    pub errors: u64,
    /// Reads cut by [`Fault::Short`].
    pub shorts: u64,
    /// Reads held up by [`Fault::Delay`].
    pub delays: u64,
    /// Reads that got stuck.
    pub stuck: u64,
    /// Reads with a flipped bit.
    pub flips: u64,
    /// Reads that brought the bytes of another place.
    pub misdirected: u64,
    /// Reads still in flight when their queue was dropped.
    pub abandoned: u64,
}

/// Where a simulated tier's bytes come from.
enum Content {
    Bytes(Vec<u8>),
    Tier(Arc<dyn Tier>),
    /// Bytes that queues may change.
    Words(Words),
}

/// What all queues of one device share.
struct Device {
    options: SimOptions,
    content: Content,
    state: Padded<Mutex<State>>,
    /// Reads that got stuck before the device's this many-th read have been released. Apart from the state, since a queue that
    /// waits looks at it again and again.
    released: Padded<AtomicU64>,
}

#[derive(Default)]
struct State {
    stats: SimStats,
    latencies: Latencies,
    queues: u64,
    violations: Vec<Violation>,
    /// Buffers in flight: first byte to one past the last.
    buffers: BTreeMap<usize, usize>,
    /// When the next read may begin and when the link is free again, in nanoseconds.
    next_start: f64,
    link_free: f64,
}

impl Device {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A simulated tier. See the module's description.
pub struct SimTier {
    device: Arc<Device>,
    profile: TierProfile,
    len: u64,
}

impl SimTier {
    /// A device that holds `bytes`.
    pub fn new(bytes: Vec<u8>, options: SimOptions) -> SimTier {
        let len = bytes.len() as u64;
        SimTier::build(Content::Bytes(bytes), len, options)
    }

    /// A device whose bytes are those of another tier, which is read when a simulated read completes. Never
    /// addressable.
    pub fn over(tier: Arc<dyn Tier>, options: SimOptions) -> SimTier {
        let len = tier.len();
        SimTier::build(Content::Tier(tier), len, SimOptions { addressable: false, ..options })
    }

    /// A device that begins with a copy of `bytes` and whose queues may change them. Never addressable.
    pub fn writable_copy(bytes: &[u8], options: SimOptions) -> SimTier {
        let options = SimOptions { addressable: false, alignment: 1, ..options };
        SimTier::build(Content::Words(Words::of(bytes)), bytes.len() as u64, options)
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
        };
        let device =
            Arc::new(Device { options, content, state: Padded::default(), released: Padded::default() });
        SimTier { device, profile, len }
    }

    /// A handle that stays valid however the tier is used.
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

/// Looks into a simulated device and meddles with it. Clones share it; any thread may hold one.
#[derive(Clone)]
pub struct SimHandle {
    device: Arc<Device>,
}

impl SimHandle {
    /// The device's clock.
    pub fn clock(&self) -> SimClock {
        self.device.options.clock.clone()
    }

    /// What callers have done wrong so far; empty in every correct program.
    pub fn violations(&self) -> Vec<Violation> {
        self.device.state().violations.clone()
    }

    /// What the device has done so far.
    pub fn stats(&self) -> SimStats {
        self.device.state().stats
    }

    /// The latency in nanoseconds that a share of all reads so far stay within, queueing at the device included: 0.5 for
    /// the median, 0.99 for the 99th percentile. Rounded up by 6% at most. Counts no read that got stuck.
    pub fn latency_ns(&self, share: f64) -> u64 {
        self.device.state().latencies.quantile_ns(share)
    }

    /// Lets every read that is stuck now complete.
    pub fn release_stuck(&self) {
        let reads = self.device.state().stats.reads;
        self.device.released.0.fetch_max(reads, Ordering::AcqRel);
    }
}
