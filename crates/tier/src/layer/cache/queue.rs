//! One queue of a cached tier.

use super::shard::Entry;
use super::{CacheState, Counts, Tally};
use crate::backend::in_place::available_len;
use crate::contract::{Completion, Queue, Read, Span};
use crate::error::{FaultKind, ReadFault, TierError};
use crate::forward::LayerQueue;
use crate::lanes::Padded;
use crate::layer::{Slots, unknown};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A read of the caller that needs the tier.
struct InFlight {
    /// The caller's id.
    id: u64,
    /// Bytes of the caller's read that exist.
    valid: u32,
    /// Bytes at its start that came from the cache.
    front: u32,
    /// Read of the tier: from the first page that is not cached to the last.
    part: Read,
}

/// Queue of a cached tier. Hits are copied in `submit` and completed by the next `reap`.
pub(super) struct CacheQueue {
    queue: Box<dyn Queue>,
    state: Arc<CacheState>,
    entry: Entry,
    tier_len: u64,
    depth: usize,
    in_flight: Slots<InFlight>,
    /// Reads that the tier has not taken yet, with slot numbers as ids.
    waiting: VecDeque<Read>,
    ended: Vec<Completion>,
    reaped: Vec<Completion>,
    tally: Tally,
    counts: Arc<Padded<Counts>>,
    /// Error of a submission to the tier. Its reads have failed, and the next `reap` returns it.
    failure: Option<TierError>,
}

impl CacheQueue {
    pub(super) fn new(
        queue: Box<dyn Queue>,
        state: Arc<CacheState>,
        entry: Entry,
        tier_len: u64,
        depth: u32,
    ) -> CacheQueue {
        CacheQueue {
            queue,
            counts: state.open_counts(),
            state,
            entry,
            tier_len,
            depth: depth.max(1) as usize,
            in_flight: Slots::new(),
            waiting: VecDeque::new(),
            ended: Vec::new(),
            reaped: Vec::new(),
            tally: Tally::default(),
            failure: None,
        }
    }

    /// Returns the number of reads taken and not yet reaped.
    fn unreaped(&self) -> usize {
        self.in_flight.len() + self.ended.len()
    }

    /// Copies page number `i` of a read into its buffer, if it is cached. Returns true if it was.
    #[inline]
    fn copy(&mut self, read: &Read, valid: u32, i: u32) -> bool {
        let page_bytes = self.state.page_bytes as u32;
        let page = read.offset / self.state.page_bytes + u64::from(i);
        let start = i * page_bytes;
        let len = page_bytes.min(valid - start);
        {
            let shard = self.state.read(page);
            let Some(bytes) = shard.get(page) else { return false };
            debug_assert!(bytes.len() >= len as usize);
            // SAFETY: the page lies within the `valid` bytes of the caller's buffer, which only this queue
            // touches until the read completes. The cache's page has at least `len` bytes and is not a part
            // of that buffer.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    bytes.as_ptr(),
                    read.buffer.wrapping_add(start as usize),
                    len as usize,
                );
            }
        }
        if self.entry == Entry::Pin {
            self.state.write(page).pin(page);
        }
        self.tally.hits += 1;
        self.tally.hit_bytes += u64::from(len);
        true
    }

    /// Serves one read: copies cached pages at its start and end, and requests the rest from the tier in one
    /// read.
    fn serve(&mut self, read: &Read) {
        let page_bytes = self.state.page_bytes as u32;
        let valid = available_len(self.tier_len, read.offset, read.len);
        let aligned = (read.offset | u64::from(read.len)) & (self.state.page_bytes - 1) == 0;
        let pages = if aligned { valid.div_ceil(page_bytes) } else { 0 };
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
        let id = self.in_flight.insert(InFlight { id: read.id, valid, front: start, part });
        self.waiting.push_back(Read { id, ..part });
    }

    /// Submits waiting reads to the tier.
    fn push(&mut self) -> Result<(), TierError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        // SAFETY: the parts lie within the caller's buffers, which only this queue touches until their reads
        // complete.
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

    /// Ends one read with the tier's result, and caches the pages that have arrived completely.
    fn end(&mut self, id: u64, result: Result<u32, ReadFault>) -> Result<(), TierError> {
        let Some(read) = self.in_flight.remove(id) else { return Err(unknown(id)) };
        let InFlight { id, valid, front, part } = read;
        let result = result.map(|got| {
            let got = got.min(available_len(self.tier_len, part.offset, part.len));
            self.insert_pages(&part, got);
            self.tally.miss_bytes += u64::from(got);
            // If the part is complete, the cached pages after it are valid, too.
            let part_len = available_len(self.tier_len, part.offset, part.len);
            if got == part_len { valid } else { front + got }
        });
        self.ended.push(Completion { id, result });
        Ok(())
    }

    /// Inserts the complete pages among the first `got` bytes of a read into the cache.
    fn insert_pages(&mut self, part: &Read, got: u32) {
        let page_bytes = self.state.page_bytes;
        if (part.offset | u64::from(part.len)) & (page_bytes - 1) != 0 {
            return;
        }
        let mut start = 0;
        while start < got {
            let offset = part.offset + u64::from(start);
            // The tier's last page may be shorter.
            let len = page_bytes.min(self.tier_len - offset) as u32;
            if start + len > got {
                return;
            }
            // SAFETY: these bytes of the caller's buffer have arrived, and only this queue touches the buffer
            // until the completion is reaped.
            let bytes =
                unsafe { std::slice::from_raw_parts(part.buffer.wrapping_add(start as usize), len as usize) };
            let page = offset / page_bytes;
            self.tally.evictions += self.state.write(page).insert(page, bytes, self.entry);
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

    /// Publishes the counts. Loading pages ahead of time counts as neither hits nor misses.
    fn publish_counts(&mut self) {
        let tally = std::mem::take(&mut self.tally);
        self.counts.0.add(&match self.entry {
            Entry::Read => tally,
            Entry::Warm | Entry::Pin => Tally { evictions: tally.evictions, ..Tally::default() },
        });
    }
}

impl Drop for CacheQueue {
    fn drop(&mut self) {
        self.state.close_counts(&self.counts);
    }
}

impl LayerQueue for CacheQueue {
    fn below(&self) -> &dyn Queue {
        &*self.queue
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.queue
    }

    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        let taken = reads.len().min(self.depth.saturating_sub(self.unreaped()));
        for read in &reads[..taken] {
            self.serve(read);
        }
        let outcome = self.push();
        self.publish_counts();
        outcome.map(|()| taken)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let mut outcome = Ok(());
        if self.in_flight.len() > 0 {
            // If reads have ended already, this does not wait.
            outcome = self.pull(if self.ended.is_empty() { wait } else { None });
            self.publish_counts();
        }
        done.append(&mut self.ended);
        outcome.and(self.failure.take().map_or(Ok(()), Err))
    }

    /// Returns `None`: cached pages may be evicted.
    fn map(&self, _span: Span) -> Option<&[u8]> {
        None
    }

    fn in_flight(&self) -> usize {
        self.unreaped()
    }
}
