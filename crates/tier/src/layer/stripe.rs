//! Several tiers as one address space: stripe after stripe in turn, as RAID 0, or laid end to end.

use super::{Slots, unknown};
use crate::backend::bell::Bell;
use crate::backend::in_place::arrived;
use crate::contract::{Completion, Queue, Read, Span, Tier, TierProfile, WriteTier};
use crate::error::{FaultKind, ReadFault, TierError};
use crate::lanes::Lanes;
use crate::latencies::Latencies;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// While reads are in flight on several members, the queue sleeps in one of them for no longer than this
/// before it looks at the others: about one read of a fast device.
const TURN: Duration = Duration::from_micros(50);

/// What one member of a stripe has served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemberCounters {
    /// Reads completed; a read that crosses stripes counts once for each.
    pub reads: u64,
    /// Bytes that arrived.
    pub bytes: u64,
}

/// What one member has served, as far as the threads of one lane saw it.
#[derive(Debug, Default)]
struct Counter {
    reads: AtomicU64,
    bytes: AtomicU64,
    latencies: Mutex<Latencies>,
}

impl Counter {
    fn latencies(&self) -> MutexGuard<'_, Latencies> {
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the bytes of members lie in the whole.
#[derive(Debug, Clone)]
enum Arrangement {
    /// In turn, `unit` bytes each; a member's first `skip` bytes are none of them.
    Stripes { unit: u64, skip: u64 },
    /// One after the other: where each begins, and where the last ends.
    EndToEnd(Vec<u64>),
}

impl Arrangement {
    /// The member that holds `offset`, where in it, and how many bytes follow there without a change of member.
    fn locate(&self, offset: u64, members: u64) -> (usize, u64, u64) {
        match self {
            Arrangement::Stripes { unit, skip } => {
                let (number, within) = (offset / unit, offset % unit);
                ((number % members) as usize, skip + number / members * unit + within, unit - within)
            }
            Arrangement::EndToEnd(starts) => {
                let member = starts.partition_point(|start| *start <= offset).clamp(1, starts.len() - 1) - 1;
                (member, offset - starts[member], starts[member + 1].saturating_sub(offset).max(1))
            }
        }
    }
}

/// Tiers striped into one. Never addressable, since spans cross members; addressable members are copied from.
pub struct StripeTier {
    members: Vec<Arc<dyn Tier>>,
    /// Of each member.
    counters: Arc<Vec<Lanes<Counter>>>,
    arrangement: Arrangement,
    len: u64,
    profile: TierProfile,
}

impl StripeTier {
    /// Stripes `members` in runs of `stripe_bytes`, which must be a multiple of every member's alignment. The
    /// length is as far as the bytes reach without a gap.
    pub fn new(members: Vec<Arc<dyn Tier>>, stripe_bytes: u32) -> Result<StripeTier, TierError> {
        StripeTier::behind(members, stripe_bytes, 0)
    }

    /// The same of members whose first `header_bytes`, a multiple of every member's alignment, too, are none of the stripes.
    pub fn behind(
        members: Vec<Arc<dyn Tier>>,
        stripe_bytes: u32,
        header_bytes: u32,
    ) -> Result<StripeTier, TierError> {
        let alignment = members.iter().map(|m| m.profile().alignment).max().unwrap_or(1).max(1);
        let aligned = stripe_bytes.is_multiple_of(alignment) && header_bytes.is_multiple_of(alignment);
        if members.is_empty() || stripe_bytes == 0 || !aligned {
            let what = format!(
                "cannot stripe {} tiers by {stripe_bytes} bytes behind {header_bytes}: at least one tier is needed and \
                 multiples of {alignment}",
                members.len()
            );
            return Err(TierError::Parameter(what));
        }
        let (n, unit, skip) = (members.len() as u64, u64::from(stripe_bytes), u64::from(header_bytes));
        let len = StripeTier::reach(members.iter().map(|member| member.len().saturating_sub(skip)), unit);
        let method = format!("{n} x {} by {stripe_bytes} bytes", members[0].profile().kind);
        Ok(StripeTier::arranged(members, Arrangement::Stripes { unit, skip }, "stripe", method, len))
    }

    /// How far the bytes of members of these lengths, striped in runs of `stripe_bytes`, reach without a gap.
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

