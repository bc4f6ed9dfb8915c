//! An emulated device: the speed of another device, such as CXL memory, on top of a fast tier, in real time.
//!
//! Each read goes to the tier below. It completes once the device's latency and the transfer of its bytes
//! over the device's link have passed, too. The latency passes in the thread's own time, so that time off the
//! processor does not hide it (`clock`). See docs/emulated-devices.md for what this shows and what it cannot
//! show.

mod clock;

use self::clock::GapClock;
use super::unknown;
use crate::backend::wake_flag::WakeFlag;
use crate::contract::{Completion, Queue, Read, Tier, TierProfile};
use crate::error::{ReadFault, TierError};
use crate::forward::{LayerQueue, LayerTier};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

/// The thread sleeps through most of a wait longer than this, and spins through a shorter one, since the
/// system's timers are late by some 50 microseconds.
const SLEEP_ABOVE_NS: u64 = 300_000;

/// The longest single sleep. A waker does not end it, so a wake-up takes effect no later than this.
const LONGEST_NAP: Duration = Duration::from_millis(1);

/// Parts of a nanosecond in which the link's time is counted; 64 bytes at 60 GB/s take 1.07 nanoseconds.
const LINK_PARTS: u64 = 1024;

/// The longest latency and issue cost of a profile, in nanoseconds: a minute.
const LONGEST_NS: u64 = 60_000_000_000;

/// The device to emulate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DelayProfile {
    /// The device's name.
    pub name: String,
    /// Latency of one read in nanoseconds, without its transfer.
    pub latency_ns: u64,
    /// Bytes a second of the link that all queues share; 0 for no limit.
    pub bandwidth_bytes_per_s: f64,
    /// Bytes that the device moves at least.
    pub granularity: u32,
    /// Processor time to submit one read, in nanoseconds.
    pub issue_ns: u64,
}

impl DelayProfile {
    fn table(name: &str, latency_ns: u64, gigabytes: f64, granularity: u32, issue_ns: u64) -> DelayProfile {
        let bandwidth_bytes_per_s = gigabytes * 1e9;
        DelayProfile { name: name.into(), latency_ns, bandwidth_bytes_per_s, granularity, issue_ns }
    }

    /// Returns the profile of CXL memory (second-tier-memory, table 1).
    pub fn cxl() -> DelayProfile {
        DelayProfile::table("cxl", 300, 32.0, 64, 0)
    }

    /// Returns the profile of non-volatile memory (second-tier-memory, table 1).
    pub fn nvm() -> DelayProfile {
        DelayProfile::table("nvm", 400, 60.0, 256, 0)
    }

    /// Returns the profile of remote memory over RDMA (second-tier-memory, table 1). The processor posts each
    /// read.
    pub fn rdma() -> DelayProfile {
        DelayProfile::table("rdma", 2_800, 25.0, 64, 150)
    }

    /// Returns the profile of remote memory behind a ConnectX-6 of 100 Gbit/s, the network card of d-HNSW's
    /// servers (section 4). A one-sided read of a few bytes takes some 2 us on such a card.
    pub fn connectx6() -> DelayProfile {
        DelayProfile::table("connectx6", 2_000, 12.5, 64, 150)
    }

    /// Returns the profile of a fast NVMe SSD (second-tier-memory, table 1).
    pub fn ssd() -> DelayProfile {
        DelayProfile::table("ssd", 75_000, 5.3, 4096, 0)
    }

    /// Returns the profile named "cxl", "nvm", "rdma", "connectx6" or "ssd".
    pub fn named(name: &str) -> Option<DelayProfile> {
        let memories = [DelayProfile::cxl(), DelayProfile::nvm()];
        let others = [DelayProfile::rdma(), DelayProfile::connectx6(), DelayProfile::ssd()];
        memories.into_iter().chain(others).find(|profile| profile.name == name)
    }

