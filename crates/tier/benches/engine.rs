//! Measures the cost of the engine: suspend and resume on a tier that is always ready, and on a layer that
//! emulates a device; reads of 4 KiB and of 512 bytes by one thread on a file, next to fio with the same
//! settings in the same run; and reads from a cache of the file's pages.
//!
//! `cargo bench -p bathyal-tier --bench engine`. `BATHYAL_BENCH_DIR` is the folder of the file (default: the
//! current directory), `BATHYAL_BENCH_SECONDS` the duration of each measurement.

use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::backend::file::{FileOptions, FileTier};
use bathyal_tier::backend::mapped::{LoadSource, MappedOptions, MappedPlace, MappedTier};
use bathyal_tier::layer::cache::{CacheOptions, CacheTier};
use bathyal_tier::layer::delay::{DelayProfile, DelayTier};
use bathyal_tier::{Control, Cx, Engine, EngineOptions, ReadError, Span, Tier};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const REPEATS: usize = 3;
const BLOCK: u64 = 4096;
/// The smallest read of most devices.
const SECTOR: u64 = 512;
const FILE_BYTES: u64 = 1 << 30;

fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 20
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn read_line(cx: &Cx, at: u64) -> Result<u64, ReadError> {
    let batch = cx.read(&[Span::at(at, 64)]).await?;
    Ok(u64::from(batch.bytes(0)[0]))
}

async fn read_random_line(cx: &Cx, state: &mut u64) -> Result<u64, ReadError> {
    let at = next_random(state) % 1000 * 64;
    Ok(read_line(cx, at).await?.wrapping_add(at))
}

async fn read_random_lines(cx: Cx, seed: u64, reads: u64) -> Result<u64, ReadError> {
    let (mut state, mut sum) = (seed, 0_u64);
    for _ in 0..reads {
        sum = sum.wrapping_add(read_random_line(&cx, &mut state).await?);
    }
    Ok(sum)
}

/// Returns the processor nanoseconds a read of `width` queries, each three levels of `async fn` deep, on
/// bytes in the processor's cache. Nothing waits, so processor time is the whole cost, and other programs do
/// not disturb it.
fn suspend_and_resume(width: usize, tier: Arc<dyn Tier>) -> f64 {
    const QUERIES: u64 = 2000;
    const READS: u64 = 500;
    let mut engine = Engine::new(tier, EngineOptions::default()).unwrap();
    let mut made = 0;
    let next = |cx: &Cx| {
        made += 1;
        (made <= QUERIES).then(|| read_random_lines(cx.clone(), made, READS))
    };
    let start = processor_seconds();
    let mut sum = 0;
    engine.run(width, next, |answer| sum ^= answer.unwrap(), Control::default()).unwrap();
    std::hint::black_box(sum);
    (processor_seconds() - start) * 1e9 / (QUERIES * READS) as f64
}

/// Returns the processor time of this thread so far, in seconds.
fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists and the result has room.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Reads a second, and processor nanoseconds a read.
#[derive(Clone, Copy)]
struct Rate {
    iops: f64,
    processor_ns: f64,
}

async fn reader(cx: Cx, seed: u64, blocks: Blocks, over: &AtomicBool) -> Result<u64, ReadError> {
    let mut state = seed;
    let mut sum = 0;
    while !over.load(Ordering::Relaxed) {
        let at = next_random(&mut state) % blocks.count * blocks.bytes;
        let batch = cx.read(&[Span::at(at, blocks.bytes as u32)]).await?;
        sum ^= u64::from(batch.bytes(0)[0]);
    }
    Ok(sum)
}

/// Blocks to read: the first `count` blocks of `bytes` of a file.
#[derive(Clone, Copy)]
struct Blocks {
    bytes: u64,
    count: u64,
}

/// Measures random reads of a file by the engine.
fn engine_rate(path: &Path, bytes: u64, depth: u32, time: Duration) -> Rate {
    let tier = Arc::new(FileTier::open(path, FileOptions::default()).unwrap());
    measure(tier, Blocks { bytes, count: FILE_BYTES / bytes }, depth, time)
}

