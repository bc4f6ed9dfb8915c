//! The contract between an engine and a tier: spans of bytes, reads, completions.
//!
//! A tier is one flat address space of bytes. It never hears of vectors. Everything that is specific to
//! a device (rings, doorbells, cache lines, ranges of an object) stays behind [`Queue`].

use crate::error::{ReadFault, TierError};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::task::Waker;
use std::time::Duration;

/// A run of bytes on a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// First byte.
    pub offset: u64,
    /// Length in bytes, at least 1.
    pub len: u32,
}

impl Span {
    /// The span of `len` bytes that begins at `offset`.
    pub fn at(offset: u64, len: u32) -> Span {
        Span { offset, len }
    }

    /// One past the last byte; saturates instead of wrapping on a damaged address.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.len))
    }

    /// Bytes of the read that covers this span on a tier aligned to `alignment`, a power of two.
    #[inline]
    pub fn aligned_len(&self, alignment: u32) -> u64 {
        let mask = u64::from(alignment.max(1)) - 1;
        (self.end().saturating_add(mask) & !mask).saturating_sub(self.offset & !mask)
    }
}

/// What a tier can do: read by the engine (alignment), the probe and the cost models.
///
/// Latency, bandwidth, IOPS and the cost of issuing a read are 0 where nobody has measured them yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TierProfile {
    /// The backend's name: "dram", "file", "sim", ...
    pub kind: String,
    /// How the backend reaches its bytes, for people: "io_uring, O_DIRECT", "positioned reads".
    pub method: String,
    /// Smallest number of bytes that the device moves.
    pub granularity: u32,
    /// What offsets, lengths and buffers must be multiples of, in bytes; a power of two.
    pub alignment: u32,
    /// Whether the bytes can be read in place, so that reads need no buffer ([`Queue::map`]).
    pub addressable: bool,
    /// Mean latency of one read of `granularity` bytes at depth 1, in nanoseconds.
    pub latency_ns: u64,
    /// Random reads of `granularity` bytes a second at the useful depth.
    pub iops: f64,
    /// Bytes a second with large reads at the useful depth.
    pub bandwidth_bytes_per_s: f64,
    /// Reads in flight beyond which throughput no longer rises.
    pub depth: u32,
    /// Processor time that it takes to submit a read and to take its completion, in nanoseconds; profiles that were saved
    /// before there was such a number have none.
    #[serde(default)]
    pub issue_ns: u64,
}

impl TierProfile {
    /// The profile in the JSON file that a probe wrote.
    ///
    /// # Errors
    /// [`TierError::Parameter`] if the file cannot be read, is no profile, or has a number that makes no sense.
    pub fn from_file(path: impl AsRef<Path>) -> Result<TierProfile, TierError> {
        let path = path.as_ref();
        let refuse = |why: String| TierError::Parameter(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| refuse(format!("cannot be read: {e}")))?;
        let profile: TierProfile = serde_json::from_str(&text).map_err(|e| {
            refuse(format!("is no profile of a device, as `bathyal probe --output` writes it: {e}"))
        })?;
        let rates = [profile.iops, profile.bandwidth_bytes_per_s];
        if !rates.iter().all(|rate| rate.is_finite() && *rate >= 0.0) {
            return Err(refuse(
                "iops and bandwidth_bytes_per_s must be numbers from 0 (not measured) up".into(),
            ));
        }
        Ok(profile)
    }

    /// This tier with the numbers of `measured`, a saved profile of the device below it, wherever that has one. What the tier
    /// is and how its bytes can be reached stays.
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
            ..self.clone()
        }
    }

    /// What so many devices like this one do together, with reads that are spread evenly.
    pub fn of_devices(&self, devices: u32) -> TierProfile {
        TierProfile {
            iops: self.iops * f64::from(devices),
            bandwidth_bytes_per_s: self.bandwidth_bytes_per_s * f64::from(devices),
            depth: self.depth.saturating_mul(devices),
            ..self.clone()
        }
    }
}

/// A place whose bytes can be searched. Shared by all threads; each opens its own [`Queue`].
pub trait Tier: Send + Sync {
    /// What the tier can do.
    fn profile(&self) -> &TierProfile;

