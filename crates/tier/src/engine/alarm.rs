//! Wakes a thread that runs an engine when work arrives, from a sleep in the device or while it is idle.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

/// The longest wait in a device whose queue cannot be woken, so that new work does not wait longer.
const UNWAKEABLE_WAIT: Duration = Duration::from_millis(1);

/// Wakes the one thread that sleeps through it. Any thread may ring it. If no thread sleeps, the next sleep
/// does not begin, so that the thread sees all work that was handed over before.
#[derive(Default)]
pub struct Alarm {
    /// Set by `ring`; then a sleep ends or does not begin.
    rung: AtomicBool,
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

/// Returns a waker of the calling thread, for sleeps in [`Alarm::idle`] and for a thread that parks itself.
pub fn thread_waker() -> Waker {
    Waker::from(Arc::new(Unpark(std::thread::current())))
}

impl Alarm {
    /// Makes an alarm that has not been rung.
    pub fn new() -> Alarm {
        Alarm::default()
    }

    fn sleeper(&self) -> MutexGuard<'_, Option<Waker>> {
        self.sleeper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the present sleep, or keeps the next one from beginning.
    pub fn ring(&self) {
        // Release: a thread that sees the flag sees the work that was handed over before.
        if self.rung.swap(true, Ordering::AcqRel) {
            return;
        }
        let sleeper = self.sleeper().take();
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }

    /// Parks the calling thread, which has nothing in flight, until the alarm is rung or `limit` is over. May
    /// also return early. `waker` wakes the calling thread ([`thread_waker`]).
    pub fn idle(&self, waker: &Waker, limit: Option<Duration>) {
        if !self.begin_sleep(waker) {
            return;
        }
        match limit {
            Some(limit) => std::thread::park_timeout(limit),
            None => std::thread::park(),
        }
        self.end_sleep();
    }

    /// Calls `sleep` to sleep in a device for up to the given time, or with `None` not to sleep because the
    /// alarm was rung. `device` is the waker that ends the sleep, if the device has one.
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
            None if !self.rung.swap(false, Ordering::AcqRel) => sleep(Some(limit.min(UNWAKEABLE_WAIT))),
            _ => sleep(None),
        }
    }

    /// Registers `waker` and returns true, or returns false if the alarm was rung since the last sleep.
    fn begin_sleep(&self, waker: &Waker) -> bool {
        let mut sleeper = self.sleeper();
        let quiet = !self.rung.swap(false, Ordering::AcqRel);
        if quiet {
            *sleeper = Some(waker.clone());
        }
        quiet
    }

    fn end_sleep(&self) {
        *self.sleeper() = None;
        // The caller now looks for the work of every ring so far.
        self.rung.swap(false, Ordering::AcqRel);
    }
}
