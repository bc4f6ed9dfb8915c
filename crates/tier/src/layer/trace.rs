//! Records every read, and replays recorded reads against another tier.

use super::{Slots, unknown};
use crate::buffers::BufferPool;
use crate::contract::{Completion, Queue, Read, Tier};
use crate::error::{ReadFault, TierError};
use crate::forward::{LayerQueue, LayerTier};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Records that a queue collects before it appends them to the trace, so that threads rarely contend for the
/// lock.
const RECORD_BATCH: usize = 256;

/// One read, as a line of JSON in a trace file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRecord {
    /// Nanoseconds from the start of the trace to the submission.
    pub submitted_ns: u64,
    /// Nanoseconds from the submission to the completion.
    pub latency_ns: u64,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
    /// Number of the queue, in order of opening.
    pub queue: u32,
    /// Bytes that arrived, or the negated error number.
    pub result: i64,
}

/// A trace that is being recorded. Clones share it.
#[derive(Debug, Clone)]
pub struct Trace {
    state: Arc<TraceState>,
}

#[derive(Debug)]
struct TraceState {
    start: Instant,
    queues: AtomicU32,
    store: Mutex<RecordStore>,
}

#[derive(Debug)]
enum RecordStore {
    Memory { records: Vec<TraceRecord>, capacity: usize, lost: u64 },
    File { file: BufWriter<File>, path: PathBuf, failure: Option<std::io::Error> },
}

impl Trace {
    /// Makes a trace in memory of the first `capacity` reads (48 bytes each); later ones are only counted.
    pub fn in_memory(capacity: usize) -> Trace {
        Trace::build(RecordStore::Memory { records: Vec::new(), capacity, lost: 0 })
    }

    /// Makes a trace into a new file, with one line of JSON for each read.
    ///
    /// # Errors
    /// [`TierError::Io`] if the file cannot be created.
    pub fn to_file(path: impl AsRef<Path>) -> Result<Trace, TierError> {
        let path = path.as_ref().to_path_buf();
        let file = File::create(&path).map_err(|e| TierError::io("create", &path, e))?;
        Ok(Trace::build(RecordStore::File { file: BufWriter::new(file), path, failure: None }))
    }

    fn build(store: RecordStore) -> Trace {
        let state = TraceState { start: Instant::now(), queues: AtomicU32::new(0), store: Mutex::new(store) };
        Trace { state: Arc::new(state) }
    }

    fn store(&self) -> MutexGuard<'_, RecordStore> {
        self.state.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, batch: &mut Vec<TraceRecord>) {
        match &mut *self.store() {
            RecordStore::Memory { records, capacity, lost } => {
                let stored = capacity.saturating_sub(records.len()).min(batch.len());
                records.extend_from_slice(&batch[..stored]);
                *lost += (batch.len() - stored) as u64;
            }
            RecordStore::File { file, failure: failure @ None, .. } => {
                *failure = write_json_lines(batch, file).err();
            }
            RecordStore::File { .. } => {}
        }
        batch.clear();
    }

    /// Returns the records in memory so far, in order of completion within each queue; none for a trace into
    /// a file. The latest records of an open queue may be missing.
    pub fn records(&self) -> Vec<TraceRecord> {
        match &*self.store() {
            RecordStore::Memory { records, .. } => records.clone(),
            RecordStore::File { .. } => Vec::new(),
        }
    }

    /// Returns the number of reads beyond the capacity of a trace in memory.
    pub fn lost(&self) -> u64 {
        match &*self.store() {
            RecordStore::Memory { lost, .. } => *lost,
            RecordStore::File { .. } => 0,
        }
    }

    /// Writes buffered records to the file.
    ///
    /// # Errors
    /// [`TierError::Io`] if any record since the start could not be written.
    pub fn flush(&self) -> Result<(), TierError> {
        match &mut *self.store() {
            RecordStore::Memory { .. } => Ok(()),
            RecordStore::File { file, path, failure } => {
                let outcome = failure.take().map_or_else(|| file.flush(), Err);
                outcome.map_err(|e| TierError::io("write the trace", path.as_path(), e))
            }
        }
    }
}

/// Writes records as lines of JSON.
pub fn write_json_lines(records: &[TraceRecord], mut into: impl Write) -> std::io::Result<()> {
    for record in records {
        serde_json::to_writer(&mut into, record)?;
        into.write_all(b"\n")?;
    }
    Ok(())
}

/// Reads the records that [`write_json_lines`] wrote.
///
/// # Errors
/// The error of `from`; [`std::io::ErrorKind::InvalidData`], with the line's number, for a malformed line.
pub fn read_json_lines(from: impl BufRead) -> std::io::Result<Vec<TraceRecord>> {
    let parse = |(i, line): (usize, std::io::Result<String>)| {
        serde_json::from_str(&line?).map_err(|e| {
            std::io::Error::new(std::io::ErrorKind::InvalidData, format!("line {} of the trace: {e}", i + 1))
        })
    };
    from.lines().enumerate().map(parse).collect()
}

