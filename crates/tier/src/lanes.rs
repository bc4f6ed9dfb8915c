//! What all threads of a process write, kept apart: each writes in a lane of its own, and who asks adds the lanes up.
//!
//! A cache line that one core writes is taken from all others, so a counter that every query of every thread adds to is a
//! queue in which all of them stand.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

/// Lanes at most: what is kept in lanes is to stay small beside an index, and a larger machine's threads meet in pairs.
const MOST_LANES: usize = 128;

/// A value on cache lines that hold nothing else. Processors fetch lines in pairs, so that is two of them.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

/// The number of the calling thread among those that have asked, in the order of asking.
pub fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<NonZeroUsize>> = const { Cell::new(None) };
    }
    NUMBER.get().map_or_else(
        || {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            // One more than it is, so that none is 0; what does not fit is not kept.
            NUMBER.set(NonZeroUsize::new(number.wrapping_add(1)));
            number
        },
        |number| number.get() - 1,
    )
}

/// A `T` for each thread, as far as there are no more threads than cores: later ones share those of earlier ones.
#[derive(Debug)]
pub struct Lanes<T> {
    lanes: Box<[Padded<T>]>,
}

impl<T: Default> Default for Lanes<T> {
    fn default() -> Lanes<T> {
        Lanes::new(T::default)
    }
}

impl<T> Lanes<T> {
    /// As many lanes as this process may use cores, rounded up to a power of two and no more than 128, each made by `make`.
    pub fn new(make: impl FnMut() -> T) -> Lanes<T> {
        static CORES: OnceLock<usize> = OnceLock::new();
        let cores = *CORES.get_or_init(|| available_parallelism().map_or(1, NonZeroUsize::get));
        Lanes::of(cores.min(MOST_LANES).next_power_of_two(), make)
    }

    /// `lanes` lanes, a power of two.
    fn of(lanes: usize, mut make: impl FnMut() -> T) -> Lanes<T> {
        Lanes { lanes: (0..lanes).map(|_| Padded(make())).collect() }
    }

    /// That of the calling thread.
    #[inline]
    pub fn here(&self) -> &T {
        // The number of lanes is a power of two.
        &self.lanes[thread_number() & (self.lanes.len() - 1)].0
    }

    /// All of them, that of the calling thread first.
    pub fn from_here(&self) -> impl Iterator<Item = &T> {
        let first = thread_number() & (self.lanes.len() - 1);
        let (before, after) = self.lanes.split_at(first);
        after.iter().chain(before).map(|lane| &lane.0)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.lanes.iter().map(|lane| &lane.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn threads_write_apart_and_nothing_is_lost() {
        let lanes = Lanes::of(4, AtomicU64::default);
        std::thread::scope(|scope| {
            for _ in 0..9 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        lanes.here().fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(lanes.iter().map(|lane| lane.load(Ordering::Relaxed)).sum::<u64>(), 9000);
        assert!(lanes.iter().all(|lane| lane.load(Ordering::Relaxed) > 0));
        assert!(std::ptr::eq(lanes.here(), lanes.here()));
        assert!(lanes.from_here().next().is_some_and(|first| std::ptr::eq(first, lanes.here())));
        assert_eq!(lanes.from_here().count(), 4);
        let places: Vec<usize> = lanes.iter().map(|lane| std::ptr::from_ref(lane) as usize).collect();
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 128), "{places:?}");
    }
}
