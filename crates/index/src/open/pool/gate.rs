//! The bound of the queue: how many jobs may be with the workers at once.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Who is inside, and who waits outside, in order.
pub(super) struct Gate {
    room: Mutex<Room>,
}

struct Room {
    free: usize,
    waiting: VecDeque<Waker>,
}

impl Gate {
    pub(super) fn new(places: usize) -> Gate {
        Gate { room: Mutex::new(Room { free: places, waiting: VecDeque::new() }) }
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes in if there is room; else `waker` is woken when somebody leaves.
    pub(super) fn enter(&self, waker: &Waker) -> bool {
        let mut room = self.room();
        if room.free > 0 {
            room.free -= 1;
            return true;
        }
        if !room.waiting.iter().any(|other| other.will_wake(waker)) {
            room.waiting.push_back(waker.clone());
        }
        false
    }

    /// Goes out, and the first who waits may look.
    pub(super) fn leave(&self) {
        let next = {
            let mut room = self.room();
            room.free += 1;
            room.waiting.pop_front()
        };
        next.into_iter().for_each(Waker::wake);
    }

    /// Gives up waiting. Nobody knows whether it was this one who was just told to look, so all others are.
    pub(super) fn give_up(&self) {
        let waiting = std::mem::take(&mut self.room().waiting);
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_enter_than_there_is_room_for() {
        let gate = Gate::new(2);
        let waker = Waker::noop();
        assert!(gate.enter(waker) && gate.enter(waker) && !gate.enter(waker));
        gate.leave();
        assert!(gate.enter(waker) && !gate.enter(waker));
    }
}
