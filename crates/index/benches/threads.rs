//! Cost of a query by the number of search threads: processor time, allocations, sleeps and page faults, in
//! memory and on a simulated device that is so slow that the processor is idle. See `docs/threads.md`.
//!
//! `cargo bench -p bathyal-index --bench threads -- [MOST_THREADS]`. Tests run it without `--bench`, and it
//! does nothing then.

use bathyal_index::cost::processor::Processor;
use bathyal_index::open::WrapTier;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, FamilyOptions, GraphOptions, Index, OpenOptions, SearchOptions,
    TierChoice, build,
};
use bathyal_kernels::Element;
use bathyal_tier::backend::sim::{LatencyDistribution, SimClock, SimOptions, SimTier};
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

/// Most threads, if the command line has no number.
const MOST_THREADS: usize = 64;
/// Vectors of the indexes. Their pages are larger than a second-level cache.
const VECTORS: usize = 20_000;
const DIM: usize = 384;
/// Queries of a batch.
const QUERIES: usize = 4_096;
/// Least time of a measurement.
const TIME: Duration = Duration::from_millis(600);
const REPEATS: usize = 3;
/// Latency of the simulated device. It is so long that 64 waiting threads do not keep two cores busy.
const DEVICE_NS: u64 = 5_000_000;
const HEAD: &str = "| threads | queries/s | user us | system us | allocations | sleeps | preempted \
                    | page faults |\n\
                    |---|---|---|---|---|---|---|---|";

/// Counts allocations in one counter per thread. Contention for a shared counter would change the
/// measurement.
struct Counting;

/// A counter in a cache line of its own.
#[repr(align(128))]
struct Counter(AtomicU64);

static COUNTERS: [Counter; 256] = [const { Counter(AtomicU64::new(0)) }; 256];
static NEXT_COUNTER: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static COUNTER: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn note() {
    // An ending thread may allocate after its locals were dropped. Such calls are not counted.
    let _ = COUNTER.try_with(|counter| {
        if counter.get() == usize::MAX {
            counter.set(NEXT_COUNTER.fetch_add(1, Relaxed) % COUNTERS.len());
        }
        COUNTERS[counter.get()].0.fetch_add(1, Relaxed);
    });
}

fn allocations() -> u64 {
    COUNTERS.iter().map(|counter| counter.0.load(Relaxed)).sum()
}

// SAFETY: every call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Resources that this process has used so far.
#[derive(Clone, Copy)]
struct Usage {
    user_us: f64,
    system_us: f64,
    slept: i64,
    preempted: i64,
    faults: i64,
    allocations: u64,
    at: Instant,
}

impl Usage {
    fn now() -> Usage {
        // SAFETY: zeros are a valid record, and it has room for the answer.
        let used = unsafe {
            let mut used = std::mem::zeroed::<libc::rusage>();
            libc::getrusage(libc::RUSAGE_SELF, &mut used);
            used
        };
        let us = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
        Usage {
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

/// Mean cost of a query.
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
    fn since(begin: Usage, queries: usize) -> Cost {
        let (end, n) = (Usage::now(), queries as f64);
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

/// Returns the median by processor time.
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

/// Measures batches that run one after the other.
fn batches(index: &Index, queries: &VectorFile, options: &SearchOptions) -> Cost {
    index.search(queries, options, Control::default()).unwrap();
    let (begin, mut answered) = (Usage::now(), 0);
    while begin.at.elapsed() < TIME {
        index.search(queries, options, Control::default()).unwrap();
        answered += queries.count();
    }
    Cost::since(begin, answered)
}

/// Measures `callers` concurrent callers with one query at a time each.
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
        // Taken before the callers start, because this thread may not run for a while afterwards.
        let begin = Usage::now();
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

/// Opens the index in memory, or on a simulated device over memory.
fn open(path: &Path, simulated: bool) -> Index {
    let wrap: Option<WrapTier> = simulated.then(|| {
        let device = SimOptions {
            clock: SimClock::real_time(),
            latency: LatencyDistribution::Constant { ns: DEVICE_NS },
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
            // On the simulated device each thread has the same number of queries, however many threads there
            // are.
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
