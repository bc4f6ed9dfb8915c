//! Wakes a thread that runs an engine when work arrives, from a sleep in the device or while it is idle.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

/// The longest wait in a device whose queue cannot be woken, so that new work does not wait longer.
const UNWAKEABLE_WAIT: Duration = Duration::from_millis(1);

/// Wakes the one thread that runs an engine. Any thread may call [`EngineWaker::wake`]. If the thread does
/// not sleep, its next sleep does not begin, so that it sees all work that was handed over before.
#[derive(Default)]
pub struct EngineWaker {
    /// Set by `wake`; then a sleep ends or does not begin.
    woken: AtomicBool,
    /// Waker of the thread, while it sleeps.
    sleeper: Mutex<Option<Waker>>,
}

/// Unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns a waker of the calling thread, for sleeps in [`EngineWaker::idle`] and for a thread that parks
/// itself.
pub fn thread_waker() -> Waker {
    Waker::from(Arc::new(Unpark(std::thread::current())))
}

impl EngineWaker {
    /// Makes a waker on which `wake` was not called.
    pub fn new() -> EngineWaker {
        EngineWaker::default()
    }

    fn sleeper(&self) -> MutexGuard<'_, Option<Waker>> {
        self.sleeper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the present sleep, or keeps the next one from beginning.
    pub fn wake(&self) {
        // Release: a thread that sees the flag sees the work that was handed over before.
        if self.woken.swap(true, Ordering::AcqRel) {
            return;
        }
        let sleeper = self.sleeper().take();
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }

    /// Parks the calling thread, which has nothing in flight, until `wake` is called or `limit` is over. May
    /// also return early. `thread` wakes the calling thread ([`thread_waker`]).
    pub fn idle(&self, thread: &Waker, limit: Option<Duration>) {
        if !self.begin_sleep(thread) {
            return;
        }
        match limit {
            Some(limit) => std::thread::park_timeout(limit),
            None => std::thread::park(),
        }
        self.end_sleep();
    }

    /// Calls `sleep` to sleep in a device for up to the given time, or with `None` not to sleep because
    /// `wake` was called. `device` is the waker that ends the sleep, if the device has one.
    pub(super) fn sleep_in<T>(
        &self,
        device: Option<&Waker>,
        limit: Duration,
        sleep: impl FnOnce(Option<Duration>) -> T,
    ) -> T {
        match device {
            Some(device) if self.begin_sleep(device) => {
                let outcome = sleep(Some(limit));
                self.end_sleep();
                outcome
            }
            None if !self.woken.swap(false, Ordering::AcqRel) => sleep(Some(limit.min(UNWAKEABLE_WAIT))),
            _ => sleep(None),
        }
    }

    /// Registers the waker of the sleeper and returns true, or returns false if `wake` was called since the
    /// last sleep.
    fn begin_sleep(&self, waker: &Waker) -> bool {
        let mut sleeper = self.sleeper();
        let may_sleep = !self.woken.swap(false, Ordering::AcqRel);
        if may_sleep {
            *sleeper = Some(waker.clone());
        }
        may_sleep
    }

    fn end_sleep(&self) {
        *self.sleeper() = None;
        // The caller now looks for the work of every call of `wake` so far.
        self.woken.swap(false, Ordering::AcqRel);
    }
}
