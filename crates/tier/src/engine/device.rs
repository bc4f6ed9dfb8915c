//! Submits staged reads to the device, records completions, and waits for the last reads at the end of a run.

use super::core::Core;
use super::ops::{ReadFailure, ReadStage};
use crate::contract::{Completion, Read};
use crate::error::{RunError, TierError};
use std::task::Waker;
use std::time::Duration;

/// Batches served in place between two checks that lent bytes are present.
const CHECK_LENT_EVERY: u32 = 64;

/// The longest single wait while draining.
const DRAIN_WAIT: Duration = Duration::from_millis(20);

impl Core {
    /// Submits staged reads if there are enough of them or a task has yielded for a submission.
    #[inline]
    pub(crate) fn flush_if_full(&mut self) -> Result<(), TierError> {
        if self.staged.len() >= self.submit_batch || self.submit_now {
            return self.flush();
        }
        if self.unchecked >= CHECK_LENT_EVERY { self.check_lent() } else { Ok(()) }
    }

    /// Checks that lent bytes are present, by a submission of no reads ([`Queue::lend`](crate::Queue::lend)).
    #[cold]
    fn check_lent(&mut self) -> Result<(), TierError> {
        self.unchecked = 0;
        // SAFETY: no read, so no buffer.
        unsafe { self.queue.submit(&[]).map(|_| ()) }
    }

    /// Submits as many staged reads as depth, buffers and the device allow.
    fn flush(&mut self) -> Result<(), TierError> {
        let room = self.depth.saturating_sub(self.queue.in_flight());
        self.submit_now = false;
        self.batch.clear();
        while self.batch.len() < room {
            if !self.addressable && self.admitted == 0 {
                self.admit(room - self.batch.len());
                if self.admitted == 0 {
                    break;
                }
            }
            let Some(id) = self.staged.pop_front() else { break };
            self.admitted = self.admitted.saturating_sub(1);
            let op = &mut self.ops[id as usize];
            if op.stage == ReadStage::Withdrawn {
                self.arrive(id);
                continue;
            }
            op.stage = ReadStage::InFlight;
            let buffer = op.buffer.map_or(std::ptr::null_mut(), |b| b.start.as_ptr());
            let read_id = u64::from(op.generation) << 32 | u64::from(id);
            self.batch.push(Read {
                id: read_id,
                offset: op.offset,
                len: op.len,
                buffer,
                round: op.round.into(),
            });
        }
        if self.batch.is_empty() {
            return Ok(());
        }
        // SAFETY: each buffer is held by its op until the op ends, and only a completion ends it.
        let outcome = unsafe { self.queue.submit(&self.batch) };
        let taken = outcome.as_ref().map_or(0, |taken| *taken);
        if taken < self.batch.len() {
            self.put_back(taken);
        }
        if outcome? > self.batch.len() {
            return Err(TierError::Contract("more reads taken than submitted".into()));
        }
        self.stats.submissions += u64::from(taken > 0);
        self.stats.deepest = self.stats.deepest.max(self.queue.in_flight() as u64);
        Ok(())
    }

    /// Puts the reads of a submission, from number `taken` on, back to the front of the queue, in order.
    #[cold]
    fn put_back(&mut self, taken: usize) {
        for read in self.batch[taken..].iter().rev() {
            let id = read.id as u32;
            self.ops[id as usize].stage = ReadStage::Staged;
            self.staged.push_front(id);
        }
        if !self.addressable {
            self.admitted += self.batch.len() - taken;
        }
    }

    /// Returns the number of reads whose buffers a device may still write into.
    pub(crate) fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    /// Returns the queue's waker, which ends a wait in the device early.
    pub(crate) fn waker(&mut self) -> Option<Waker> {
        self.queue.waker()
    }

    /// Submits staged reads and collects completions. Sleeps up to `wait` if there are none; `None` does not
    /// sleep.
    pub(crate) fn advance(&mut self, wait: Option<Duration>) -> Result<(), RunError> {
        self.flush()?;
        self.take_woken();
        if !self.ready.is_empty() {
            return Ok(());
        }
        if self.has_parked() && (self.queue.in_flight() > 0 || self.staged.is_empty()) {
            let idle = self.queue.in_flight() == 0;
            let slept =
                self.sleep_parked(wait, idle, |core, wait| if idle { Ok(()) } else { core.collect(wait) });
            self.take_woken();
            return slept.map_err(RunError::from);
        }
        if self.queue.in_flight() == 0 {
            // Nothing can complete, and every query waits, so none releases a buffer.
            if self.staged.is_empty() {
                return Err(RunError::Stalled);
            }
            if self.admitted > 0 || self.addressable {
                return Err(TierError::Contract("a queue with nothing in flight takes no read".into()).into());
            }
            self.break_deadlock();
            return Ok(());
        }
        self.collect(wait)?;
        Ok(())
    }

