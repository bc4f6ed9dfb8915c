//! The engine's state: the reads and their tasks, and the buffers that a device may still write into.

use super::EngineOptions;
use super::ops::{Group, Op};
use super::region::Regions;
use super::wake::Inbox;
use crate::buffers::BufferPool;
use crate::contract::{Completion, Queue, Read, Tier};
use crate::error::TierError;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// Number of staged reads at which they are submitted at the latest: enough to share the cost of a system
/// call, few enough that the device does not idle while other queries compute.
const SUBMIT_BATCH: usize = 16;

/// The same number for an addressable tier: one beam of a graph. There is no system call to share, only the
/// cost of the call to the queue, and reads that are held back arrive late: with 16, four queries of four
/// reads each all computed first, and then all waited.
const SUBMIT_LOADS: usize = 4;

/// Time for which a dropped engine waits for its last reads before it leaks their buffers.
const DROP_PATIENCE: Duration = Duration::from_secs(1);

/// Exact counts of an engine's reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Reads completed.
    pub reads: u64,
    /// Bytes that arrived, alignment included.
    pub bytes: u64,
    /// Calls of [`Queue::submit`] that took at least one read.
    pub submissions: u64,
    /// Largest number of reads in flight at once.
    pub deepest: u64,
}

/// State of an engine, shared with the handles and futures of its queries.
pub(crate) struct Core {
    // Dropped first: afterwards no device writes into the pool's memory.
    pub(super) queue: ManuallyDrop<Box<dyn Queue>>,
    pub(super) pool: ManuallyDrop<BufferPool>,
    pub(super) tier_len: u64,
    pub(super) alignment: u64,
    pub(super) addressable: bool,
    /// First byte of the tier, if the queue lends all of it in place ([`Queue::lend`]).
    pub(super) resident: Option<NonNull<u8>>,
    /// Reads served in place whose tasks have not been polled since.
    pub(super) lent: usize,
    /// Batches served in place since the last check that lent bytes are present.
    pub(super) unchecked: u32,
    /// Number of staged reads that are submitted without waiting for more.
    pub(super) submit_batch: usize,
    /// True if staged reads are submitted before another task is stepped.
    pub(super) submit_now: bool,
    pub(super) depth: usize,
    pub(super) ops: Vec<Op>,
    pub(super) free_ops: Vec<u32>,
    pub(super) groups: Vec<Group>,
    pub(super) free_groups: Vec<u32>,
    /// Queue of staged reads, in order of staging; nearly always submitted as a whole.
    pub(super) staged: VecDeque<u32>,
    /// Number of staged reads, from the first one on, that have their buffers.
    pub(super) admitted: usize,
    /// [`BufferPool::releases`] when the first read without a buffer was last refused one.
    pub(super) refused_at: Option<u64>,
    pub(super) ready: VecDeque<u32>,
    pub(super) current: u32,
    /// Round of the next read of each task: one more than the latest round of which the task has received
    /// bytes. Batches that are served in place do not count.
    pub(super) rounds: Vec<u16>,
    /// Number of tasks that wait for something other than a read.
    pub(super) parked: usize,
    /// Tasks that were woken.
    pub(super) inbox: Arc<Inbox>,
    /// The queue's waker, once it has been requested; it ends a sleep in the device.
    pub(super) device_waker: Option<Option<Waker>>,
    pub(super) batch: Vec<Read>,
    pub(super) completions: Vec<Completion>,
    pub(super) drain_patience: Duration,
    pub(super) stats: EngineStats,
    pub(super) regions: Regions,
    _tier: Arc<dyn Tier>,
}

