//! What a query that is under way holds: counted at the allocator, whatever the index believes.
//!
//! The same queries are searched one at a time and many at a time on one thread, and the most bytes that were allocated
//! at once are compared. What the index, the engine and the answers take is in both, so the difference is what the queries
//! take that run beside the first.

use bathyal_index::open::TierChoice;
use bathyal_index::{Effort, Index, OpenOptions, SearchOptions};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use serde::Serialize;
use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes that are allocated now, and the most since [`most_during`] began.
static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, which counts.
pub(crate) struct Counting;

/// Notes that `more` bytes were allocated and `fewer` freed.
fn note(more: usize, fewer: usize) {
    let held = HELD.fetch_add(more, Relaxed) + more;
    MOST.fetch_max(held, Relaxed);
    HELD.fetch_sub(fewer, Relaxed);
}

// SAFETY: every call is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: as this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: as this call.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: as this call.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size, layout.size());
        // SAFETY: as this call.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// The most bytes that were allocated at once while `work` ran.
fn most_during<T>(work: impl FnOnce() -> T) -> (usize, T) {
    MOST.store(HELD.load(Relaxed), Relaxed);
    let done = work();
    (MOST.load(Relaxed), done)
}

#[derive(Debug, clap::Args)]
pub(crate) struct StateArguments {
    /// An index
    index: PathBuf,
    /// Queries for it
    queries: PathBuf,
    /// Where it is searched: file or dram
    #[arg(long, default_value_t = TierChoice::File)]
    tier: TierChoice,
    /// Memory of the open index, in bytes
    #[arg(long)]
    memory: Option<u64>,
    /// Recall asked for
    #[arg(long, default_value_t = 0.95)]
    recall: f32,
    /// Queries at a time
    #[arg(long, default_value_t = 32)]
    in_flight: usize,
}

#[derive(Serialize)]
struct Answer {
    /// By the plan of the index.
    planned_state_bytes: u64,
    /// Bytes that each query more takes.
    measured_state_bytes: u64,
    in_flight: usize,
    recall_target: f32,
    search_list: u32,
}

pub(crate) fn run(arguments: &StateArguments) -> Result<bool, Box<dyn Error>> {
    if arguments.in_flight < 2 {
        return Err(format!("--in-flight is {}: 2 or more are compared with one", arguments.in_flight).into());
    }
    let opening = OpenOptions {
        tier: arguments.tier.clone(),
        memory_bytes: arguments.memory,
        ..OpenOptions::default()
    };
    let index = Index::open(&arguments.index, &opening)?;
    let queries = VectorFile::open(&arguments.queries)?;
    let options = |in_flight| SearchOptions {
        effort: Effort::Recall(arguments.recall),
        threads: 1,
        in_flight: Some(in_flight),
        ..SearchOptions::default()
    };
    // The first search starts a thread and its engine.
    index.search(&queries, &options(1), Control::default())?;
    let (alone, _) = most_during(|| index.search(&queries, &options(1), Control::default()));
    let many = || index.search(&queries, &options(arguments.in_flight), Control::default());
    let (together, found) = most_during(many);
    let answer = Answer {
        planned_state_bytes: index.query_bytes(&options(1))?,
        measured_state_bytes: (together.saturating_sub(alone) / (arguments.in_flight - 1)) as u64,
        in_flight: arguments.in_flight,
        recall_target: arguments.recall,
        search_list: found?.search_list,
    };
    println!("{}", serde_json::to_string(&answer)?);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_that_was_held_at_once_is_counted() {
        let (before, _) = most_during(|| ());
        let (most, _) = most_during(|| {
            drop(std::hint::black_box(vec![1_u8; 40 << 20]));
            std::hint::black_box(vec![1_u8; 30 << 20])
        });
        // Tests beside this one allocate, too.
        let held = most - before;
        assert!((40 << 20..60 << 20).contains(&held), "{held}");
    }
}
