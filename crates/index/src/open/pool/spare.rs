//! What callers who answer lone queries by themselves leave for the next: an engine, and the memory of a query.

use super::job::Scratch;
use super::tenant::Tenant;
use bathyal_tier::ParkedEngine;
use bathyal_tier::lanes::{Lanes, Padded, thread_number};
use bathyal_tier::process::open_files_limit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shelves for what has no place near a thread.
const SHELVES: usize = 16;
/// Spares on a shelf, at most.
const MOST_SHELVED: u64 = 8;
/// Bytes that they take, at most, if they are more than one.
const SHELF_BYTES: u64 = 8 << 20;
/// Of the files that a process may have open, those on all shelves may have one of so many.
const FILES_SHARE: u64 = 8;
/// Places that a caller looks at: its own, and a few that others may have left, but not all of a large machine.
const LOOKED_AT: usize = 4;

/// An engine that nobody uses now, with the memory of a query.
pub(super) struct Spare {
    pub(super) tenant: Arc<Tenant>,
    pub(super) engine: ParkedEngine,
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

/// Spares, each where the thread looks first that left it, one for each lane; and what had to go from there, as whoever asks several
/// indexes in turn has it again.
#[derive(Default)]
pub(super) struct Spares {
    near: Lanes<Mutex<Option<Spare>>>,
    /// Those of an index are on one of them, those that were left last at the end.
    shelves: [Mutex<Vec<Spare>>; SHELVES],
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Spares {
    fn near(&self) -> impl Iterator<Item = MutexGuard<'_, Option<Spare>>> {
        // Who is there at the moment is at work: this lane is as good as empty, and as good as full.
        self.near.from_here().take(LOOKED_AT).filter_map(|lane| lane.try_lock().ok())
    }

    fn shelf(&self, tenant: u64) -> MutexGuard<'_, Vec<Spare>> {
        locked(&self.shelves[tenant as usize % SHELVES])
    }

    /// One of this index.
    pub(super) fn take(&self, tenant: u64) -> Option<Spare> {
        let near = self.near().find_map(|mut place| place.take_if(|spare| spare.tenant.number == tenant));
        near.or_else(|| {
            let mut shelf = self.shelf(tenant);
            let at = shelf.iter().rposition(|spare| spare.tenant.number == tenant)?;
            Some(shelf.remove(at))
        })
    }

    /// Leaves one; what had to go for it is handed back.
    pub(super) fn put(&self, spare: Spare) -> Vec<Spare> {
        if let Some(mut place) = self.near().find(|place| place.is_none()) {
            *place = Some(spare);
            return Vec::new();
        }
        let mut moved = spare;
        if let Some(mut place) = self.near().next() {
            match place.replace(moved) {
                Some(replaced) => moved = replaced,
                // It was taken meanwhile.
                None => return Vec::new(),
            }
        }
        self.shelve(moved)
    }

    fn shelve(&self, spare: Spare) -> Vec<Spare> {
        let files = open_files_limit() / FILES_SHARE / SHELVES as u64;
        let mut shelf = self.shelf(spare.tenant.number);
        shelf.push(spare);
        let mut bytes: u64 = shelf.iter().map(|spare| spare.booked).sum();
        let (mut gone, mut left) = (0, shelf.len());
        while left > 1 && (left as u64 > files.clamp(1, MOST_SHELVED) || bytes > SHELF_BYTES) {
            bytes -= shelf[gone].booked;
            (gone, left) = (gone + 1, left - 1);
        }
        shelf.drain(..gone).collect()
    }

    /// Closes those of indexes that are `meant`.
    pub(super) fn clear(&self, meant: impl Fn(&Tenant) -> bool) {
        for lane in self.near.iter() {
            let mut place = locked(lane);
            let spare = place.take_if(|spare| meant(&spare.tenant));
            drop(place);
            spare.into_iter().for_each(Spare::retire);
        }
        for shelf in &self.shelves {
            let gone: Vec<Spare> = locked(shelf).extract_if(.., |spare| meant(&spare.tenant)).collect();
            gone.into_iter().for_each(Spare::retire);
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