    /// Returns the profile named `text`, or reads it from the JSON file `text`.
    ///
    /// # Errors
    /// [`TierError::Parameter`] if there is neither, or if a number in the file is invalid.
    pub fn named_or_file(text: &str) -> Result<DelayProfile, TierError> {
        if let Some(profile) = DelayProfile::named(text) {
            return Ok(profile);
        }
        let refuse = |why: String| TierError::Parameter(format!("{text}: {why}"));
        let json = std::fs::read_to_string(Path::new(text)).map_err(|e| {
            refuse(format!(
                "no device of that name (cxl, nvm, rdma, connectx6, ssd), and no readable file with a \
                 profile: {e}"
            ))
        })?;
        let profile: DelayProfile = serde_json::from_str(&json)
            .map_err(|e| refuse(format!("the file is not a profile of a device to emulate: {e}")))?;
        profile.check().map_err(refuse)?;
        Ok(profile)
    }

    fn check(&self) -> Result<(), String> {
        if !(self.bandwidth_bytes_per_s.is_finite() && self.bandwidth_bytes_per_s >= 0.0) {
            return Err("bandwidth_bytes_per_s must be 0 (no limit) or a positive number".into());
        }
        if self.granularity == 0 {
            return Err("granularity must be at least 1".into());
        }
        if self.latency_ns.max(self.issue_ns) > LONGEST_NS {
            return Err(format!("latency_ns and issue_ns must be at most {LONGEST_NS}"));
        }
        Ok(())
    }
}

/// Computes the link's time for a read.
#[derive(Clone, Copy)]
struct Transfer {
    granule: u64,
    /// Logarithm of the granule if it is a power of two: a division takes longer than the rest of the
    /// computation.
    shift: Option<u32>,
    parts_per_byte: f64,
}

impl Transfer {
    fn new(delay: &DelayProfile) -> Transfer {
        let granule = u64::from(delay.granularity.max(1));
        let bandwidth = delay.bandwidth_bytes_per_s;
        Transfer {
            granule,
            shift: granule.is_power_of_two().then(|| granule.trailing_zeros()),
            parts_per_byte: if bandwidth > 0.0 { 1e9 * LINK_PARTS as f64 / bandwidth } else { 0.0 },
        }
    }

    /// Returns the link's time for the granules that a read touches, in parts of a nanosecond.
    #[inline]
    fn parts(&self, read: &Read) -> u64 {
        if self.parts_per_byte == 0.0 {
            return 0;
        }
        let last = read.offset.saturating_add(u64::from(read.len.max(1)) - 1);
        let granules = match self.shift {
            Some(shift) => (last >> shift) - (read.offset >> shift) + 1,
            None => last / self.granule - read.offset / self.granule + 1,
        };
        (granules.saturating_mul(self.granule) as f64 * self.parts_per_byte) as u64
    }
}

/// A tier with the latency, bandwidth and issue cost of an emulated device. Addressable if the tier below is.
pub struct DelayTier {
    tier: Arc<dyn Tier>,
    delay: Arc<DelayProfile>,
    link: Arc<Link>,
    profile: TierProfile,
}

impl DelayTier {
    /// Makes a tier that adds the latency, bandwidth and issue cost of `delay` to `tier`.
    pub fn new(tier: Arc<dyn Tier>, delay: DelayProfile) -> DelayTier {
        let inner = tier.profile();
        let granule = delay.granularity.max(inner.granularity);
        let bandwidth = delay.bandwidth_bytes_per_s;
        // Little's law: the number of reads in flight that fills the link.
        let depth = (delay.latency_ns as f64 * bandwidth / 1e9 / f64::from(granule)).ceil() as u32;
        let profile = TierProfile {
            kind: format!("emulated {}", delay.name),
            method: format!("emulated over {}, {}", inner.kind, inner.method),
            granularity: granule,
            alignment: inner.alignment,
            addressable: inner.addressable,
            latency_ns: delay.latency_ns + inner.latency_ns,
            iops: bandwidth / f64::from(granule),
            bandwidth_bytes_per_s: bandwidth,
            depth: if bandwidth > 0.0 { depth.clamp(1, 1024) } else { inner.depth },
            issue_ns: delay.issue_ns + inner.issue_ns,
            rates: Vec::new(),
        };
        DelayTier { tier, delay: Arc::new(delay), link: Arc::default(), profile }
    }
}

