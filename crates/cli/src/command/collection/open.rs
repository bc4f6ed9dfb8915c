//! Opening a collection, and stopping work on it at Ctrl-C.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bathyal_collection::{Collection, CollectionOptions, DEFAULT_WRITE_MEMORY_BYTES};
use bathyal_console::{Console, Failure};
use bathyal_index::OpenOptions;

use crate::arguments::{OpenArguments, WriteArguments};

/// Interval at which Ctrl-C is checked during writes, well below the 100 ms within which a command must end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Opens a collection for reading.
pub(super) fn to_read(
    path: &Path,
    arguments: &OpenArguments,
    console: &Console,
) -> Result<Collection, Failure> {
    let store = arguments.store.options()?;
    let index =
        OpenOptions { memory_bytes: arguments.memory, store: store.clone(), ..OpenOptions::default() };
    opened(path, &CollectionOptions { index, store, ..CollectionOptions::default() }, console)
}

/// Opens a collection for writing.
pub(super) fn to_write(
    path: &Path,
    arguments: &WriteArguments,
    console: &Console,
) -> Result<Collection, Failure> {
    let store = arguments.store.options()?;
    let options = CollectionOptions {
        index: OpenOptions { store: store.clone(), ..OpenOptions::default() },
        store,
        write_memory_bytes: arguments.write_memory.unwrap_or(DEFAULT_WRITE_MEMORY_BYTES),
        build_memory_bytes: arguments.build_memory,
        compact_memory_bytes: arguments.compact_memory,
        compact_bytes_per_second: arguments.compact_speed.and_then(NonZeroU64::new),
        threads: arguments.threads,
        durability: arguments.durability,
        ..CollectionOptions::default()
    };
    opened(path, &options, console)
}

pub(super) fn opened(
    path: &Path,
    options: &CollectionOptions,
    console: &Console,
) -> Result<Collection, Failure> {
    let began = Instant::now();
    let collection = Collection::open(path, options)?;
    if console.is_verbose() {
        let description = collection.describe();
        console.detail(&format!(
            "opened {}: a collection of {} rows in {} segments and {} in memory, in {:.2} s",
            path.display(),
            description.rows,
            description.segments.len(),
            description.rows_in_memory,
            began.elapsed().as_secs_f64()
        ));
    }
    Ok(collection)
}

/// Runs `work`, which changes a collection, and waits for the background work that it starts; Ctrl-C ends
/// both.
pub(super) fn writing<T>(collection: &Collection, console: &Console, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if console.interrupt().requested() {
                    return collection.stop();
                }
                std::thread::park_timeout(POLL_INTERVAL);
            }
        });
        let outcome = work();
        // Without this wait, a process that ends at once would never finish a segment and leave it to the
        // next process, which would do the same.
        collection.settle();
        done.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        outcome
    })
}
