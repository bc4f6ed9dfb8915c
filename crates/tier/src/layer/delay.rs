//! Another device's speed on top of a fast tier, in real time: what would this search do on CXL memory?
//!
//! Each read is really made; it counts as complete once the device's latency and the transfer of its bytes
//! over the device's link have passed too. Latency runs in the thread's own time: what the system or a
//! hypervisor takes away does not hide it (`clock`). What this shows and what it cannot: docs/emulated-devices.md.

mod clock;

use self::clock::GapClock;
use super::unknown;
use crate::backend::bell::Bell;
use crate::contract::{Completion, Queue, Read, Span, Tier, TierProfile, WriteTier};
use crate::error::{ReadFault, TierError};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

/// Waits longer than this are slept through for the most part; shorter ones are spun through, because the
/// system's timers are late by some 50 microseconds.
const SLEEP_ABOVE_NS: u64 = 300_000;

/// A sleep no longer than this is not woken: who wants the thread waits that long at most.
const LONGEST_NAP: Duration = Duration::from_millis(1);

/// The link counts in parts of a nanosecond: 64 bytes at 60 GB/s take 1.07 of them.
const LINK_PARTS: u64 = 1024;

/// The longest latency and issue cost that a profile may ask for, in nanoseconds: a minute.
const LONGEST_NS: u64 = 60_000_000_000;

/// The device to emulate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DelayProfile {
    /// The device's name.
    pub name: String,
    /// Latency of one read in nanoseconds, without its transfer.
    pub latency_ns: u64,
    /// Bytes a second of the link that all queues share; 0 is no limit.
    pub bandwidth_bytes_per_s: f64,
    /// Bytes that the device moves at least.
    pub granularity: u32,
    /// Processor time that submitting one read costs, in nanoseconds.
    pub issue_ns: u64,
}

impl DelayProfile {
    fn table(name: &str, latency_ns: u64, gigabytes: f64, granularity: u32, issue_ns: u64) -> DelayProfile {
        let bandwidth_bytes_per_s = gigabytes * 1e9;
        DelayProfile { name: name.into(), latency_ns, bandwidth_bytes_per_s, granularity, issue_ns }
    }

    /// CXL memory (second-tier-memory, table 1).
    pub fn cxl() -> DelayProfile {
        DelayProfile::table("cxl", 300, 32.0, 64, 0)
    }

    /// Non-volatile memory (second-tier-memory, table 1).
    pub fn nvm() -> DelayProfile {
        DelayProfile::table("nvm", 400, 60.0, 256, 0)
    }

    /// Remote memory over RDMA (second-tier-memory, table 1); each read is posted by the processor.
    pub fn rdma() -> DelayProfile {
        DelayProfile::table("rdma", 2_800, 25.0, 64, 150)
    }

    /// Remote memory behind a ConnectX-6 of 100 Gbit/s, the card of d-HNSW's servers (section 4); a one-sided read of a few bytes
    /// takes such a card some 2 us.
    pub fn connectx6() -> DelayProfile {
        DelayProfile::table("connectx6", 2_000, 12.5, 64, 150)
    }

    /// A fast NVMe SSD (second-tier-memory, table 1).
    pub fn ssd() -> DelayProfile {
        DelayProfile::table("ssd", 75_000, 5.3, 4096, 0)
    }

    /// The profile called "cxl", "nvm", "rdma", "connectx6" or "ssd".
    pub fn named(name: &str) -> Option<DelayProfile> {
        let memories = [DelayProfile::cxl(), DelayProfile::nvm()];
        let others = [DelayProfile::rdma(), DelayProfile::connectx6(), DelayProfile::ssd()];
        memories.into_iter().chain(others).find(|profile| profile.name == name)
    }

    /// The profile called `text`, or the one in the JSON file of that name.
    ///
    /// # Errors
    /// [`TierError::Parameter`] if it is neither, or if a number in the file makes no sense.
    pub fn named_or_file(text: &str) -> Result<DelayProfile, TierError> {
        if let Some(profile) = DelayProfile::named(text) {
            return Ok(profile);
        }
        let refuse = |why: String| TierError::Parameter(format!("{text}: {why}"));
        let json = std::fs::read_to_string(Path::new(text)).map_err(|e| {
            refuse(format!(
                "no device of that name (cxl, nvm, rdma, connectx6, ssd), and no file with a profile: {e}"
            ))
        })?;
        let profile: DelayProfile = serde_json::from_str(&json)
            .map_err(|e| refuse(format!("not the profile of a device to emulate: {e}")))?;
        profile.check().map_err(refuse)?;
        Ok(profile)
    }

