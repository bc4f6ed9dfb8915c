//! Several tiers as one address space: striped as in RAID 0, or laid end to end.

use super::{Slots, unknown};
use crate::backend::in_place::available_len;
use crate::backend::wake_flag::WakeFlag;
use crate::contract::{Completion, Queue, Read, Span, Tier, TierProfile, WriteTier};
use crate::error::{FaultKind, ReadFault, TierError};
use crate::lanes::Lanes;
use crate::latencies::Latencies;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// The longest sleep in one member while reads are in flight on several: about one read of a fast device.
const TURN: Duration = Duration::from_micros(50);

/// Counts of one member of a stripe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemberCounters {
    /// Reads completed; a read that crosses stripes counts once for each.
    pub reads: u64,
    /// Bytes that arrived.
    pub bytes: u64,
}

/// Counts and latencies of one member, by the threads of one lane.
#[derive(Debug, Default)]
struct LaneCounts {
    reads: AtomicU64,
    bytes: AtomicU64,
    latencies: Mutex<Latencies>,
}

impl LaneCounts {
    fn latencies(&self) -> MutexGuard<'_, Latencies> {
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Mapping from the offsets of the whole tier to members.
#[derive(Debug, Clone)]
enum Arrangement {
    /// Units of `unit` bytes in turn. The first `skip` bytes of each member do not belong to the stripe.
    Stripes { unit: u64, skip: u64 },
    /// One member after the other: the start of each, and the end of the last.
    EndToEnd(Vec<u64>),
}

/// Location of an offset of the whole tier.
struct Location {
    member: usize,
    /// Offset within the member.
    offset: u64,
    /// Bytes from there on without a change of member.
    run: u64,
}

impl Arrangement {
    /// Returns the location of `offset`.
    fn locate(&self, offset: u64, members: u64) -> Location {
        match self {
            Arrangement::Stripes { unit, skip } => {
                let (number, within) = (offset / unit, offset % unit);
                Location {
                    member: (number % members) as usize,
                    offset: skip + number / members * unit + within,
                    run: unit - within,
                }
            }
            Arrangement::EndToEnd(starts) => {
                let member = starts.partition_point(|start| *start <= offset).clamp(1, starts.len() - 1) - 1;
                Location {
                    member,
                    offset: offset - starts[member],
                    run: starts[member + 1].saturating_sub(offset).max(1),
                }
            }
        }
    }
}

/// Several tiers as one. It is never addressable, since spans cross members; bytes of addressable members are
/// copied.
pub struct StripeTier {
    members: Vec<Arc<dyn Tier>>,
    /// Counts of each member.
    counters: Arc<Vec<Lanes<LaneCounts>>>,
    arrangement: Arrangement,
    len: u64,
    profile: TierProfile,
}

impl StripeTier {
    /// Stripes `members` in units of `stripe_bytes`, which must be a multiple of every member's alignment.
    /// The tier ends at the first byte that a member lacks ([`StripeTier::reach`]).
    ///
    /// # Errors
    /// [`TierError::Parameter`] if there are no members or `stripe_bytes` is 0 or not aligned.
    pub fn new(members: Vec<Arc<dyn Tier>>, stripe_bytes: u32) -> Result<StripeTier, TierError> {
        StripeTier::with_header(members, stripe_bytes, 0)
    }

