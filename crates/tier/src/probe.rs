//! Measures a device: latency, reads and bytes a second by block size and depth.
//!
//! The reads go through the same queue as those of a search, so that the profile holds what a search can
//! reach, not what the device's data sheet promises. [`probe_memory`] measures memory that is read in place.

pub(crate) mod memory;
mod scratch;

pub use memory::{MemoryCell, MemoryProbeOptions, MemoryReport, MixCell, probe_memory};

use self::scratch::ScratchFile;
use crate::backend::file::{FileOptions, FileTier};
use crate::backend::sim::random::SplitMix64;
use crate::buffers::{Buffer, BufferPool};
use crate::contract::{Completion, Queue, Read, ReadRate, Span, Tier, TierProfile};
use crate::error::TierError;
use crate::processor_time::{process_ns, thread_ns};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Share of the peak rate that counts as the peak: the smallest depth that reaches it is the useful depth.
const NEARLY_PEAK: f64 = 0.95;

/// Block sizes of the grid in bytes, the most important ones first, since the time may run out.
const BLOCKS: [u32; 12] =
    [4096, 512, 1 << 20, 65_536, 16_384, 1024, 2048, 8192, 32_768, 131_072, 262_144, 524_288];

/// Reads in flight of a tier that joins near reads cover one of this many bytes of it at most.
const FAR_APART: u64 = 4;
/// The most bytes of those reads, so that they end in time over a slow link.
const MOST_JOINED_BYTES: u64 = 64 << 20;

/// Depths of the grid.
const DEPTHS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Minimum length of the file: fewer bytes would fit into the device's own cache.
const LEAST_FILE_BYTES: u64 = 16 << 20;

/// A probe takes at most one part in this many of the free space.
const MOST_OF_FREE_SPACE: u64 = 10;

/// Longest single wait for a completion; the wait is repeated.
const WAIT: Duration = Duration::from_millis(100);

/// Duration of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Less than 10 seconds, up to 1 GiB.
    Quick,
    /// Less than 60 seconds, up to 4 GiB.
    Thorough,
}

/// Options of a probe, usually made from a [`Mode`].
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeOptions {
    /// Length of the file that is written and read, in bytes; never more than a tenth of the free space.
    pub file_bytes: u64,
    /// Time for writing. The file is shorter if the device writes fewer bytes in this time.
    pub write_time: Duration,
    /// Time for each cell of the grid.
    pub cell_time: Duration,
    /// Time for all cells. Cells that have not begun by then are left out.
    pub read_time: Duration,
    /// Block sizes in bytes. Sizes that the device cannot read are left out.
    pub blocks: Vec<u32>,
    /// Numbers of reads in flight.
    pub depths: Vec<u32>,
    /// True for tiers that have threads of their own, and that join reads of near ranges to one request.
    /// The processor time of a read is then that of all threads of the process, and reads in flight are few
    /// enough to be far apart.
    pub joins_reads: bool,
}

impl From<Mode> for ProbeOptions {
    fn from(mode: Mode) -> ProbeOptions {
        let (file_bytes, write, cell, read) = match mode {
            Mode::Quick => (1 << 30, 2_300, 45, 6_000),
            Mode::Thorough => (4 << 30, 14_000, 400, 42_000),
        };
        ProbeOptions {
            file_bytes,
            write_time: Duration::from_millis(write),
            cell_time: Duration::from_millis(cell),
            read_time: Duration::from_millis(read),
            blocks: BLOCKS.to_vec(),
            depths: DEPTHS.to_vec(),
            joins_reads: false,
        }
    }
}

