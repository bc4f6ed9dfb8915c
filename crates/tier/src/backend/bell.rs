//! A flag that a queue looks at while it waits, and that others raise to end the wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

/// See the module's description.
#[derive(Default)]
pub(crate) struct Bell {
    rung: AtomicBool,
    /// What the queues below are woken by.
    below: Vec<Waker>,
}

impl Bell {
    /// A bell that also wakes queues in which the wait may take place.
    pub(crate) fn over(below: Vec<Waker>) -> Arc<Bell> {
        Arc::new(Bell { rung: AtomicBool::new(false), below })
    }

    /// Whether it was rung since the last look.
    pub(crate) fn take(&self) -> bool {
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::AcqRel)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.below.iter().for_each(Waker::wake_by_ref);
    }
}