    /// Stripes members as [`StripeTier::new`] does, but skips the first `header_bytes` of each.
    /// `header_bytes` must be a multiple of every member's alignment, too.
    ///
    /// # Errors
    /// As [`StripeTier::new`]; also if `header_bytes` is not aligned.
    pub fn with_header(
        members: Vec<Arc<dyn Tier>>,
        stripe_bytes: u32,
        header_bytes: u32,
    ) -> Result<StripeTier, TierError> {
        let alignment = members.iter().map(|m| m.profile().alignment).max().unwrap_or(1).max(1);
        let aligned = stripe_bytes.is_multiple_of(alignment) && header_bytes.is_multiple_of(alignment);
        if members.is_empty() || stripe_bytes == 0 || !aligned {
            let what = format!(
                "cannot stripe {} tiers in units of {stripe_bytes} bytes after headers of {header_bytes}: \
                 there must be at least one tier, and both sizes must be multiples of {alignment}",
                members.len()
            );
            return Err(TierError::Parameter(what));
        }
        let (n, unit, skip) = (members.len() as u64, u64::from(stripe_bytes), u64::from(header_bytes));
        let len = StripeTier::reach(members.iter().map(|member| member.len().saturating_sub(skip)), unit);
        let method = format!("{n} x {} by {stripe_bytes} bytes", members[0].profile().kind);
        Ok(StripeTier::arranged(members, Arrangement::Stripes { unit, skip }, "stripe", method, len))
    }

    /// Returns the length of a stripe in units of `stripe_bytes` over members of these lengths: the offset of
    /// the first byte that a member lacks.
    ///
    /// # Panics
    /// For stripes of 0 bytes.
    pub fn reach(lengths: impl ExactSizeIterator<Item = u64>, stripe_bytes: u64) -> u64 {
        let members = lengths.len() as u64;
        let gap = |(i, len): (usize, u64)| {
            let unit = (len / stripe_bytes).saturating_mul(members).saturating_add(i as u64);
            unit.saturating_mul(stripe_bytes).saturating_add(len % stripe_bytes)
        };
        lengths.enumerate().map(gap).min().unwrap_or(0)
    }

    /// Lays `members` end to end: the first byte of the second follows the last byte of the first.
    ///
    /// # Errors
    /// [`TierError::Parameter`] if there are no members, or the length of a member other than the last is not
    /// a multiple of every member's alignment.
    pub fn end_to_end(members: Vec<Arc<dyn Tier>>) -> Result<StripeTier, TierError> {
        let alignment = u64::from(members.iter().map(|m| m.profile().alignment).max().unwrap_or(1).max(1));
        let (mut starts, mut len) = (vec![0], 0_u64);
        for member in &members {
            if !len.is_multiple_of(alignment) {
                let what = format!(
                    "a tier cannot follow {len} bytes of other tiers: their length is not a multiple of \
                     {alignment}"
                );
                return Err(TierError::Parameter(what));
            }
            len = len.saturating_add(member.len());
            starts.push(len);
        }
        let Some(first) = members.first() else {
            return Err(TierError::Parameter("there are no tiers to lay end to end".into()));
        };
        let (first, maximum) = (first.profile().clone(), |value: fn(&TierProfile) -> f64| {
            members.iter().map(|m| value(m.profile())).fold(0.0, f64::max)
        });
        // They are usually on one device, so together they are no faster than the fastest of them.
        let (iops, bandwidth) = (maximum(|p| p.iops), maximum(|p| p.bandwidth_bytes_per_s));
        let depth = members.iter().map(|m| m.profile().depth).max().unwrap_or(0);
        let (kind, method) = (first.kind.clone(), first.method);
        let mut tier = StripeTier::arranged(members, Arrangement::EndToEnd(starts), &kind, method, len);
        tier.profile = TierProfile { iops, bandwidth_bytes_per_s: bandwidth, depth, ..tier.profile };
        Ok(tier)
    }

    fn arranged(
        members: Vec<Arc<dyn Tier>>,
        arrangement: Arrangement,
        kind: &str,
        method: String,
        len: u64,
    ) -> StripeTier {
        let sum = |value: fn(&TierProfile) -> f64| members.iter().map(|m| value(m.profile())).sum::<f64>();
        let maximum =
            |value: fn(&TierProfile) -> u32| members.iter().map(|m| value(m.profile())).max().unwrap_or(1);
        let profile = TierProfile {
            kind: kind.into(),
            method,
            granularity: maximum(|p| p.granularity),
            alignment: maximum(|p| p.alignment),
            addressable: false,
            latency_ns: members.iter().map(|m| m.profile().latency_ns).max().unwrap_or(0),
            iops: sum(|p| p.iops),
            bandwidth_bytes_per_s: sum(|p| p.bandwidth_bytes_per_s),
            depth: members.iter().map(|m| m.profile().depth).fold(0, u32::saturating_add),
            issue_ns: members.iter().map(|m| m.profile().issue_ns).max().unwrap_or(0),
            rates: Vec::new(),
        };
        let counters = Arc::new(members.iter().map(|_| Lanes::default()).collect());
        StripeTier { members, counters, arrangement, len, profile }
    }

