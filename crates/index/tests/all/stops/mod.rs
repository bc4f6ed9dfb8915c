//! A build that is asked to stop, for the tests of builds.

use bathyal_vectors::progress::Progress;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Stops when it was asked so often.
pub struct Stops {
    pub asked: AtomicUsize,
    pub at: usize,
}

impl Progress for Stops {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) >= self.at
    }
}
