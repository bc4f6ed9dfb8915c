//! What a handle has written, counted, and how fast it may read what it merges.

use serde::Serialize;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Waiting is cut into pieces of this length, between which a wish to stop is looked at.
const PIECE: Duration = Duration::from_millis(50);

/// Bytes that a handle has written since it was opened. What says which rows are deleted is not among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct WrittenBytes {
    /// Of the rows and ids that writes brought, as they are in memory.
    pub given: u64,
    /// Of records that were appended to logs.
    pub log: u64,
    /// Of segments that were written from memory, and from large batches.
    pub segments: u64,
    /// Of segments that others were merged into.
    pub merged: u64,
}

impl WrittenBytes {
    /// Bytes that were written for every byte that writes brought.
    pub fn amplification(&self) -> f64 {
        (self.log + self.segments + self.merged) as f64 / self.given.max(1) as f64
    }
}

/// Counts what is written.
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

/// Holds a reader back to so many bytes a second.
#[derive(Debug)]
pub(super) struct Brake {
    bytes_per_second: Option<NonZeroU64>,
    began: Instant,
    bytes: u64,
}

impl Brake {
    pub(super) fn new(bytes_per_second: Option<NonZeroU64>) -> Brake {
        Brake { bytes_per_second, began: Instant::now(), bytes: 0 }
    }

    /// How long after its beginning a reader may have come to this number of bytes.
    fn due(bytes: u64, bytes_per_second: NonZeroU64) -> Duration {
        // A time that no clock comes to is as good as any.
        let seconds = bytes as f64 / bytes_per_second.get() as f64;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Waits until `bytes` more may be read, or it is `over`.
    pub(super) fn pass(&mut self, bytes: u64, over: &dyn Fn() -> bool) {
        self.bytes += bytes;
        let Some(rate) = self.bytes_per_second else { return };
        let due = Brake::due(self.bytes, rate);
        while let Some(left) = due.checked_sub(self.began.elapsed()).filter(|left| !left.is_zero()) {
            if over() {
                return;
            }
            std::thread::sleep(left.min(PIECE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brake_knows_when_bytes_are_due_and_ends_when_told() {
        let rate = |bytes| NonZeroU64::new(bytes).unwrap();
        assert_eq!(Brake::due(10 << 20, rate(5 << 20)), Duration::from_secs(2));
        assert_eq!(Brake::due(u64::MAX, rate(1)), Duration::MAX);
        // It would wait for ages.
        Brake::new(NonZeroU64::new(1)).pass(1 << 40, &|| true);
        Brake::new(None).pass(u64::MAX, &|| false);
    }
}