    /// Returns the counts of each member so far.
    pub fn counters(&self) -> Vec<MemberCounters> {
        let sum = |lanes: &Lanes<LaneCounts>, counter: fn(&LaneCounts) -> &AtomicU64| {
            lanes.iter().map(|lane| counter(lane).load(Ordering::Relaxed)).sum()
        };
        let load =
            |lanes| MemberCounters { reads: sum(lanes, |c| &c.reads), bytes: sum(lanes, |c| &c.bytes) };
        self.counters.iter().map(load).collect()
    }

    /// Returns, for each member, the quantile `share` of the latencies of its reads so far in nanoseconds,
    /// from submission to reaping: 0.99 for the 99th percentile. Rounded up by 6% at most; 0 without reads.
    pub fn latencies_ns(&self, share: f64) -> Vec<u64> {
        let quantile = |lanes: &Lanes<LaneCounts>| {
            let mut all = Latencies::default();
            lanes.iter().for_each(|lane| all.merge(&lane.latencies()));
            all.quantile_ns(share)
        };
        self.counters.iter().map(quantile).collect()
    }

    /// Distributes `bytes` to `members` parts, which [`StripeTier::new`] reads back as one. Empty for 0
    /// members or units of 0 bytes.
    pub fn distribute(bytes: &[u8], members: usize, stripe_bytes: u32) -> Vec<Vec<u8>> {
        let mut parts = vec![Vec::new(); if stripe_bytes == 0 { 0 } else { members }];
        if !parts.is_empty() {
            for (i, unit) in bytes.chunks(stripe_bytes as usize).enumerate() {
                parts[i % members].extend_from_slice(unit);
            }
        }
        parts
    }
}

impl Tier for StripeTier {
    fn profile(&self) -> &TierProfile {
        &self.profile
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError> {
        let open = |tier: &Arc<dyn Tier>| {
            let addressable = tier.profile().addressable;
            Ok(Member { queue: tier.open(depth)?, addressable, waiting: VecDeque::new() })
        };
        Ok(Box::new(StripeQueue {
            members: self.members.iter().map(open).collect::<Result<_, TierError>>()?,
            counters: self.counters.clone(),
            arrangement: self.arrangement.clone(),
            len: self.len,
            depth: depth.max(1) as usize,
            reads: Slots::new(),
            pieces: Slots::new(),
            ended: Vec::new(),
            reaped: Vec::new(),
            latencies_ns: Vec::new(),
            failure: None,
            wake_flag: Arc::default(),
        }))
    }

    fn writable(&self) -> Option<&dyn WriteTier> {
        None
    }

    fn is_shared(&self) -> bool {
        self.members.iter().any(|tier| tier.is_shared())
    }
}

struct Member {
    queue: Box<dyn Queue>,
    addressable: bool,
    /// Pieces that the member has not taken yet, with slot numbers as ids.
    waiting: VecDeque<Read>,
}

/// One read of the caller.
struct CallerRead {
    id: u64,
    /// Number of pieces in flight.
    unfinished: u32,
    /// Bytes from the start of the buffer on that are valid, or may still become valid.
    valid: u32,
    fault: Option<ReadFault>,
}

/// The part of a caller's read that lies in one unit of a member.
struct Piece {
    /// Slot of the caller's read.
    read_slot: u64,
    /// Offset of the piece within the caller's read.
    start: u32,
    /// The read as submitted to the member, but with the caller's buffer, which an addressable member does
    /// not get.
    read: Read,
    /// Time of its submission to the member.
    begun: Option<Instant>,
}

struct StripeQueue {
    members: Vec<Member>,
    counters: Arc<Vec<Lanes<LaneCounts>>>,
    arrangement: Arrangement,
    len: u64,
    depth: usize,
    reads: Slots<CallerRead>,
    pieces: Slots<Piece>,
    ended: Vec<Completion>,
    reaped: Vec<Completion>,
    /// Latencies of the completions of one call.
    latencies_ns: Vec<u64>,
    /// Error of a submission to a member. Its reads have failed, and the next `reap` returns it.
    failure: Option<TierError>,
    wake_flag: Arc<WakeFlag>,
}

impl StripeQueue {
    fn split(&mut self, read: &Read) {
        let valid = available_len(self.len, read.offset, read.len);
        if valid == 0 {
            self.ended.push(Completion { id: read.id, result: Ok(0) });
            return;
        }
        let n = self.members.len() as u64;
        let read_slot = self.reads.insert(CallerRead { id: read.id, unfinished: 0, valid, fault: None });
        let (mut start, mut unfinished) = (0, 0);
        while start < valid {
            let offset = read.offset + u64::from(start);
            let Location { member, offset, run } = self.arrangement.locate(offset, n);
            let last = member + 1 == self.members.len();
            // The last bytes are read to the aligned length, which may reach beyond the end.
            let run =
                if last && matches!(self.arrangement, Arrangement::EndToEnd(_)) { u64::MAX } else { run };
            let len = run.min(u64::from(read.len - start)) as u32;
            let buffer = read.buffer.wrapping_add(start as usize);
            let part = Read { id: 0, offset, len, buffer, ..*read };
            let id = self.pieces.insert(Piece { read_slot, start, read: part, begun: None });
            let member = &mut self.members[member];
            let buffer = if member.addressable { std::ptr::null_mut() } else { part.buffer };
            member.waiting.push_back(Read { id, buffer, ..part });
            unfinished += 1;
            start += len;
        }
        if let Some(caller_read) = self.reads.get_mut(read_slot) {
            caller_read.unfinished = unfinished;
        }
    }

