//! Runs the same work on all parts of a collection in parallel, so that they wait for devices at the same
//! time.

use crate::error::CollectionError;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Builder;

/// Threads that read parts of a collection in an object store. They mostly wait.
const REMOTE_THREADS: usize = 64;
/// For local devices: threads that read parts, for each thread that may compute.
const READERS_PER_THREAD: usize = 4;

/// Resolves a number of threads: 0 means one per core.
pub(crate) fn thread_count(threads: usize) -> usize {
    match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

/// Returns the number of threads that read parts of a collection, if `threads` may compute.
pub(crate) fn part_threads(remote: bool, threads: usize) -> usize {
    match thread_count(threads) {
        _ if remote => REMOTE_THREADS,
        // A caller that asks for one thread gets one.
        1 => 1,
        threads => READERS_PER_THREAD * threads,
    }
}

/// Results of one thread: the number of each piece, and its result.
type NumberedResults<T> = Vec<(usize, Result<T, CollectionError>)>;

thread_local! {
    /// Limit of the threads that nested calls on this thread may use: a search of several collections divides
    /// its threads among them.
    static THREAD_LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Calls `work` with each number from 0 to `count - 1`, on the calling thread and up to `threads - 1` others.
/// Returns the results in order. After an error no further call begins; the first error in order is returned.
pub(crate) fn run_parallel<T: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> Result<T, CollectionError> + Sync,
) -> Result<Vec<T>, CollectionError> {
    let before = THREAD_LIMIT.get();
    let threads = threads.min(before);
    if count <= 1 || threads <= 1 {
        return (0..count).map(work).collect();
    }
    let started = threads.min(count);
    let nested_limit = threads / started;
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let take_work = || {
        THREAD_LIMIT.set(nested_limit);
        let mut done: NumberedResults<T> = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            let result = work(number);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            done.push((number, result));
        }
        done
    };
    let mut done = std::thread::scope(|scope| {
        let thread = || Builder::new().name("bathyal-parts".into()).spawn_scoped(scope, take_work);
        // If the system cannot start more threads, those that it started do the work.
        let others: Vec<_> = (1..started).map_while(|_| thread().ok()).collect();
        let mut done = take_work();
        THREAD_LIMIT.set(before);
        for other in others {
            let ended =
                || CollectionError::Internal("a thread that reads parts of a collection has ended".into());
            done.extend(other.join().unwrap_or_else(|_| vec![(count, Err(ended()))]));
        }
        done
    });
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn calls_run_in_parallel_and_results_are_in_order() {
        let barrier = Barrier::new(4);
        let wait = |number: usize| {
            barrier.wait();
            Ok(number * 2)
        };
        assert_eq!(run_parallel(4, 4, wait).unwrap(), [0, 2, 4, 6]);
        assert_eq!(run_parallel(1000, 3, Ok).unwrap(), (0..1000).collect::<Vec<_>>());
        assert_eq!(run_parallel(3, 1, Ok).unwrap(), [0, 1, 2]);
        assert!(run_parallel(0, 9, Ok).unwrap().is_empty());
    }

    #[test]
    fn nested_calls_share_the_threads() {
        let ids = |_| {
            let inner = run_parallel(8, 100, |_| Ok(std::thread::current().id()))?;
            Ok(inner.into_iter().collect::<std::collections::HashSet<_>>().len())
        };
        assert!(run_parallel(4, 4, ids).unwrap().iter().all(|threads| *threads == 1));
        assert!(run_parallel(4, 8, ids).unwrap().iter().all(|threads| *threads <= 2));
        assert_eq!(THREAD_LIMIT.get(), usize::MAX);
    }

    #[test]
    fn an_error_ends_the_work() {
        let fail = |number: usize| match number {
            7.. => Err(CollectionError::Parameter(format!("{number}"))),
            number => Ok(number),
        };
        for threads in [1, 4] {
            let error = run_parallel(1 << 40, threads, fail).unwrap_err().to_string();
            assert!((7..20).contains(&error.parse::<usize>().unwrap()), "{error}");
        }
    }
}
