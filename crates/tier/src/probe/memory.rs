//! Measures addressable memory: the latency of dependent loads, the bandwidth of random reads by payload and
//! number in flight, and the slowdown by small reads among large ones (second-tier-memory, figures 6 and 7).
//!
//! A read is the same as in a search: a prefetch of every line of a span, and loads of the lines after the
//! reads that began before have been used. Reads form chains: the address of each read depends on the bytes
//! of the previous one, as in a graph. With n chains, exactly n reads are in flight. Nothing is written.

use super::{Mode, NEARLY_PEAK};
use crate::backend::mapped::{LoadEvent, LoadProgress, MappedOptions, MappedTier};
use crate::backend::sim::random::mix;
use crate::contract::{Tier, TierProfile};
use crate::error::TierError;
use crate::memory::{CACHE_LINE, ROUND, dependent_load_ns, median, prefetch, scale_below, step};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Payloads of figure 6 that are sizes of vectors, in bytes.
const PAYLOADS: [u32; 7] = [64, 128, 256, 512, 1024, 2048, 4096];
/// Reads in flight on each thread.
const IN_FLIGHT: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Payload of the large reads in figure 7: the largest of figure 6.
const LARGE_PAYLOAD: u32 = 4096;
/// Payload of the small reads in figure 7: a vector of 128 bytes.
const SMALL_PAYLOAD: u32 = 128;
/// Numbers of tenths of the reads that are small in figure 7.
const SMALL_TENTHS: std::ops::RangeInclusive<u32> = 0..=9;
/// Bytes that fit into the first-level cache, to measure the cost of the chain itself.
const CACHED_BYTES: usize = 4096;
/// Minimum of memory to measure.
const LEAST_BYTES: usize = 1 << 20;
/// Share of the progress that filling the memory takes.
const FILLING_SHARE: f64 = 0.3;

/// Options of a probe of memory, usually made from a [`Mode`].
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryProbeOptions {
    /// Bytes to spread the reads over. They should exceed all caches; a smaller file or device is used whole.
    pub bytes: u64,
    /// Time for the dependent loads, and for each cell.
    pub cell_time: Duration,
    /// Payloads in bytes.
    pub payloads: Vec<u32>,
    /// Reads in flight on each thread.
    pub in_flight: Vec<u32>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
}

impl From<Mode> for MemoryProbeOptions {
    fn from(mode: Mode) -> MemoryProbeOptions {
        let (bytes, cell) = match mode {
            Mode::Quick => (512 << 20, 30),
            Mode::Thorough => (4 << 30, 300),
        };
        let all = std::thread::available_parallelism().map_or(1, |n| n.get());
        let mut threads = vec![1, all];
        threads.dedup();
        MemoryProbeOptions {
            bytes,
            cell_time: Duration::from_millis(cell),
            payloads: PAYLOADS.to_vec(),
            in_flight: IN_FLIGHT.to_vec(),
            threads,
        }
    }
}

/// Random reads of one payload.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MemoryCell {
    /// Bytes of each read.
    pub payload_bytes: u32,
    /// Reads in flight on each thread.
    pub in_flight: u32,
    /// Threads.
    pub threads: usize,
    /// Reads a second of all threads.
    pub reads_per_s: f64,
    /// Bytes a second of all threads.
    pub bandwidth_bytes_per_s: f64,
}

/// Reads of 4,096 bytes with some of 128 among them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MixCell {
    /// Share of the reads that are small.
    pub small_share: f64,
    /// Threads.
    pub threads: usize,
    /// Reads in flight on each thread: the fastest number without small reads.
    pub in_flight: u32,
    /// Bytes a second of all threads.
    pub bandwidth_bytes_per_s: f64,
    /// Loss of bandwidth by the small reads, as a share of the bandwidth without them.
    pub slowdown: f64,
}

/// Results of a probe of memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// The tier's profile with all measured numbers, for the cost model.
    pub profile: TierProfile,
    /// Bytes that the reads were spread over.
    pub bytes: u64,
    /// Size of the last-level cache in bytes, if the system reports it; the reads must cover much more than
    /// this.
    pub cache_bytes: Option<u64>,
    /// Wall time of the whole probe in seconds.
    pub seconds: f64,
    /// Nanoseconds of a load whose address depends on the previous one, over all bytes.
    pub dependent_load_ns: f64,
    /// The same within the first-level cache: the time of the cache and of the chain's arithmetic.
    pub cached_load_ns: f64,
    /// Figure 6, by threads, then payload, then reads in flight.
    pub cells: Vec<MemoryCell>,
    /// Figure 7, by threads, then share.
    pub mixed: Vec<MixCell>,
}

