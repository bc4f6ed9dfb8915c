//! Tests that the cache allocates as many bytes as it reports, and no more than its budget. This is a program
//! of its own, since it counts every byte that its process allocates.

use bathyal_tier::backend::sim::{SimOptions, SimTier};
use bathyal_tier::layer::cache::{CacheOptions, CacheTier};
use bathyal_tier::{Control, Cx, Engine, EngineOptions, Span, Tier};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

static HELD: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: passed on under the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: passed on under the same contract.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn held() -> u64 {
    HELD.load(Ordering::Relaxed)
}

/// Reads the whole tier once, page by page.
fn scan(tier: Arc<dyn Tier>) {
    let mut engine = Engine::new(tier, EngineOptions::default()).unwrap();
    let query = |cx: &Cx| {
        let cx = cx.clone();
        async move {
            for i in 0..(8 << 20) / 4096 {
                cx.read(&[Span::at(i * 4096, 4096)]).await.unwrap();
            }
        }
    };
    engine.run_one(query, Control::default()).unwrap();
}

#[test]
fn a_cache_allocates_what_it_reports_and_no_more_than_its_budget() {
    let tier: Arc<dyn Tier> = Arc::new(SimTier::new(vec![7; 8 << 20], SimOptions::default()));
    // After one scan, the simulated device allocates no further memory.
    scan(tier.clone());
    for (budget_bytes, page_bytes) in [(20 << 10, 4096), (1_000_003, 4096), (5 << 20, 512), (7 << 20, 4096)] {
        let before = held();
        let cache = CacheTier::new(tier.clone(), CacheOptions { budget_bytes, page_bytes }).unwrap();
        // The cache does not count the profile's two strings and the counts of the shared pointer.
        let profile = cache.profile();
        let uncounted = (profile.kind.len() + profile.method.len() + 2 * size_of::<usize>()) as u64;
        scan(Arc::new(cache.clone()));
        let full = cache.counters();
        assert!(full.resident_pages == full.capacity_pages || full.evictions == 0);
        let taken = held() - before;
        let slack = taken.abs_diff(full.allocated_bytes + uncounted);
        assert!(slack <= 128, "{taken} bytes allocated, {} reported, {uncounted} not", full.allocated_bytes);
        assert!(full.allocated_bytes <= budget_bytes, "{full:?} for {budget_bytes}");
        // The rest of the budget does not suffice for one more page in each shard.
        let spare = budget_bytes - full.allocated_bytes;
        assert!(spare < budget_bytes / 4 && spare < 64 * 5000, "{spare} bytes of {budget_bytes} unused");
        let metadata = full.allocated_bytes - full.capacity_pages * u64::from(page_bytes);
        println!(
            "{budget_bytes} bytes, pages of {page_bytes}: {} pages, {metadata} bytes of metadata",
            full.capacity_pages
        );
    }
    // A budget larger than the tier is not used up.
    for budget_bytes in [20 << 20, u64::MAX] {
        let before = held();
        let cache = CacheTier::new(tier.clone(), CacheOptions { budget_bytes, page_bytes: 4096 }).unwrap();
        scan(Arc::new(cache.clone()));
        let full = cache.counters();
        assert_eq!((full.resident_pages, full.evictions), (2048, 0));
        assert!(held() - before <= 12 << 20, "{} bytes for 8 MiB", held() - before);
    }
}
