//! The contract between an engine and a tier: spans of bytes, reads, completions.
//!
//! A tier is one flat address space of bytes, without any notion of vectors. Everything that is specific to a
//! device (rings, doorbells, cache lines, ranges of an object) stays behind [`Queue`].

use crate::error::{ReadFault, TierError};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::task::Waker;
use std::time::Duration;

/// A range of bytes on a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// First byte.
    pub offset: u64,
    /// Length in bytes, at least 1.
    pub len: u32,
}

impl Span {
    /// Makes the span of `len` bytes that begins at `offset`.
    pub fn at(offset: u64, len: u32) -> Span {
        Span { offset, len }
    }

    /// Returns one past the last byte; saturates instead of wrapping on a damaged address.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.len))
    }

    /// Returns the bytes of the read that covers this span on a tier aligned to `alignment`, a power of two.
    #[inline]
    pub fn aligned_len(&self, alignment: u32) -> u64 {
        let mask = u64::from(alignment.max(1)) - 1;
        (self.end().saturating_add(mask) & !mask).saturating_sub(self.offset & !mask)
    }
}

/// Properties of a tier, used by the engine (alignment), the probe and the cost models.
///
/// Latency, bandwidth, IOPS and the cost of issuing a read are 0 if they have not been measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TierProfile {
    /// The backend's name: "dram", "file", "sim", ...
    pub kind: String,
    /// How the backend reaches its bytes, as text for people: "io_uring, O_DIRECT", "positioned reads".
    pub method: String,
    /// Smallest number of bytes that the device moves.
    pub granularity: u32,
    /// Alignment of offsets, lengths and buffers in bytes; a power of two.
    pub alignment: u32,
    /// True if the bytes can be read in place, so that reads need no buffer ([`Queue::map`]).
    pub addressable: bool,
    /// Mean latency of one read of `granularity` bytes at depth 1, in nanoseconds.
    pub latency_ns: u64,
    /// Random reads of `granularity` bytes a second at the useful depth.
    pub iops: f64,
    /// Bytes a second with large reads at the useful depth.
    pub bandwidth_bytes_per_s: f64,
    /// Reads in flight beyond which throughput no longer rises.
    pub depth: u32,
    /// Processor time to submit a read and to reap its completion, in nanoseconds. Profiles that older
    /// versions saved do not have it.
    #[serde(default)]
    pub issue_ns: u64,
    /// Rates of random reads by size at the useful depth, in ascending order of size; empty if they have not
    /// been measured. Between its smallest and its largest reads, a device can be slower than IOPS and
    /// bandwidth together say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<ReadRate>,
}

/// The rate of random reads of one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ReadRate {
    /// Bytes of each read.
    pub bytes: u32,
    /// Reads a second.
    pub reads_per_s: f64,
}

impl TierProfile {
    /// Reads the profile from the JSON file that a probe wrote.
    ///
    /// # Errors
    /// [`TierError::Parameter`] if the file cannot be read, is no profile, or has an invalid rate.
    pub fn from_file(path: impl AsRef<Path>) -> Result<TierProfile, TierError> {
        let path = path.as_ref();
        let refuse = |why: String| TierError::Parameter(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| refuse(format!("cannot be read: {e}")))?;
        let profile: TierProfile = serde_json::from_str(&text).map_err(|e| {
            refuse(format!("is not a profile of a device as `bathyal probe --output` writes it: {e}"))
        })?;
        let rates = [profile.iops, profile.bandwidth_bytes_per_s];
        if !rates.iter().all(|rate| rate.is_finite() && *rate >= 0.0) {
            return Err(refuse(
                "iops and bandwidth_bytes_per_s must be 0 (not measured) or positive numbers".into(),
            ));
        }
        let is_rate = |one: &ReadRate| one.bytes > 0 && one.reads_per_s.is_finite() && one.reads_per_s > 0.0;
        let ascend = profile.rates.windows(2).all(|pair| pair[0].bytes < pair[1].bytes);
        if !ascend || !profile.rates.iter().all(is_rate) {
            return Err(refuse("rates must have positive numbers, and sizes in ascending order".into()));
        }
        Ok(profile)
    }