/// Measures the memory that `place` names. In a folder, a temporary file is created and removed; an existing
/// file or device is only read. `progress` receives the finished share (0 to 1) and returns false to cancel.
///
/// # Errors
/// [`TierError::Cancelled`]; [`TierError::Parameter`] if the place cannot be mapped or is too small.
pub fn probe_memory(
    place: &MappedOptions,
    options: &MemoryProbeOptions,
    progress: &(dyn Fn(f64) -> bool + Sync),
) -> Result<MemoryReport, TierError> {
    let start = Instant::now();
    let bytes = options.bytes.max(1);
    let progress_of_load: LoadProgress<'_> = &|event| match event {
        LoadEvent::Begin(..) => progress(0.0),
        LoadEvent::Done(done) => progress(FILLING_SHARE * (done as f64 / bytes as f64).min(1.0)),
    };
    let tier = MappedTier::for_measuring(place, options.bytes, progress_of_load)?;
    let advance = |share: f64| match progress(FILLING_SHARE + share * (1.0 - FILLING_SHARE)) {
        true => Ok(()),
        false => Err(TierError::Cancelled),
    };
    let mut report = measure(&tier, options, &advance)?;
    tier.check()?;
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

fn measure(
    tier: &MappedTier,
    options: &MemoryProbeOptions,
    advance: &dyn Fn(f64) -> Result<(), TierError>,
) -> Result<MemoryReport, TierError> {
    let bytes = tier.bytes();
    if bytes.len() < LEAST_BYTES {
        return Err(TierError::Parameter(format!(
            "the memory has only {} bytes; a probe needs at least {LEAST_BYTES}",
            bytes.len()
        )));
    }
    let time = options.cell_time;
    let cached_load_ns = dependent_load_ns(&bytes[..CACHED_BYTES], time);
    let dependent_load_ns = dependent_load_ns(bytes, time);
    let grid = options.threads.len() * options.payloads.len() * options.in_flight.len();
    let all = (grid + options.threads.len() * SMALL_TENTHS.count()).max(1) as f64;
    let (mut cells, mut mixed) = (Vec::new(), Vec::<MixCell>::new());
    for &threads in &options.threads {
        let threads = threads.max(1);
        let run = |payload, in_flight, small_tenths| {
            run_threads(bytes, threads, &ProbeLoad { payload, in_flight, small_tenths }, time)
        };
        for &payload_bytes in options.payloads.iter().filter(|bytes| **bytes > 0) {
            for &in_flight in &options.in_flight {
                let (reads_per_s, bandwidth_bytes_per_s) = run(payload_bytes, in_flight.max(1), 0);
                cells.push(MemoryCell {
                    payload_bytes,
                    in_flight,
                    threads,
                    reads_per_s,
                    bandwidth_bytes_per_s,
                });
                advance(cells.len() as f64 / all)?;
            }
        }
        let is_large = |cell: &&MemoryCell| (cell.threads, cell.payload_bytes) == (threads, LARGE_PAYLOAD);
        let by_rate = |a: &&MemoryCell, b: &&MemoryCell| a.reads_per_s.total_cmp(&b.reads_per_s);
        let in_flight = cells.iter().filter(is_large).max_by(by_rate).map_or(16, |cell| cell.in_flight);
        let mut unmixed = 0.0;
        for tenths in SMALL_TENTHS {
            let (_, bandwidth) = run(LARGE_PAYLOAD, in_flight, tenths);
            unmixed = if tenths == 0 { bandwidth } else { unmixed };
            let slowdown = 1.0 - bandwidth / f64::max(unmixed, 1.0);
            let small_share = f64::from(tenths) / 10.0;
            mixed.push(MixCell {
                small_share,
                threads,
                in_flight,
                bandwidth_bytes_per_s: bandwidth,
                slowdown,
            });
            advance((cells.len() + mixed.len()) as f64 / all)?;
        }
    }
    let profile = summarise(tier.profile(), dependent_load_ns, &cells);
    let bytes = bytes.len() as u64;
    let cache_bytes = last_level_cache();
    Ok(MemoryReport {
        profile,
        bytes,
        cache_bytes,
        seconds: 0.0,
        dependent_load_ns,
        cached_load_ns,
        cells,
        mixed,
    })
}

