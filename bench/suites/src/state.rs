//! Measures the memory of a running query at the allocator, independently of the index's own estimate.
//!
//! The same queries are searched one at a time and many at a time, on one thread. The difference of the two
//! peaks of allocated bytes is the memory of the additional concurrent queries, since index, engine and
//! results count in both.

use bathyal_index::open::TierChoice;
use bathyal_index::{Effort, Index, OpenOptions, SearchOptions};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use serde::Serialize;
use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes that are allocated now.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
/// Peak of allocated bytes since the start of [`peak_during`].
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system allocator with counters.
pub(crate) struct CountingAllocator;

/// Counts `allocated` new bytes, then `freed` ones.
fn count(allocated: usize, freed: usize) {
    let total = ALLOCATED.fetch_add(allocated, Relaxed) + allocated;
    PEAK.fetch_max(total, Relaxed);
    ALLOCATED.fetch_sub(freed, Relaxed);
}

// SAFETY: every call is passed unchanged to the system allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller upholds the contract of this method, which is that of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller upholds the contract of this method, which is that of the system allocator.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: the caller upholds the contract of this method, which is that of the system allocator.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: the caller upholds the contract of this method, which is that of the system allocator.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Runs `work`. Returns the peak of allocated bytes during it, and its result.
fn peak_during<T>(work: impl FnOnce() -> T) -> (usize, T) {
    PEAK.store(ALLOCATED.load(Relaxed), Relaxed);
    let result = work();
    (PEAK.load(Relaxed), result)
}

#[derive(Debug, clap::Args)]
pub(crate) struct StateArguments {
    /// An index
    index: PathBuf,
    /// Queries for it
    queries: PathBuf,
    /// Tier of the index: file or dram
    #[arg(long, default_value_t = TierChoice::File)]
    tier: TierChoice,
    /// Memory of the open index, in bytes
    #[arg(long)]
    memory: Option<u64>,
    /// Requested recall
    #[arg(long, default_value_t = 0.95)]
    recall: f32,
    /// Concurrent queries
    #[arg(long, default_value_t = 32)]
    in_flight: usize,
}

#[derive(Serialize)]
struct QueryMemory {
    /// Estimate of the index, in bytes per query.
    planned_state_bytes: u64,
    /// Measured bytes per additional concurrent query.
    measured_state_bytes: u64,
    in_flight: usize,
    recall_target: f32,
    search_list: u32,
}

pub(crate) fn run(arguments: &StateArguments) -> Result<bool, Box<dyn Error>> {
    if arguments.in_flight < 2 {
        return Err(format!(
            "--in-flight is {}, but must be at least 2, which are compared with 1",
            arguments.in_flight
        )
        .into());
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
    let (alone, _) = peak_during(|| index.search(&queries, &options(1), Control::default()));
    let many = || index.search(&queries, &options(arguments.in_flight), Control::default());
    let (together, found) = peak_during(many);
    let memory = QueryMemory {
        planned_state_bytes: index.query_bytes(&options(1))?,
        measured_state_bytes: (together.saturating_sub(alone) / (arguments.in_flight - 1)) as u64,
        in_flight: arguments.in_flight,
        recall_target: arguments.recall,
        search_list: found?.search_list,
    };
    println!("{}", serde_json::to_string(&memory)?);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_of_allocated_bytes_is_measured() {
        let (before, _) = peak_during(|| ());
        let (peak, _) = peak_during(|| {
            drop(std::hint::black_box(vec![1_u8; 40 << 20]));
            std::hint::black_box(vec![1_u8; 30 << 20])
        });
        // Tests that run concurrently allocate as well.
        let allocated = peak - before;
        assert!((40 << 20..60 << 20).contains(&allocated), "{allocated}");
    }
}