    /// Returns the reads a second of reads of `bytes` bytes: between two measured sizes by a power law, and
    /// beyond them with the rate of the nearest one in reads (below) or in bytes (above). `None` if no rates
    /// were measured.
    pub fn reads_per_second(&self, bytes: f64) -> Option<f64> {
        let (first, last) = (self.rates.first()?, self.rates.last()?);
        let above = self.rates.iter().position(|rate| f64::from(rate.bytes) > bytes);
        match above {
            Some(0) => Some(first.reads_per_s),
            None => Some(last.reads_per_s * f64::from(last.bytes) / bytes),
            Some(at) => {
                let (low, high) = (self.rates[at - 1], self.rates[at]);
                let span = (f64::from(high.bytes) / f64::from(low.bytes)).ln();
                let share = (bytes / f64::from(low.bytes)).ln() / span;
                Some(low.reads_per_s * (high.reads_per_s / low.reads_per_s).powf(share))
            }
        }
    }

    /// Returns this profile with the numbers of `measured`, a saved profile of the device below the tier,
    /// wherever `measured` has one. Kind, method, alignment and addressability stay those of this tier.
    pub fn measured_as(&self, measured: &TierProfile) -> TierProfile {
        let either = |measured: u64, own: u64| if measured > 0 { measured } else { own };
        let rate = |measured: f64, own: f64| if measured > 0.0 { measured } else { own };
        TierProfile {
            granularity: self.granularity.max(measured.granularity),
            latency_ns: either(measured.latency_ns, self.latency_ns),
            iops: rate(measured.iops, self.iops),
            bandwidth_bytes_per_s: rate(measured.bandwidth_bytes_per_s, self.bandwidth_bytes_per_s),
            depth: if measured.depth > 0 { measured.depth } else { self.depth },
            issue_ns: either(measured.issue_ns, self.issue_ns),
            rates: if measured.rates.is_empty() { self.rates.clone() } else { measured.rates.clone() },
            ..self.clone()
        }
    }

    /// Returns the profile of `devices` devices like this one together, with reads that are spread evenly.
    pub fn of_devices(&self, devices: u32) -> TierProfile {
        let times =
            |rate: &ReadRate| ReadRate { reads_per_s: rate.reads_per_s * f64::from(devices), ..*rate };
        TierProfile {
            rates: self.rates.iter().map(times).collect(),
            iops: self.iops * f64::from(devices),
            bandwidth_bytes_per_s: self.bandwidth_bytes_per_s * f64::from(devices),
            depth: self.depth.saturating_mul(devices),
            ..self.clone()
        }
    }
}

/// An address space of bytes that can be searched. All threads share it; each opens its own [`Queue`].
pub trait Tier: Send + Sync {
    /// Returns the properties of the tier.
    fn profile(&self) -> &TierProfile;

    /// Returns the length of the address space in bytes.
    fn len(&self) -> u64;

    /// Returns true if the address space is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Opens a queue that holds up to `depth` reads in flight. Each thread opens its own, or takes over one
    /// from another thread.
    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError>;

    /// Returns the tier for writing, if its queues can write. Returns `None` for read-only tiers such as
    /// files, which are written through the store.
    fn writable(&self) -> Option<&dyn WriteTier>;

    /// Returns true if other threads, processes or machines may change the bytes while they are read.
    fn is_shared(&self) -> bool;
}

/// A tier whose bytes can be changed in place: memory of any kind, on this machine or another.
pub trait WriteTier: Tier {
    /// Opens a queue that holds up to `depth` operations in flight.
    fn open_write(&self, depth: u32) -> Result<Box<dyn WriteQueue>, TierError>;

