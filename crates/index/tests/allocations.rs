//! Allocations of a query after earlier queries, counted in the allocator. The test has a program of its own,
//! because it counts every call.

#[path = "all/clustered/mod.rs"]
mod clustered;

use bathyal_index::{
    AuditOptions, BuildOptions, GivenOptions, Index, OpenOptions, SearchOptions, TierChoice, build, families,
};
use bathyal_kernels::Element;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use clustered::vectors;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

static CALLS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: every call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: passed on under the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: passed on under the same contract.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most allocations of a query of a batch: the boxed future of its search. Families have different futures.
const MOST_PER_QUERY: f64 = 1.0;
/// The same for a query that shares a pass over a flat index: its list grows to ten neighbours.
const MOST_PER_QUERY_OF_A_PASS: f64 = 4.1;
/// Most allocations of a lone query: the job, the answers and their arrays, and the effort for a recall, for
/// which posting lists need the most. The calling thread makes and frees them.
const MOST_PER_LONE_QUERY: f64 = 50.0;

const DIM: usize = 32;

fn allocations_of(work: impl FnOnce()) -> f64 {
    let before = CALLS.load(Ordering::Relaxed);
    work();
    (CALLS.load(Ordering::Relaxed) - before) as f64
}

#[test]
fn a_query_makes_few_allocations() {
    let dir = tempfile::tempdir().unwrap();
    let base = vectors(Element::U8, 3000, DIM, 1);
    let (few, many) = (vectors(Element::U8, 500, DIM, 2), vectors(Element::U8, 2500, DIM, 2));
    let lone: Vec<VectorFile> =
        (0..50).map(|at| VectorFile::from_rows(Element::U8, DIM, few.row(at).to_vec()).unwrap()).collect();
    let kinds = [
        ("cluster", None),
        ("graph", None),
        ("spann", None),
        ("flat", None),
        ("lsh", None),
        ("lsh", Some(3)),
    ];
    for (at, (family, multi_probe)) in kinds.into_iter().enumerate() {
        let options = SearchOptions { threads: 1, multi_probe, ..SearchOptions::default() };
        let path = dir.path().join(at.to_string());
        let build_options = BuildOptions::of(families::options(family, &GivenOptions::new()).unwrap());
        build(&base, &path, &build_options, &Silent).unwrap();
        for tier in [TierChoice::Dram, TierChoice::File] {
            // An audit that chooses none of these queries costs no allocation either.
            let rare = AuditOptions { share: 1e-12, ..AuditOptions::default() };
            let audit = (tier == TierChoice::Dram).then_some(rare);
            let open = OpenOptions { tier: tier.clone(), audit, ..OpenOptions::default() };
            let index = Index::open(&path, &open).unwrap();
            let search = |queries: &VectorFile| {
                index.search(queries, &options, Control::default()).unwrap();
            };
            search(&many);
            lone.iter().for_each(search);
            let more = allocations_of(|| search(&many)) - allocations_of(|| search(&few));
            let per_query = more / (many.count() - few.count()) as f64;
            let per_lone_query = allocations_of(|| lone.iter().for_each(search)) / lone.len() as f64;
            println!(
                "{family}, {tier}: {per_query:.3} per query of a batch, {per_lone_query:.2} per lone query"
            );
            let most = if family == "flat" { MOST_PER_QUERY_OF_A_PASS } else { MOST_PER_QUERY };
            assert!(per_query <= most + 0.01, "{family}, {tier}: {per_query} per query");
            assert!(
                per_lone_query <= MOST_PER_LONE_QUERY,
                "{family}, {tier}: {per_lone_query} per lone query"
            );
        }
    }
}