/// Random reads of one block size at one depth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProbeCell {
    /// Bytes of each read.
    pub block_bytes: u32,
    /// Reads in flight.
    pub depth: u32,
    /// Reads measured.
    pub reads: u64,
    /// Reads a second.
    pub iops: f64,
    /// Bytes a second.
    pub bandwidth_bytes_per_s: f64,
    /// Mean latency in nanoseconds.
    pub mean_ns: u64,
    /// Median latency in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile of the latencies in nanoseconds.
    pub p99_ns: u64,
    /// Processor time of a read, submission and completion, in nanoseconds; 0 if the system does not report
    /// it.
    #[serde(default)]
    pub issue_ns: u64,
}

/// Results of a probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// The tier's profile with all measured numbers, for the cost model.
    pub profile: TierProfile,
    /// Bytes that the reads were spread over.
    pub bytes: u64,
    /// True if the reads bypassed the page cache; otherwise they say little about the device.
    pub past_page_cache: bool,
    /// Wall time of the whole probe in seconds.
    pub seconds: f64,
    /// Every combination measured, by block size, then depth.
    pub cells: Vec<ProbeCell>,
}

/// Measures the device that holds directory `path`, with a file that is written there and removed in any
/// case. `progress` receives the finished share (0 to 1) and returns false to cancel.
///
/// # Errors
/// [`TierError::Cancelled`]; [`TierError::Parameter`] if there is too little free space; errors of the file.
pub fn probe_directory(
    path: &Path,
    mode: Mode,
    progress: &dyn Fn(f64) -> bool,
) -> Result<ProbeReport, TierError> {
    probe_directory_with(path, &ProbeOptions::from(mode), progress)
}