/// Measures hits of a warm cache: random reads of the first `pages` of the file.
fn cache_hit_rate(path: &Path, pages: u64, time: Duration) -> Rate {
    let file = Arc::new(FileTier::open(path, FileOptions::default()).unwrap());
    let options =
        CacheOptions { budget_bytes: pages * BLOCK * 3 / 2 + (64 << 10), ..CacheOptions::default() };
    let cache = CacheTier::new(file, options).unwrap();
    let spans: Vec<_> = (0..pages).map(|i| Span::at(i * BLOCK, BLOCK as u32)).collect();
    cache.warm(&spans, Control::default()).unwrap();
    let rate = measure(Arc::new(cache.clone()), Blocks { bytes: BLOCK, count: pages }, 32, time);
    assert_eq!(cache.counters().misses, 0);
    rate
}

/// Measures random reads of a tier by one thread.
fn measure(tier: Arc<dyn Tier>, blocks: Blocks, depth: u32, time: Duration) -> Rate {
    let mut engine = Engine::new(tier, EngineOptions { depth, ..EngineOptions::default() }).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(time);
            over.store(true, Ordering::Relaxed);
        });
        let (start, processor) = (Instant::now(), processor_seconds());
        let mut made = 0;
        let next = |cx: &Cx| {
            made += 1;
            (made <= depth).then(|| reader(cx.clone(), u64::from(made), blocks, &over))
        };
        engine.run(depth as usize, next, |sum| drop(std::hint::black_box(sum)), Control::default()).unwrap();
        let reads = engine.stats().reads as f64;
        Rate {
            iops: reads / start.elapsed().as_secs_f64(),
            processor_ns: (processor_seconds() - processor) * 1e9 / reads,
        }
    })
}

/// Measures random reads of a file by fio. The error says why fio could not be measured.
fn fio_rate(path: &Path, bytes: u64, depth: u32, time: Duration) -> Result<Rate, String> {
    let output = Command::new("fio")
        .args(["--name=read", "--rw=randread", "--direct=1", "--ioengine=io_uring"])
        .args(["--registerfiles=1", "--fixedbufs=1", "--norandommap=1", "--randrepeat=0", "--thread=1"])
        .args(["--time_based=1", "--output-format=json"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--bs={bytes}"))
        .arg(format!("--iodepth={depth}"))
        .arg(format!("--runtime={}", time.as_secs().max(1)))
        .output()
        .map_err(|e| format!("cannot run fio: {e}"))?;
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|e| format!("fio printed no JSON ({e}): {}", String::from_utf8_lossy(&output.stderr)))?;
    let job = &json["jobs"][0];
    let number = |value: &serde_json::Value| value.as_f64().filter(|v| *v > 0.0);
    let iops = number(&job["read"]["iops"]).ok_or("fio reports no reads")?;
    let busy = job["usr_cpu"].as_f64().unwrap_or(0.0) + job["sys_cpu"].as_f64().unwrap_or(0.0);
    Ok(Rate { iops, processor_ns: busy / 100.0 * 1e9 / iops })
}

/// Writes the file that the engine and fio read. Its bytes are random, so that it has no holes and is not
/// compressed.
fn write_file(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    let mut state = 1_u64;
    let mut chunk = vec![0_u8; 1 << 20];
    for _ in 0..FILE_BYTES / chunk.len() as u64 {
        chunk
            .chunks_exact_mut(4)
            .for_each(|w| w.copy_from_slice(&(next_random(&mut state) as u32).to_le_bytes()));
        file.write_all(&chunk).unwrap();
    }
    file.sync_all().unwrap();
}

/// Makes a tier of mapped memory, as for an index.
fn mapped() -> Arc<dyn Tier> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let bytes = vec![1; 1 << 16];
    std::io::Write::write_all(&mut file, &bytes).unwrap();
    let source = LoadSource { path: file.path(), len: bytes.len() as u64, crc32c: crc32c::crc32c(&bytes) };
    Arc::new(MappedTier::load(&MappedOptions::at(MappedPlace::Anonymous), &source, &|_| true).unwrap())
}

