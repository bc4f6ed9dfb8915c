//! One queue of the simulated device.

use super::random::SplitMix64;
use super::{Content, POISON, SimClock, SimDevice, SimFault, SimOptions, SimState, Violation, When};
use crate::backend::in_place::available_len;
use crate::backend::wake_flag::WakeFlag;
use crate::buffers::BufferPool;
use crate::complete::complete_reads;
use crate::contract::{
    Action, Completion, Operation, Queue, Read, Span, Tier, WriteQueue, chain_too_long, chains,
};
use crate::error::{FaultKind, ReadFault, TierError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

/// Virtual nanoseconds that one call takes, so that time passes for a caller that polls without waiting.
const CALL_NS: u64 = 100;

/// Interval at which a waiting queue checks for reads that another thread has released.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// Shorter waits are spun instead of slept, since the system's timers are this coarse.
const SPIN_BELOW_NS: u64 = 100_000;

/// A read or change in flight.
struct InFlight {
    read: Read,
    /// Set if it is not a plain read.
    change: Option<Operation>,
    /// Number of the operation that must end before this one begins.
    after: Option<u64>,
    /// True if that operation has failed.
    skipped: bool,
    /// Time of its completion in nanoseconds; a stuck read also waits for its release.
    due: u64,
    /// The device's count of reads before this one.
    number: u64,
    fault: Option<SimFault>,
}

pub(super) struct SimQueue {
    device: Arc<SimDevice>,
    len: u64,
    depth: usize,
    random: SplitMix64,
    in_flight: Vec<InFlight>,
    source: Option<ContentQueue>,
    wake_flag: Arc<WakeFlag>,
}

impl SimQueue {
    pub(super) fn new(device: Arc<SimDevice>, len: u64, depth: u32) -> Result<SimQueue, TierError> {
        let source = match &device.content {
            Content::Bytes(_) | Content::Words(_) => None,
            Content::Tier(tier) => Some(ContentQueue::new(tier.clone())?),
        };
        let number = {
            let mut state = device.state();
            state.queues += 1;
            state.queues
        };
        let depth = depth.min(device.options.depth).max(1) as usize;
        let random = SplitMix64::new(device.options.seed, number);
        Ok(SimQueue { device, len, depth, random, in_flight: Vec::new(), source, wake_flag: Arc::default() })
    }

    /// Returns the fault of the device's read number `number`, by script or by chance.
    fn draw_fault(&mut self, read: &Read, number: u64) -> Option<SimFault> {
        let options = &self.device.options;
        let end = read.offset.saturating_add(u64::from(read.len));
        let scripted = options.script.iter().find(|(when, _)| match when {
            When::Nth(n) => *n == number,
            When::Touching(offset) => (read.offset..end).contains(offset),
        });
        if let Some((_, fault)) = scripted {
            return Some(*fault);
        }
        let rates = &options.rates;
        // Two numbers are drawn for every read, so that a change of one rate does not shift the sequences of
        // the others.
        let (mut chance, detail) = (self.random.unit(), self.random.next());
        let mut hit = |rate: f64| {
            chance -= rate;
            chance < 0.0
        };
        if hit(rates.error) {
            Some(SimFault::Error(libc::EIO))
        } else if hit(rates.short) {
            Some(SimFault::Short((detail % u64::from(read.len.max(1))) as u32))
        } else if hit(rates.delay) {
            let longest = (rates.longest_delay.as_nanos() as u64).max(1);
            Some(SimFault::Delay(Duration::from_nanos(detail % longest)))
        } else if hit(rates.stuck) {
            Some(SimFault::Stuck)
        } else if hit(rates.flip) {
            Some(SimFault::Flip(detail))
        } else if hit(rates.misdirect) {
            Some(SimFault::Misdirect(detail))
        } else {
            None
        }
    }

    /// Takes a read, or a change of as many bytes, and returns its number. It begins when the operation with
    /// number `after` has ended.
    fn take(&mut self, read: &Read, change: Option<&Operation>, after: Option<u64>) -> u64 {
        let device = self.device.clone();
        if !read.buffer.is_null() {
            // SAFETY: by the contract of `submit`, the buffer has `len` writable bytes that only this queue
            // touches.
            unsafe { std::ptr::write_bytes(read.buffer, POISON, read.len as usize) };
        }
        let mut state = device.state();
        let number = state.stats.reads;
        state.stats.reads += 1;
        if change.is_none() {
            inspect(&device.options, &mut state, read);
        }
        let fault = self.draw_fault(read, number);
        let latency = device.options.latency.draw(&mut self.random);
        let ready = state.transfer(&device.options, read.len);
        let mut due = ready.saturating_add(latency);
        match fault {
            Some(SimFault::Error(_) | SimFault::Refuse(_)) => state.stats.errors += 1,
            Some(SimFault::Short(_)) => state.stats.shorts += 1,
            Some(SimFault::Stuck) => state.stats.stuck += 1,
            Some(SimFault::Flip(_)) => state.stats.flips += 1,
            Some(SimFault::Misdirect(_)) => state.stats.misdirected += 1,
            Some(SimFault::Delay(by)) => {
                state.stats.delays += 1;
                due = due.saturating_add(by.as_nanos() as u64);
            }
            None => {}
        }
        if fault != Some(SimFault::Stuck) {
            state.latencies.add(due.saturating_sub(device.options.clock.now_ns()));
        }
        let before = self.in_flight.iter().find(|other| Some(other.number) == after);
        // The time of a linked operation begins when that of its predecessor has passed.
        let due = before.map_or(due, |before| due.saturating_add(before.due.saturating_sub(ready)));
        let change = change.copied();
        self.in_flight.push(InFlight { read: *read, change, after, skipped: false, due, number, fault });
        number
    }

    /// Returns true if an operation may end at `now`.
    fn is_due(&self, operation: &InFlight, now: u64, released: u64) -> bool {
        let waits =
            operation.after.is_some_and(|after| self.in_flight.iter().any(|other| other.number == after));
        !waits && (operation.skipped || (operation.is_released(released) && operation.due <= now))
    }

    /// Returns the earliest time at which an operation in flight completes; `None` if all are stuck.
    fn next_due(&self) -> Option<u64> {
        let released = self.device.released.0.load(Ordering::Acquire);
        let can_end = |f: &&InFlight| self.is_due(f, u64::MAX, released);
        self.in_flight.iter().filter(can_end).map(|f| f.due).min()
    }

    /// Completes all operations that are due, earliest first except for random reorderings.
    fn deliver(&mut self, done: &mut Vec<Completion>) -> Result<(), TierError> {
        let now = self.device.options.clock.now_ns();
        let released = self.device.released.0.load(Ordering::Acquire);
        let first = done.len();
        // After each round, operations that were linked to those of the last round may end.
        loop {
            let due: Vec<bool> = self.in_flight.iter().map(|f| self.is_due(f, now, released)).collect();
            if !due.contains(&true) {
                break;
            }
            let mut due = due.into_iter();
            let (mut ending, left): (Vec<_>, Vec<_>) =
                self.in_flight.drain(..).partition(|_| due.next() == Some(true));
            self.in_flight = left;
            ending.sort_by_key(|f| (f.due, f.number));
            for operation in ending {
                let result = self.finish(&operation)?;
                if result.is_err() {
                    self.in_flight
                        .iter_mut()
                        .filter(|f| f.after == Some(operation.number))
                        .for_each(|f| f.skipped = true);
                }
                done.push(Completion { id: operation.read.id, result });
            }
        }
        let rate = self.device.options.rates.reorder;
        if rate > 0.0 {
            for i in first..done.len() {
                if self.random.unit() < rate {
                    let other = first + self.random.below((done.len() - first) as u64) as usize;
                    done.swap(i, other);
                }
            }
        }
        Ok(())
    }

    /// Checks that a buffer was not written to, and removes it from the buffers in flight.
    fn release_buffer(&self, operation: &InFlight) {
        let Read { offset, len, buffer, .. } = operation.read;
        if buffer.is_null() {
            return;
        }
        // SAFETY: by the contract of `submit`, the buffer has `len` bytes that only this queue touches until
        // the completion has been reaped or the queue has been dropped. Both happen after this.
        let bytes = unsafe { std::slice::from_raw_parts(buffer, len as usize) };
        // An early exit within a chunk would keep the loop from being vectorised.
        let changed = bytes.chunks(4096).any(|c| c.iter().fold(0, |seen, b| seen | (b ^ POISON)) != 0);
        let mut state = self.device.state();
        state.buffers.remove(&(buffer as usize));
        if changed {
            state.violations.push(Violation::Changed { offset });
        }
    }

    fn finish(&mut self, operation: &InFlight) -> Result<Result<u32, ReadFault>, TierError> {
        if operation.change.is_none() {
            self.release_buffer(operation);
        }
        if operation.skipped {
            return Ok(Err(ReadFault::of(FaultKind::Skipped)));
        }
        let Read { offset, len, buffer, .. } = operation.read;
        let mut got = available_len(self.len, offset, len);
        match operation.fault {
            Some(SimFault::Error(errno)) => return Ok(Err(ReadFault::system(errno))),
            Some(SimFault::Refuse(kind)) => return Ok(Err(ReadFault::of(kind))),
            Some(SimFault::Short(most)) => got = got.min(most),
            _ => {}
        }
        if let (Content::Words(words), Some(change)) = (&self.device.content, &operation.change) {
            return Ok(words.act(change));
        }
        if buffer.is_null() || got == 0 {
            return Ok(Ok(got));
        }
        // SAFETY: as in `release_buffer`; no more than `len` bytes.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, got as usize) };
        let offset = match operation.fault {
            Some(SimFault::Misdirect(number)) => {
                let alignment = u64::from(self.device.options.alignment.max(1));
                let offsets = (self.len - u64::from(got)) / alignment + 1;
                number % offsets * alignment
            }
            _ => offset,
        };
        match (&self.device.content, &mut self.source) {
            (Content::Bytes(content), _) => {
                bytes.copy_from_slice(&content[offset as usize..][..got as usize]);
            }
            (Content::Words(words), _) => words.get(offset as usize, bytes.as_mut_ptr(), bytes.len()),
            (Content::Tier(_), Some(source)) => source.fetch(offset, bytes)?,
            (Content::Tier(_), None) => return Ok(Err(ReadFault::of(FaultKind::Damaged))),
        }
        if let Some(SimFault::Flip(bit)) = operation.fault {
            let bit = bit % (u64::from(got) * 8);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        Ok(Ok(got))
    }
}

impl InFlight {
    /// Returns true if it is not stuck, or has been released.
    fn is_released(&self, released: u64) -> bool {
        self.fault != Some(SimFault::Stuck) || self.number < released
    }
}

impl SimState {
    /// Adds a transfer of `len` bytes on the device. Returns the time of its end in nanoseconds.
    fn transfer(&mut self, options: &SimOptions, len: u32) -> u64 {
        let start = (options.clock.now_ns() as f64).max(self.next_start);
        if options.iops > 0.0 {
            self.next_start = start + 1e9 / options.iops;
        }
        if options.bandwidth_bytes_per_s <= 0.0 {
            return start as u64;
        }
        let bytes = u64::from(len).next_multiple_of(u64::from(options.granularity.max(1))) as f64;
        self.link_free = start.max(self.link_free) + bytes * 1e9 / options.bandwidth_bytes_per_s;
        self.link_free as u64
    }
}

/// Records violations by a read, and adds its buffer to the buffers in flight.
fn inspect(options: &SimOptions, state: &mut SimState, read: &Read) {
    let Read { offset, len, buffer, .. } = *read;
    let alignment = u64::from(options.alignment.max(1));
    let start = buffer as usize;
    let all = offset | u64::from(len) | start as u64;
    if len == 0 || all & (alignment - 1) != 0 {
        state.violations.push(Violation::Misaligned { offset, len, buffer: start });
    }
    if buffer.is_null() {
        if !options.addressable {
            state.violations.push(Violation::NoBuffer { offset });
        }
        return;
    }
    let end = start + len as usize;
    if state.buffers.range(..end).next_back().is_some_and(|(_, other_end)| *other_end > start) {
        state.violations.push(Violation::Overlap { offset });
    }
    state.buffers.insert(start, end);
}

impl Queue for SimQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        let mut taken = reads.len().min(self.depth - self.in_flight.len());
        let rate = self.device.options.rates.refuse;
        if rate > 0.0 && taken > 0 && self.random.unit() < rate {
            let least = usize::from(self.in_flight.is_empty());
            taken = least + self.random.below((taken - least + 1) as u64) as usize;
            taken = taken.min(reads.len());
        }
        for read in &reads[..taken] {
            self.take(read, None, None);
        }
        Ok(taken)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let clock = self.device.options.clock.clone();
        clock.advance_to(clock.now_ns() + CALL_NS);
        let before = done.len();
        self.deliver(done)?;
        let Some(wait) = wait else { return Ok(()) };
        let end = clock.now_ns().saturating_add(wait.as_nanos() as u64);
        while done.len() == before && !self.in_flight.is_empty() && !self.wake_flag.take() {
            let next = self.next_due().unwrap_or(u64::MAX).min(end);
            let now = clock.now_ns();
            match &clock {
                SimClock::Virtual(_) => clock.advance_to(next),
                SimClock::Real(_) if next > now + SPIN_BELOW_NS => {
                    let sleep = Duration::from_nanos(next - now - SPIN_BELOW_NS / 2);
                    std::thread::sleep(sleep.min(LONGEST_SLEEP));
                }
                SimClock::Real(_) => std::hint::spin_loop(),
            }
            self.deliver(done)?;
            if clock.now_ns() >= end || self.wake_flag.take() {
                break;
            }
        }
        Ok(())
    }

    fn map(&self, span: Span) -> Option<&[u8]> {
        let Content::Bytes(bytes) = &self.device.content else { return None };
        if !self.device.options.addressable {
            return None;
        }
        let start = usize::try_from(span.offset).ok()?;
        bytes.get(start..start.checked_add(span.len as usize)?)
    }

    /// Returns `None`: reads take time, so they must be submitted.
    fn lend(&self) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, _region: *mut u8, _len: usize) -> Result<(), TierError> {
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn waker(&mut self) -> Option<Waker> {
        Some(self.wake_flag.clone().into())
    }
}

