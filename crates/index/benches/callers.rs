//! Queries per second of one batch and of concurrent callers with one query each, and the latency of a lone
//! caller.
//!
//! `cargo bench -p bathyal-index --bench callers -- INDEX QUERIES [CALLERS] [SECONDS]`. Without arguments it
//! does nothing.

use bathyal_index::{Index, OpenOptions, SearchOptions};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const REPEATS: usize = 5;

fn row(queries: &VectorFile, at: usize) -> VectorFile {
    let row = queries.row(at % queries.count()).to_vec();
    VectorFile::from_rows(queries.element(), queries.dim(), row).unwrap()
}

/// Returns the processor time of this process so far, in microseconds. On a shared machine it varies less
/// than the time of a clock.
fn processor_us() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists and the result has room.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Searches batches for about `time`. Returns queries per second, and processor microseconds per query.
fn batches(index: &Index, queries: &VectorFile, time: Duration) -> (f64, f64) {
    let (begin, processor, mut answered) = (Instant::now(), processor_us(), 0);
    while begin.elapsed() < time {
        index.search(queries, &SearchOptions::default(), Control::default()).unwrap();
        answered += queries.count();
    }
    let taken = (processor_us() - processor) / answered as f64;
    (answered as f64 / begin.elapsed().as_secs_f64(), taken)
}

/// Returns the queries per second of `callers` threads.
fn callers(index: &Index, queries: &VectorFile, callers: usize, time: Duration) -> f64 {
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for caller in 0..callers {
            let (over, answered) = (&over, &answered);
            scope.spawn(move || {
                let mut at = caller * 101;
                while !over.load(Ordering::Relaxed) {
                    index.search(&row(queries, at), &SearchOptions::default(), Control::default()).unwrap();
                    answered.fetch_add(1, Ordering::Relaxed);
                    at += 1;
                }
            });
        }
        std::thread::sleep(time);
        over.store(true, Ordering::Relaxed);
    });
    answered.into_inner() as f64 / begin.elapsed().as_secs_f64()
}

/// Returns the median microseconds of a lone query: the time that its caller waits, and the time of the query
/// itself.
fn lone(index: &Index, queries: &VectorFile, time: Duration) -> (f64, f64) {
    let (mut waited, mut took) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    while begin.elapsed() < time {
        let query = row(queries, waited.len());
        let called = Instant::now();
        let found = index.search(&query, &SearchOptions::default(), Control::default()).unwrap();
        waited.push(called.elapsed().as_nanos() as u64);
        took.push(found.latencies_ns[0]);
    }
    let median = |mut ns: Vec<u64>| {
        ns.sort_unstable();
        ns[ns.len() / 2] as f64 / 1e3
    };
    (median(waited), median(took))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let [path, queries, rest @ ..] = &arguments[..] else { return };
    let number = |at: usize, usual: u64| rest.get(at).and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (crowd, time) = (number(0, 64) as usize, Duration::from_secs(number(1, 2)));
    let tier = std::env::var("BATHYAL_BENCH_TIER").unwrap_or_else(|_| "file".into()).parse().unwrap();
    let index = Index::open(path, &OpenOptions { tier, ..OpenOptions::default() }).unwrap();
    let queries = VectorFile::open(queries).unwrap();
    let (mut batch, mut many, mut processor) = (Vec::new(), Vec::new(), Vec::new());
    let (mut waited, mut took) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        let (rate, taken) = batches(&index, &queries, time);
        batch.push(rate);
        processor.push(taken);
        many.push(callers(&index, &queries, crowd, time));
        let (caller, query) = lone(&index, &queries, time);
        waited.push(caller);
        took.push(query);
    }
    println!("medians of {REPEATS}, interleaved, {} s each:", time.as_secs());
    let (batch, many) = (median(batch), median(many));
    println!(
        "  batch of {}: {batch:.0} queries/s, {:.1} us of processor time per query",
        queries.count(),
        median(processor)
    );
    println!("  {crowd} callers of one query: {many:.0} queries/s, {:.2} of the batch", many / batch);
    println!("  alone: {:.1} us for the caller, {:.1} us for the query", median(waited), median(took));
}