/// Prints the cost of a suspension on memory, and the additional cost of emulating a device without latency.
fn suspensions() {
    const RUNS: usize = REPEATS + 2;
    let free = {
        let name = "free".into();
        let bandwidth_bytes_per_s = 32e9;
        DelayProfile { name, latency_ns: 0, bandwidth_bytes_per_s, granularity: 64, issue_ns: 0 }
    };
    let dram = || -> Arc<dyn Tier> { Arc::new(DramTier::new(vec![1; 1 << 16])) };
    let tiers: [(&str, Arc<dyn Tier>); 3] = [
        ("dram", dram()),
        ("mapped", mapped()),
        ("dram, emulating a device of no latency", Arc::new(DelayTier::new(dram(), free))),
    ];
    let widths = [1, 8, 32, 128];
    let mut costs = vec![[const { Vec::new() }; 4]; tiers.len()];
    for _ in 0..RUNS {
        for (costs, (_, tier)) in costs.iter_mut().zip(&tiers) {
            for (cost, width) in costs.iter_mut().zip(widths) {
                cost.push(suspend_and_resume(width, tier.clone()));
            }
        }
    }
    println!("one read, three async levels deep (suspend, prefetch, resume), medians of {RUNS}:");
    for (costs, (name, _)) in costs.into_iter().zip(&tiers) {
        println!("  {name}");
        for (cost, width) in costs.into_iter().zip(widths) {
            println!("    {width:>4} queries at once: {:>6.1} ns", median(cost));
        }
    }
}

fn main() {
    suspensions();
    if std::env::var("BATHYAL_BENCH_SECONDS").is_ok_and(|s| s == "0") {
        return;
    }
    let seconds = std::env::var("BATHYAL_BENCH_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(2);
    let time = Duration::from_secs(seconds);
    let dir = std::env::var("BATHYAL_BENCH_DIR").unwrap_or_else(|_| ".".into());
    let dir = tempfile::tempdir_in(dir).unwrap();
    let path = dir.path().join("bytes");
    write_file(&path);
    println!("4 KiB hits of a cache, 32 queries at once, medians of {REPEATS}:");
    for megabytes in [1, 64, 512] {
        let rates =
            (0..REPEATS).map(|_| cache_hit_rate(&path, (megabytes << 20) / BLOCK, time / 4).processor_ns);
        println!("  {megabytes:>4} MiB of pages: {:>6.0} ns CPU a read", median(rates.collect()));
    }
    for bytes in [BLOCK, SECTOR] {
        println!(
            "{bytes}-byte random reads of one thread, {seconds} s each, medians of {REPEATS}, interleaved:"
        );
        [1, 32, 128].iter().for_each(|depth| compare_with_fio(&path, bytes, *depth, time));
    }
}

/// Prints the rates of this engine and of fio, measured in turn.
fn compare_with_fio(path: &Path, bytes: u64, depth: u32, time: Duration) {
    let (mut engine_rates, mut fio_rates) = (Vec::new(), Vec::new());
    let mut no_fio = None;
    for _ in 0..REPEATS {
        engine_rates.push(engine_rate(path, bytes, depth, time));
        match fio_rate(path, bytes, depth, time) {
            Ok(rate) => fio_rates.push(rate),
            Err(why) => no_fio = Some(why),
        }
    }
    let median_of = |rates: &[Rate], value: fn(&Rate) -> f64| median(rates.iter().map(value).collect());
    let (iops, cpu) = (median_of(&engine_rates, |r| r.iops), median_of(&engine_rates, |r| r.processor_ns));
    match no_fio {
        Some(why) => println!("  depth {depth:>3}: {iops:>8.0} reads/s, {cpu:>6.0} ns CPU a read; {why}"),
        None => {
            let fio_iops = median_of(&fio_rates, |r| r.iops);
            let fio_cpu = median_of(&fio_rates, |r| r.processor_ns);
            println!(
                "  depth {depth:>3}: {iops:>8.0} reads/s, {cpu:>6.0} ns CPU a read; \
                 fio {fio_iops:>8.0}, {fio_cpu:>6.0} ns; ratio {:.3}, CPU {:.3}",
                iops / fio_iops,
                cpu / fio_cpu
            );
        }
    }
}