impl WriteQueue for SimQueue {
    unsafe fn submit_operations(&mut self, operations: &[Operation]) -> Result<usize, TierError> {
        let mut taken = 0;
        for chain in chains(operations) {
            if chain.len() > self.depth {
                return Err(chain_too_long(chain.len(), self.depth));
            }
            if chain.len() > self.depth - self.in_flight.len() {
                break;
            }
            let mut after = None;
            for operation in chain {
                let Operation { id, offset, action, .. } = *operation;
                let number = match action {
                    Action::Read { into, len } => {
                        self.take(&Read { id, offset, len, buffer: into, round: 0 }, None, after)
                    }
                    _ => {
                        let read =
                            Read { id, offset, len: action.len(), buffer: std::ptr::null_mut(), round: 0 };
                        self.take(&read, Some(operation), after)
                    }
                };
                after = Some(number);
            }
            taken += chain.len();
        }
        Ok(taken)
    }
}

impl Drop for SimQueue {
    fn drop(&mut self) {
        for operation in std::mem::take(&mut self.in_flight) {
            self.release_buffer(&operation);
            self.device.state().stats.abandoned += 1;
        }
    }
}

/// A queue on the tier from which a simulated tier takes its bytes; it reads one span at a time.
struct ContentQueue {
    // Dropped before the pool that it reads into.
    queue: Box<dyn Queue>,
    pool: BufferPool,
    alignment: u64,
    addressable: bool,
    _tier: Arc<dyn Tier>,
}

