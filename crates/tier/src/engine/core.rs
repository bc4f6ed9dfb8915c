//! The engine's books: which read belongs to which task, which buffers a device may still write into.

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

/// Staged reads are handed over at the latest when this many have gathered: enough to share the cost of a
/// system call, few enough that the device does not idle while other queries compute.
const SUBMIT_BATCH: usize = 16;

/// The same where reads are loads: a beam of a graph. There is no system call to share, only the cost of handing over,
/// and reads held back arrive late: held until 16 had gathered, four queries of four reads each all computed first and
/// then all waited.
const SUBMIT_LOADS: usize = 4;

/// How long a dropped engine waits for its last reads before it gives their buffers up for good.
const DROP_PATIENCE: Duration = Duration::from_secs(1);

/// What the reads of an engine have cost. Exact counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Reads completed.
    pub reads: u64,
    /// Bytes that arrived, alignment included.
    pub bytes: u64,
    /// Calls of [`Queue::submit`] that took at least one read.
    pub submissions: u64,
    /// Most reads in flight at once.
    pub deepest: u64,
}

/// See the module's description.
pub(crate) struct Core {
    // Dropped first: afterwards no device writes into the pool's memory.
    pub(super) queue: ManuallyDrop<Box<dyn Queue>>,
    pub(super) pool: ManuallyDrop<BufferPool>,
    pub(super) tier_len: u64,
    pub(super) alignment: u64,
    pub(super) addressable: bool,
    /// First byte of a tier whose bytes are read where they lie, if all of it lies there until the queue goes.
    pub(super) resident: Option<NonNull<u8>>,
    /// Reads served in place whose queries have not gone on yet.
    pub(super) lent: usize,
    /// Batches served in place since the queue was last asked whether its bytes are there.
    pub(super) unlooked: u32,
    /// Staged reads that are handed over without waiting for more.
    pub(super) submit_batch: usize,
    /// Staged reads are handed over before another task is stepped.
    pub(super) submit_now: bool,
    pub(super) depth: usize,
    pub(super) ops: Vec<Op>,
    pub(super) free_ops: Vec<u32>,
    pub(super) groups: Vec<Group>,
    pub(super) free_groups: Vec<u32>,
    /// In order of staging; nearly always handed over as a whole.
    pub(super) staged: VecDeque<u32>,
    /// How many staged reads from the first on have their buffers.
    pub(super) admitted: usize,
    /// [`BufferPool::releases`] when the first read without a buffer was last refused one.
    pub(super) refused_at: Option<u64>,
    pub(super) ready: VecDeque<u32>,
    pub(super) current: u32,
    /// Of each task the round that a read which it asks for now belongs to: one more than the latest of which it has been given
    /// bytes. Of batches that are served in place nothing is booked, nor counted.
    pub(super) rounds: Vec<u16>,
    /// Tasks that wait for something that is no read, and those of them that were woken.
    pub(super) parked: usize,
    pub(super) inbox: Arc<Inbox>,
    /// What ends a sleep in the device, once it has been asked for.
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
            unlooked: 0,
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

    /// A task begins; it becomes the current one.
    #[inline]
    pub(crate) fn begin(&mut self, task: u32) {
        self.current = task;
        if self.rounds.len() <= task as usize {
            self.rounds.resize(task as usize + 1, 1);
        }
        self.rounds[task as usize] = 1;
    }

    /// The round of a read that the current task asks for now.
    #[inline]
    pub(super) fn round(&self) -> u16 {
        self.rounds.get(self.current as usize).copied().unwrap_or(1)
    }

    /// The current task is given the bytes of a read, on which may depend what it asks for from now on.
    #[inline]
    pub(super) fn given(&mut self, op: u32) {
        let next = self.ops[op as usize].round.saturating_add(1);
        if let Some(round) = self.rounds.get_mut(self.current as usize) {
            *round = next.max(*round);
        }
    }

    /// Hands staged reads over once enough have gathered; then the next task to step, which becomes the
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
    /// Reads that the books have room for, and of these the ones in use.
    pub(super) fn booked(&self) -> (usize, usize) {
        (self.ops.len(), self.ops.len() - self.free_ops.len())
    }

    /// Of each batch that stands in the line: how many of its reads have a buffer, and how many wait there.
    pub(super) fn batches_in_line(&self) -> std::collections::BTreeMap<u32, (usize, usize)> {
        let mut batches = std::collections::BTreeMap::new();
        for op in self.staged.iter().map(|id| &self.ops[*id as usize]) {
            if op.stage == super::ops::Stage::Staged && !self.groups[op.group as usize].stream {
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
        // What went wrong with reads that nobody waits for is of no interest any more; bytes that are lent nobody writes.
        self.queue.give_up();
        let _ = self.drain(DROP_PATIENCE);
        let quiet = self.addressable || self.queue.in_flight() == 0;
        if !quiet {
            // A device may still write: leaking queue, buffers and regions is the only safe end.
            std::mem::forget(std::mem::take(&mut self.regions));
            return;
        }
        // SAFETY: neither is used again, and the queue goes before the memory that it was given.
        unsafe {
            ManuallyDrop::drop(&mut self.queue);
            ManuallyDrop::drop(&mut self.pool);
        }
    }
}
