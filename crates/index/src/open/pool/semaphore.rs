//! The limit of jobs that are with the workers at once.

use bathyal_tier::lanes::Padded;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// A counting semaphore whose waiters are wakers, in order. While permits are free, to acquire and to release
/// one is a single atomic operation; the lock is for waiters only.
pub(super) struct Semaphore {
    free: Padded<AtomicUsize>,
    /// The length of `waiters`, so that a release takes the lock only if there are any.
    waiting: Padded<AtomicUsize>,
    waiters: Mutex<VecDeque<Waker>>,
}

impl Semaphore {
    pub(super) fn new(permits: usize) -> Semaphore {
        Semaphore {
            free: Padded(AtomicUsize::new(permits)),
            waiting: Padded::default(),
            waiters: Mutex::default(),
        }
    }

    fn waiters(&self) -> MutexGuard<'_, VecDeque<Waker>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_acquire(&self) -> bool {
        let one_less = |free: usize| free.checked_sub(1);
        self.free.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
    }

    /// Acquires a permit if one is free. Otherwise `waker` is woken when one is released.
    pub(super) fn acquire(&self, waker: &Waker) -> bool {
        if self.try_acquire() {
            return true;
        }
        let mut waiters = self.waiters();
        if !waiters.iter().any(|other| other.will_wake(waker)) {
            waiters.push_back(waker.clone());
        }
        self.waiting.0.store(waiters.len(), Ordering::SeqCst);
        // A release before the store above did not look at the waiters, but its permit is visible now. The
        // waker stays in the queue: other futures of the same task may have the same one.
        self.try_acquire()
    }

    /// Releases a permit, and wakes as many waiters as there are free permits: one, unless earlier permits
    /// are still free whose waiters have been woken.
    pub(super) fn release(&self) {
        let free = self.free.0.fetch_add(1, Ordering::SeqCst) + 1;
        if self.waiting.0.load(Ordering::SeqCst) == 0 {
            return;
        }
        let woken: Vec<Waker> = {
            let mut waiters = self.waiters();
            let count = free.min(waiters.len());
            let woken = waiters.drain(..count).collect();
            self.waiting.0.store(waiters.len(), Ordering::SeqCst);
            woken
        };
        woken.into_iter().for_each(Waker::wake);
    }

    /// Stops waiting, and wakes all waiters: a release may have woken this one, which no longer needs the
    /// permit.
    pub(super) fn stop_waiting(&self) {
        let waiters = {
            let mut waiters = self.waiters();
            self.waiting.0.store(0, Ordering::SeqCst);
            std::mem::take(&mut *waiters)
        };
        waiters.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_tier::thread_waker;

    #[test]
    fn no_more_are_acquired_than_there_are_permits() {
        let semaphore = Semaphore::new(2);
        let waker = Waker::noop();
        assert!(semaphore.acquire(waker) && semaphore.acquire(waker) && !semaphore.acquire(waker));
        semaphore.release();
        assert!(semaphore.acquire(waker) && !semaphore.acquire(waker));
    }

    #[test]
    fn every_waiter_is_woken() {
        let (semaphore, inside) = (Semaphore::new(3), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let waker = thread_waker();
                    for _ in 0..2_000 {
                        while !semaphore.acquire(&waker) {
                            std::thread::park();
                        }
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 3);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        semaphore.release();
                    }
                });
            }
        });
        assert_eq!(semaphore.free.0.into_inner(), 3);
    }
}