    /// Lays `members` end to end: the first byte of the second follows the last of the first. All but the last must
    /// have a length that is a multiple of every member's alignment.
    pub fn end_to_end(members: Vec<Arc<dyn Tier>>) -> Result<StripeTier, TierError> {
        let alignment = u64::from(members.iter().map(|m| m.profile().alignment).max().unwrap_or(1).max(1));
        let (mut starts, mut len) = (vec![0], 0_u64);
        for member in &members {
            if !len.is_multiple_of(alignment) {
                let what = format!(
                    "a tier of {len} bytes cannot be followed by another: it is no multiple of {alignment}"
                );
                return Err(TierError::Parameter(what));
            }
            len = len.saturating_add(member.len());
            starts.push(len);
        }
        let Some(first) = members.first() else {
            return Err(TierError::Parameter("no tiers to lay end to end".into()));
        };
        let (first, most) = (first.profile().clone(), |of: fn(&TierProfile) -> f64| {
            members.iter().map(|m| of(m.profile())).fold(0.0, f64::max)
        });
        // They lie on one device, as a rule, so that together they are no faster than the fastest of them.
        let (iops, bandwidth) = (most(|p| p.iops), most(|p| p.bandwidth_bytes_per_s));
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
        let sum = |of: fn(&TierProfile) -> f64| members.iter().map(|m| of(m.profile())).sum::<f64>();
        let most = |of: fn(&TierProfile) -> u32| members.iter().map(|m| of(m.profile())).max().unwrap_or(1);
        let profile = TierProfile {
            kind: kind.into(),
            method,
            granularity: most(|p| p.granularity),
            alignment: most(|p| p.alignment),
            addressable: false,
            latency_ns: members.iter().map(|m| m.profile().latency_ns).max().unwrap_or(0),
            iops: sum(|p| p.iops),
            bandwidth_bytes_per_s: sum(|p| p.bandwidth_bytes_per_s),
            depth: members.iter().map(|m| m.profile().depth).fold(0, u32::saturating_add),
            issue_ns: members.iter().map(|m| m.profile().issue_ns).max().unwrap_or(0),
        };
        let counters = Arc::new(members.iter().map(|_| Lanes::default()).collect());
        StripeTier { members, counters, arrangement, len, profile }
    }

    /// What each member has served so far.
    pub fn counters(&self) -> Vec<MemberCounters> {
        let sum = |lanes: &Lanes<Counter>, of: fn(&Counter) -> &AtomicU64| {
            lanes.iter().map(|lane| of(lane).load(Ordering::Relaxed)).sum()
        };
        let load =
            |lanes| MemberCounters { reads: sum(lanes, |c| &c.reads), bytes: sum(lanes, |c| &c.bytes) };
        self.counters.iter().map(load).collect()
    }

    /// For each member the time in nanoseconds that a `share` of its reads so far stayed within, from being handed to it to
    /// being found complete: 0.99 for the 99th percentile. Rounded up by 6% at most; 0 without reads.
    pub fn latencies_ns(&self, share: f64) -> Vec<u64> {
        let of_member = |lanes: &Lanes<Counter>| {
            let mut all = Latencies::default();
            lanes.iter().for_each(|lane| all.merge(&lane.latencies()));
            all.quantile_ns(share)
        };
        self.counters.iter().map(of_member).collect()
    }

    /// Deals `bytes` out to `members` parts, as [`StripeTier::new`] over them will read them back. Empty for
    /// 0 members or a stripe of 0 bytes.
    pub fn deal(bytes: &[u8], members: usize, stripe_bytes: u32) -> Vec<Vec<u8>> {
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
            wholes: Slots::new(),
            pieces: Slots::new(),
            ended: Vec::new(),
            reaped: Vec::new(),
            took_ns: Vec::new(),
            failure: None,
            bell: Arc::default(),
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
    /// Pieces that the member has had no room for yet, under their numbers.
    waiting: VecDeque<Read>,
}

/// One read of the caller.
struct Whole {
    id: u64,
    unfinished: u32,
    /// Bytes from the start of the buffer on that can be trusted as far as is known.
    valid: u32,
    fault: Option<ReadFault>,
}

/// The part of a read that lies in one stripe.
struct Piece {
    whole: u64,
    /// Where it begins within the whole.
    start: u32,
    /// As submitted to the member, but with the caller's buffer even where the member gets none.
    read: Read,
    /// When it was handed to the member.
    begun: Option<Instant>,
}

struct StripeQueue {
    members: Vec<Member>,
    counters: Arc<Vec<Lanes<Counter>>>,
    arrangement: Arrangement,
    len: u64,
    depth: usize,
    wholes: Slots<Whole>,
    pieces: Slots<Piece>,
    ended: Vec<Completion>,
    reaped: Vec<Completion>,
    /// What the completions of one look took.
    took_ns: Vec<u64>,
    /// A member's failure to submit; its reads have failed, and the next `reap` says why.
    failure: Option<TierError>,
    bell: Arc<Bell>,
}

impl StripeQueue {
    fn split(&mut self, read: &Read) {
        let valid = arrived(self.len, read.offset, read.len);
        let mut whole = Whole { id: read.id, unfinished: 0, valid, fault: None };
        if valid == 0 {
            self.ended.push(Completion { id: read.id, result: Ok(0) });
            return;
        }
        let n = self.members.len() as u64;
        let slot = self.wholes.insert(Whole { ..whole });
        let mut start = 0;
        while start < valid {
            let offset = read.offset + u64::from(start);
            let (owner, at, run) = self.arrangement.locate(offset, n);
            let last = owner + 1 == self.members.len();
            // The last bytes are read to the length that alignment asks for, which may lie beyond the end.
            let run =
                if last && matches!(self.arrangement, Arrangement::EndToEnd(_)) { u64::MAX } else { run };
            let len = run.min(u64::from(read.len - start)) as u32;
            let buffer = read.buffer.wrapping_add(start as usize);
            let part = Read { id: 0, offset: at, len, buffer, ..*read };
            let id = self.pieces.insert(Piece { whole: slot, start, read: part, begun: None });
            let member = &mut self.members[owner];
            let buffer = if member.addressable { std::ptr::null_mut() } else { part.buffer };
            member.waiting.push_back(Read { id, buffer, ..part });
            whole.unfinished += 1;
            start += len;
        }
        if let Some(kept) = self.wholes.get_mut(slot) {
            kept.unfinished = whole.unfinished;
        }
    }

