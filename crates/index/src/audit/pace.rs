//! The share of the time for which the auditing thread works.

use bathyal_tier::Control;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Work between two pauses: much longer than the system takes to wake a thread.
const WORK: Duration = Duration::from_millis(5);

/// Set by [`Stop::set`], for which [`Pace`] ends its pauses.
#[derive(Debug, Default)]
pub(super) struct Stop {
    flag: AtomicBool,
    /// Guards nothing: a waiting thread checks `flag` under it.
    lock: Mutex<()>,
    wake: Condvar,
}

impl Stop {
    pub(super) fn set(&self) {
        self.flag.store(true, Ordering::Relaxed);
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.wake.notify_all();
    }

    pub(super) fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Sleeps, but no longer than until it is set.
    fn sleep(&self, time: Duration) {
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.wake.wait_timeout_while(guard, time, |()| !self.is_set()));
    }
}

/// Pauses work, so that it takes only a share of the time.
#[derive(Debug)]
pub struct Pace<'a> {
    stop: &'a Stop,
    /// Time of a pause for each unit of time of work.
    rest: f64,
    clock: Mutex<Clock>,
}

/// The times of the work.
#[derive(Debug)]
struct Clock {
    /// The end of the last pause.
    since: Instant,
    /// Work before that.
    worked: Duration,
}

impl<'a> Pace<'a> {
    pub(super) fn new(stop: &'a Stop, busy: f64) -> Pace<'a> {
        let clock = Clock { since: Instant::now(), worked: Duration::ZERO };
        Pace { stop, rest: 1.0 / busy - 1.0, clock: Mutex::new(clock) }
    }

    /// Returns the control that cancels the work when the audit ends.
    pub fn control(&self) -> Control<'a> {
        Control { cancel: Some(&self.stop.flag), deadline: None }
    }

    /// Pauses if enough was done since the last pause. Long work calls it again and again.
    pub fn step(&self) {
        self.pause_after(WORK);
    }

    /// Pauses for all that was done since the last pause.
    pub(super) fn settle(&self) {
        self.pause_after(Duration::ZERO);
    }

    /// Begins to work after a time without work.
    pub(super) fn begin(&self) {
        self.clock().since = Instant::now();
    }

    /// Returns the time of the work before the last pause.
    pub(super) fn worked(&self) -> Duration {
        self.clock().worked
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pause_after(&self, least: Duration) {
        let mut clock = self.clock();
        let worked = clock.since.elapsed();
        if worked >= least {
            clock.worked += worked;
            self.stop.sleep(worked.mul_f64(self.rest));
            clock.since = Instant::now();
        }
    }
}