impl LayerTier for DelayTier {
    fn below(&self) -> &dyn Tier {
        &*self.tier
    }

    fn profile(&self) -> &TierProfile {
        &self.profile
    }

    fn queue_over(&self, queue: Box<dyn Queue>, depth: u32) -> Box<dyn Queue> {
        Box::new(DelayQueue {
            queue,
            latency_ns: self.delay.latency_ns,
            issue_ns: self.delay.issue_ns,
            transfer: Transfer::new(&self.delay),
            link: self.link.clone(),
            clock: GapClock::new(),
            depth: depth.max(1) as usize,
            latest_due: 0,
            pending: VecDeque::new(),
            delayed: VecDeque::new(),
            reaped: Vec::new(),
            wake_flag: Arc::default(),
        })
    }
}

/// The link that all queues of a device share: a token bucket that holds no more than one read. It runs in
/// the time of the machine, since the link keeps transferring while a thread is off the processor. A thread
/// that returns thus finds the link a little freer than the device's would be, by at most the rest of the
/// transfers of its own reads in flight.
#[derive(Default)]
struct Link {
    /// Time at which it is free again, in parts of a nanosecond.
    free: AtomicU64,
}

impl Link {
    /// Reserves `parts` of the link at the time `now_ns`. Returns the delay before the transfer begins, in
    /// parts.
    #[inline]
    fn reserve(&self, now_ns: u64, parts: u64) -> u64 {
        if parts == 0 {
            return 0;
        }
        let now = now_ns.saturating_mul(LINK_PARTS);
        let mut free = self.free.load(Ordering::Relaxed);
        loop {
            let begin = free.max(now);
            let end = begin.saturating_add(parts);
            match self.free.compare_exchange_weak(free, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return begin - now,
                Err(other) => free = other,
            }
        }
    }
}

/// A read that the tier below has not completed yet.
struct PendingRead {
    id: u64,
    due: u64,
}

/// A read that the tier below has completed, but the emulated device has not.
struct DelayedRead {
    due: u64,
    id: u64,
    result: Result<u32, ReadFault>,
}

struct DelayQueue {
    queue: Box<dyn Queue>,
    latency_ns: u64,
    issue_ns: u64,
    transfer: Transfer,
    link: Arc<Link>,
    clock: GapClock,
    depth: usize,
    /// Time at which the last submitted read is due. The device serves a queue in order.
    latest_due: u64,
    /// In order of submission, and thus of `due`.
    pending: VecDeque<PendingRead>,
    /// In order of `due`.
    delayed: VecDeque<DelayedRead>,
    reaped: Vec<Completion>,
    wake_flag: Arc<WakeFlag>,
}

impl DelayQueue {
    /// Returns the number of reads that are pending or delayed.
    fn unfinished(&self) -> usize {
        self.pending.len() + self.delayed.len()
    }

    /// Removes a pending read and returns the time at which it is due. It is nearly always the first, since
    /// most tiers complete reads in the order of submission. Reads with the same id are interchangeable.
    #[inline]
    fn remove_pending(&mut self, id: u64) -> Option<u64> {
        let first = self.pending.front().is_some_and(|read| read.id == id);
        let at = if first { 0 } else { self.pending.iter().position(|read| read.id == id)? };
        self.pending.remove(at).map(|read| read.due)
    }

    /// Collects the completions of the tier below.
    #[inline]
    fn pull(&mut self, wait: Option<Duration>) -> Result<(), TierError> {
        // With no read left at all, the tier below is still reaped, so that it checks the bytes that it lent.
        if self.pending.is_empty() && !self.delayed.is_empty() {
            return Ok(());
        }
        let mut reaped = std::mem::take(&mut self.reaped);
        let mut outcome = self.queue.reap(&mut reaped, wait);
        for Completion { id, result } in reaped.drain(..) {
            let Some(due) = self.remove_pending(id) else {
                outcome = outcome.and(Err(unknown(id)));
                continue;
            };
            if self.delayed.back().is_none_or(|read| read.due <= due) {
                self.delayed.push_back(DelayedRead { due, id, result });
            } else {
                let at = self.delayed.iter().rposition(|read| read.due <= due).map_or(0, |i| i + 1);
                self.delayed.insert(at, DelayedRead { due, id, result });
            }
        }
        self.reaped = reaped;
        outcome
    }

