//! Cancels work whose result nobody waits for any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Becomes true when all who wait for the work are gone. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct CancelFlag {
    flag: Arc<AtomicBool>,
    waiting: Arc<AtomicUsize>,
}

impl CancelFlag {
    /// Returns the flag that the work checks.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.flag
    }

    /// Adds one who waits, until the returned value is dropped.
    pub(crate) fn attend(&self) -> Attendance {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        Attendance(self.clone())
    }
}

/// One who waits for the work.
#[derive(Debug)]
pub(crate) struct Attendance(CancelFlag);

impl Drop for Attendance {
    fn drop(&mut self) {
        if self.0.waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.flag.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_goes_on_until_the_last_one_leaves() {
        let cancel = CancelFlag::default();
        let (one, other) = (cancel.attend(), cancel.attend());
        drop(one);
        assert!(!cancel.flag().load(Ordering::Acquire));
        drop(other);
        assert!(cancel.flag().load(Ordering::Acquire));
    }
}