    /// Length of the address space in bytes.
    fn len(&self) -> u64;

    /// Whether the address space is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Opens a queue that holds up to `depth` reads in flight. One a thread, or one that is handed from one to the next.
    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError>;

    /// The same bytes for writing, where a queue can write them; `None` of tiers that are read alone, as files are, which
    /// are written through the store.
    fn writable(&self) -> Option<&dyn WriteTier>;

    /// Whether others may change the bytes while they are read here.
    fn is_shared(&self) -> bool;
}

/// A tier whose bytes can be changed where they lie: memory of any kind, here or elsewhere.
pub trait WriteTier: Tier {
    /// Opens a queue that holds up to `depth` operations in flight.
    fn open_write(&self, depth: u32) -> Result<Box<dyn WriteQueue>, TierError>;

    /// What its queues are known by to whoever keeps the memory: a number that is nobody else's, never 0.
    fn holder(&self) -> u64 {
        u64::from(std::process::id())
    }

    /// All whose queues may still change the memory: nothing of one who is not among them arrives any more. `None` where nobody
    /// knows.
    ///
    /// # Errors
    /// Whoever keeps the memory does not answer.
    fn holders(&self) -> Result<Option<Vec<u64>>, TierError> {
        Ok(None)
    }
}

/// One read. `offset`, `len` and `buffer` are multiples of the profile's alignment, except that a read
/// may end beyond the tier's last byte, which then completes with the bytes that are there (none at all for
/// one that begins there).
#[derive(Debug, Clone, Copy)]
pub struct Read {
    /// The caller's name for this read; comes back in its [`Completion`].
    pub id: u64,
    /// First byte.
    pub offset: u64,
    /// Length in bytes, at least 1.
    pub len: u32,
    /// Where the bytes go: `len` writable bytes; null on addressable tiers.
    pub buffer: *mut u8,
    /// Which dependent round of its query asks for it: 1 before the query has been given any bytes; 0 where nobody counts.
    /// For counters alone.
    pub round: u32,
}

/// The end of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The read's id.
    pub id: u64,
    /// Bytes that arrived, from the start of the buffer on; or why none can be trusted.
    pub result: Result<u32, ReadFault>,
}

// SAFETY: an address and four numbers. Who may touch what lies there is the contract of [`Queue::submit`], whichever
// thread holds the address.
unsafe impl Send for Read {}

/// A submission and completion queue of one thread. It may be handed to another thread while nothing is in flight.
///
/// Every read that [`Queue::submit`] took completes exactly once through [`Queue::reap`], in any order.
/// Until then its buffer belongs to the queue. Dropping a queue waits until no device can write into a
/// buffer any more.
pub trait Queue: Send {
    /// Hands reads to the device in one go (one `io_uring_enter`, one doorbell, one pass of prefetches) and
    /// returns how many were taken, always a prefix: fewer than `reads.len()` is back-pressure, not an error.
    /// At least one is taken when nothing is in flight. On an error none was taken.
    ///
    /// # Safety
    /// On tiers that are not addressable, each taken read's buffer must be valid for writes of `len` bytes,
    /// and nobody else may touch it, until its completion has been reaped or the queue has been dropped.
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError>;

    /// Appends the completions that are there to `done`. With `wait`, blocks until there is at least one, the time
    /// is up or [`Queue::waker`] is woken (none is an error); returns at once when nothing is in flight. A queue that lends bytes in
    /// place fails here, also with nothing in flight, with [`TierError::Lost`] if some of them were not there; its
    /// callers ask once more after the last use.
    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError>;

    /// The bytes of a span in place, on addressable tiers. `None` where the tier is not addressable or
    /// the span lies outside it.
    fn map(&self, span: Span) -> Option<&[u8]>;

    /// All bytes of an addressable tier whose reads take a prefetch and nothing else: they lie there, unmoved, until the
    /// queue is dropped. Its caller may then prefetch and read them itself, without [`Queue::submit`], and asks from time to
    /// time, by a submission of no reads and at last by [`Queue::reap`], whether all of them were there. `None` where a
    /// read has to be submitted: to be waited for, counted, or traced.
    fn lend(&self) -> Option<&[u8]>;

