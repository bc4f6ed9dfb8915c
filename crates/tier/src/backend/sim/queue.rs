//! One queue of the simulated device.

use super::random::Dice;
use super::{Content, Device, Fault, POISON, SimClock, SimOptions, State, Violation, When};
use crate::backend::bell::Bell;
use crate::backend::in_place::arrived;
use crate::buffers::BufferPool;
use crate::contract::{
    Action, Completion, Operation, Queue, Read, Span, Tier, WriteQueue, chains, too_long_a_chain,
};
use crate::error::{FaultKind, ReadFault, TierError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

/// Virtual nanoseconds that one call costs, so that a caller who polls without waiting sees time pass.
const CALL_NS: u64 = 100;

/// A waiting queue looks this often for reads that another thread has released.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// What is too short to sleep through is spun through: the system's timers are this coarse.
const SPIN_BELOW_NS: u64 = 100_000;

struct Flight {
    read: Read,
    /// Where it is not merely a read.
    change: Option<Operation>,
    /// The one that has to end before it begins.
    after: Option<u64>,
    /// That one has failed.
    skipped: bool,
    /// When it completes; for a stuck read, whenever it has been released.
    due: u64,
    /// The device's count of reads before this one.
    number: u64,
    fault: Option<Fault>,
}

pub(super) struct SimQueue {
    device: Arc<Device>,
    len: u64,
    depth: usize,
    dice: Dice,
    flights: Vec<Flight>,
    source: Option<Source>,
    bell: Arc<Bell>,
}

impl SimQueue {
    pub(super) fn new(device: Arc<Device>, len: u64, depth: u32) -> Result<SimQueue, TierError> {
        let source = match &device.content {
            Content::Bytes(_) | Content::Words(_) => None,
            Content::Tier(tier) => Some(Source::new(tier.clone())?),
        };
        let number = {
            let mut state = device.state();
            state.queues += 1;
            state.queues
        };
        let depth = depth.min(device.options.depth).max(1) as usize;
        let dice = Dice::new(device.options.seed, number);
        Ok(SimQueue { device, len, depth, dice, flights: Vec::new(), source, bell: Arc::default() })
    }

    /// Which fault befalls the device's read number `number`.
    fn fate(&mut self, read: &Read, number: u64) -> Option<Fault> {
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
        // Two numbers are drawn for every read, so that one rate does not shift the others' sequences.
        let (mut chance, detail) = (self.dice.unit(), self.dice.next());
        let mut hit = |rate: f64| {
            chance -= rate;
            chance < 0.0
        };
        if hit(rates.error) {
            Some(Fault::Error(libc::EIO))
        } else if hit(rates.short) {
            Some(Fault::Short((detail % u64::from(read.len.max(1))) as u32))
        } else if hit(rates.delay) {
            let longest = (rates.longest_delay.as_nanos() as u64).max(1);
            Some(Fault::Delay(Duration::from_nanos(detail % longest)))
        } else if hit(rates.stuck) {
            Some(Fault::Stuck)
        } else if hit(rates.flip) {
            Some(Fault::Flip(detail))
        } else if hit(rates.misdirect) {
            Some(Fault::Misdirect(detail))
        } else {
            None
        }
    }

    /// Takes a read, or a change of as many bytes; its number. It begins when the one numbered `after` has ended.
    fn take(&mut self, read: &Read, change: Option<&Operation>, after: Option<u64>) -> u64 {
        let device = self.device.clone();
        if !read.buffer.is_null() {
            // SAFETY: by the contract of `submit` the buffer holds `len` writable bytes that are this queue's alone.
            unsafe { std::ptr::write_bytes(read.buffer, POISON, read.len as usize) };
        }
        let mut state = device.state();
        let number = state.stats.reads;
        state.stats.reads += 1;
        if change.is_none() {
            inspect(&device.options, &mut state, read);
        }
        let fault = self.fate(read, number);
        let latency = device.options.latency.draw(&mut self.dice);
        let ready = state.transfer(&device.options, read.len);
        let mut due = ready.saturating_add(latency);
        match fault {
            Some(Fault::Error(_) | Fault::Refuse(_)) => state.stats.errors += 1,
            Some(Fault::Short(_)) => state.stats.shorts += 1,
            Some(Fault::Stuck) => state.stats.stuck += 1,
            Some(Fault::Flip(_)) => state.stats.flips += 1,
            Some(Fault::Misdirect(_)) => state.stats.misdirected += 1,
            Some(Fault::Delay(by)) => {
                state.stats.delays += 1;
                due = due.saturating_add(by.as_nanos() as u64);
            }
            None => {}
        }
        if fault != Some(Fault::Stuck) {
            state.latencies.add(due.saturating_sub(device.options.clock.now_ns()));
        }
        let before = self.flights.iter().find(|flight| Some(flight.number) == after);
        // One after the other: the second's time begins when the first's has passed.
        let due = before.map_or(due, |before| due.saturating_add(before.due.saturating_sub(ready)));
        let change = change.copied();
        self.flights.push(Flight { read: *read, change, after, skipped: false, due, number, fault });
        number
    }

    /// Whether a flight may end at `now`.
    fn is_due(&self, flight: &Flight, now: u64, released: u64) -> bool {
        let waits = flight.after.is_some_and(|after| self.flights.iter().any(|other| other.number == after));
        !waits && (flight.skipped || (flight.goes(released) && flight.due <= now))
    }

    /// The earliest moment at which a read in flight completes; `None` if all are stuck.
    fn next_due(&self) -> Option<u64> {
        let released = self.device.released.0.load(Ordering::Acquire);
        let going = |f: &&Flight| self.is_due(f, u64::MAX, released);
        self.flights.iter().filter(going).map(|f| f.due).min()
    }

    /// Completes what is due, earliest first, apart from reorderings.
    fn deliver(&mut self, done: &mut Vec<Completion>) -> Result<(), TierError> {
        let now = self.device.options.clock.now_ns();
        let released = self.device.released.0.load(Ordering::Acquire);
        let first = done.len();
        // Each round may let those end that were linked to the last round's.
        loop {
            let due: Vec<bool> = self.flights.iter().map(|f| self.is_due(f, now, released)).collect();
            if !due.contains(&true) {
                break;
            }
            let mut due = due.into_iter();
            let (mut ending, left): (Vec<_>, Vec<_>) =
                self.flights.drain(..).partition(|_| due.next() == Some(true));
            self.flights = left;
            ending.sort_by_key(|f| (f.due, f.number));
            for flight in ending {
                let result = self.finish(&flight)?;
                if result.is_err() {
                    self.flights
                        .iter_mut()
                        .filter(|f| f.after == Some(flight.number))
                        .for_each(|f| f.skipped = true);
                }
                done.push(Completion { id: flight.read.id, result });
            }
        }
        let rate = self.device.options.rates.reorder;
        if rate > 0.0 {
            for i in first..done.len() {
                if self.dice.unit() < rate {
                    let other = first + self.dice.below((done.len() - first) as u64) as usize;
                    done.swap(i, other);
                }
            }
        }
        Ok(())
    }

    /// Gives a buffer back to its caller, having checked that nobody has touched it.
    fn reclaim(&self, flight: &Flight) {
        let Read { offset, len, buffer, .. } = flight.read;
        if buffer.is_null() {
            return;
        }
        // SAFETY: by the contract of `submit` the buffer holds `len` bytes and is this queue's alone until the
        // completion has been reaped or the queue has been dropped, which is what happens next.
        let bytes = unsafe { std::slice::from_raw_parts(buffer, len as usize) };
        // Without an early exit within a chunk, which would keep the loop from being vectorised.
        let changed = bytes.chunks(4096).any(|c| c.iter().fold(0, |seen, b| seen | (b ^ POISON)) != 0);
        let mut state = self.device.state();
        state.buffers.remove(&(buffer as usize));
        if changed {
            state.violations.push(Violation::Changed { offset });
        }
    }

    fn finish(&mut self, flight: &Flight) -> Result<Result<u32, ReadFault>, TierError> {
        if flight.change.is_none() {
            self.reclaim(flight);
        }
        if flight.skipped {
            return Ok(Err(ReadFault::of(FaultKind::Skipped)));
        }
        let Read { offset, len, buffer, .. } = flight.read;
        let mut got = arrived(self.len, offset, len);
        match flight.fault {
            Some(Fault::Error(errno)) => return Ok(Err(ReadFault::system(errno))),
            Some(Fault::Refuse(kind)) => return Ok(Err(ReadFault::of(kind))),
            Some(Fault::Short(most)) => got = got.min(most),
            _ => {}
        }
        if let (Content::Words(words), Some(change)) = (&self.device.content, &flight.change) {
            return Ok(words.act(change));
        }
        if buffer.is_null() || got == 0 {
            return Ok(Ok(got));
        }
        // SAFETY: as in `reclaim`; no more than `len` bytes.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, got as usize) };
        let offset = match flight.fault {
            Some(Fault::Misdirect(place)) => {
                let alignment = u64::from(self.device.options.alignment.max(1));
                let places = (self.len - u64::from(got)) / alignment + 1;
                place % places * alignment
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
        if let Some(Fault::Flip(bit)) = flight.fault {
            let bit = bit % (u64::from(got) * 8);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        Ok(Ok(got))
    }
}

impl Flight {
    fn goes(&self, released: u64) -> bool {
        self.fault != Some(Fault::Stuck) || self.number < released
    }
}

impl State {
    /// Books `len` bytes on the device; the moment at which they have been moved, in nanoseconds.
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

/// Writes down what is wrong with a read; its buffer counts as in flight from now on.
fn inspect(options: &SimOptions, state: &mut State, read: &Read) {
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
        let mut taken = reads.len().min(self.depth - self.flights.len());
        let rate = self.device.options.rates.refuse;
        if rate > 0.0 && taken > 0 && self.dice.unit() < rate {
            let least = usize::from(self.flights.is_empty());
            taken = least + self.dice.below((taken - least + 1) as u64) as usize;
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
        while done.len() == before && !self.flights.is_empty() && !self.bell.take() {
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
            if clock.now_ns() >= end || self.bell.take() {
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

    /// None: a read takes its time.
    fn lend(&self) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, _region: *mut u8, _len: usize) -> Result<(), TierError> {
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.flights.len()
    }

    fn waker(&mut self) -> Option<Waker> {
        Some(self.bell.clone().into())
    }
}

impl WriteQueue for SimQueue {
    unsafe fn submit_operations(&mut self, operations: &[Operation]) -> Result<usize, TierError> {
        let mut taken = 0;
        for chain in chains(operations) {
            if chain.len() > self.depth {
                return Err(too_long_a_chain(chain.len(), self.depth));
            }
            if chain.len() > self.depth - self.flights.len() {
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
        for flight in std::mem::take(&mut self.flights) {
            self.reclaim(&flight);
            self.device.state().stats.abandoned += 1;
        }
    }
}

/// A queue on the tier that a simulated one takes its bytes from, read one span at a time.
struct Source {
    // Dropped before the pool that it reads into.
    queue: Box<dyn Queue>,
    pool: BufferPool,
    alignment: u64,
    addressable: bool,
    _tier: Arc<dyn Tier>,
}

impl Source {
    fn new(tier: Arc<dyn Tier>) -> Result<Source, TierError> {
        let profile = tier.profile();
        let (alignment, addressable) = (u64::from(profile.alignment.max(1)), profile.addressable);
        let pool = BufferPool::new(1, crate::BUFFER_ALIGNMENT, u64::MAX, crate::BUFFER_ALIGNMENT);
        Ok(Source { queue: tier.open(1)?, pool, alignment, addressable, _tier: tier })
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
        // SAFETY: the buffer is as long as the read and stays taken until the completion below.
        let taken = unsafe { self.queue.submit(&[read])? };
        let mut done = Vec::with_capacity(1);
        while taken == 1 && done.is_empty() {
            self.queue.reap(&mut done, Some(Duration::from_millis(100)))?;
        }
        let whole = done.first().and_then(|c| c.result.ok()).is_some_and(|n| n as usize >= skip + into.len());
        if whole {
            // SAFETY: the read has completed with at least this many bytes.
            into.copy_from_slice(unsafe {
                std::slice::from_raw_parts(buffer.start.as_ptr().wrapping_add(skip), into.len())
            });
        }
        self.pool.release(buffer);
        if whole { Ok(()) } else { Err(lost()) }
    }
}
