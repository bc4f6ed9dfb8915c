//! Counts the bytes that a handle writes, and limits the rate at which merges read.

use serde::Serialize;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Waits are divided into sleeps of this length, with a check for cancellation after each.
const SLEEP_STEP: Duration = Duration::from_millis(50);

/// Bytes that a handle has written since it was opened, without bitmaps of deleted rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct WrittenBytes {
    /// Bytes of rows and ids of writes, as they are in memory.
    pub given: u64,
    /// Bytes of log records.
    pub log: u64,
    /// Bytes of segments that were written from memory or from large batches.
    pub segments: u64,
    /// Bytes of segments that were written by merges.
    pub merged: u64,
}

impl WrittenBytes {
    /// Returns the bytes written to the store for every byte of writes.
    pub fn amplification(&self) -> f64 {
        (self.log + self.segments + self.merged) as f64 / self.given.max(1) as f64
    }
}

/// Counters of the bytes written.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) given: AtomicU64,
    pub(super) log: AtomicU64,
    pub(super) segments: AtomicU64,
    pub(super) merged: AtomicU64,
}

impl Traffic {
    pub(super) fn bytes(&self) -> WrittenBytes {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WrittenBytes {
            given: load(&self.given),
            log: load(&self.log),
            segments: load(&self.segments),
            merged: load(&self.merged),
        }
    }

    pub(super) fn add(counter: &AtomicU64, bytes: u64) {
        counter.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Limits a reader to a number of bytes per second.
#[derive(Debug)]
pub(super) struct RateLimiter {
    bytes_per_second: Option<NonZeroU64>,
    start: Instant,
    bytes: u64,
}

impl RateLimiter {
    pub(super) fn new(bytes_per_second: Option<NonZeroU64>) -> RateLimiter {
        RateLimiter { bytes_per_second, start: Instant::now(), bytes: 0 }
    }

    /// Returns how long after the start a reader may have read this many bytes.
    fn due(bytes: u64, bytes_per_second: NonZeroU64) -> Duration {
        // Any time beyond the range of `Duration` is as good.
        let seconds = bytes as f64 / bytes_per_second.get() as f64;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Waits until `bytes` more may be read, or until `cancelled` returns true.
    pub(super) fn wait_for(&mut self, bytes: u64, cancelled: &dyn Fn() -> bool) {
        self.bytes += bytes;
        let Some(rate) = self.bytes_per_second else { return };
        let due = RateLimiter::due(self.bytes, rate);
        while let Some(left) = due.checked_sub(self.start.elapsed()).filter(|left| !left.is_zero()) {
            if cancelled() {
                return;
            }
            std::thread::sleep(left.min(SLEEP_STEP));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limiter_computes_due_times_and_ends_when_cancelled() {
        let rate = |bytes| NonZeroU64::new(bytes).unwrap();
        assert_eq!(RateLimiter::due(10 << 20, rate(5 << 20)), Duration::from_secs(2));
        assert_eq!(RateLimiter::due(u64::MAX, rate(1)), Duration::MAX);
        // Without cancellation this would wait for years.
        RateLimiter::new(NonZeroU64::new(1)).wait_for(1 << 40, &|| true);
        RateLimiter::new(None).wait_for(u64::MAX, &|| false);
    }
}
