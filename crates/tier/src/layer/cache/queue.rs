//! One queue of a cached tier.

use super::shard::Entry;
use super::{Counts, Shared, Tally};
use crate::backend::in_place::arrived;
use crate::contract::{Completion, Queue, Read, Span};
use crate::error::{FaultKind, ReadFault, TierError};
use crate::lanes::Padded;
use crate::layer::{Slots, unknown};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// A read that needs the tier.
struct Flight {
    /// The caller's name for it.
    id: u64,
    /// Bytes of the caller's read that exist.
    valid: u32,
    /// Bytes at its start that came from the cache.
    front: u32,
    /// What the tier reads: from the first page that is not cached to the last.
    part: Read,
}

/// See the module's description. Hits are copied in `submit` and completed by the next `reap`.
pub(super) struct CacheQueue {
    queue: Box<dyn Queue>,
    shared: Arc<Shared>,
    entry: Entry,
    tier_len: u64,
    depth: usize,
    flights: Slots<Flight>,
    /// Reads that the tier has had no room for yet, under their numbers.
    waiting: VecDeque<Read>,
    ended: Vec<Completion>,
    reaped: Vec<Completion>,
    tally: Tally,
    counts: Arc<Padded<Counts>>,
    /// The tier's failure to submit; its reads have failed, and the next `reap` says why.
    failure: Option<TierError>,
}

impl CacheQueue {
    pub(super) fn new(
        queue: Box<dyn Queue>,
        shared: Arc<Shared>,
        entry: Entry,
        tier_len: u64,
        depth: u32,
    ) -> CacheQueue {
        CacheQueue {
            queue,
            counts: shared.begin(),
            shared,
            entry,
            tier_len,
            depth: depth.max(1) as usize,
            flights: Slots::new(),
            waiting: VecDeque::new(),
            ended: Vec::new(),
            reaped: Vec::new(),
            tally: Tally::default(),
            failure: None,
        }
    }

