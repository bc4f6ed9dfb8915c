//! The bound of the queue: how many jobs may be with the workers at once.

use bathyal_tier::lanes::Padded;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Who is inside, and who waits outside, in order. As long as there is room, to enter and to leave are one atomic operation
/// each; the lock is for those who wait.
pub(super) struct Gate {
    free: Padded<AtomicUsize>,
    /// Those in `outside`, so that who leaves need not look there in vain.
    waiting: Padded<AtomicUsize>,
    outside: Mutex<VecDeque<Waker>>,
}

impl Gate {
    pub(super) fn new(places: usize) -> Gate {
        Gate { free: Padded(AtomicUsize::new(places)), waiting: Padded::default(), outside: Mutex::default() }
    }

    fn outside(&self) -> MutexGuard<'_, VecDeque<Waker>> {
        self.outside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_enter(&self) -> bool {
        let one_less = |free: usize| free.checked_sub(1);
        self.free.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
    }

    /// Goes in if there is room; else `waker` is woken when somebody leaves.
    pub(super) fn enter(&self, waker: &Waker) -> bool {
        if self.try_enter() {
            return true;
        }
        let mut outside = self.outside();
        if !outside.iter().any(|other| other.will_wake(waker)) {
            outside.push_back(waker.clone());
        }
        self.waiting.0.store(outside.len(), Ordering::SeqCst);
        // Who left before that was written did not look here, and has made room that is seen now. The waker stays in line: it
        // may be that of others, too, who share a task.
        self.try_enter()
    }

    /// Goes out, and of those who wait as many may look as there are places: one, unless some of those who were told to look
    /// before had gone in already.
    pub(super) fn leave(&self) {
        let free = self.free.0.fetch_add(1, Ordering::SeqCst) + 1;
        if self.waiting.0.load(Ordering::SeqCst) == 0 {
            return;
        }
        let next: Vec<Waker> = {
            let mut outside = self.outside();
            let places = free.min(outside.len());
            let next = outside.drain(..places).collect();
            self.waiting.0.store(outside.len(), Ordering::SeqCst);
            next
        };
        next.into_iter().for_each(Waker::wake);
    }

    /// Gives up waiting. Nobody knows whether it was this one who was just told to look, so all others are.
    pub(super) fn give_up(&self) {
        let waiting = {
            let mut outside = self.outside();
            self.waiting.0.store(0, Ordering::SeqCst);
            std::mem::take(&mut *outside)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_tier::thread_waker;

    #[test]
    fn no_more_enter_than_there_is_room_for() {
        let gate = Gate::new(2);
        let waker = Waker::noop();
        assert!(gate.enter(waker) && gate.enter(waker) && !gate.enter(waker));
        gate.leave();
        assert!(gate.enter(waker) && !gate.enter(waker));
    }

    #[test]
    fn who_waits_is_woken_and_nobody_is_forgotten() {
        let (gate, inside) = (Gate::new(3), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let me = thread_waker();
                    for _ in 0..2_000 {
                        while !gate.enter(&me) {
                            std::thread::park();
                        }
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 3);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        gate.leave();
                    }
                });
            }
        });
        assert_eq!(gate.free.0.into_inner(), 3);
    }
}