/// Returns the profile with the measured numbers. The useful depth is that of the fewest threads.
fn summarise(profile: &TierProfile, dependent_load_ns: f64, cells: &[MemoryCell]) -> TierProfile {
    let maximum = |value: fn(&MemoryCell) -> f64, cells: &[&MemoryCell]| {
        cells.iter().map(|cell| value(cell)).fold(0.0, f64::max)
    };
    let smallest = cells.iter().map(|cell| cell.payload_bytes).min().unwrap_or(0);
    let small: Vec<&MemoryCell> = cells.iter().filter(|cell| cell.payload_bytes == smallest).collect();
    let fewest = small.iter().map(|cell| cell.threads).min().unwrap_or(1);
    let by_fewest: Vec<&MemoryCell> = small.iter().copied().filter(|cell| cell.threads == fewest).collect();
    let peak = maximum(|cell| cell.reads_per_s, &by_fewest);
    let reaches = by_fewest.iter().filter(|cell| cell.reads_per_s >= NEARLY_PEAK * peak);
    TierProfile {
        latency_ns: dependent_load_ns.round() as u64,
        iops: maximum(|cell| cell.reads_per_s, &small),
        bandwidth_bytes_per_s: maximum(|cell| cell.bandwidth_bytes_per_s, &cells.iter().collect::<Vec<_>>()),
        depth: reaches.map(|cell| cell.in_flight).min().unwrap_or(profile.depth),
        ..profile.clone()
    }
}

/// Reads of each thread.
struct ProbeLoad {
    payload: u32,
    in_flight: u32,
    small_tenths: u32,
}

/// Returns reads and bytes a second of `threads` threads together.
fn run_threads(bytes: &[u8], threads: usize, load: &ProbeLoad, time: Duration) -> (f64, f64) {
    let (start, stop) = (Barrier::new(threads), AtomicBool::new(false));
    let work = |number: usize| {
        start.wait();
        let rates = interleave(bytes, load, mix(number as u64 + 1), time, &stop);
        // The first thread to end ends all, so that none is measured alone.
        stop.store(true, Ordering::Relaxed);
        rates
    };
    let work = &work;
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|number| scope.spawn(move || work(number))).collect();
        let first = work(0);
        let rates = others.into_iter().filter_map(|thread| thread.join().ok());
        rates.fold(first, |sum, rate| (sum.0 + rate.0, sum.1 + rate.1))
    })
}

/// Runs `in_flight` chains of reads, one step of each after the other; returns reads and bytes a second.
fn interleave(bytes: &[u8], load: &ProbeLoad, seed: u64, time: Duration, stop: &AtomicBool) -> (f64, f64) {
    struct Chain {
        state: u64,
        offset: usize,
        len: usize,
    }
    // Makes each address depend on the read before it: the compiler cannot know that this is 0.
    let zero = black_box(0_u64);
    let lines = (bytes.len().saturating_sub(load.payload as usize) / CACHE_LINE + 1) as u64;
    let begin = |state: u64| {
        let offset = scale_below(state, lines) as usize * CACHE_LINE;
        let small = (state >> 8) as u32 % 10 < load.small_tenths;
        let len = if small { SMALL_PAYLOAD } else { load.payload } as usize;
        let len = len.min(bytes.len() - offset);
        prefetch(bytes[offset..].as_ptr(), len);
        Chain { state, offset, len }
    };
    let mut chains: Vec<Chain> = (0..u64::from(load.in_flight)).map(|i| begin(mix(seed ^ i << 32))).collect();
    let steps = (ROUND / load.in_flight).max(1);
    let (mut moved, mut rounds) = (0_u64, Vec::new());
    let start = Instant::now();
    let mut last = start;
    while rounds.is_empty() || (last - start < time && !stop.load(Ordering::Relaxed)) {
        for _ in 0..steps {
            for chain in &mut chains {
                let span = &bytes[chain.offset..][..chain.len];
                let sum = span.iter().step_by(CACHE_LINE).fold(0_u64, |sum, byte| sum ^ u64::from(*byte));
                moved += chain.len as u64;
                *chain = begin(step(chain.state) ^ (sum & zero));
            }
        }
        let now = Instant::now();
        rounds.push((now - last).as_nanos() as u64);
        last = now;
    }
    black_box(&chains);
    let bytes_per_round = moved as f64 / rounds.len() as f64;
    let seconds = median(&mut rounds).max(1) as f64 / 1e9;
    (f64::from(steps * load.in_flight) / seconds, bytes_per_round / seconds)
}

/// Returns the size of the largest cache of the first processor in bytes.
fn last_level_cache() -> Option<u64> {
    let folder = std::path::Path::new("/sys/devices/system/cpu/cpu0/cache");
    let sizes = folder.read_dir().ok()?.flatten().filter_map(|entry| {
        let text = std::fs::read_to_string(entry.path().join("size")).ok()?;
        text.trim().strip_suffix('K')?.parse::<u64>().ok()
    });
    sizes.max().map(|kilobytes| kilobytes << 10)
}
