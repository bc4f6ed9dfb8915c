//! Measures a device: latency, reads and bytes a second against block size and depth.
//!
//! The reads go through the same queue that a search uses, so that the profile says what a search can have,
//! not what the device's data sheet promises. [`probe_memory`] measures memory that is read in place.

pub(crate) mod memory;
mod scratch;

pub use memory::{MemoryCell, MemoryProbeOptions, MemoryReport, MixCell, probe_memory};

use self::scratch::ScratchFile;
use crate::backend::file::{FileOptions, FileTier};
use crate::backend::sim::random::Dice;
use crate::buffers::{Buffer, BufferPool};
use crate::contract::{Completion, Queue, Read, Span, Tier, TierProfile};
use crate::error::TierError;
use crate::thread_time::thread_ns;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Share of the peak rate that counts as having reached it: the depth that brings it is the useful one.
const NEARLY_PEAK: f64 = 0.95;

/// Block sizes of the grid in bytes, the telling ones first in case that the time runs out.
const BLOCKS: [u32; 12] =
    [4096, 512, 1 << 20, 65_536, 16_384, 1024, 2048, 8192, 32_768, 131_072, 262_144, 524_288];

/// Depths of the grid.
const DEPTHS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Less data than this says nothing about a device: its own cache would answer.
const LEAST_FILE_BYTES: u64 = 16 << 20;

/// Share of the free space that a probe takes at most.
const MOST_OF_FREE_SPACE: u64 = 10;

/// Waits for one completion; a device that takes longer is asked again.
const WAIT: Duration = Duration::from_millis(100);

/// How much time a probe takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Less than 10 seconds, up to 1 GiB.
    Quick,
    /// Less than 60 seconds, up to 4 GiB.
    Thorough,
}

/// A probe in numbers; usually made from a [`Mode`].
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeOptions {
    /// Length of the file that is written and read; never more than a tenth of the free space.
    pub file_bytes: u64,
    /// Time for writing; what has been written by then has to do.
    pub write_time: Duration,
    /// Time for each cell of the grid.
    pub cell_time: Duration,
    /// Time for all cells; those that it does not suffice for are left out.
    pub read_time: Duration,
    /// Block sizes in bytes; those that the device cannot read are left out.
    pub blocks: Vec<u32>,
    /// Numbers of reads in flight.
    pub depths: Vec<u32>,
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
    /// Latency that 99% of the reads stay within, in nanoseconds.
    pub p99_ns: u64,
    /// Processor time of a read in nanoseconds, submission and completion; 0 where the system does not tell.
    #[serde(default)]
    pub issue_ns: u64,
}

/// What a probe has found out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// The tier's profile with everything measured filled in: what the cost model reads.
    pub profile: TierProfile,
    /// Bytes that the reads were spread over.
    pub bytes: u64,
    /// Whether the reads went past the page cache; if not, they say little about the device.
    pub past_page_cache: bool,
    /// Wall time of the whole probe in seconds.
    pub seconds: f64,
    /// Every combination measured, by block size, then depth.
    pub cells: Vec<ProbeCell>,
}

/// Measures the device that holds directory `path`, with a file that is written there and removed again
/// whatever happens. `progress` is told the finished share (0 to 1) and says whether to go on;
/// [`TierError::Cancelled`] if not.
pub fn probe_directory(
    path: &Path,
    mode: Mode,
    progress: &dyn Fn(f64) -> bool,
) -> Result<ProbeReport, TierError> {
    probe_directory_with(path, &ProbeOptions::from(mode), progress)
}

/// [`probe_directory`] with every number in the caller's hands.
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
            "{} has {free} bytes free; a probe takes a tenth of that at most and needs {LEAST_FILE_BYTES}",
            path.display()
        );
        return Err(TierError::Parameter(what));
    }
    let scratch = ScratchFile::write(path, bytes, options.write_time, &|done| progress(done * share))?;
    let tier = FileTier::open(scratch.path(), FileOptions::default())?;
    // From here on the file has no name: whatever ends this process also ends the file.
    drop(scratch);
    let past_page_cache = tier.is_direct();
    let tier: Arc<dyn Tier> = Arc::new(tier);
    let mut report = probe_tier(&tier, options, &|done| progress(share + done * (1.0 - share)))?;
    report.past_page_cache = past_page_cache;
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

/// Measures a tier as it is; reads only. As [`probe_directory`] otherwise.
pub fn probe_tier(
    tier: &Arc<dyn Tier>,
    options: &ProbeOptions,
    progress: &dyn Fn(f64) -> bool,
) -> Result<ProbeReport, TierError> {
    let start = Instant::now();
    let profile = tier.profile();
    let fits =
        |block: u32| block > 0 && block.is_multiple_of(profile.alignment) && u64::from(block) <= tier.len();
    let blocks: Vec<u32> = options.blocks.iter().copied().filter(|b| fits(*b)).collect();
    let all = (blocks.len() * options.depths.len()).max(1);
    let mut cells = Vec::with_capacity(all);
    for (i, block) in blocks.iter().enumerate() {
        for (j, depth) in options.depths.iter().enumerate() {
            if !progress((i * options.depths.len() + j) as f64 / all as f64) {
                return Err(TierError::Cancelled);
            }
            if start.elapsed() < options.read_time {
                cells.push(measure(tier, *block, (*depth).max(1), options.cell_time)?);
            }
        }
    }
    progress(1.0);
    let profile = summarise(profile, &cells)?;
    cells.sort_by_key(|c| (c.block_bytes, c.depth));
    let seconds = start.elapsed().as_secs_f64();
    Ok(ProbeReport { profile, bytes: tier.len(), past_page_cache: true, seconds, cells })
}