    /// Returns the number that identifies this tier's queues among all that may change the memory. It is
    /// unique and never 0.
    fn holder(&self) -> u64 {
        u64::from(std::process::id())
    }

    /// Returns the numbers of all holders whose queues may still change the memory. No write of any other
    /// holder can arrive any more. `None` if this is unknown.
    ///
    /// # Errors
    /// [`TierError`] if the owner of the memory does not answer.
    fn holders(&self) -> Result<Option<Vec<u64>>, TierError> {
        Ok(None)
    }
}

/// One read. `offset`, `len` and `buffer` are multiples of the profile's alignment. A read may end beyond the
/// tier's last byte; it then completes with the bytes that exist, and with none if it begins at or beyond the
/// end.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    /// The caller's number of this read, which comes back in its [`Completion`].
    pub id: u64,
    /// First byte.
    pub offset: u64,
    /// Length in bytes, at least 1.
    pub len: u32,
    /// Address of `len` writable bytes that receive the data; null on addressable tiers.
    pub buffer: *mut u8,
    /// Dependent round of its query: 1 before the query has received any bytes; 0 if rounds are not counted.
    /// Used for counters only.
    pub round: u32,
}

/// The end of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The read's id.
    pub id: u64,
    /// Number of bytes that arrived, from the start of the buffer on, or the fault.
    pub result: Result<u32, ReadFault>,
}

// SAFETY: an address and four numbers. The contract of [`Queue::submit`] controls access to the memory at the
// address, independent of the thread that holds it.
unsafe impl Send for Read {}

/// A submission and completion queue of one thread. It may be handed to another thread while nothing is in
/// flight.
///
/// Every read that [`Queue::submit`] took completes exactly once through [`Queue::reap`], in any order.
/// Until then its buffer belongs to the queue. Dropping a queue waits until no device can write into a
/// buffer any more.
pub trait Queue: Send {
    /// Submits reads to the device in one call (one `io_uring_enter`, one doorbell, one pass of prefetches).
    /// Returns how many were taken, always a prefix: fewer than `reads.len()` is back-pressure, not an error.
    /// At least one is taken when nothing is in flight. On an error none was taken.
    ///
    /// # Safety
    /// On tiers that are not addressable, the buffer of each taken read must be valid for writes of `len`
    /// bytes, and nothing else may touch it until its completion has been reaped or the queue has been
    /// dropped.
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError>;

    /// Appends the present completions to `done`. With `wait`, blocks until there is at least one, the time
    /// is up, or [`Queue::waker`] is woken; none of these is an error. Returns at once when nothing is in
    /// flight.
    ///
    /// # Errors
    /// A queue that lends bytes in place fails with [`TierError::Lost`] if some of them were missing, also
    /// with nothing in flight. Callers of such a queue call this once more after the last use of the bytes.
    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError>;

    /// Returns the bytes of a span in place. Returns `None` if the tier is not addressable or the span lies
    /// outside it.
    fn map(&self, span: Span) -> Option<&[u8]>;

    /// Returns all bytes of an addressable tier whose reads are prefetches and nothing else. They do not move
    /// until the queue is dropped. The caller may prefetch and read them itself, without [`Queue::submit`];
    /// from time to time, by a submission of no reads, and at the end by [`Queue::reap`], it checks that all
    /// of them were present. Returns `None` if reads must be submitted, because they take time or are counted
    /// or traced.
    fn lend(&self) -> Option<&[u8]>;

    /// Announces a region that buffers will come from, so that a device can register it; called once for each
    /// region. A backend without registration does nothing, and a backend without room for another region
    /// reads into it unregistered.
    ///
    /// # Safety
    /// The region must stay allocated until the queue has been dropped.
    unsafe fn register(&mut self, region: *mut u8, len: usize) -> Result<(), TierError>;

    /// Returns the number of reads taken and not yet reaped.
    fn in_flight(&self) -> usize;

