//! The engine's books: which read belongs to which task, which buffers a device may still write into.

use crate::buffers::{Buffer, BufferPool};
use crate::contract::{Completion, Queue, Read, Span, Tier};
use crate::engine::EngineOptions;
use crate::engine::region::{Region, RegionId, Regions};
use crate::error::{ReadError, ReadFault, RunError, TierError};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
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

/// The longest single wait while draining.
const DRAIN_WAIT: Duration = Duration::from_millis(20);

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Free,
    Staged,
    /// Staged by a query that has gone: it ends when its turn comes, instead of being searched for in the line.
    Withdrawn,
    InFlight,
    /// Ended with all its bytes.
    Arrived,
    /// Ended without.
    Failed,
}

/// Why a read failed; smaller than the error that it becomes on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    Device(ReadFault),
    Short { got: u32 },
    Outside,
    Budget { needed: u64 },
    NoPlace,
}

/// One read and what it has come to.
pub(super) struct Op {
    stage: Stage,
    generation: u32,
    pub(super) group: u32,
    /// The number that its query knows it by.
    place: u32,
    /// Where the group lists it.
    at: u32,
    /// The span as the query asked for it.
    want: Span,
    /// The aligned span that is read, and the buffer that it is read into.
    offset: u64,
    pub(super) len: u32,
    pub(super) buffer: Option<Buffer>,
    /// Of a failed read.
    failure: Failure,
}

impl Op {
    const FREE: Op = Op {
        stage: Stage::Free,
        generation: 0,
        group: 0,
        place: 0,
        at: 0,
        want: Span { offset: 0, len: 0 },
        offset: 0,
        len: 0,
        buffer: None,
        failure: Failure::Outside,
    };
}

impl Op {
    fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Arrived | Stage::Failed)
    }

    /// Whether it goes into a region of the caller's.
    pub(super) fn is_claim(&self) -> bool {
        self.buffer.is_some_and(|buffer| buffer.is_claim())
    }

    /// Whether it stands in the line for a query that has gone.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.stage == Stage::Withdrawn
    }
}

/// Reads that one task awaits together ([`super::Batch`]) or one by one ([`super::Stream`]).
pub(super) struct Group {
    pub(super) task: u32,
    /// Of a batch in order; of a stream in any, without those that have been handed out and given back.
    ops: Vec<u32>,
    unfinished: u32,
    /// Finished, but not with all their bytes.
    failed: u32,
    /// Finished and not yet handed out; only used by streams.
    arrived: VecDeque<u32>,
    /// The number of a stream's next read.
    next_place: u32,
    pub(super) stream: bool,
    waiting: bool,
    orphaned: bool,
}