/// A tier whose reads are recorded.
pub struct TraceTier {
    tier: Arc<dyn Tier>,
    trace: Trace,
}

impl TraceTier {
    /// Makes a tier that records the reads of `tier` in `trace`.
    pub fn new(tier: Arc<dyn Tier>, trace: Trace) -> TraceTier {
        TraceTier { tier, trace }
    }
}

impl LayerTier for TraceTier {
    fn below(&self) -> &dyn Tier {
        &*self.tier
    }

    fn queue_over(&self, queue: Box<dyn Queue>, _depth: u32) -> Box<dyn Queue> {
        let number = self.trace.state.queues.fetch_add(1, Ordering::Relaxed);
        Box::new(TraceQueue {
            queue,
            number,
            trace: self.trace.clone(),
            in_flight: Slots::new(),
            renumbered: Vec::new(),
            batch: Vec::with_capacity(RECORD_BATCH),
        })
    }
}

struct TracedRead {
    id: u64,
    offset: u64,
    len: u32,
    submitted_ns: u64,
}

struct TraceQueue {
    queue: Box<dyn Queue>,
    number: u32,
    trace: Trace,
    in_flight: Slots<TracedRead>,
    /// Reads of one submission, with slot numbers as ids.
    renumbered: Vec<Read>,
    batch: Vec<TraceRecord>,
}

/// Returns the `result` of a record for a fault: the negated error number.
fn fault_result(fault: ReadFault) -> i64 {
    -i64::from(if fault.errno == 0 { libc::EIO } else { fault.errno })
}

impl TraceQueue {
    fn now_ns(&self) -> u64 {
        self.trace.state.start.elapsed().as_nanos() as u64
    }
}

impl LayerQueue for TraceQueue {
    fn below(&self) -> &dyn Queue {
        &*self.queue
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.queue
    }

    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        let submitted_ns = self.now_ns();
        self.renumbered.clear();
        for read in reads {
            let Read { id, offset, len, .. } = *read;
            let id = self.in_flight.insert(TracedRead { id, offset, len, submitted_ns });
            self.renumbered.push(Read { id, ..*read });
        }
        // SAFETY: the same buffers under the same contract.
        let outcome = unsafe { self.queue.submit(&self.renumbered) };
        let taken = outcome.as_ref().map_or(0, |taken| *taken);
        for read in self.renumbered.iter().skip(taken) {
            self.in_flight.remove(read.id);
        }
        outcome
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let first = done.len();
        let outcome = self.queue.reap(done, wait);
        if done.len() == first {
            return outcome;
        }
        let now = self.now_ns();
        for completion in &mut done[first..] {
            let Some(read) = self.in_flight.remove(completion.id) else {
                return Err(unknown(completion.id));
            };
            let TracedRead { id, offset, len, submitted_ns } = read;
            completion.id = id;
            let result = completion.result.map_or_else(fault_result, i64::from);
            let latency_ns = now.saturating_sub(submitted_ns);
            self.batch.push(TraceRecord {
                submitted_ns,
                latency_ns,
                offset,
                len,
                queue: self.number,
                result,
            });
        }
        if self.batch.len() >= RECORD_BATCH {
            self.trace.append(&mut self.batch);
        }
        outcome
    }
}

impl Drop for TraceQueue {
    fn drop(&mut self) {
        self.trace.append(&mut self.batch);
    }
}

/// Time at which a replay submits its reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// As soon as the queue has room. Measures how fast the tier could be.
    Unpaced,
    /// Not before the recorded time. Measures whether the tier keeps up.
    Recorded,
}

/// Results of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ReplayReport {
    /// Reads completed.
    pub reads: u64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Reads that failed.
    pub errors: u64,
    /// Wall time of the whole replay in seconds.
    pub seconds: f64,
    /// Mean latency of a read in nanoseconds.
    pub mean_ns: u64,
    /// Median latency in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile of the latencies in nanoseconds.
    pub p99_ns: u64,
    /// The longest latency in nanoseconds.
    pub max_ns: u64,
}

