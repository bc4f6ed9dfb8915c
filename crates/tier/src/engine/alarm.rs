//! How a thread that runs an engine is woken when work arrives: out of a wait for the device, or out of idleness.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

/// The longest wait in a device whose queue cannot be woken, so that new work is not kept waiting.
const DEAF_WAIT: Duration = Duration::from_millis(1);

/// Wakes the one thread that sleeps by it. Any thread may ring it; to ring it while nobody sleeps keeps the next sleep from
/// beginning, so nothing that was handed over before is slept through.
#[derive(Default)]
pub struct Alarm {
    rung: AtomicBool,
    sleeper: Mutex<Option<Waker>>,
}

/// Unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A waker of the calling thread, where it sleeps by [`Alarm::idle`] or parks itself.
pub fn thread_waker() -> Waker {
    Waker::from(Arc::new(Unpark(std::thread::current())))
}

impl Alarm {
    /// An alarm that has not been rung.
    pub fn new() -> Alarm {
        Alarm::default()
    }

    fn sleeper(&self) -> MutexGuard<'_, Option<Waker>> {
        self.sleeper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the sleep of the thread that sleeps now, or else the next one at once.
    pub fn ring(&self) {
        // What was handed over before this is seen by whoever sees the flag.
        if self.rung.swap(true, Ordering::AcqRel) {
            return;
        }
        let sleeper = self.sleeper().take();
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }

    /// Sleeps with nothing in flight, until the alarm is rung or the time is up. May also return early.
    pub fn idle(&self, me: &Waker, limit: Option<Duration>) {
        if !self.lie_down(me) {
            return;
        }
        match limit {
            Some(limit) => std::thread::park_timeout(limit),
            None => std::thread::park(),
        }
        self.get_up();
    }

    /// Sleeps in a device by `sleep`, which is told how long, or not at all; `device` wakes it.
    pub(super) fn sleep_in<T>(
        &self,
        device: Option<&Waker>,
        limit: Duration,
        sleep: impl FnOnce(Option<Duration>) -> T,
    ) -> T {
        match device {
            Some(device) if self.lie_down(device) => {
                let slept = sleep(Some(limit));
                self.get_up();
                slept
            }
            None if !self.rung.swap(false, Ordering::AcqRel) => sleep(Some(limit.min(DEAF_WAIT))),
            _ => sleep(None),
        }
    }

    /// Whether the thread may sleep: nobody has rung since it was last awake.
    fn lie_down(&self, waker: &Waker) -> bool {
        let mut sleeper = self.sleeper();
        let quiet = !self.rung.swap(false, Ordering::AcqRel);
        if quiet {
            *sleeper = Some(waker.clone());
        }
        quiet
    }

    fn get_up(&self) {
        *self.sleeper() = None;
        // Whoever rang so far has handed over what is now looked for.
        self.rung.swap(false, Ordering::AcqRel);
    }
}
