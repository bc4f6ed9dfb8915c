//! How a collection is opened, and how work on it ends when the user says so.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bathyal_collection::{Collection, CollectionOptions, DEFAULT_WRITE_MEMORY_BYTES};
use bathyal_console::{Console, Failure};
use bathyal_index::OpenOptions;

use crate::arguments::{OpenArguments, WriteArguments};

/// How often Ctrl-C is looked for while something is written, well within the 100 ms in which it has to end.
const LOOK: Duration = Duration::from_millis(20);

/// Opens a collection to read it.
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

/// Opens a collection to write to it.
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

fn opened(path: &Path, options: &CollectionOptions, console: &Console) -> Result<Collection, Failure> {
    let began = Instant::now();
    let collection = Collection::open(path, options)?;
    if console.is_verbose() {
        let told = collection.describe();
        console.detail(&format!(
            "opened {}: a collection of {} rows in {} segments and {} in memory, in {:.2} s",
            path.display(),
            told.rows,
            told.segments.len(),
            told.rows_in_memory,
            began.elapsed().as_secs_f64()
        ));
    }
    Ok(collection)
}

/// Does what changes a collection, and waits for what is done beside it; Ctrl-C ends both.
pub(super) fn writing<T>(collection: &Collection, console: &Console, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if console.interrupt().asked() {
                    return collection.stop();
                }
                std::thread::park_timeout(LOOK);
            }
        });
        let outcome = work();
        // A process that ended at once would leave the segment that is being written to the next one, for ever.
        collection.settle();
        done.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        outcome
    })
}