/// See the module's description.
pub(crate) struct Core {
    // Dropped first: afterwards no device writes into the pool's memory.
    queue: ManuallyDrop<Box<dyn Queue>>,
    pub(super) pool: ManuallyDrop<BufferPool>,
    tier_len: u64,
    alignment: u64,
    addressable: bool,
    /// Staged reads that are handed over without waiting for more.
    submit_batch: usize,
    depth: usize,
    pub(super) ops: Vec<Op>,
    free_ops: Vec<u32>,
    pub(super) groups: Vec<Group>,
    free_groups: Vec<u32>,
    /// In order of staging; nearly always handed over as a whole.
    pub(super) staged: VecDeque<u32>,
    /// How many staged reads from the first on have their buffers.
    pub(super) admitted: usize,
    /// [`BufferPool::releases`] when the first read without a buffer was last refused one.
    pub(super) refused_at: Option<u64>,
    ready: VecDeque<u32>,
    current: u32,
    batch: Vec<Read>,
    completions: Vec<Completion>,
    drain_patience: Duration,
    pub(crate) stats: EngineStats,
    regions: Regions,
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
        Ok(Core {
            queue: ManuallyDrop::new(queue),
            pool: ManuallyDrop::new(pool),
            tier_len: tier.len(),
            alignment,
            addressable: profile.addressable,
            submit_batch: if profile.addressable { SUBMIT_LOADS } else { SUBMIT_BATCH },
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

    #[inline]
    pub(crate) fn set_current(&mut self, task: u32) {
        self.current = task;
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

    /// Opens a group for the current task.
    #[inline]
    pub(crate) fn open_group(&mut self, stream: bool) -> u32 {
        let task = self.current;
        if let Some(id) = self.free_groups.pop() {
            let group = &mut self.groups[id as usize];
            (group.task, group.stream, group.waiting, group.orphaned) = (task, stream, false, false);
            group.failed = 0;
            if stream {
                group.next_place = 0;
            }
            return id;
        }
        self.groups.push(Group {
            task,
            ops: Vec::new(),
            unfinished: 0,
            failed: 0,
            arrived: VecDeque::new(),
            next_place: 0,
            stream,
            waiting: false,
            orphaned: false,
        });
        (self.groups.len() - 1) as u32
    }

    /// Stages one read for `group`; the number that the group knows it by is the return value.
    #[inline]
    pub(crate) fn stage(&mut self, group: u32, want: Span) -> u32 {
        let outside = want.len == 0 || want.end() > self.tier_len;
        let start = want.offset & !(self.alignment - 1);
        // The alignment is a power of two; a division here would be a tenth of the whole suspension.
        let aligned = (want.end() - start).saturating_add(self.alignment - 1) & !(self.alignment - 1);
        let too_long = u32::try_from(aligned).is_err();
        let id = match self.free_ops.pop() {
            Some(id) => id,
            None => {
                self.ops.push(Op::FREE);
                (self.ops.len() - 1) as u32
            }
        };
        let owner = &mut self.groups[group as usize];
        let at = owner.ops.len() as u32;
        // A counter that was just set to zero along with its neighbours would be waited for: 3 ns a read.
        let place = if owner.stream { owner.next_place } else { at };
        if owner.stream {
            owner.next_place = place.wrapping_add(1);
        }
        owner.ops.push(id);
        owner.unfinished += 1;
        // Field by field: a whole `Op` would be built on the stack and copied, which costs more than all else here.
        let op = &mut self.ops[id as usize];
        op.stage = Stage::Staged;
        op.generation = op.generation.wrapping_add(1);
        op.group = group;
        (op.place, op.at) = (place, at);
        op.want = want;
        op.offset = start;
        op.len = aligned.min(u64::from(u32::MAX)) as u32;
        if outside || too_long {
            self.fail(id, Failure::Outside);
        } else {
            self.staged.push_back(id);
        }
        place
    }

    /// Takes over a region of the caller's.
    pub(super) fn adopt(&mut self, region: Region) -> Result<RegionId, TierError> {
        let (id, start, len) = self.regions.add(region);
        // SAFETY: the regions outlive the queue (see `Drop`).
        unsafe { self.queue.register(start, len)? };
        Ok(id)
    }

    /// Stages one read for `group` into a region, `offset` bytes from its start.
    pub(super) fn stage_into(&mut self, group: u32, want: Span, region: RegionId, offset: usize) {
        let at = self.groups[group as usize].ops.len();
        self.stage(group, want);
        let id = self.groups[group as usize].ops[at];
        let op = &mut self.ops[id as usize];
        if op.stage == Stage::Failed {
            return;
        }
        let len = op.len as usize;
        let aligned = (offset as u64).is_multiple_of(self.alignment);
        let place = self.regions.place(region, offset, len).filter(|_| aligned);
        op.buffer = place.and_then(|place| self.pool.claim(place, len));
        if op.buffer.is_none() {
            // It was staged last.
            self.staged.pop_back();
            self.fail(id, Failure::NoPlace);
        }
    }

    /// Whether every read of a group has ended; if not, its task is woken when the last one does. Asked when all have
    /// been staged: one that fails at once must not wake a task that is still staging.
    #[inline]
    pub(crate) fn is_complete(&mut self, group: u32) -> bool {
        let group = &mut self.groups[group as usize];
        group.waiting = group.unfinished > 0;
        !group.waiting
    }

    /// The first failure among a group's reads, in the order in which they were asked for.
    #[inline]
    pub(crate) fn failure(&self, group: u32) -> Option<ReadError> {
        let group = &self.groups[group as usize];
        if group.failed == 0 {
            return None;
        }
        group.ops.iter().find_map(|op| self.error(&self.ops[*op as usize]))
    }

    /// What went wrong with a read, if anything.
    #[cold]
    fn error(&self, op: &Op) -> Option<ReadError> {
        let Span { offset, len } = op.want;
        if op.stage != Stage::Failed {
            return None;
        }
        match op.failure {
            Failure::Device(ReadFault { kind, errno }) => {
                Some(ReadError::Device { offset, len, kind, errno })
            }
            Failure::Short { got } => Some(ReadError::Short { offset, expected: len, got }),
            Failure::Outside => Some(ReadError::OutOfRange { offset, len, tier_len: self.tier_len }),
            Failure::NoPlace => Some(ReadError::NoPlace { offset, len }),
            Failure::Budget { needed } => {
                Some(ReadError::Budget { needed, budget: self.pool.budget_bytes() })
            }
        }
    }

    /// Reads of a group so far.
    #[inline]
    pub(crate) fn group_len(&self, group: u32) -> usize {
        self.groups[group as usize].ops.len()
    }

    /// The number by which its stream knows a read.
    pub(crate) fn place(&self, op: u32) -> u32 {
        self.ops[op as usize].place
    }

    /// Where the bytes of a finished read lie: start and length, or why there are none.
    pub(crate) fn view(&self, op: u32) -> Result<(*const u8, usize), ReadError> {
        let op = &self.ops[op as usize];
        assert!(op.is_done(), "bytes of a read that has not arrived");
        if let Some(error) = self.error(op) {
            return Err(error);
        }
        let len = op.want.len as usize;
        match op.buffer {
            Some(buffer) => {
                let skip = (op.want.offset - op.offset) as usize;
                Ok((buffer.start.as_ptr().wrapping_add(skip).cast_const(), len))
            }
            None => match self.queue.map(op.want) {
                Some(bytes) => Ok((bytes.as_ptr(), len)),
                None => Err(ReadError::Short { offset: op.want.offset, expected: op.want.len, got: 0 }),
            },
        }
    }

    /// The bytes of the read number `place` of a group that has arrived in full: start and length, which is 0 where
    /// there is no such read.
    #[inline]
    pub(crate) fn arrived_bytes(&self, group: u32, place: usize) -> (*const u8, usize) {
        let nothing = (std::ptr::dangling(), 0);
        let Some(op) = self.groups[group as usize].ops.get(place) else { return nothing };
        let op = &self.ops[*op as usize];
        if op.stage != Stage::Arrived {
            return nothing;
        }
        match op.buffer {
            Some(buffer) => {
                let skip = (op.want.offset - op.offset) as usize;
                (buffer.start.as_ptr().wrapping_add(skip).cast_const(), op.want.len as usize)
            }
            None => self.queue.map(op.want).map_or(nothing, |bytes| (bytes.as_ptr(), bytes.len())),
        }
    }

    /// Takes the next arrival of a stream, by its number in the books; `None` when nothing has arrived, in which case the task is woken
    /// by the next one.
    pub(crate) fn take_arrived(&mut self, group: u32) -> Option<u32> {
        let task = self.current;
        let group = &mut self.groups[group as usize];
        let arrived = group.arrived.pop_front();
        // The task that waits need not be the one that opened the stream.
        (group.task, group.waiting) = (task, arrived.is_none());
        arrived
    }

    /// Gives one finished read of a stream back, its buffer and its place in the books: a stream may be of any length.
    pub(crate) fn release_arrived(&mut self, id: u32) {
        let op = &mut self.ops[id as usize];
        debug_assert!(op.is_done(), "a read is given back before it has ended");
        let failed = u32::from(op.stage == Stage::Failed);
        op.stage = Stage::Free;
        if let Some(buffer) = op.buffer.take() {
            self.pool.release(buffer);
        }
        let (at, group) = (op.at as usize, &mut self.groups[op.group as usize]);
        group.failed -= failed;
        group.ops.swap_remove(at);
        if let Some(moved) = group.ops.get(at) {
            self.ops[*moved as usize].at = at as u32;
        }
        self.free_ops.push(id);
    }

    /// Ends a group: buffers of finished reads go back now, those still in flight when they complete.
    pub(crate) fn close_group(&mut self, id: u32) {
        if self.groups[id as usize].unfinished > 0 {
            self.orphan(id);
            return;
        }
        let group = &mut self.groups[id as usize];
        for &id in &group.ops {
            let op = &mut self.ops[id as usize];
            if let Some(buffer) = op.buffer.take() {
                self.pool.release(buffer);
            }
            op.stage = Stage::Free;
            self.free_ops.push(id);
        }
        group.ops.clear();
        group.arrived.clear();
        self.free_groups.push(id);
    }

    /// What is left of a group whose query has gone: only what a device may still write to keeps its buffer. Staged
    /// reads leave the line when their turn comes, and the group ends with the last of all.
    #[cold]
    fn orphan(&mut self, id: u32) {
        let group = &mut self.groups[id as usize];
        group.orphaned = true;
        for &op in &group.ops {
            let op = &mut self.ops[op as usize];
            if op.stage == Stage::InFlight {
                continue;
            }
            if op.stage == Stage::Staged {
                op.stage = Stage::Withdrawn;
            }
            if let Some(buffer) = op.buffer.take() {
                self.pool.release(buffer);
            }
        }
        // Who stands behind them in the line may have what it waits for.
        self.refused_at = None;
    }

    /// Hands staged reads over once enough have gathered.
    #[inline]
    pub(crate) fn flush_if_full(&mut self) -> Result<(), TierError> {
        if self.staged.len() >= self.submit_batch { self.flush() } else { Ok(()) }
    }

    /// Hands over as many staged reads as depth, buffers and the device allow.
    fn flush(&mut self) -> Result<(), TierError> {
        let room = self.depth.saturating_sub(self.queue.in_flight());
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
            if op.stage == Stage::Withdrawn {
                self.arrive(id);
                continue;
            }
            op.stage = Stage::InFlight;
            let buffer = op.buffer.map_or(std::ptr::null_mut(), |b| b.start.as_ptr());
            let name = u64::from(op.generation) << 32 | u64::from(id);
            self.batch.push(Read { id: name, offset: op.offset, len: op.len, buffer });
        }
        if self.batch.is_empty() {
            return Ok(());
        }
        // SAFETY: each buffer is held by its op until it ends, which only a completion brings about.
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

    /// Puts the reads of a submission from the number `taken` on back to the head of the line, in order.
    #[cold]
    fn put_back(&mut self, taken: usize) {
        for read in self.batch[taken..].iter().rev() {
            let id = read.id as u32;
            self.ops[id as usize].stage = Stage::Staged;
            self.staged.push_front(id);
        }
        if !self.addressable {
            self.admitted += self.batch.len() - taken;
        }
    }

    /// Reads that a device may still write for.
    pub(crate) fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    /// What ends a wait of the device early.
    pub(crate) fn waker(&mut self) -> Option<Waker> {
        self.queue.waker()
    }

    /// Hands staged reads over and collects completions, sleeping up to `wait` if there are none; `None` does not sleep.
    pub(crate) fn advance(&mut self, wait: Option<Duration>) -> Result<(), RunError> {
        self.flush()?;
        if !self.ready.is_empty() {
            return Ok(());
        }
        if self.queue.in_flight() == 0 {
            // Nothing can complete, and no query will give a buffer back that it waits with.
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
        // Every completion is booked, whatever is wrong with another: a read that is forgotten here would hold
        // its buffer for ever.
        for completion in &completions {
            if let Err(broken) = self.complete(completion) {
                outcome = outcome.and(Err(broken));
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
        if op.stage != Stage::InFlight || op.generation != generation {
            return Err(TierError::Contract(format!("read {id} completed although it was not in flight")));
        }
        self.stats.reads += 1;
        match completion.result {
            Err(fault) => self.fail(id, Failure::Device(fault)),
            Ok(got) => {
                self.stats.bytes += u64::from(got);
                let skip = (op.want.offset - op.offset) as u32;
                let useful = got.saturating_sub(skip).min(op.want.len);
                if useful < op.want.len {
                    self.fail(id, Failure::Short { got: useful });
                } else {
                    self.arrive(id);
                }
            }
        }
        Ok(())
    }

    /// Books the arrival of one read.
    #[inline]
    fn arrive(&mut self, id: u32) {
        self.ops[id as usize].stage = Stage::Arrived;
        self.end(id);
    }

    /// Books the failure of one read.
    #[cold]
    pub(super) fn fail(&mut self, id: u32, failure: Failure) {
        let op = &mut self.ops[id as usize];
        (op.stage, op.failure) = (Stage::Failed, failure);
        self.groups[op.group as usize].failed += 1;
        self.end(id);
    }

    /// Counts one read of a group less, and readies its task where that was the one awaited. What became of the read is
    /// not handed over: an enum that is put together and copied takes longer than all else here.
    #[inline]
    fn end(&mut self, id: u32) {
        let op = &mut self.ops[id as usize];
        let group_id = op.group;
        let group = &mut self.groups[group_id as usize];
        group.unfinished -= 1;
        if group.orphaned {
            // Nobody will look at the bytes, and somebody may be waiting for the buffer.
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

    /// After a run: lets go of reads that dropped queries left in the line, and waits for those in flight.
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
        drained
    }

    /// After a run on a tier that lends its bytes: gives the queue a last occasion to say that some were not there.
    pub(crate) fn look_after_run(&mut self) -> Result<(), TierError> {
        if self.addressable && self.queue.in_flight() == 0 { self.collect(None) } else { Ok(()) }
    }

    /// Waits until nothing is in flight any more. Patience is counted in waits that brought nothing, not on a
    /// clock, so that it also ends on a tier whose time is simulated.
    fn drain(&mut self, patience: Duration) -> Result<(), TierError> {
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
            if op.stage == Stage::Staged && !self.groups[op.group as usize].stream {
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
