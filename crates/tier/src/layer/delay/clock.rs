//! A thread's own time: what passes while the thread is kept from running does not count.
//!
//! On a shared machine a plain clock hides injected latency: while the thread is off the processor, deadlines
//! pass for nothing. Two rules take such time out. Within a queue's calls the clock is read every few
//! nanoseconds, so a longer gap between two readings is time off the processor. Between calls the caller
//! computes for as long as it likes; of a long stretch, what the system has not booked as this thread's
//! processor time is time off. A loss that goes unnoticed hides one latency at most, however long it was: the
//! reads in flight arrive during it, and no others.

use crate::thread_time::thread_ns;
use std::sync::OnceLock;
#[cfg(target_arch = "x86_64")]
use std::time::Duration;
use std::time::Instant;

/// A gap between two readings within a call that nothing but losing the processor explains, in nanoseconds.
const GAP_NS: u64 = 4_000;

/// A stretch between two calls from which on the system's books are asked, in nanoseconds. Sixteen queries that all
/// compute a hop take about as long. To ask is a system call, as long as a read of CXL memory.
const STRETCH_NS: u64 = 100_000;

/// The time that calibrating the processor's counter takes, once a process.
#[cfg(target_arch = "x86_64")]
const CALIBRATION: Duration = Duration::from_millis(4);

pub(super) struct GapClock {
    /// The last reading of the raw clock.
    last: u64,
    /// Raw time that does not count.
    taken: u64,
    /// Processor time of this thread at the last settlement of [`GapClock::account`].
    processor: u64,
    /// What this clock said at that moment.
    settled: u64,
}

impl GapClock {
    pub(super) fn new() -> GapClock {
        let last = raw_ns();
        GapClock { last, taken: 0, processor: thread_ns(), settled: last }
    }

    /// The thread's time in nanoseconds.
    #[inline]
    pub(super) fn now_ns(&mut self) -> u64 {
        let now = raw_ns().max(self.last);
        if now - self.last > GAP_NS {
            self.taken += now - self.last;
        }
        self.last = now;
        now - self.taken
    }

    /// The last reading of the machine's clock, which all threads share, in nanoseconds.
    #[inline]
    pub(super) fn raw(&self) -> u64 {
        self.last
    }

    /// A call begins; the thread's time. What of the time since the last call was its own?
    #[inline]
    pub(super) fn enter(&mut self) -> u64 {
        let now = raw_ns().max(self.last);
        if now - self.last > STRETCH_NS {
            self.account(now);
        }
        self.last = now;
        now - self.taken
    }

    /// Settles a long stretch between calls by the system's books. These reach back to the last settlement,
    /// which may lie some calls back: what ran since then and was counted already is not counted twice.
    #[cold]
    fn account(&mut self, now: u64) {
        let processor = thread_ns();
        let ran = processor.saturating_sub(self.processor);
        let counted = (self.last - self.taken).saturating_sub(self.settled);
        let stretch = now - self.last;
        let own = ran.saturating_sub(counted).min(stretch);
        // Books kept in ticks or read late may be off by a little; a gap this short is not worth a dispute.
        if stretch - own > GAP_NS {
            self.taken += stretch - own;
        }
        (self.processor, self.settled) = (processor, now - self.taken);
    }

    /// The thread has slept on purpose: that time counts.
    pub(super) fn slept(&mut self) {
        let now = raw_ns().max(self.last);
        self.last = now;
        (self.processor, self.settled) = (thread_ns(), now - self.taken);
    }
}

/// Nanoseconds on a clock that costs as little as possible to read.
#[inline]
fn raw_ns() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let (origin, ns_per_tick) = *CALIBRATED.get_or_init(calibrate);
        // SAFETY: every x86_64 processor has the instruction.
        let ticks = unsafe { std::arch::x86_64::_rdtsc() };
        (ticks.wrapping_sub(origin) as f64 * ns_per_tick) as u64
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// The counter's value at the start and nanoseconds a tick.
#[cfg(target_arch = "x86_64")]
static CALIBRATED: OnceLock<(u64, f64)> = OnceLock::new();

#[cfg(target_arch = "x86_64")]
fn calibrate() -> (u64, f64) {
    // SAFETY: every x86_64 processor has the instruction.
    let ticks = || unsafe { std::arch::x86_64::_rdtsc() };
    let (start, origin) = (Instant::now(), ticks());
    while start.elapsed() < CALIBRATION {
        std::hint::spin_loop();
    }
    let (passed, elapsed) = (ticks().wrapping_sub(origin).max(1), start.elapsed());
    (origin, elapsed.as_nanos() as f64 / passed as f64)
}