    /// Abandons all reads in flight. A queue that can keep its device from writing to a buffer ends them now,
    /// each with a fault; other queues do nothing.
    fn give_up(&mut self) {}

    /// Returns a waker that ends a wait of [`Queue::reap`] early, from any thread: the present wait, or else
    /// the next. The wait then returns the present completions, or none. Returns `None` if the queue cannot
    /// be woken; its callers keep their waits short.
    fn waker(&mut self) -> Option<Waker>;
}

/// Effect of an [`Operation`] on the bytes at its offset.
#[derive(Debug, Clone, Copy)]
pub enum Action {
    /// Copies `len` bytes out.
    Read {
        /// `len` writable bytes.
        into: *mut u8,
        /// At least 1; fewer bytes arrive at the end of the tier.
        len: u32,
    },
    /// Replaces `len` bytes. Other readers may see a part of a write before all of it.
    Write {
        /// `len` readable bytes.
        from: *const u8,
        /// At least 1.
        len: u32,
    },
    /// Replaces the number at the offset if it is the expected one; atomic with respect to all changes of
    /// numbers.
    CompareAndSwap {
        /// Expected number.
        expected: u64,
        /// New number.
        new: u64,
        /// Receives the number before the operation: the expected one, or the one that prevented the swap.
        old: *mut u64,
    },
    /// Adds to the number at the offset, wrapping around; atomic with respect to all changes of numbers.
    FetchAndAdd {
        /// Summand.
        by: u64,
        /// Receives the number before the operation.
        old: *mut u64,
    },
}

impl Action {
    /// Returns the number of bytes that it moves; 8 for a number.
    pub fn len(&self) -> u32 {
        match self {
            Action::Read { len, .. } | Action::Write { len, .. } => *len,
            Action::CompareAndSwap { .. } | Action::FetchAndAdd { .. } => 8,
        }
    }

    /// Returns true if it moves no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A read or a change. Numbers are little-endian and lie at multiples of 8.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// The caller's number of the operation, which comes back in its [`Completion`].
    pub id: u64,
    /// First byte.
    pub offset: u64,
    /// Effect on the bytes there.
    pub action: Action,
    /// True if the next operation of the submission begins only when this one has ended, and is skipped
    /// ([`FaultKind::Skipped`](crate::FaultKind::Skipped)) if this one fails. Operations that are not linked
    /// have no order.
    pub linked: bool,
}

// SAFETY: addresses and numbers. The contract of [`WriteQueue::submit_operations`] controls access to the
// memory at the addresses.
unsafe impl Send for Operation {}

/// A queue that changes bytes too. Its reads and operations share its depth, and complete through
/// [`Queue::reap`].
pub trait WriteQueue: Queue {
    /// Submits operations and returns how many were taken, always a prefix of whole chains: a linked
    /// operation is taken together with those that follow it, or not at all. At least one chain is taken when
    /// nothing is in flight.
    ///
    /// # Errors
    /// [`TierError::Parameter`] for a chain that is longer than the depth of the queue.
    ///
    /// # Safety
    /// The memory at `into`, `from` and `old` of each taken operation must be valid for its length, and
    /// nothing else may touch it (`from`: write to it) until the operation's completion has been reaped or
    /// the queue has been dropped.
    unsafe fn submit_operations(&mut self, operations: &[Operation]) -> Result<usize, TierError>;
}

/// Returns the chains of linked operations, one after the other.
pub(crate) fn chains(operations: &[Operation]) -> impl Iterator<Item = &[Operation]> {
    operations.chunk_by(|before, _| before.linked)
}

/// Makes the error for a chain that is longer than the depth of the queue.
pub(crate) fn chain_too_long(len: usize, depth: usize) -> TierError {
    TierError::Parameter(format!(
        "{len} linked operations do not fit into a queue of depth {depth}: open a deeper queue, or link fewer"
    ))
}