    /// Copies page number `i` of a read into its buffer, if it is cached.
    #[inline]
    fn copy(&mut self, read: &Read, valid: u32, i: u32) -> bool {
        let page_bytes = self.shared.page_bytes as u32;
        let page = read.offset / self.shared.page_bytes + u64::from(i);
        let start = i * page_bytes;
        let len = page_bytes.min(valid - start);
        {
            let shard = self.shared.read(page);
            let Some(bytes) = shard.get(page) else { return false };
            debug_assert!(bytes.len() >= len as usize);
            // SAFETY: the page lies within the `valid` bytes of the caller's buffer, which is ours until the read
            // completes; the cache's page is `len` bytes long at least and no part of that buffer.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    bytes.as_ptr(),
                    read.buffer.wrapping_add(start as usize),
                    len as usize,
                );
            }
        }
        if self.entry == Entry::Pin {
            self.shared.write(page).pin(page);
        }
        self.tally.hits += 1;
        self.tally.hit_bytes += u64::from(len);
        true
    }

    /// Serves one read: cached pages at its ends are copied, what lies between is asked of the tier in one piece.
    fn serve(&mut self, read: &Read) {
        let page_bytes = self.shared.page_bytes as u32;
        let valid = arrived(self.tier_len, read.offset, read.len);
        let whole = (read.offset | u64::from(read.len)) & (self.shared.page_bytes - 1) == 0;
        let pages = if whole { valid.div_ceil(page_bytes) } else { 0 };
        let front = (0..pages).take_while(|i| self.copy(read, valid, *i)).count() as u32;
        if pages > 0 && front == pages {
            self.ended.push(Completion { id: read.id, result: Ok(valid) });
            return;
        }
        let back = (front + 1..pages).rev().take_while(|i| self.copy(read, valid, *i)).count() as u32;
        let start = front * page_bytes;
        let end = if back == 0 { read.len } else { (pages - back) * page_bytes };
        self.tally.misses += u64::from(pages - front - back);
        let part = Read {
            id: 0,
            offset: read.offset + u64::from(start),
            len: end - start,
            buffer: read.buffer.wrapping_add(start as usize),
            ..*read
        };
        let id = self.flights.insert(Flight { id: read.id, valid, front: start, part });
        self.waiting.push_back(Read { id, ..part });
    }

    /// Hands waiting reads to the tier.
    fn push(&mut self) -> Result<(), TierError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        // SAFETY: the parts lie within the callers' buffers, which are ours until their reads complete.
        match unsafe { self.queue.submit(self.waiting.make_contiguous()) } {
            Ok(taken) => drop(self.waiting.drain(..taken.min(self.waiting.len()))),
            Err(e) => {
                self.failure = Some(e);
                for read in std::mem::take(&mut self.waiting) {
                    self.end(read.id, Err(ReadFault::of(FaultKind::Device)))?;
                }
            }
        }
        Ok(())
    }

    /// Books what the tier has done with one read, and keeps the pages that have arrived whole.
    fn end(&mut self, id: u64, result: Result<u32, ReadFault>) -> Result<(), TierError> {
        let Some(flight) = self.flights.remove(id) else { return Err(unknown(id)) };
        let Flight { id, valid, front, part } = flight;
        let result = result.map(|got| {
            let got = got.min(arrived(self.tier_len, part.offset, part.len));
            self.keep(&part, got);
            self.tally.miss_bytes += u64::from(got);
            // With the part complete, the cached pages behind it count as well.
            let gap = arrived(self.tier_len, part.offset, part.len);
            if got == gap { valid } else { front + got }
        });
        self.ended.push(Completion { id, result });
        Ok(())
    }

    /// Puts the whole pages among the first `got` bytes of a read into the cache.
    fn keep(&mut self, part: &Read, got: u32) {
        let page_bytes = self.shared.page_bytes;
        if (part.offset | u64::from(part.len)) & (page_bytes - 1) != 0 {
            return;
        }
        let mut start = 0;
        while start < got {
            let offset = part.offset + u64::from(start);
            // The tier's last page may be a part of one.
            let len = page_bytes.min(self.tier_len - offset) as u32;
            if start + len > got {
                return;
            }
            // SAFETY: these bytes of the caller's buffer have arrived, and it is ours until the completion is
            // handed out.
            let bytes =
                unsafe { std::slice::from_raw_parts(part.buffer.wrapping_add(start as usize), len as usize) };
            let page = offset / page_bytes;
            self.tally.evictions += self.shared.write(page).insert(page, bytes, self.entry);
            start += len;
        }
    }

    fn pull(&mut self, wait: Option<Duration>) -> Result<(), TierError> {
        let mut reaped = std::mem::take(&mut self.reaped);
        let mut outcome = self.queue.reap(&mut reaped, wait);
        for completion in reaped.drain(..) {
            let ended = self.end(completion.id, completion.result);
            outcome = outcome.and(ended);
        }
        self.reaped = reaped;
        outcome.and(self.push())
    }

    /// Adds what has been counted to the shared counters. Loading pages ahead of time is nobody's hit or miss.
    fn note(&mut self) {
        let tally = std::mem::take(&mut self.tally);
        self.counts.0.add(&match self.entry {
            Entry::Read => tally,
            Entry::Warm | Entry::Pin => Tally { evictions: tally.evictions, ..Tally::default() },
        });
    }
}

impl Drop for CacheQueue {
    fn drop(&mut self) {
        self.shared.end(&self.counts);
    }
}

impl Queue for CacheQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        let taken = reads.len().min(self.depth.saturating_sub(self.in_flight()));
        for read in &reads[..taken] {
            self.serve(read);
        }
        let outcome = self.push();
        self.note();
        outcome.map(|()| taken)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let mut outcome = Ok(());
        if self.flights.len() > 0 {
            // What is there already is not kept waiting.
            outcome = self.pull(if self.ended.is_empty() { wait } else { None });
            self.note();
        }
        done.append(&mut self.ended);
        outcome.and(self.failure.take().map_or(Ok(()), Err))
    }

    fn map(&self, _span: Span) -> Option<&[u8]> {
        None
    }

    /// None: pages come and go.
    fn lend(&self) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, region: *mut u8, len: usize) -> Result<(), TierError> {
        // SAFETY: passed on under the same contract.
        unsafe { self.queue.register(region, len) }
    }

    fn in_flight(&self) -> usize {
        self.flights.len() + self.ended.len()
    }

    fn give_up(&mut self) {
        self.queue.give_up();
    }

    fn waker(&mut self) -> Option<Waker> {
        self.queue.waker()
    }
}