    #[inline]
    fn deliver(&mut self, now: u64, done: &mut Vec<Completion>) {
        while self.delayed.front().is_some_and(|read| read.due <= now)
            && let Some(DelayedRead { id, result, .. }) = self.delayed.pop_front()
        {
            done.push(Completion { id, result });
        }
    }

    /// Reserves the link for reads that were submitted between `begin` and `submitted`, and sets the times at
    /// which they are due.
    #[inline]
    fn schedule(&mut self, reads: &[Read], begin: u64, submitted: u64) {
        let total = reads.iter().fold(0_u64, |sum, read| sum.saturating_add(self.transfer.parts(read)));
        let mut transferred = self.link.reserve(self.clock.raw(), total);
        for (posted, read) in (1_u64..).zip(reads) {
            let parts = self.transfer.parts(read);
            transferred = transferred.saturating_add(parts);
            // With an issue cost, the processor posts one read after the other.
            let ready = if self.issue_ns == 0 {
                submitted.saturating_add(transferred / LINK_PARTS)
            } else {
                let after_posting = begin
                    .saturating_add(posted.saturating_mul(self.issue_ns))
                    .saturating_add(parts / LINK_PARTS);
                after_posting.max(submitted.saturating_add(transferred / LINK_PARTS))
            };
            self.latest_due = self.latest_due.max(ready.saturating_add(self.latency_ns));
            self.pending.push_back(PendingRead { id: read.id, due: self.latest_due });
        }
        let posted = begin.saturating_add((reads.len() as u64).saturating_mul(self.issue_ns));
        while self.issue_ns > 0 && self.clock.now_ns() < posted {
            std::hint::spin_loop();
        }
    }
}

impl LayerQueue for DelayQueue {
    fn below(&self) -> &dyn Queue {
        &*self.queue
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.queue
    }

    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        // Delayed reads count, too: they are in flight on the emulated device.
        let room = self.depth.saturating_sub(self.unfinished()).min(reads.len());
        // A second reading of the clock is needed only if there is an issue cost.
        let begin = if self.issue_ns > 0 { self.clock.enter() } else { 0 };
        // SAFETY: the same buffers under the same contract.
        let taken = unsafe { self.queue.submit(&reads[..room])? };
        let submitted = if self.issue_ns > 0 { self.clock.now_ns() } else { self.clock.enter() };
        self.schedule(&reads[..taken.min(room)], begin, submitted);
        Ok(taken)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let first = done.len();
        let begin = self.clock.enter();
        let mut outcome = self.pull(None);
        self.deliver(begin, done);
        let Some(wait) = wait else { return outcome };
        let end = begin.saturating_add(wait.as_nanos() as u64);
        while outcome.is_ok() && done.len() == first && self.unfinished() > 0 {
            let now = self.clock.now_ns();
            self.deliver(now, done);
            if now >= end || self.wake_flag.take() {
                break;
            }
            match self.delayed.front() {
                None => {
                    outcome = self.pull(Some(Duration::from_nanos(end - now)));
                    self.clock.slept();
                }
                Some(next) if next.due.min(end) > now + SLEEP_ABOVE_NS => {
                    let sleep = next.due.min(end) - now - SLEEP_ABOVE_NS / 2;
                    std::thread::sleep(Duration::from_nanos(sleep).min(LONGEST_NAP));
                    self.clock.slept();
                    outcome = self.pull(None);
                }
                Some(_) if !self.pending.is_empty() => outcome = self.pull(None),
                Some(_) => std::hint::spin_loop(),
            }
        }
        outcome
    }

    fn in_flight(&self) -> usize {
        self.unfinished()
    }

    fn waker(&mut self) -> Option<Waker> {
        // If the queue below cannot be woken, a wake-up takes effect at the end of the present wait.
        self.wake_flag = WakeFlag::over(self.queue.waker().into_iter().collect());
        Some(self.wake_flag.clone().into())
    }
}