/// Replays the reads of a trace on `tier`, with one thread for each recorded queue. Each thread keeps as many
/// reads in flight as its queue had at most.
pub fn replay(trace: &[TraceRecord], tier: &Arc<dyn Tier>, pace: Pace) -> Result<ReplayReport, TierError> {
    let mut queues: BTreeMap<u32, Vec<TraceRecord>> = BTreeMap::new();
    for record in trace {
        queues.entry(record.queue).or_default().push(*record);
    }
    queues.values_mut().for_each(|records| records.sort_by_key(|r| r.submitted_ns));
    let origin_ns = trace.iter().map(|r| r.submitted_ns).min().unwrap_or(0);
    let start = Instant::now();
    let run = |records: Vec<TraceRecord>| replay_queue(&records, tier.as_ref(), pace, start, origin_ns);
    let parts = std::thread::scope(|scope| {
        let threads: Vec<_> = queues.into_values().map(|r| scope.spawn(move || run(r))).collect();
        let join = |t: std::thread::ScopedJoinHandle<'_, Result<Tally, TierError>>| {
            t.join().unwrap_or_else(|_| Err(TierError::Contract("a replaying thread panicked".into())))
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, _>>()
    })?;
    let mut report = ReplayReport { seconds: start.elapsed().as_secs_f64(), ..ReplayReport::default() };
    let mut latencies = Vec::new();
    for part in parts {
        report.bytes += part.bytes;
        report.errors += part.errors;
        latencies.extend(part.latencies);
    }
    latencies.sort_unstable();
    report.reads = latencies.len() as u64;
    if let Some(last) = latencies.last() {
        let quantile = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
        (report.p50_ns, report.p99_ns, report.max_ns) = (quantile(0.5), quantile(0.99), *last);
        report.mean_ns = latencies.iter().sum::<u64>() / latencies.len() as u64;
    }
    Ok(report)
}

#[derive(Default)]
struct Tally {
    bytes: u64,
    errors: u64,
    latencies: Vec<u64>,
}

/// Returns the largest number of reads that were in flight at once according to their records.
fn deepest(records: &[TraceRecord]) -> u32 {
    let mut events: Vec<(u64, i32)> = Vec::with_capacity(records.len() * 2);
    for record in records {
        events.push((record.submitted_ns, 1));
        events.push((record.submitted_ns.saturating_add(record.latency_ns.max(1)), -1));
    }
    // Ends sort before starts at the same time.
    events.sort_unstable();
    let mut in_flight = 0;
    events
        .iter()
        .map(|(_, step)| {
            in_flight += step;
            in_flight
        })
        .max()
        .unwrap_or(1)
        .max(1) as u32
}

fn replay_queue(
    records: &[TraceRecord],
    tier: &dyn Tier,
    pace: Pace,
    start: Instant,
    origin_ns: u64,
) -> Result<Tally, TierError> {
    let profile = tier.profile();
    let alignment = u64::from(profile.alignment.max(1));
    let depth = deepest(records);
    let mut pool = BufferPool::new(1, crate::BUFFER_ALIGNMENT, u64::MAX, crate::BUFFER_ALIGNMENT);
    // Declared after the pool, so dropped before it.
    let mut queue = tier.open(depth)?;
    let (mut in_flight, mut done, mut tally) = (Slots::new(), Vec::new(), Tally::default());
    let mut next = 0;
    while next < records.len() || queue.in_flight() > 0 {
        let now = start.elapsed().as_nanos() as u64;
        let mut room = (depth as usize).saturating_sub(queue.in_flight());
        while let Some(record) = records.get(next) {
            if room == 0 || (pace == Pace::Recorded && record.submitted_ns - origin_ns > now) {
                break;
            }
            let offset = record.offset & !(alignment - 1);
            let end = record.offset.saturating_add(u64::from(record.len)).max(offset + 1);
            let len = (end - offset).next_multiple_of(alignment).min(1 << 31) as u32;
            let buffer = if profile.addressable { None } else { pool.take(len as usize) };
            let address = buffer.map_or(std::ptr::null_mut(), |b| b.start.as_ptr());
            let id = in_flight.insert((Instant::now(), buffer));
            // SAFETY: the buffer is not released before the completion, and the pool outlives the queue.
            let taken = unsafe { queue.submit(&[Read { id, offset, len, buffer: address, round: 0 }])? };
            if taken == 0 {
                in_flight.remove(id);
                buffer.into_iter().for_each(|b| pool.release(b));
                break;
            }
            next += 1;
            room -= 1;
        }
        // At a recorded pace the next submission may be due at any time.
        let wait = if pace == Pace::Recorded { Duration::ZERO } else { Duration::from_millis(100) };
        queue.reap(&mut done, Some(wait))?;
        for completion in done.drain(..) {
            let Some((since, buffer)) = in_flight.remove(completion.id) else {
                return Err(unknown(completion.id));
            };
            tally.latencies.push(since.elapsed().as_nanos() as u64);
            match completion.result {
                Ok(got) => tally.bytes += u64::from(got),
                Err(_) => tally.errors += 1,
            }
            buffer.into_iter().for_each(|b| pool.release(b));
        }
    }
    Ok(tally)
}
