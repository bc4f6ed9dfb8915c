//! What a query costs as search threads are added: processor time, allocations, sleeps and page faults, in memory and on a
//! simulated device that is slow enough to leave the processor idle. See `docs/threads.md`.
//!
//! `cargo bench -p bathyal-index --bench threads -- [MOST_THREADS]`; without `--bench`, as tests run it, it does nothing.

use bathyal_index::cost::processor::Processor;
use bathyal_index::open::WrapTier;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, FamilyOptions, GraphOptions, Index, OpenOptions, SearchOptions,
    TierChoice, build,
};
use bathyal_kernels::Element;
use bathyal_tier::backend::sim::{Latency, SimClock, SimOptions, SimTier};
use bathyal_tier::{Control, Tier};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use rand::{Rng, SeedableRng};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// Threads at most, unless the command line says otherwise.
const MOST_THREADS: usize = 64;
/// Vectors of the indexes that are made: their pages fit no second-level cache.
const VECTORS: usize = 20_000;
const DIM: usize = 384;
/// Queries of a batch.
const QUERIES: usize = 4_096;
/// Time that one measurement takes at least.
const TIME: Duration = Duration::from_millis(600);
const REPEATS: usize = 3;
/// Of a read of the simulated device: so long that 64 threads which wait for it do not fill two cores.
const DEVICE_NS: u64 = 5_000_000;
const HEAD: &str = "| threads | queries/s | user us | system us | allocations | sleeps | preempted | page faults |\n\
                    |---|---|---|---|---|---|---|---|";

/// Counts allocations, each thread in a place of its own: one counter for all would be what is looked for here.
struct Counting;

#[repr(align(128))]
struct Place(AtomicU64);

static PLACES: [Place; 256] = [const { Place(AtomicU64::new(0)) }; 256];
static NEXT_PLACE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static PLACE: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn note() {
    // Ending threads free after their locals are gone; those calls are nobody's.
    let _ = PLACE.try_with(|place| {
        if place.get() == usize::MAX {
            place.set(NEXT_PLACE.fetch_add(1, Relaxed) % PLACES.len());
        }
        PLACES[place.get()].0.fetch_add(1, Relaxed);
    });
}

fn allocations() -> u64 {
    PLACES.iter().map(|place| place.0.load(Relaxed)).sum()
}

// SAFETY: every call is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: as this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: as this call.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: as this call.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as this call.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What this process has used so far.
#[derive(Clone, Copy)]
struct Used {
    user_us: f64,
    system_us: f64,
    slept: i64,
    preempted: i64,
    faults: i64,
    allocations: u64,
    at: Instant,
}

impl Used {
    fn now() -> Used {
        // SAFETY: zeros are a valid record, and it has room for the answer.
        let used = unsafe {
            let mut used = std::mem::zeroed::<libc::rusage>();
            libc::getrusage(libc::RUSAGE_SELF, &mut used);
            used
        };
        let us = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
        Used {
            user_us: us(used.ru_utime),
            system_us: us(used.ru_stime),
            slept: used.ru_nvcsw,
            preempted: used.ru_nivcsw,
            faults: used.ru_minflt,
            allocations: allocations(),
            at: Instant::now(),
        }
    }
}

/// What a query cost.
struct Cost {
    rate: f64,
    user_us: f64,
    system_us: f64,
    allocations: f64,
    slept: f64,
    preempted: f64,
    faults: f64,
}

impl Cost {
    fn since(begin: Used, queries: usize) -> Cost {
        let (end, n) = (Used::now(), queries as f64);
        Cost {
            rate: n / end.at.duration_since(begin.at).as_secs_f64(),
            user_us: (end.user_us - begin.user_us) / n,
            system_us: (end.system_us - begin.system_us) / n,
            allocations: (end.allocations - begin.allocations) as f64 / n,
            slept: (end.slept - begin.slept) as f64 / n,
            preempted: (end.preempted - begin.preempted) as f64 / n,
            faults: (end.faults - begin.faults) as f64 / n,
        }
    }
}

/// The one in the middle by processor time.
fn median(mut costs: Vec<Cost>) -> Cost {
    costs.sort_by(|a, b| (a.user_us + a.system_us).total_cmp(&(b.user_us + b.system_us)));
    costs.swap_remove(costs.len() / 2)
}

fn vectors(count: usize, seed: u64) -> VectorFile {
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let mut shape = rand::rngs::StdRng::seed_from_u64(17);
    let centres: Vec<f32> = (0..200 * DIM).map(|_| shape.random_range(-1.0..1.0)).collect();
    let mut rows = Vec::with_capacity(count * DIM * 4);
    for _ in 0..count {
        let centre = random.random_range(0..200) * DIM;
        for at in centres[centre..centre + DIM].iter() {
            rows.extend_from_slice(&(at + random.random_range(-0.4_f32..0.4)).to_le_bytes());
        }
    }
    VectorFile::from_rows(Element::F32, DIM, rows).unwrap()
}

