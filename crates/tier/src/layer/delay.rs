//! Another device's speed on top of a fast tier, in real time: what would this search do on CXL memory?
//!
//! Each read is really made; it counts as complete once the device's latency and the transfer of its bytes
//! over the device's link have passed too. The time is the thread's own: what the system or a hypervisor
//! takes away does not hide the injected latency (`clock`).

mod clock;

use self::clock::GapClock;
use super::{Slots, unknown};
use crate::contract::{Completion, Queue, Read, Span, Tier, TierProfile};
use crate::error::{ReadFault, TierError};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Waits longer than this are slept through for the most part; shorter ones are spun through, because the
/// system's timers are late by some 50 microseconds.
const SLEEP_ABOVE_NS: u64 = 300_000;

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

    /// A fast NVMe SSD (second-tier-memory, table 1).
    pub fn ssd() -> DelayProfile {
        DelayProfile::table("ssd", 75_000, 5.3, 4096, 0)
    }

    /// The profile called "cxl", "nvm", "rdma" or "ssd".
    pub fn named(name: &str) -> Option<DelayProfile> {
        let all = [DelayProfile::cxl(), DelayProfile::nvm(), DelayProfile::rdma(), DelayProfile::ssd()];
        all.into_iter().find(|profile| profile.name == name)
    }

    /// Nanoseconds that the link needs for the granules which a read touches.
    fn transfer_ns(&self, read: &Read) -> u64 {
        if self.bandwidth_bytes_per_s <= 0.0 {
            return 0;
        }
        let granule = u64::from(self.granularity.max(1));
        let last = read.offset.saturating_add(u64::from(read.len.max(1)) - 1);
        let bytes = (last / granule - read.offset / granule + 1) * granule;
        (bytes as f64 * 1e9 / self.bandwidth_bytes_per_s) as u64
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
            kind: delay.name.clone(),
            method: format!("emulated over {}, {}", below.kind, below.method),
            granularity: granule,
            alignment: below.alignment,
            addressable: below.addressable,
            latency_ns: delay.latency_ns + below.latency_ns,
            iops: bandwidth / f64::from(granule),
            bandwidth_bytes_per_s: bandwidth,
            depth: if bandwidth > 0.0 { depth.clamp(1, 1024) } else { below.depth },
        };
        let link = Arc::new(Link { start: Instant::now(), free_ns: AtomicU64::new(0) });
        DelayTier { tier, delay: Arc::new(delay), link, profile }
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
            delay: self.delay.clone(),
            link: self.link.clone(),
            clock: GapClock::new(),
            depth: depth.max(1) as usize,
            flights: Slots::new(),
            held: VecDeque::new(),
            renamed: Vec::new(),
            reaped: Vec::new(),
        }))
    }
}

/// The link that all queues of a device share: when it is free again, on a clock that all threads share.
struct Link {
    start: Instant,
    free_ns: AtomicU64,
}

impl Link {
    /// Books transfers of `ns` in all; how long from now until they are through.
    fn book(&self, ns: u64) -> u64 {
        if ns == 0 {
            return 0;
        }
        let now = self.start.elapsed().as_nanos() as u64;
        let mut free = self.free_ns.load(Ordering::Relaxed);
        loop {
            let end = free.max(now) + ns;
            match self.free_ns.compare_exchange_weak(free, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return end - now,
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
    delay: Arc<DelayProfile>,
    link: Arc<Link>,
    clock: GapClock,
    depth: usize,
    flights: Slots<Flight>,
    /// In order of `due`.
    held: VecDeque<Held>,
    renamed: Vec<Read>,
    reaped: Vec<Completion>,
}

impl DelayQueue {
    /// Takes over what the tier below has completed.
    fn pull(&mut self, wait: Option<Duration>) -> Result<(), TierError> {
        let mut reaped = std::mem::take(&mut self.reaped);
        let mut outcome = self.queue.reap(&mut reaped, wait);
        for Completion { id, result } in reaped.drain(..) {
            let Some(Flight { id, due }) = self.flights.remove(id) else {
                outcome = outcome.and(Err(unknown(id)));
                continue;
            };
            // Nearly always the latest: the tier below hands most reads back in the order of submission.
            let at = self.held.iter().rposition(|h| h.due <= due).map_or(0, |i| i + 1);
            self.held.insert(at, Held { due, id, result });
        }
        self.reaped = reaped;
        outcome
    }

    fn deliver(&mut self, now: u64, done: &mut Vec<Completion>) {
        while self.held.front().is_some_and(|h| h.due <= now)
            && let Some(Held { id, result, .. }) = self.held.pop_front()
        {
            done.push(Completion { id, result });
        }
    }
}

impl Queue for DelayQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        // What is held counts: the emulated device is still at it.
        let room = self.depth.saturating_sub(self.in_flight()).min(reads.len());
        self.clock.enter();
        self.renamed.clear();
        for read in &reads[..room] {
            let id = self.flights.insert(Flight { id: read.id, due: u64::MAX });
            self.renamed.push(Read { id, ..*read });
        }
        // SAFETY: the same buffers under the same contract.
        let outcome = unsafe { self.queue.submit(&self.renamed) };
        let taken = outcome.as_ref().map_or(0, |taken| *taken);
        for (i, read) in self.renamed.iter().enumerate() {
            if i >= taken {
                self.flights.remove(read.id);
                continue;
            }
            let through = self.link.book(self.delay.transfer_ns(read));
            let now = self.clock.now_ns();
            if let Some(flight) = self.flights.get_mut(read.id) {
                flight.due = now + through + self.delay.latency_ns;
            }
            if self.delay.issue_ns > 0 {
                while self.clock.now_ns() < now + self.delay.issue_ns {}
            }
        }
        self.clock.leave();
        outcome
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let first = done.len();
        self.clock.enter();
        let mut outcome = self.pull(None);
        let begin = self.clock.now_ns();
        self.deliver(begin, done);
        if let Some(wait) = wait {
            let end = begin.saturating_add(wait.as_nanos() as u64);
            while outcome.is_ok() && done.len() == first && self.in_flight() > 0 {
                let now = self.clock.now_ns();
                self.deliver(now, done);
                if now >= end {
                    break;
                }
                match self.held.front() {
                    None => {
                        self.clock.leave();
                        outcome = self.pull(Some(Duration::from_nanos(end - now)));
                        self.clock.slept();
                    }
                    Some(next) if next.due.min(end) > now + SLEEP_ABOVE_NS => {
                        std::thread::sleep(Duration::from_nanos(
                            next.due.min(end) - now - SLEEP_ABOVE_NS / 2,
                        ));
                        self.clock.slept();
                        outcome = self.pull(None);
                    }
                    Some(_) if self.flights.len() > 0 => outcome = self.pull(None),
                    Some(_) => std::hint::spin_loop(),
                }
            }
        }
        self.clock.leave();
        outcome
    }

    fn map(&self, span: Span) -> Option<&[u8]> {
        self.queue.map(span)
    }

    unsafe fn register(&mut self, region: *mut u8, len: usize) -> Result<(), TierError> {
        // SAFETY: passed on under the same contract.
        unsafe { self.queue.register(region, len) }
    }

    fn in_flight(&self) -> usize {
        self.flights.len() + self.held.len()
    }
}
