//! What callers who answer lone queries by themselves leave for the next: an engine, and the memory of a query.

use super::job::Scratch;
use super::tenant::Tenant;
use bathyal_tier::Parked;
use bathyal_tier::lanes::{Lanes, Padded, thread_number};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Places that a caller looks at: its own, and a few that others may have left, but not all of a large machine.
const LOOKED_AT: usize = 4;

/// An engine that nobody uses now, with the memory of a query.
pub(super) struct Spare {
    pub(super) tenant: Arc<Tenant>,
    pub(super) engine: Parked,
    pub(super) scratch: Option<Scratch>,
    /// Bytes of the index's memory that are taken for both.
    pub(super) booked: u64,
}

impl Spare {
    /// Drops it and gives its memory back.
    pub(super) fn retire(self) {
        let Spare { tenant, engine, scratch, booked } = self;
        drop((engine, scratch));
        tenant.give(booked);
    }
}

/// Spares, each where the thread looks first that left it. No more than there are lanes.
#[derive(Default)]
pub(super) struct Spares(Lanes<Mutex<Option<Spare>>>);

impl Spares {
    fn near(&self) -> impl Iterator<Item = std::sync::MutexGuard<'_, Option<Spare>>> {
        // Who is there at the moment is at work: this lane is as good as empty, and as good as full.
        self.0.from_here().take(LOOKED_AT).filter_map(|lane| lane.try_lock().ok())
    }

    /// One of this index.
    pub(super) fn take(&self, tenant: u64) -> Option<Spare> {
        self.near().find_map(|mut place| place.take_if(|spare| spare.tenant.number == tenant))
    }

    /// Leaves one; what had to go for it is handed back.
    pub(super) fn put(&self, spare: Spare) -> Option<Spare> {
        if let Some(mut place) = self.near().find(|place| place.is_none()) {
            *place = Some(spare);
            return None;
        }
        match self.near().next() {
            Some(mut place) => place.replace(spare),
            None => Some(spare),
        }
    }

    /// Closes those of indexes that are `meant`.
    pub(super) fn clear(&self, meant: impl Fn(&Tenant) -> bool) {
        for lane in self.0.iter() {
            let mut place = lane.lock().unwrap_or_else(PoisonError::into_inner);
            let spare = place.take_if(|spare| meant(&spare.tenant));
            drop(place);
            spare.into_iter().for_each(Spare::retire);
        }
    }
}

/// Leave to answer a lone query from a device: as many as there are cores.
pub(super) struct Seats(Box<[Padded<AtomicBool>]>);

impl Seats {
    pub(super) fn new(seats: usize) -> Seats {
        Seats((0..seats.max(1)).map(|_| Padded::default()).collect())
    }

    /// A free one among those that the calling thread looks at.
    pub(super) fn sit(&self) -> Option<usize> {
        let home = thread_number();
        let free = |seat: &usize| {
            let taken = &self.0[*seat].0;
            !taken.load(Ordering::Relaxed) && !taken.swap(true, Ordering::Acquire)
        };
        (0..self.0.len().min(LOOKED_AT)).map(|i| home.wrapping_add(i) % self.0.len()).find(free)
    }

    /// Gives one back.
    pub(super) fn stand_up(&self, seat: usize) {
        self.0[seat].0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_sit_than_there_are_seats() {
        let seats = Seats::new(3);
        let taken: Vec<usize> = (0..3).filter_map(|_| seats.sit()).collect();
        assert_eq!((taken.len(), seats.sit()), (3, None));
        seats.stand_up(taken[1]);
        assert_eq!((seats.sit(), seats.sit()), (Some(taken[1]), None));
    }
}