/// One batch after the other.
fn batches(index: &Index, queries: &VectorFile, options: &SearchOptions) -> Cost {
    index.search(queries, options, Control::default()).unwrap();
    let (begin, mut answered) = (Used::now(), 0);
    while begin.at.elapsed() < TIME {
        index.search(queries, options, Control::default()).unwrap();
        answered += queries.count();
    }
    Cost::since(begin, answered)
}

/// As many callers as threads, each with one query at a time.
fn lone(index: &Index, rows: &[VectorFile], options: &SearchOptions, callers: usize) -> Cost {
    let over = AtomicBool::new(false);
    let start = Barrier::new(callers + 1);
    let call = |caller: usize| {
        let mut at = caller * 101;
        start.wait();
        while !over.load(Relaxed) {
            index.search(&rows[at % rows.len()], options, Control::default()).unwrap();
            at += 1;
        }
        at - caller * 101
    };
    std::thread::scope(|scope| {
        let call = &call;
        let threads: Vec<_> = (0..callers).map(|caller| scope.spawn(move || call(caller))).collect();
        // Before they are let go: afterwards it may be a while until this thread runs again.
        let begin = Used::now();
        start.wait();
        std::thread::sleep(TIME);
        over.store(true, Relaxed);
        let answered = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        Cost::since(begin, answered)
    })
}

fn built(folder: &Path, name: &str, options: FamilyOptions, base: &VectorFile) -> std::path::PathBuf {
    let path = folder.join(name);
    build(base, &path, &BuildOptions::of(options), &Silent).unwrap();
    path
}

/// The index in memory, or on a simulated device over that.
fn open(path: &Path, simulated: bool) -> Index {
    let wrap: Option<WrapTier> = simulated.then(|| {
        let device = SimOptions {
            clock: SimClock::real_time(),
            latency: Latency::Constant { ns: DEVICE_NS },
            alignment: 4096,
            ..SimOptions::default()
        };
        let wrap = move |tier| Ok(Arc::new(SimTier::over(tier, device.clone())) as Arc<dyn Tier>);
        Arc::new(wrap) as WrapTier
    });
    let processor = Some(Processor::REFERENCE);
    Index::open(path, &OpenOptions { tier: TierChoice::Dram, wrap, processor, ..OpenOptions::default() })
        .unwrap()
}

fn print(threads: usize, cost: &Cost) {
    println!(
        "| {threads} | {:.0} | {:.1} | {:.1} | {:.2} | {:.3} | {:.3} | {:.3} |",
        cost.rate, cost.user_us, cost.system_us, cost.allocations, cost.slept, cost.preempted, cost.faults
    );
}

fn measure(index: &Index, simulated: bool, most: usize, queries: &VectorFile) {
    let row = |at| VectorFile::from_rows(Element::F32, DIM, queries.row(at).to_vec()).unwrap();
    let rows: Vec<VectorFile> = (0..512).map(row).collect();
    let doubling = || std::iter::successors(Some(1), |threads| Some(threads * 2)).take_while(|t| *t <= most);
    for (what, callers) in [("batches", false), ("callers of one query at a time", true)] {
        println!("\n{what}\n\n{HEAD}");
        for threads in doubling() {
            // A thread that only waits is given as much to wait for, however many there are.
            let count = if simulated { 32 * threads } else { QUERIES };
            let in_flight = simulated.then_some(4);
            let bytes = (0..count).flat_map(|at| queries.row(at % QUERIES)).copied().collect();
            let batch = VectorFile::from_rows(Element::F32, DIM, bytes).unwrap();
            let options = SearchOptions {
                effort: Effort::SearchList(40),
                threads,
                in_flight,
                ..SearchOptions::default()
            };
            let once = |_| match callers {
                true => lone(index, &rows, &options, threads),
                false => batches(index, &batch, &options),
            };
            print(threads, &median((0..REPEATS).map(once).collect()));
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let most = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(MOST_THREADS);
    let folder = tempfile::tempdir().unwrap();
    let (base, queries) = (vectors(VECTORS, 1), vectors(QUERIES, 2));
    let graph = GraphOptions { max_degree: 32, search_list: 60, ..GraphOptions::default() };
    for (name, family) in [("cluster", ClusterOptions::default().into()), ("graph", graph.into())] {
        let path = built(folder.path(), name, family, &base);
        for simulated in [false, true] {
            let device = if simulated { "simulated device of 5 ms" } else { "memory" };
            println!("\n{name}, {device}");
            measure(&open(&path, simulated), simulated, most, &queries);
        }
    }
}
