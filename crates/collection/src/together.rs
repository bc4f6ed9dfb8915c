//! The same work in all parts of a collection, at the same time: what waits for a device waits for all of them at once.

use crate::error::CollectionError;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Builder;

/// Threads that wait for a store far away, for each of a collection's parts one: they do next to nothing.
const FAR_CALLERS: usize = 64;
/// Threads that wait for a device of this machine, for each that computes.
const CALLERS_A_THREAD: usize = 4;

/// The threads that a caller means: 0 is all cores.
pub(crate) fn thread_count(threads: usize) -> usize {
    match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

/// Threads that look at parts of a collection, of which `threads` may compute.
pub(crate) fn callers(far: bool, threads: usize) -> usize {
    match thread_count(threads) {
        _ if far => FAR_CALLERS,
        // Who wants one core has one.
        1 => 1,
        threads => CALLERS_A_THREAD * threads,
    }
}

/// What one thread has done: the number of each piece, and what came of it.
type Done<T> = Vec<(usize, Result<T, CollectionError>)>;

thread_local! {
    /// Threads that what this thread does may take: of those that look at collections, each has its part for their segments.
    static MOST: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Does `work` for 0 to `count`, by the calling thread and up to `callers - 1` others. Returns what came of it in this order; of
/// what fails, the first in this order, and nothing more is begun then.
pub(crate) fn together<T: Send>(
    count: usize,
    callers: usize,
    work: impl Fn(usize) -> Result<T, CollectionError> + Sync,
) -> Result<Vec<T>, CollectionError> {
    let before = MOST.get();
    let callers = callers.min(before);
    if count <= 1 || callers <= 1 {
        return (0..count).map(work).collect();
    }
    let threads = callers.min(count);
    let most = callers / threads;
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let some = || {
        MOST.set(most);
        let mut done: Done<T> = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            let one = work(number);
            failed.fetch_or(one.is_err(), Ordering::Relaxed);
            done.push((number, one));
        }
        done
    };
    let mut done = std::thread::scope(|scope| {
        let thread = || Builder::new().name("bathyal-parts".into()).spawn_scoped(scope, some);
        // Where the system has no thread left, there are those that it gave.
        let others: Vec<_> = (1..threads).map_while(|_| thread().ok()).collect();
        let mut done = some();
        MOST.set(before);
        for other in others {
            let ended = || CollectionError::Internal("a thread that looks at parts has ended".into());
            done.extend(other.join().unwrap_or_else(|_| vec![(count, Err(ended()))]));
        }
        done
    });
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, one)| one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn all_is_done_in_order_and_at_the_same_time() {
        let meeting = Barrier::new(4);
        let meet = |number: usize| {
            meeting.wait();
            Ok(number * 2)
        };
        assert_eq!(together(4, 4, meet).unwrap(), [0, 2, 4, 6]);
        assert_eq!(together(1000, 3, Ok).unwrap(), (0..1000).collect::<Vec<_>>());
        assert_eq!(together(3, 1, Ok).unwrap(), [0, 1, 2]);
        assert!(together(0, 9, Ok).unwrap().is_empty());
    }

    #[test]
    fn what_is_within_shares_the_threads() {
        let ids = |_| {
            let inner = together(8, 100, |_| Ok(std::thread::current().id()))?;
            Ok(inner.into_iter().collect::<std::collections::HashSet<_>>().len())
        };
        assert!(together(4, 4, ids).unwrap().iter().all(|threads| *threads == 1));
        assert!(together(4, 8, ids).unwrap().iter().all(|threads| *threads <= 2));
        assert_eq!(MOST.get(), usize::MAX);
    }

    #[test]
    fn what_fails_ends_it() {
        let fail = |number: usize| match number {
            7.. => Err(CollectionError::Parameter(format!("{number}"))),
            number => Ok(number),
        };
        for callers in [1, 4] {
            let error = together(1 << 40, callers, fail).unwrap_err().to_string();
            assert!((7..20).contains(&error.parse::<usize>().unwrap()), "{error}");
        }
    }
}