    /// Hands waiting pieces to their members.
    fn push(&mut self) -> Result<(), TierError> {
        for m in 0..self.members.len() {
            let member = &mut self.members[m];
            if member.waiting.is_empty() {
                continue;
            }
            // SAFETY: the pieces lie within the callers' buffers, which are ours until their reads complete.
            match unsafe { member.queue.submit(member.waiting.make_contiguous()) } {
                Ok(taken) => {
                    // One look at the clock for all of them.
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

    /// Collects what one member has completed.
    fn pull(&mut self, m: usize, wait: Option<Duration>) -> Result<(), TierError> {
        let mut reaped = std::mem::take(&mut self.reaped);
        let mut outcome = self.members[m].queue.reap(&mut reaped, wait);
        let now = (!reaped.is_empty()).then(Instant::now);
        for completion in reaped.drain(..) {
            let begun = self.pieces.get_mut(completion.id).and_then(|piece| piece.begun);
            if let (Some(now), Some(begun)) = (now, begun) {
                self.took_ns.push(now.saturating_duration_since(begun).as_nanos() as u64);
            }
            let ended = self.end_piece(m, completion.id, completion.result);
            outcome = outcome.and(ended);
        }
        if !self.took_ns.is_empty() {
            let mut latencies = self.counters[m].here().latencies();
            self.took_ns.drain(..).for_each(|ns| latencies.add(ns));
        }
        self.reaped = reaped;
        outcome
    }

    fn end_piece(&mut self, m: usize, id: u64, result: Result<u32, ReadFault>) -> Result<(), TierError> {
        let Some(Piece { whole, start, read, .. }) = self.pieces.remove(id) else { return Err(unknown(id)) };
        let member = &self.members[m];
        let mut result = result;
        if let (true, Ok(got @ 1..)) = (member.addressable, result) {
            match member.queue.map(Span::at(read.offset, got)) {
                // SAFETY: the caller's buffer holds the piece's length, no less than what arrived, and a
                // member's bytes never overlap a caller's buffer.
                Some(bytes) => unsafe {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), read.buffer, got as usize);
                },
                None => result = Err(ReadFault::of(FaultKind::Gone)),
            }
        }
        let got = result.unwrap_or(0);
        let counter = self.counters[m].here();
        counter.reads.fetch_add(1, Ordering::Relaxed);
        counter.bytes.fetch_add(u64::from(got), Ordering::Relaxed);
        let Some(kept) = self.wholes.get_mut(whole) else { return Err(unknown(whole)) };
        kept.unfinished -= 1;
        match result {
            Err(fault) => kept.fault = Some(fault),
            // What follows a gap cannot be trusted to be where it belongs.
            Ok(got) if got < read.len => kept.valid = kept.valid.min(start + got),
            Ok(_) => {}
        }
        if kept.unfinished == 0
            && let Some(Whole { id, valid, fault, .. }) = self.wholes.remove(whole)
        {
            self.ended.push(Completion { id, result: fault.map_or(Ok(valid), Err) });
        }
        Ok(())
    }

    /// One pass over all members, without waiting.
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
            if self.bell.take() {
                break;
            }
            let n = self.members.len();
            let busy = |m: &usize| self.members[*m].queue.in_flight() > 0;
            let Some(m) = (0..n).map(|i| (turn + i) % n).find(busy) else { break };
            let alone = (0..n).filter(busy).count() == 1;
            // What is left is counted in waits, not on a clock, so that it also ends in simulated time.
            let most = if alone { left } else { left.min(TURN) };
            outcome = self.pull(m, Some(most)).and_then(|()| self.sweep());
            (left, turn) = (left - most, m + 1);
        }
        done.append(&mut self.ended);
        outcome.and(self.failure.take().map_or(Ok(()), Err))
    }

    fn map(&self, _span: Span) -> Option<&[u8]> {
        None
    }

    /// None: the bytes lie in parts.
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
        self.wholes.len() + self.ended.len()
    }

    fn give_up(&mut self) {
        self.members.iter_mut().for_each(|member| member.queue.give_up());
    }

    fn waker(&mut self) -> Option<Waker> {
        let wakers =
            self.members.iter_mut().map(|member| member.queue.waker()).collect::<Option<Vec<_>>>()?;
        self.bell = Bell::over(wakers);
        Some(self.bell.clone().into())
    }
}