/// Measures a device as [`probe_directory`] does, with the given options.
pub fn probe_directory_with(
    path: &Path,
    options: &ProbeOptions,
    progress: &dyn Fn(f64) -> bool,
) -> Result<ProbeReport, TierError> {
    let start = Instant::now();
    let share = options.write_time.as_secs_f64();
    let share = share / (share + options.read_time.as_secs_f64()).max(1e-9);
    let free = scratch::free_bytes(path)?;
    let bytes = options.file_bytes.min(free / MOST_OF_FREE_SPACE);
    if bytes < LEAST_FILE_BYTES.min(options.file_bytes) {
        let what = format!(
            "{} has {free} bytes free; a probe uses at most a tenth of them and needs {LEAST_FILE_BYTES}",
            path.display()
        );
        return Err(TierError::Parameter(what));
    }
    let scratch = ScratchFile::write(path, bytes, options.write_time, &|done| progress(done * share))?;
    let tier = FileTier::open(scratch.path(), FileOptions::default())?;
    // From here on the file has no name, so it is gone when this process ends for any reason.
    drop(scratch);
    let past_page_cache = tier.is_direct();
    let tier: Arc<dyn Tier> = Arc::new(tier);
    let mut report = probe_tier(&tier, options, &|done| progress(share + done * (1.0 - share)))?;
    report.past_page_cache = past_page_cache;
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

/// Measures an existing tier; only reads it. `progress` is as for [`probe_directory`].
pub fn probe_tier(
    tier: &Arc<dyn Tier>,
    options: &ProbeOptions,
    progress: &dyn Fn(f64) -> bool,
) -> Result<ProbeReport, TierError> {
    let start = Instant::now();
    let profile = tier.profile();
    let fits =
        |block: u32| block > 0 && block.is_multiple_of(profile.alignment) && u64::from(block) <= tier.len();
    let most_in_flight =
        if options.joins_reads { (tier.len() / FAR_APART).min(MOST_JOINED_BYTES) } else { u64::MAX };
    let is_far_apart =
        |block: u32, depth: u32| depth == 1 || u64::from(block) * u64::from(depth) <= most_in_flight;
    let grid: Vec<(u32, u32)> = options
        .blocks
        .iter()
        .copied()
        .filter(|block| fits(*block))
        .flat_map(|block| options.depths.iter().map(move |depth| (block, (*depth).max(1))))
        .filter(|(block, depth)| is_far_apart(*block, *depth))
        .collect();
    let mut cells = Vec::with_capacity(grid.len());
    for (number, (block, depth)) in grid.iter().enumerate() {
        if !progress(number as f64 / grid.len() as f64) {
            return Err(TierError::Cancelled);
        }
        if start.elapsed() < options.read_time {
            cells.push(measure(tier, *block, *depth, options)?);
        }
    }
    progress(1.0);
    let profile = summarise(profile, &cells)?;
    cells.sort_by_key(|c| (c.block_bytes, c.depth));
    let seconds = start.elapsed().as_secs_f64();
    Ok(ProbeReport { profile, bytes: tier.len(), past_page_cache: true, seconds, cells })
}

/// Returns the profile with the numbers of the cells.
fn summarise(profile: &TierProfile, cells: &[ProbeCell]) -> Result<TierProfile, TierError> {
    let nearest = |cell: &&ProbeCell| (cell.block_bytes.abs_diff(profile.granularity), cell.depth);
    let Some(base) = cells.iter().min_by_key(nearest) else {
        return Err(TierError::Parameter(
            "the probe measured nothing: no block size fits the tier, or there was no time".into(),
        ));
    };
    let smallest: Vec<_> = cells.iter().filter(|c| c.block_bytes == base.block_bytes).collect();
    let peak = smallest.iter().map(|c| c.iops).fold(0.0, f64::max);
    let reaches = |c: &&&ProbeCell| c.iops >= NEARLY_PEAK * peak;
    // From the greatest depth, at which reads share system calls as those of a search do.
    let issue_ns = smallest.iter().max_by_key(|c| c.depth).map_or(0, |c| c.issue_ns);
    Ok(TierProfile {
        issue_ns,
        rates: rates(cells),
        latency_ns: base.mean_ns,
        iops: peak,
        bandwidth_bytes_per_s: cells.iter().map(|c| c.bandwidth_bytes_per_s).fold(0.0, f64::max),
        depth: smallest.iter().filter(reaches).map(|c| c.depth).min().unwrap_or(base.depth),
        ..profile.clone()
    })
}

/// Returns the highest rate of each block size. Noise may show more reads of a larger size: a smaller one is
/// as fast.
fn rates(cells: &[ProbeCell]) -> Vec<ReadRate> {
    let mut sizes: Vec<u32> = cells.iter().map(|cell| cell.block_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let peak = |bytes: u32| {
        let of_size = cells.iter().filter(|cell| cell.block_bytes >= bytes);
        ReadRate { bytes, reads_per_s: of_size.map(|cell| cell.iops).fold(0.0, f64::max) }
    };
    sizes.into_iter().map(peak).filter(|rate| rate.reads_per_s > 0.0).collect()
}

/// State of one of the `depth` reads in flight: its buffer, and the time and offset of its current read.
struct ReadSlot {
    buffer: Option<Buffer>,
    since: Instant,
    offset: u64,
}

impl ReadSlot {
    /// Returns the read of a span into this slot's buffer, with the number of the slot as its id.
    fn start(&mut self, number: u32, span: Span, now: Instant) -> Read {
        (self.since, self.offset) = (now, span.offset);
        let buffer = self.buffer.map_or(std::ptr::null_mut(), |b| b.start.as_ptr());
        Read { id: u64::from(number), offset: span.offset, len: span.len, buffer, round: 0 }
    }
}

/// Keeps `depth` reads of `block` bytes at random offsets in flight for the time of a cell, and measures
/// them.
fn measure(
    tier: &Arc<dyn Tier>,
    block: u32,
    depth: u32,
    options: &ProbeOptions,
) -> Result<ProbeCell, TierError> {
    let processor_ns = if options.joins_reads { process_ns } else { thread_ns };
    let addressable = tier.profile().addressable;
    let frames = if addressable { 1 } else { depth as usize };
    let mut pool = BufferPool::new(frames, block as usize, u64::MAX, crate::BUFFER_ALIGNMENT);
    // Declared after the pool, so dropped before it.
    let mut queue = tier.open(depth)?;
    if !addressable {
        let (region, len) = pool.region();
        // SAFETY: the pool outlives the queue.
        unsafe { queue.register(region, len)? };
    }
    let blocks = tier.len() / u64::from(block);
    let mut random = SplitMix64::new(u64::from(block), u64::from(depth));
    let start = Instant::now();
    let mut buffer = || if addressable { None } else { pool.take(block as usize) };
    let mut slots: Vec<ReadSlot> =
        (0..depth).map(|_| ReadSlot { buffer: buffer(), since: start, offset: 0 }).collect();
    let mut idle: Vec<u32> = (0..depth).collect();
    let (mut latencies, mut done) = (Vec::<u64>::new(), Vec::<Completion>::new());
    let mut reads = Vec::new();
    let before = processor_ns();
    // Reads that are in flight when the time is up count for the latency, since slow ones are among them, but
    // not for the rates.
    let mut measured = None;
    while measured.is_none() || queue.in_flight() > 0 {
        if measured.is_none() && start.elapsed() >= options.cell_time && !latencies.is_empty() {
            measured = Some((latencies.len() as f64, start.elapsed().as_secs_f64()));
        }
        if measured.is_some() {
            idle.clear();
        }
        reads.clear();
        let now = Instant::now();
        for number in &idle {
            let offset = random.below(blocks) * u64::from(block);
            reads.push(slots[*number as usize].start(*number, Span::at(offset, block), now));
        }
        // SAFETY: a slot's buffer is its own until its read completes, and the pool outlives the queue.
        let taken = unsafe { queue.submit(&reads)? };
        idle.drain(..taken.min(idle.len()));
        queue.reap(&mut done, Some(WAIT))?;
        let now = Instant::now();
        for completion in done.drain(..) {
            let number = completion.id as u32;
            let Some(slot) = slots.get(number as usize) else {
                return Err(TierError::Contract(format!("completion of unknown read {number}")));
            };
            if let Err(fault) = completion.result {
                let source = std::io::Error::from_raw_os_error(fault.errno);
                return Err(TierError::System { operation: "read while probing", source });
            }
            if addressable {
                touch(queue.as_ref(), Span::at(slot.offset, block));
            }
            latencies.push(now.duration_since(slot.since).as_nanos() as u64);
            idle.push(number);
        }
    }
    let computed = Duration::from_nanos(processor_ns().saturating_sub(before));
    let (counted, seconds) = measured.unwrap_or((0.0, f64::INFINITY));
    Ok(MeasuredReads { latencies, counted, seconds, computed }.cell(block, depth))
}

/// Reads of one block size and depth, as [`measure`] ran them.
struct MeasuredReads {
    /// Latency of every read, in nanoseconds, in the order of completion.
    latencies: Vec<u64>,
    /// Number of reads that completed within `seconds`.
    counted: f64,
    seconds: f64,
    /// Processor time during all reads.
    computed: Duration,
}

impl MeasuredReads {
    /// Returns the rates and latencies of the reads, of which there must be at least one.
    fn cell(self, block: u32, depth: u32) -> ProbeCell {
        let MeasuredReads { mut latencies, counted, seconds, computed } = self;
        latencies.sort_unstable();
        let reads = latencies.len() as u64;
        let quantile = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
        ProbeCell {
            block_bytes: block,
            depth,
            reads,
            iops: counted / seconds,
            bandwidth_bytes_per_s: counted * f64::from(block) / seconds,
            mean_ns: latencies.iter().sum::<u64>() / reads,
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            issue_ns: computed.as_nanos() as u64 / reads,
        }
    }
}

/// Loads every cache line of a span in place, as a search of an addressable tier does.
fn touch(queue: &dyn Queue, span: Span) {
    let lines = queue.map(span).unwrap_or(&[]).iter().step_by(64);
    std::hint::black_box(lines.fold(0_u8, |sum, byte| sum ^ byte));
}