    /// Tells the queue that buffers will come from this region, one call a region, so that a device can register it. A
    /// backend without such a notion does nothing, and one without room for another uses it as it is.
    ///
    /// # Safety
    /// The region must stay allocated until the queue has been dropped.
    unsafe fn register(&mut self, region: *mut u8, len: usize) -> Result<(), TierError>;

    /// Reads taken and not yet reaped.
    fn in_flight(&self) -> usize;

    /// Told when nobody wants what is in flight any more: a queue that can keep its device from writing to a buffer ends it now,
    /// each with a fault. Others have no such way, and do nothing.
    fn give_up(&mut self) {}

    /// What ends a wait of [`Queue::reap`] early, from any thread: the present one, or else the next. The wait then
    /// brings what is there, or nothing. `None` where a queue cannot be woken; its waits are then kept short.
    fn waker(&mut self) -> Option<Waker>;
}

/// What an [`Operation`] does with the bytes at its offset.
#[derive(Debug, Clone, Copy)]
pub enum Action {
    /// Copies `len` of them out.
    Read {
        /// `len` writable bytes.
        into: *mut u8,
        /// At least 1; fewer come where the tier ends.
        len: u32,
    },
    /// Replaces `len` of them. Others may see a part of a write before all of it.
    Write {
        /// `len` readable bytes.
        from: *const u8,
        /// At least 1.
        len: u32,
    },
    /// Replaces the number there if it is the expected one, as one step for all who change numbers.
    CompareAndSwap {
        /// What has to be there.
        expected: u64,
        /// What comes in its place.
        new: u64,
        /// Where the number goes that was there: the expected one, or the one that kept it from being replaced.
        old: *mut u64,
    },
    /// Adds to the number there, around the end of the range, as one step for all who change numbers.
    FetchAndAdd {
        /// What is added.
        by: u64,
        /// Where the number goes that was there before.
        old: *mut u64,
    },
}

impl Action {
    /// Bytes that it moves: 8 of a number.
    pub fn len(&self) -> u32 {
        match self {
            Action::Read { len, .. } | Action::Write { len, .. } => *len,
            Action::CompareAndSwap { .. } | Action::FetchAndAdd { .. } => 8,
        }
    }

    /// Whether it moves none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A read or a change. Numbers are little-endian and lie at multiples of 8.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// The caller's name for it; comes back in its [`Completion`].
    pub id: u64,
    /// First byte.
    pub offset: u64,
    /// What is done.
    pub action: Action,
    /// The next one of the submission begins when this one has ended, and not at all if it fails
    /// ([`FaultKind::Skipped`](crate::FaultKind::Skipped)). Operations that are not linked know no order.
    pub linked: bool,
}

// SAFETY: addresses and numbers. Who may touch what lies there is the contract of [`WriteQueue::submit_operations`].
unsafe impl Send for Operation {}

/// A queue that changes bytes too. Its reads and operations share its depth, and complete through [`Queue::reap`].
pub trait WriteQueue: Queue {
    /// Hands operations over and returns how many were taken, always a prefix of whole chains: one that is linked is
    /// taken with those that follow it, or not. At least one chain is taken when nothing is in flight.
    ///
    /// # Errors
    /// [`TierError::Parameter`] for a chain that is longer than the queue is deep.
    ///
    /// # Safety
    /// Of each operation taken, what `into`, `from` and `old` point to must be valid for its length, and must not be
    /// touched (`from`: not be written) by anybody else, until its completion has been reaped or the queue dropped.
    unsafe fn submit_operations(&mut self, operations: &[Operation]) -> Result<usize, TierError>;
}

/// The chains of linked operations, one after the other.
pub(crate) fn chains(operations: &[Operation]) -> impl Iterator<Item = &[Operation]> {
    operations.chunk_by(|before, _| before.linked)
}

/// Why a chain is never taken.
pub(crate) fn too_long_a_chain(len: usize, depth: usize) -> TierError {
    TierError::Parameter(format!(
        "{len} linked operations do not fit a queue of depth {depth}: open it deeper, or link fewer"
    ))
}
