//! A clock of the thread's own time, which stops while the thread is off the processor.
//!
//! On a shared machine a plain clock hides injected latency: reads become due while the thread is off the
//! processor. Two rules subtract such time. Within a queue's calls, the clock is read every few nanoseconds,
//! so a longer gap between two readings is time off the processor. Between calls, the caller may compute for
//! any time; of a long stretch, the part that the system does not count as this thread's processor time is
//! time off. Time off that goes undetected hides at most one latency, independent of its length: only the
//! reads in flight become due during it.

use crate::processor_time::thread_ns;
use std::sync::OnceLock;
#[cfg(target_arch = "x86_64")]
use std::time::Duration;
use std::time::Instant;

/// A longer gap between two readings within a call is time off the processor, in nanoseconds.
const GAP_NS: u64 = 4_000;

/// For a longer time between two calls, the thread's processor time is read, in nanoseconds. Sixteen queries
/// that each compute a hop take about as long. The reading is a system call, which takes as long as a read of
/// CXL memory.
const STRETCH_NS: u64 = 100_000;

/// Time for calibrating the processor's counter, once a process.
#[cfg(target_arch = "x86_64")]
const CALIBRATION: Duration = Duration::from_millis(4);

pub(super) struct GapClock {
    /// The last reading of the raw clock.
    last: u64,
    /// Total time off the processor, which does not count.
    off_ns: u64,
    /// Processor time of this thread at the last reading of it.
    processor: u64,
    /// Time of this clock at that moment.
    settled: u64,
}

impl GapClock {
    pub(super) fn new() -> GapClock {
        let last = raw_ns();
        GapClock { last, off_ns: 0, processor: thread_ns(), settled: last }
    }

    /// Returns the thread's time in nanoseconds. For use within a call.
    #[inline]
    pub(super) fn now_ns(&mut self) -> u64 {
        let now = raw_ns().max(self.last);
        if now - self.last > GAP_NS {
            self.off_ns += now - self.last;
        }
        self.last = now;
        now - self.off_ns
    }

    /// Returns the last reading of the machine's clock, which all threads share, in nanoseconds.
    #[inline]
    pub(super) fn raw(&self) -> u64 {
        self.last
    }

    /// Returns the thread's time in nanoseconds at the start of a call, without time off since the last call.
    #[inline]
    pub(super) fn enter(&mut self) -> u64 {
        let now = raw_ns().max(self.last);
        if now - self.last > STRETCH_NS {
            self.account(now);
        }
        self.last = now;
        now - self.off_ns
    }

    /// Subtracts time off in a long stretch between calls, by the thread's processor time. That was last read
    /// some calls ago, so time within those calls, which this clock has counted already, is not counted
    /// twice.
    #[cold]
    fn account(&mut self, now: u64) {
        let processor = thread_ns();
        let ran = processor.saturating_sub(self.processor);
        let counted = (self.last - self.off_ns).saturating_sub(self.settled);
        let stretch = now - self.last;
        let computed = ran.saturating_sub(counted).min(stretch);
        // A small difference may come from the granularity of the system's accounting, so it is ignored.
        if stretch - computed > GAP_NS {
            self.off_ns += stretch - computed;
        }
        (self.processor, self.settled) = (processor, now - self.off_ns);
    }

    /// Counts the time since the last reading in full: the thread has slept on purpose.
    pub(super) fn slept(&mut self) {
        let now = raw_ns().max(self.last);
        self.last = now;
        (self.processor, self.settled) = (thread_ns(), now - self.off_ns);
    }
}

/// Returns nanoseconds of the clock that is cheapest to read.
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

/// The counter's value at the start, and nanoseconds per tick.
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
