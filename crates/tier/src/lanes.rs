//! Values that all threads of a process write, in one lane per thread; a reader adds up the lanes.
//!
//! A write by one core takes the cache line from all others, so threads that add to one shared counter wait
//! for each other.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

/// Maximum number of lanes. It keeps the lanes small beside an index; on a larger machine some threads share
/// a lane.
const MOST_LANES: usize = 128;

/// A value on cache lines that hold nothing else. Processors fetch lines in pairs, so it takes two lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

/// Returns the number of the calling thread. Threads are numbered from 0 in the order of their first calls.
pub fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<NonZeroUsize>> = const { Cell::new(None) };
    }
    NUMBER.get().map_or_else(
        || {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            // Stored plus one, since a `NonZeroUsize` cannot be 0. The number `usize::MAX` is not stored.
            NUMBER.set(NonZeroUsize::new(number.wrapping_add(1)));
            number
        },
        |number| number.get() - 1,
    )
}

/// One `T` for each thread. If there are more threads than lanes, later threads share the lanes of earlier
/// ones.
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
    /// Makes one lane for each core that this process may use, rounded up to a power of two, and 128 at most.
    /// `make` makes each lane's value.
    pub fn new(make: impl FnMut() -> T) -> Lanes<T> {
        static CORES: OnceLock<usize> = OnceLock::new();
        let cores = *CORES.get_or_init(|| available_parallelism().map_or(1, NonZeroUsize::get));
        Lanes::with_count(cores.min(MOST_LANES).next_power_of_two(), make)
    }

    /// Makes `lanes` lanes, a power of two.
    fn with_count(lanes: usize, mut make: impl FnMut() -> T) -> Lanes<T> {
        Lanes { lanes: (0..lanes).map(|_| Padded(make())).collect() }
    }

    /// Returns the lane of the calling thread.
    #[inline]
    pub fn here(&self) -> &T {
        // The number of lanes is a power of two.
        &self.lanes[thread_number() & (self.lanes.len() - 1)].0
    }

    /// Returns all lanes, beginning with that of the calling thread.
    pub fn from_here(&self) -> impl Iterator<Item = &T> {
        let first = thread_number() & (self.lanes.len() - 1);
        let (before, after) = self.lanes.split_at(first);
        after.iter().chain(before).map(|lane| &lane.0)
    }

    /// Returns all lanes.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.lanes.iter().map(|lane| &lane.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn threads_write_to_separate_cache_lines_and_no_count_is_lost() {
        let lanes = Lanes::with_count(4, AtomicU64::default);
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
        let addresses: Vec<usize> = lanes.iter().map(|lane| std::ptr::from_ref(lane) as usize).collect();
        assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] >= 128), "{addresses:?}");
    }
}