    fn collect(&mut self, wait: Option<Duration>) -> Result<(), TierError> {
        let mut completions = std::mem::take(&mut self.completions);
        let mut outcome = self.queue.reap(&mut completions, wait);
        // Every completion is recorded, even after a wrong one: a read that was skipped would hold its
        // buffer forever.
        for completion in &completions {
            if let Err(violation) = self.complete(completion) {
                outcome = outcome.and(Err(violation));
            }
        }
        completions.clear();
        self.completions = completions;
        outcome
    }

    #[inline]
    fn complete(&mut self, completion: &Completion) -> Result<(), TierError> {
        let id = completion.id as u32;
        let generation = (completion.id >> 32) as u32;
        let Some(op) = self.ops.get(id as usize) else {
            return Err(TierError::Contract(format!("completion of unknown read {}", completion.id)));
        };
        if op.stage != ReadStage::InFlight || op.generation != generation {
            return Err(TierError::Contract(format!("read {id} completed although it was not in flight")));
        }
        self.stats.reads += 1;
        match completion.result {
            Err(fault) => self.fail(id, ReadFailure::Device(fault)),
            Ok(got) => {
                self.stats.bytes += u64::from(got);
                let skip = (op.want.offset - op.offset) as u32;
                let useful = got.saturating_sub(skip).min(op.want.len);
                if useful < op.want.len {
                    self.fail(id, ReadFailure::Short { got: useful });
                } else {
                    self.arrive(id);
                }
            }
        }
        Ok(())
    }

    /// Records the arrival of one read.
    #[inline]
    fn arrive(&mut self, id: u32) {
        self.ops[id as usize].stage = ReadStage::Arrived;
        self.end(id);
    }

    /// Records the failure of one read.
    #[cold]
    pub(super) fn fail(&mut self, id: u32, failure: ReadFailure) {
        let op = &mut self.ops[id as usize];
        (op.stage, op.failure) = (ReadStage::Failed, failure);
        self.groups[op.group as usize].failed += 1;
        self.end(id);
    }

    /// Counts one unfinished read of its group less, and puts the task on the ready list if it waits for this
    /// read. The result of the read is not an argument: to build and copy an enum takes longer than the rest
    /// of this function.
    #[inline]
    fn end(&mut self, id: u32) {
        let op = &mut self.ops[id as usize];
        let group_id = op.group;
        let group = &mut self.groups[group_id as usize];
        group.unfinished -= 1;
        if group.abandoned {
            // No query will use the bytes, and another one may wait for the buffer.
            if let Some(buffer) = op.buffer.take() {
                self.pool.release(buffer);
            }
            if group.unfinished == 0 {
                self.close_group(group_id);
            }
            return;
        }
        if group.stream {
            group.arrived.push_back(id);
        }
        if group.waiting && (group.stream || group.unfinished == 0) {
            group.waiting = false;
            self.ready.push_back(group.task);
        }
    }

    /// Ends the reads that dropped queries left in the queue of staged reads, and waits for those in flight.
    /// Called after a run.
    pub(crate) fn drain_after_run(&mut self) -> Result<(), TierError> {
        for _ in 0..self.staged.len() {
            let Some(id) = self.staged.pop_front() else { break };
            if self.ops[id as usize].is_withdrawn() {
                self.arrive(id);
            } else {
                self.staged.push_back(id);
            }
        }
        self.admitted = self.staged.iter().take_while(|id| self.ops[**id as usize].buffer.is_some()).count();
        let drained = self.drain(self.drain_patience);
        self.ready.clear();
        self.forget_woken();
        drained
    }

    /// Checks, after a run on an addressable tier, that all lent bytes were present.
    pub(crate) fn check_lent_after_run(&mut self) -> Result<(), TierError> {
        if !self.addressable {
            return Ok(());
        }
        // Reads of a stream may be in flight. Loads arrive at once, and the queue checks thoroughly when
        // nothing is in flight.
        if self.queue.in_flight() > 0 {
            self.collect(None)?;
        }
        if self.queue.in_flight() == 0 { self.collect(None) } else { Ok(()) }
    }

    /// Waits until nothing is in flight. `patience` is the total of waits that brought nothing, not a time on
    /// a clock, so that this also ends on a tier whose time is simulated.
    pub(super) fn drain(&mut self, patience: Duration) -> Result<(), TierError> {
        let mut left = patience;
        while self.queue.in_flight() > 0 && !left.is_zero() {
            let before = self.stats.reads;
            let wait = left.min(DRAIN_WAIT);
            self.collect(Some(wait))?;
            if self.stats.reads == before {
                left -= wait;
            }
        }
        Ok(())
    }
}
