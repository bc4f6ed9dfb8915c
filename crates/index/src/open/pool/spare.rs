//! What callers who answer lone queries by themselves leave for the next: an engine, and the memory of a query.

use super::job::Scratch;
use super::tenant::Tenant;
use bathyal_tier::Parked;
use bathyal_tier::lanes::{Lanes, Padded, thread_number};
use bathyal_tier::process::open_files_limit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lanes that a caller looks at: its own, and a few in which others may have left something, but not all of a large machine.
const LOOKED_AT: usize = 4;
/// Spares in a lane at most: a lone query over the segments of a collection takes one for each.
const MOST_IN_LANE: u64 = 64;
/// Bytes that the spares of all lanes take, beyond one in each; and those of a lane, where there are many lanes. The buffers of an
/// engine over a device take some megabytes.
const MOST_BYTES: u64 = 192 << 20;
const MOST_BYTES_OF_MANY: u64 = 16 << 20;
/// Whatever was left so long ago goes for others. What is used more often stays: segments that are searched in turn would each find the
/// engine of another one, if those went that were left first.
const REST: Duration = Duration::from_secs(10);
/// All together have no more than one in so many of the files that a process may have open.
const FILES_SHARE: u64 = 16;

/// An engine that nobody uses now, with the memory of a query.
pub(super) struct Spare {
    pub(super) tenant: Arc<Tenant>,
    pub(super) engine: Parked,
    pub(super) scratch: Option<Scratch>,
    /// Bytes of the index's memory that are taken for both.
    pub(super) booked: u64,
    /// When it was left.
    pub(super) left: Instant,
}

impl Spare {
    /// Drops it and gives its memory back.
    pub(super) fn retire(self) {
        let Spare { tenant, engine, scratch, booked, .. } = self;
        drop((engine, scratch));
        tenant.give(booked);
    }
}

/// Spares, each in the lane in which the thread looks first that left it.
#[derive(Default)]
pub(super) struct Spares(Lanes<Mutex<Lane>>);

#[derive(Default)]
struct Lane {
    /// In the order in which they were left.
    spares: Vec<Spare>,
    /// What they take.
    bytes: u64,
}

impl Lane {
    /// The one of an index that was left last.
    fn take(&mut self, tenant: u64) -> Option<Spare> {
        let at = self.spares.iter().rposition(|spare| spare.tenant.number == tenant)?;
        Some(self.remove(at))
    }

    fn put(&mut self, spare: Spare) {
        self.bytes += spare.booked;
        self.spares.push(spare);
    }

    fn remove(&mut self, at: usize) -> Spare {
        let spare = self.spares.remove(at);
        self.bytes -= spare.booked;
        spare
    }

    /// Whether it is no more than one of so many lanes may have. One is no more in any case.
    fn fits(&self, lanes: u64) -> bool {
        let count = self.spares.len() as u64;
        count <= 1
            || count <= (open_files_limit() / FILES_SHARE / lanes).min(MOST_IN_LANE)
                && self.bytes <= (MOST_BYTES / lanes).max(MOST_BYTES_OF_MANY)
    }
}

impl Spares {
    fn near(&self) -> impl Iterator<Item = MutexGuard<'_, Lane>> {
        // Who is there at the moment is at work: this lane is as good as empty, and as good as full.
        self.0.from_here().take(LOOKED_AT).filter_map(|lane| lane.try_lock().ok())
    }

    /// One of this index.
    pub(super) fn take(&self, tenant: u64) -> Option<Spare> {
        self.near().find_map(|mut lane| lane.take(tenant))
    }

    /// Leaves one; what had to go for it is handed back.
    pub(super) fn put(&self, spare: Spare) -> Vec<Spare> {
        let lanes = self.0.iter().count() as u64;
        let (mut left, mut gone) = (spare, Vec::new());
        for mut lane in self.near() {
            let before = left.left.checked_sub(REST);
            lane.put(left);
            while !lane.fits(lanes) && before.is_some_and(|before| lane.spares[0].left < before) {
                gone.push(lane.remove(0));
            }
            if lane.fits(lanes) {
                return gone;
            }
            let last = lane.spares.len() - 1;
            left = lane.remove(last);
        }
        gone.push(left);
        gone
    }

    /// Closes those of indexes that are `meant`.
    pub(super) fn clear(&self, meant: impl Fn(&Tenant) -> bool) {
        for lane in self.0.iter() {
            let mut lane = lane.lock().unwrap_or_else(PoisonError::into_inner);
            let cleared: Vec<Spare> = lane.spares.extract_if(.., |spare| meant(&spare.tenant)).collect();
            lane.bytes -= cleared.iter().map(|spare| spare.booked).sum::<u64>();
            drop(lane);
            cleared.into_iter().for_each(Spare::retire);
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