    /// Submits waiting pieces to their members.
    fn push(&mut self) -> Result<(), TierError> {
        for m in 0..self.members.len() {
            let member = &mut self.members[m];
            if member.waiting.is_empty() {
                continue;
            }
            // SAFETY: the pieces lie within the caller's buffers, which only this queue touches until their
            // reads complete.
            match unsafe { member.queue.submit(member.waiting.make_contiguous()) } {
                Ok(taken) => {
                    // One reading of the clock for all of them.
                    let begun = (taken > 0).then(Instant::now);
                    for read in member.waiting.drain(..taken.min(member.waiting.len())) {
                        if let Some(piece) = self.pieces.get_mut(read.id) {
                            piece.begun = begun;
                        }
                    }
                }
                Err(e) => {
                    self.failure = Some(e);
                    let refused = std::mem::take(&mut member.waiting);
                    for read in refused {
                        self.end_piece(m, read.id, Err(ReadFault::of(FaultKind::Device)))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Collects the completions of one member.
    fn pull(&mut self, m: usize, wait: Option<Duration>) -> Result<(), TierError> {
        let mut reaped = std::mem::take(&mut self.reaped);
        let mut outcome = self.members[m].queue.reap(&mut reaped, wait);
        let now = (!reaped.is_empty()).then(Instant::now);
        for completion in reaped.drain(..) {
            let begun = self.pieces.get_mut(completion.id).and_then(|piece| piece.begun);
            if let (Some(now), Some(begun)) = (now, begun) {
                self.latencies_ns.push(now.saturating_duration_since(begun).as_nanos() as u64);
            }
            let ended = self.end_piece(m, completion.id, completion.result);
            outcome = outcome.and(ended);
        }
        if !self.latencies_ns.is_empty() {
            let mut latencies = self.counters[m].here().latencies();
            self.latencies_ns.drain(..).for_each(|ns| latencies.add(ns));
        }
        self.reaped = reaped;
        outcome
    }

    fn end_piece(&mut self, m: usize, id: u64, result: Result<u32, ReadFault>) -> Result<(), TierError> {
        let Some(Piece { read_slot, start, read, .. }) = self.pieces.remove(id) else {
            return Err(unknown(id));
        };
        let member = &self.members[m];
        let mut result = result;
        if let (true, Ok(got @ 1..)) = (member.addressable, result) {
            match member.queue.map(Span::at(read.offset, got)) {
                // SAFETY: the caller's buffer has the piece's length, which is no less than `got`, and a
                // member's bytes never overlap a caller's buffer.
                Some(bytes) => unsafe {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), read.buffer, got as usize);
                },
                None => result = Err(ReadFault::of(FaultKind::Gone)),
            }
        }
        let got = result.unwrap_or(0);
        let counts = self.counters[m].here();
        counts.reads.fetch_add(1, Ordering::Relaxed);
        counts.bytes.fetch_add(u64::from(got), Ordering::Relaxed);
        let Some(caller_read) = self.reads.get_mut(read_slot) else { return Err(unknown(read_slot)) };
        caller_read.unfinished -= 1;
        match result {
            Err(fault) => caller_read.fault = Some(fault),
            // Only the bytes before a gap are returned.
            Ok(got) if got < read.len => caller_read.valid = caller_read.valid.min(start + got),
            Ok(_) => {}
        }
        if caller_read.unfinished == 0
            && let Some(CallerRead { id, valid, fault, .. }) = self.reads.remove(read_slot)
        {
            self.ended.push(Completion { id, result: fault.map_or(Ok(valid), Err) });
        }
        Ok(())
    }

    /// Collects the completions of all members and submits waiting pieces, without waiting.
    fn sweep(&mut self) -> Result<(), TierError> {
        for m in 0..self.members.len() {
            if self.members[m].queue.in_flight() > 0 {
                self.pull(m, None)?;
            }
        }
        self.push()
    }
}

impl Queue for StripeQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        let taken = reads.len().min(self.depth.saturating_sub(self.in_flight()));
        for read in &reads[..taken] {
            self.split(read);
        }
        self.push()?;
        Ok(taken)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let mut outcome = self.sweep();
        let mut left = wait.unwrap_or_default();
        let mut turn = 0;
        while outcome.is_ok() && self.ended.is_empty() && self.failure.is_none() && !left.is_zero() {
            if self.wake_flag.take() {
                break;
            }
            let n = self.members.len();
            let busy = |m: &usize| self.members[*m].queue.in_flight() > 0;
            let Some(m) = (0..n).map(|i| (turn + i) % n).find(busy) else { break };
            let only_busy = (0..n).filter(busy).count() == 1;
            // The rest of the wait is the sum of single waits, not a time on a clock, so it also ends in
            // simulated time.
            let single_wait = if only_busy { left } else { left.min(TURN) };
            outcome = self.pull(m, Some(single_wait)).and_then(|()| self.sweep());
            (left, turn) = (left - single_wait, m + 1);
        }
        done.append(&mut self.ended);
        outcome.and(self.failure.take().map_or(Ok(()), Err))
    }

    fn map(&self, _span: Span) -> Option<&[u8]> {
        None
    }

    /// Returns `None`: the bytes are not contiguous in memory.
    fn lend(&self) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, region: *mut u8, len: usize) -> Result<(), TierError> {
        for member in self.members.iter_mut().filter(|m| !m.addressable) {
            // SAFETY: passed on under the same contract.
            unsafe { member.queue.register(region, len)? };
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.reads.len() + self.ended.len()
    }

    fn give_up(&mut self) {
        self.members.iter_mut().for_each(|member| member.queue.give_up());
    }

    fn waker(&mut self) -> Option<Waker> {
        let wakers =
            self.members.iter_mut().map(|member| member.queue.waker()).collect::<Option<Vec<_>>>()?;
        self.wake_flag = WakeFlag::over(wakers);
        Some(self.wake_flag.clone().into())
    }
}