impl ContentQueue {
    fn new(tier: Arc<dyn Tier>) -> Result<ContentQueue, TierError> {
        let profile = tier.profile();
        let (alignment, addressable) = (u64::from(profile.alignment.max(1)), profile.addressable);
        let pool = BufferPool::new(1, crate::BUFFER_ALIGNMENT, u64::MAX, crate::BUFFER_ALIGNMENT);
        Ok(ContentQueue { queue: tier.open(1)?, pool, alignment, addressable, _tier: tier })
    }

    /// Fills `into` with the bytes at `offset`.
    fn fetch(&mut self, offset: u64, into: &mut [u8]) -> Result<(), TierError> {
        let lost = || TierError::Contract("the tier under a simulated one lost bytes".into());
        if self.addressable {
            let span = Span::at(offset, into.len() as u32);
            into.copy_from_slice(self.queue.map(span).ok_or_else(lost)?);
            return Ok(());
        }
        let start = offset & !(self.alignment - 1);
        let end = (offset + into.len() as u64).next_multiple_of(self.alignment);
        let (skip, len) = ((offset - start) as usize, (end - start) as u32);
        let buffer = self.pool.take(len as usize).ok_or_else(lost)?;
        let read = Read { id: 0, offset: start, len, buffer: buffer.start.as_ptr(), round: 0 };
        // SAFETY: the buffer is as long as the read. It is released below, and the queue is dropped before
        // the pool.
        let done = unsafe { complete_reads(self.queue.as_mut(), &[read])? };
        let complete =
            done.first().and_then(|c| c.result.ok()).is_some_and(|n| n as usize >= skip + into.len());
        if complete {
            // SAFETY: the read has completed with at least this many bytes.
            into.copy_from_slice(unsafe {
                std::slice::from_raw_parts(buffer.start.as_ptr().wrapping_add(skip), into.len())
            });
        }
        self.pool.release(buffer);
        if complete { Ok(()) } else { Err(lost()) }
    }
}