impl Core {
    pub(crate) fn new(tier: Arc<dyn Tier>, options: EngineOptions) -> Result<Core, TierError> {
        let depth = options.depth.max(1);
        let mut queue = tier.open(depth)?;
        let profile = tier.profile();
        let alignment = u64::from(profile.alignment.max(1));
        if !alignment.is_power_of_two() || alignment > crate::BUFFER_ALIGNMENT as u64 {
            return Err(TierError::Contract(format!("alignment {alignment} is no power of two up to 4096")));
        }
        let frames = if profile.addressable { 1 } else { depth as usize };
        let pool =
            BufferPool::new(frames, options.frame_bytes, options.buffer_budget_bytes, alignment as usize);
        if !profile.addressable {
            let (start, len) = pool.region();
            // SAFETY: the pool outlives the queue (see `Drop`).
            unsafe { queue.register(start, len)? };
        }
        let resident = queue.lend().filter(|bytes| alignment == 1 && bytes.len() as u64 == tier.len());
        let resident = resident.map(NonNull::from);
        Ok(Core {
            queue: ManuallyDrop::new(queue),
            pool: ManuallyDrop::new(pool),
            tier_len: tier.len(),
            alignment,
            addressable: profile.addressable,
            resident: resident.map(NonNull::cast),
            lent: 0,
            unchecked: 0,
            submit_batch: if profile.addressable { SUBMIT_LOADS } else { SUBMIT_BATCH },
            submit_now: false,
            depth: depth as usize,
            ops: Vec::with_capacity(depth as usize),
            free_ops: Vec::with_capacity(depth as usize),
            groups: Vec::new(),
            free_groups: Vec::new(),
            staged: VecDeque::with_capacity(depth as usize),
            admitted: 0,
            refused_at: None,
            ready: VecDeque::with_capacity(depth as usize),
            current: 0,
            rounds: Vec::new(),
            parked: 0,
            inbox: Arc::default(),
            device_waker: None,
            batch: Vec::with_capacity(depth as usize),
            completions: Vec::with_capacity(depth as usize),
            drain_patience: options.drain_patience,
            stats: EngineStats::default(),
            regions: Regions::default(),
            _tier: tier,
        })
    }

    pub(crate) fn alignment(&self) -> u32 {
        self.alignment as u32
    }

    pub(crate) fn buffer_bytes(&self) -> u64 {
        self.pool.allocated_bytes()
    }

    /// Begins a task, which becomes the current one.
    #[inline]
    pub(crate) fn begin(&mut self, task: u32) {
        self.current = task;
        if self.rounds.len() <= task as usize {
            self.rounds.resize(task as usize + 1, 1);
        }
        self.rounds[task as usize] = 1;
    }

    /// Returns the round of the next read of the current task.
    #[inline]
    pub(super) fn round(&self) -> u16 {
        self.rounds.get(self.current as usize).copied().unwrap_or(1)
    }

    /// Updates the round of the current task, which receives the bytes of a read: its further reads may
    /// depend on them.
    #[inline]
    pub(super) fn note_received(&mut self, op: u32) {
        let next = self.ops[op as usize].round.saturating_add(1);
        if let Some(round) = self.rounds.get_mut(self.current as usize) {
            *round = next.max(*round);
        }
    }

    /// Submits staged reads if there are enough of them. Returns the next task to step, which becomes the
    /// current one.
    #[inline]
    pub(crate) fn next_ready(&mut self) -> Result<Option<u32>, TierError> {
        self.flush_if_full()?;
        let task = self.ready.pop_front();
        self.current = task.unwrap_or(self.current);
        Ok(task)
    }
}

#[cfg(test)]
impl Core {
    /// Returns the number of entries in the table of reads, and how many of them are in use.
    pub(super) fn read_entries(&self) -> (usize, usize) {
        (self.ops.len(), self.ops.len() - self.free_ops.len())
    }

    /// Returns, for each batch in the queue of staged reads, how many of its reads have a buffer, and how
    /// many are staged.
    pub(super) fn staged_batches(&self) -> std::collections::BTreeMap<u32, (usize, usize)> {
        let mut batches = std::collections::BTreeMap::new();
        for op in self.staged.iter().map(|id| &self.ops[*id as usize]) {
            if op.stage == super::ops::ReadStage::Staged && !self.groups[op.group as usize].stream {
                let (held, waiting): &mut (usize, usize) = batches.entry(op.group).or_default();
                *held += usize::from(op.buffer.is_some());
                *waiting += 1;
            }
        }
        batches
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.queue.give_up();
        // No query waits for these reads, so their errors do not matter.
        let _ = self.drain(DROP_PATIENCE);
        // An addressable tier writes into no buffer.
        let quiet = self.addressable || self.queue.in_flight() == 0;
        if !quiet {
            // A device may still write: to leak queue, buffers and regions is the only safe end.
            std::mem::forget(std::mem::take(&mut self.regions));
            return;
        }
        // SAFETY: neither is used again, and the queue is dropped before the memory that it was given.
        unsafe {
            ManuallyDrop::drop(&mut self.queue);
            ManuallyDrop::drop(&mut self.pool);
        }
    }
}