    fn check(&self) -> Result<(), String> {
        if !(self.bandwidth_bytes_per_s.is_finite() && self.bandwidth_bytes_per_s >= 0.0) {
            return Err("bandwidth_bytes_per_s must be a number from 0 (no limit) up".into());
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

/// What the link needs for a read.
#[derive(Clone, Copy)]
struct Transfer {
    granule: u64,
    /// The granule's logarithm where it is a power of two: a division costs more than all else here.
    shift: Option<u32>,
    parts_per_byte: f64,
}

impl Transfer {
    fn of(delay: &DelayProfile) -> Transfer {
        let granule = u64::from(delay.granularity.max(1));
        let bandwidth = delay.bandwidth_bytes_per_s;
        Transfer {
            granule,
            shift: granule.is_power_of_two().then(|| granule.trailing_zeros()),
            parts_per_byte: if bandwidth > 0.0 { 1e9 * LINK_PARTS as f64 / bandwidth } else { 0.0 },
        }
    }

    /// Link time of the granules that a read touches, in parts of a nanosecond.
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

/// A tier made slower. Addressable where the tier below is.
pub struct DelayTier {
    tier: Arc<dyn Tier>,
    delay: Arc<DelayProfile>,
    link: Arc<Link>,
    profile: TierProfile,
}

impl DelayTier {
    /// Puts the latency, bandwidth and issue cost of `delay` on top of `tier`.
    pub fn new(tier: Arc<dyn Tier>, delay: DelayProfile) -> DelayTier {
        let below = tier.profile();
        let granule = delay.granularity.max(below.granularity);
        let bandwidth = delay.bandwidth_bytes_per_s;
        // Little's law: what has to be in flight to fill the link; bounded where no bandwidth is given.
        let depth = (delay.latency_ns as f64 * bandwidth / 1e9 / f64::from(granule)).ceil() as u32;
        let profile = TierProfile {
            kind: format!("emulated {}", delay.name),
            method: format!("emulated over {}, {}", below.kind, below.method),
            granularity: granule,
            alignment: below.alignment,
            addressable: below.addressable,
            latency_ns: delay.latency_ns + below.latency_ns,
            iops: bandwidth / f64::from(granule),
            bandwidth_bytes_per_s: bandwidth,
            depth: if bandwidth > 0.0 { depth.clamp(1, 1024) } else { below.depth },
            issue_ns: delay.issue_ns + below.issue_ns,
        };
        DelayTier { tier, delay: Arc::new(delay), link: Arc::default(), profile }
    }
}

impl Tier for DelayTier {
    fn profile(&self) -> &TierProfile {
        &self.profile
    }

    fn len(&self) -> u64 {
        self.tier.len()
    }

    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError> {
        Ok(Box::new(DelayQueue {
            queue: self.tier.open(depth)?,
            latency_ns: self.delay.latency_ns,
            issue_ns: self.delay.issue_ns,
            transfer: Transfer::of(&self.delay),
            link: self.link.clone(),
            clock: GapClock::new(),
            depth: depth.max(1) as usize,
            latest: 0,
            flights: VecDeque::new(),
            held: VecDeque::new(),
            reaped: Vec::new(),
            bell: Arc::default(),
        }))
    }

    fn writable(&self) -> Option<&dyn WriteTier> {
        None
    }

    fn is_shared(&self) -> bool {
        self.tier.is_shared()
    }
}

/// The link that all queues of a device share: a token bucket that holds no more than one read, in the time of
/// the machine, because the link goes on while a thread is kept from running. A thread that comes back thus finds
/// the link a little freer than the device's would be, by at most what its own reads in flight had left to transfer.
#[derive(Default)]
struct Link {
    /// When it is free again, in parts of a nanosecond.
    free: AtomicU64,
}

impl Link {
    /// Books `parts` at the time `now_ns`; how long from then until the transfer begins, in parts.
    #[inline]
    fn book(&self, now_ns: u64, parts: u64) -> u64 {
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
struct Flight {
    id: u64,
    due: u64,
}

/// A read that the tier below has completed and the emulated device has not.
struct Held {
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
    /// When the last read submitted is due. The device serves a queue in order.
    latest: u64,
    /// In order of submission, and so of `due`.
    flights: VecDeque<Flight>,
    /// In order of `due`.
    held: VecDeque<Held>,
    reaped: Vec<Completion>,
    bell: Arc<Bell>,
}

impl DelayQueue {
    /// Takes a read out of those in flight and says when it is due. Nearly always the first: most tiers hand reads
    /// back in the order of submission. Reads of one name are the same to the caller.
    #[inline]
    fn land(&mut self, id: u64) -> Option<u64> {
        let first = self.flights.front().is_some_and(|flight| flight.id == id);
        let at = if first { 0 } else { self.flights.iter().position(|flight| flight.id == id)? };
        self.flights.remove(at).map(|flight| flight.due)
    }

    /// Takes over what the tier below has completed.
    #[inline]
    fn pull(&mut self, wait: Option<Duration>) -> Result<(), TierError> {
        // With nothing in flight at all, the tier below is asked whether the bytes that it lent were there.
        if self.flights.is_empty() && !self.held.is_empty() {
            return Ok(());
        }
        let mut reaped = std::mem::take(&mut self.reaped);
        let mut outcome = self.queue.reap(&mut reaped, wait);
        for Completion { id, result } in reaped.drain(..) {
            let Some(due) = self.land(id) else {
                outcome = outcome.and(Err(unknown(id)));
                continue;
            };
            if self.held.back().is_none_or(|h| h.due <= due) {
                self.held.push_back(Held { due, id, result });
            } else {
                let at = self.held.iter().rposition(|h| h.due <= due).map_or(0, |i| i + 1);
                self.held.insert(at, Held { due, id, result });
            }
        }
        self.reaped = reaped;
        outcome
    }

    #[inline]
    fn deliver(&mut self, now: u64, done: &mut Vec<Completion>) {
        while self.held.front().is_some_and(|h| h.due <= now)
            && let Some(Held { id, result, .. }) = self.held.pop_front()
        {
            done.push(Completion { id, result });
        }
    }

    /// Books the link for reads that were handed over between `begin` and `handed`, and sets when they are due.
    #[inline]
    fn launch(&mut self, reads: &[Read], begin: u64, handed: u64) {
        let total = reads.iter().fold(0_u64, |sum, read| sum.saturating_add(self.transfer.parts(read)));
        let mut through = self.link.book(self.clock.raw(), total);
        for (posted, read) in (1_u64..).zip(reads) {
            let parts = self.transfer.parts(read);
            through = through.saturating_add(parts);
            // With an issue cost, the processor posts one read after the other.
            let ready = if self.issue_ns == 0 {
                handed.saturating_add(through / LINK_PARTS)
            } else {
                let own = begin
                    .saturating_add(posted.saturating_mul(self.issue_ns))
                    .saturating_add(parts / LINK_PARTS);
                own.max(handed.saturating_add(through / LINK_PARTS))
            };
            self.latest = self.latest.max(ready.saturating_add(self.latency_ns));
            self.flights.push_back(Flight { id: read.id, due: self.latest });
        }
        let posted = begin.saturating_add((reads.len() as u64).saturating_mul(self.issue_ns));
        while self.issue_ns > 0 && self.clock.now_ns() < posted {
            std::hint::spin_loop();
        }
    }
}

impl Queue for DelayQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        // What is held counts: the emulated device is still at it.
        let room = self.depth.saturating_sub(self.in_flight()).min(reads.len());
        // One reading of the clock where nothing has to be spun for.
        let begin = if self.issue_ns > 0 { self.clock.enter() } else { 0 };
        // SAFETY: the same buffers under the same contract.
        let taken = unsafe { self.queue.submit(&reads[..room])? };
        let handed = if self.issue_ns > 0 { self.clock.now_ns() } else { self.clock.enter() };
        self.launch(&reads[..taken.min(room)], begin, handed);
        Ok(taken)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let first = done.len();
        let begin = self.clock.enter();
        let mut outcome = self.pull(None);
        self.deliver(begin, done);
        let Some(wait) = wait else { return outcome };
        let end = begin.saturating_add(wait.as_nanos() as u64);
        while outcome.is_ok() && done.len() == first && self.in_flight() > 0 {
            let now = self.clock.now_ns();
            self.deliver(now, done);
            if now >= end || self.bell.take() {
                break;
            }
            match self.held.front() {
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
                Some(_) if !self.flights.is_empty() => outcome = self.pull(None),
                Some(_) => std::hint::spin_loop(),
            }
        }
        outcome
    }

    fn map(&self, span: Span) -> Option<&[u8]> {
        self.queue.map(span)
    }

    /// None: a read takes its time.
    fn lend(&self) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, region: *mut u8, len: usize) -> Result<(), TierError> {
        // SAFETY: passed on under the same contract.
        unsafe { self.queue.register(region, len) }
    }

    fn in_flight(&self) -> usize {
        self.flights.len() + self.held.len()
    }

    fn give_up(&mut self) {
        self.queue.give_up();
    }

    fn waker(&mut self) -> Option<Waker> {
        // A queue below that cannot be woken is waited for no longer than a nap.
        self.bell = Bell::over(self.queue.waker().into_iter().collect());
        Some(self.bell.clone().into())
    }
}