/// Fills what the cells say into the profile.
fn summarise(profile: &TierProfile, cells: &[ProbeCell]) -> Result<TierProfile, TierError> {
    let nearest = |cell: &&ProbeCell| (cell.block_bytes.abs_diff(profile.granularity), cell.depth);
    let Some(base) = cells.iter().min_by_key(nearest) else {
        return Err(TierError::Parameter("nothing could be measured: no block size fits the tier".into()));
    };
    let smallest: Vec<_> = cells.iter().filter(|c| c.block_bytes == base.block_bytes).collect();
    let peak = smallest.iter().map(|c| c.iops).fold(0.0, f64::max);
    let reaches = |c: &&&ProbeCell| c.iops >= NEARLY_PEAK * peak;
    // Where most reads were taken at once, so that a call to the system is shared as a search's are.
    let issue_ns = smallest.iter().max_by_key(|c| c.depth).map_or(0, |c| c.issue_ns);
    Ok(TierProfile {
        issue_ns,
        latency_ns: base.mean_ns,
        iops: peak,
        bandwidth_bytes_per_s: cells.iter().map(|c| c.bandwidth_bytes_per_s).fold(0.0, f64::max),
        depth: smallest.iter().filter(reaches).map(|c| c.depth).min().unwrap_or(base.depth),
        ..profile.clone()
    })
}

/// A place in the queue: its buffer, and when its current read was submitted.
struct Lane {
    buffer: Option<Buffer>,
    since: Instant,
    offset: u64,
}

/// Keeps `depth` reads of `block` bytes at random places in flight for as long as `time` lasts.
fn measure(tier: &Arc<dyn Tier>, block: u32, depth: u32, time: Duration) -> Result<ProbeCell, TierError> {
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
    let places = tier.len() / u64::from(block);
    let mut dice = Dice::new(u64::from(block), u64::from(depth));
    let start = Instant::now();
    let lane = |_| Lane {
        buffer: if addressable { None } else { pool.take(block as usize) },
        since: start,
        offset: 0,
    };
    let mut lanes: Vec<Lane> = (0..depth).map(lane).collect();
    let mut idle: Vec<u32> = (0..depth).collect();
    let (mut latencies, mut done) = (Vec::<u64>::new(), Vec::<Completion>::new());
    let mut reads = Vec::new();
    let computed = thread_time();
    // What is in flight when the time is up counts for the latency (it is the slow part) but not for the rates.
    let mut measured = None;
    while measured.is_none() || queue.in_flight() > 0 {
        if measured.is_none() && start.elapsed() >= time && !latencies.is_empty() {
            measured = Some((latencies.len() as f64, start.elapsed().as_secs_f64()));
        }
        if measured.is_some() {
            idle.clear();
        }
        reads.clear();
        let now = Instant::now();
        for slot in &idle {
            let lane = &mut lanes[*slot as usize];
            (lane.since, lane.offset) = (now, dice.below(places) * u64::from(block));
            let buffer = lane.buffer.map_or(std::ptr::null_mut(), |b| b.start.as_ptr());
            reads.push(Read { id: u64::from(*slot), offset: lane.offset, len: block, buffer, round: 0 });
        }
        // SAFETY: a lane's buffer is its own until its read completes, and the pool outlives the queue.
        let taken = unsafe { queue.submit(&reads)? };
        idle.drain(..taken.min(idle.len()));
        queue.reap(&mut done, Some(WAIT))?;
        let now = Instant::now();
        for completion in done.drain(..) {
            let slot = completion.id as u32;
            let Some(lane) = lanes.get(slot as usize) else {
                return Err(TierError::Contract(format!("completion of unknown read {slot}")));
            };
            if let Err(fault) = completion.result {
                let source = std::io::Error::from_raw_os_error(fault.errno);
                return Err(TierError::System { operation: "read while probing", source });
            }
            if addressable {
                touch(queue.as_ref(), Span::at(lane.offset, block));
            }
            latencies.push(now.duration_since(lane.since).as_nanos() as u64);
            idle.push(slot);
        }
    }
    let computed = thread_time().saturating_sub(computed);
    let (counted, seconds) = measured.unwrap_or((0.0, f64::INFINITY));
    latencies.sort_unstable();
    let reads = latencies.len() as u64;
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    Ok(ProbeCell {
        block_bytes: block,
        depth,
        reads,
        iops: counted / seconds,
        bandwidth_bytes_per_s: counted * f64::from(block) / seconds,
        mean_ns: latencies.iter().sum::<u64>() / reads,
        p50_ns: at(0.5),
        p99_ns: at(0.99),
        issue_ns: computed.as_nanos() as u64 / reads,
    })
}

/// Processor time of the calling thread so far.
fn thread_time() -> Duration {
    Duration::from_nanos(thread_ns())
}

/// Loads every cache line of a span in place, which is what reading means on an addressable tier.
fn touch(queue: &dyn Queue, span: Span) {
    let lines = queue.map(span).unwrap_or(&[]).iter().step_by(64);
    std::hint::black_box(lines.fold(0_u8, |sum, byte| sum ^ byte));
}
