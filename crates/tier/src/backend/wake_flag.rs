//! A flag that a queue checks while it waits, and that other threads set to end the wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

/// Flag that ends a wait of one queue; it becomes the queue's [`Waker`].
#[derive(Default)]
pub(crate) struct WakeFlag {
    woken: AtomicBool,
    /// Wakers of the queues below, in which the wait may take place.
    inner: Vec<Waker>,
}

impl WakeFlag {
    /// Makes a flag that also wakes the queues of `inner`.
    pub(crate) fn over(inner: Vec<Waker>) -> Arc<WakeFlag> {
        Arc::new(WakeFlag { woken: AtomicBool::new(false), inner })
    }

    /// Returns true if it was set since the last call, and clears it.
    pub(crate) fn take(&self) -> bool {
        self.woken.load(Ordering::Relaxed) && self.woken.swap(false, Ordering::AcqRel)
    }
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.inner.iter().for_each(Waker::wake_by_ref);
    }
}
