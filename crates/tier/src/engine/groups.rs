//! Groups of reads: a query opens a group, stages its reads one by one, receives them, and closes the group.

use super::core::Core;
use super::ops::{Group, Op, ReadFailure, ReadStage};
use crate::contract::Span;
use crate::error::{ReadError, ReadFault};
use crate::memory::prefetch;
use std::collections::VecDeque;

impl Core {
    /// Opens a group for the current task.
    #[inline]
    pub(crate) fn open_group(&mut self, stream: bool) -> u32 {
        let task = self.current;
        if let Some(id) = self.free_groups.pop() {
            let group = &mut self.groups[id as usize];
            (group.task, group.stream, group.waiting, group.abandoned) = (task, stream, false, false);
            group.failed = 0;
            if stream {
                group.next_place = 0;
            }
            return id;
        }
        self.groups.push(Group {
            task,
            lent: Vec::new(),
            ops: Vec::new(),
            unfinished: 0,
            failed: 0,
            arrived: VecDeque::new(),
            next_place: 0,
            stream,
            waiting: false,
            abandoned: false,
        });
        (self.groups.len() - 1) as u32
    }

    /// Serves a batch in place on a resident tier: prefetches its cache lines, and puts the task at the end
    /// of the ready list. No read gets an entry of its own, which saves a third of the cost of a suspension.
    /// Returns `None` if the batch must be staged: the tier is not resident, a span is invalid, or the depth
    /// is reached.
    #[inline]
    pub(super) fn lend(&mut self, spans: &[Span]) -> Option<u32> {
        let start = self.resident?;
        let tier_len = self.tier_len;
        let lent = self.lent + spans.len();
        let inside = |span: &Span| span.len > 0 && span.end() <= tier_len;
        if spans.is_empty() || lent > self.depth || !spans.iter().all(inside) {
            return None;
        }
        for span in spans {
            prefetch(start.as_ptr().wrapping_add(span.offset as usize), span.len as usize);
            self.stats.bytes += u64::from(span.len);
        }
        self.lent = lent;
        self.unchecked += 1;
        self.stats.reads += spans.len() as u64;
        self.stats.submissions += 1;
        self.stats.deepest = self.stats.deepest.max(lent as u64);
        let id = self.open_group(false);
        let group = &mut self.groups[id as usize];
        group.lent.extend_from_slice(spans);
        group.waiting = true;
        self.ready.push_back(self.current);
        Some(id)
    }

    /// Ends a batch that was served in place, which no longer counts towards the depth.
    #[inline]
    fn unlend(&mut self, id: u32) {
        let group = &mut self.groups[id as usize];
        if group.waiting {
            group.waiting = false;
            self.lent -= group.lent.len();
        }
    }

    /// Stages one read for `group`. Returns its number within the group.
    #[inline]
    pub(crate) fn stage(&mut self, group: u32, want: Span) -> u32 {
        let outside = want.len == 0 || want.end() > self.tier_len;
        let start = want.offset & !(self.alignment - 1);
        // The alignment is a power of two; a division here would be a tenth of the whole suspension.
        let aligned = (want.end() - start).saturating_add(self.alignment - 1) & !(self.alignment - 1);
        let too_long = u32::try_from(aligned).is_err();
        let round = self.round();
        let id = match self.free_ops.pop() {
            Some(id) => id,
            None => {
                self.ops.push(Op::FREE);
                (self.ops.len() - 1) as u32
            }
        };
        let owner = &mut self.groups[group as usize];
        let at = owner.ops.len() as u32;
        // A batch does not use `next_place`: to load a counter that was just stored together with its
        // neighbours stalls the processor for 3 ns a read.
        let place = if owner.stream { owner.next_place } else { at };
        if owner.stream {
            owner.next_place = place.wrapping_add(1);
        }
        owner.ops.push(id);
        owner.unfinished += 1;
        // Assigned field by field: a whole `Op` would be built on the stack and copied, which costs more than
        // the rest of this function.
        let op = &mut self.ops[id as usize];
        op.stage = ReadStage::Staged;
        op.generation = op.generation.wrapping_add(1);
        op.group = group;
        (op.place, op.at, op.round) = (place, at, round);
        op.want = want;
        op.offset = start;
        op.len = aligned.min(u64::from(u32::MAX)) as u32;
        if outside || too_long {
            self.fail(id, ReadFailure::Outside);
        } else {
            self.staged.push_back(id);
        }
        place
    }

    /// Returns true if every read of a group has ended; if not, its task is woken when the last one does.
    /// Called after all reads have been staged: a read that fails at once must not wake a task that is still
    /// staging.
    #[inline]
    pub(crate) fn is_complete(&mut self, id: u32) -> bool {
        let group = &mut self.groups[id as usize];
        if !group.lent.is_empty() {
            self.unlend(id);
            return true;
        }
        group.waiting = group.unfinished > 0;
        if group.waiting {
            return false;
        }
        if let Some(first) = group.ops.first().copied() {
            self.note_received(first);
        }
        true
    }

    /// Returns the first failure among a group's reads, in the order in which they were staged.
    #[inline]
    pub(crate) fn failure(&self, group: u32) -> Option<ReadError> {
        let group = &self.groups[group as usize];
        if group.failed == 0 {
            return None;
        }
        group.ops.iter().find_map(|op| self.error(&self.ops[*op as usize]))
    }

    /// Returns the error of a read, if it has failed.
    #[cold]
    pub(super) fn error(&self, op: &Op) -> Option<ReadError> {
        let Span { offset, len } = op.want;
        if op.stage != ReadStage::Failed {
            return None;
        }
        match op.failure {
            ReadFailure::Device(ReadFault { kind, errno }) => {
                Some(ReadError::Device { offset, len, kind, errno })
            }
            ReadFailure::Short { got } => Some(ReadError::Short { offset, expected: len, got }),
            ReadFailure::Outside => Some(ReadError::OutOfRange { offset, len, tier_len: self.tier_len }),
            ReadFailure::NoPlace => Some(ReadError::NoPlace { offset, len }),
            ReadFailure::Budget { needed } => {
                Some(ReadError::Budget { needed, budget: self.pool.budget_bytes() })
            }
        }
    }

    /// Returns the number of reads of a group.
    #[inline]
    pub(crate) fn group_len(&self, group: u32) -> usize {
        let group = &self.groups[group as usize];
        group.ops.len() + group.lent.len()
    }

    /// Returns start and length of the bytes of read number `place` of a group that has arrived in full. The
    /// length is 0 if there is no such read.
    #[inline]
    pub(crate) fn arrived_bytes(&self, group: u32, place: usize) -> (*const u8, usize) {
        let nothing = (std::ptr::dangling(), 0);
        let group = &self.groups[group as usize];
        if let (Some(start), Some(span)) = (self.resident, group.lent.get(place)) {
            return (start.as_ptr().wrapping_add(span.offset as usize).cast_const(), span.len as usize);
        }
        let Some(op) = group.ops.get(place) else { return nothing };
        let op = &self.ops[*op as usize];
        if op.stage != ReadStage::Arrived {
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

    /// Ends a group. Buffers of finished reads are released now, those of reads in flight when they complete.
    #[inline]
    pub(crate) fn close_group(&mut self, id: u32) {
        let group = &mut self.groups[id as usize];
        if !group.lent.is_empty() {
            self.unlend(id);
            self.groups[id as usize].lent.clear();
            self.free_groups.push(id);
            return;
        }
        if group.unfinished > 0 {
            self.abandon(id);
            return;
        }
        for &id in &group.ops {
            let op = &mut self.ops[id as usize];
            if let Some(buffer) = op.buffer.take() {
                self.pool.release(buffer);
            }
            op.stage = ReadStage::Free;
            self.free_ops.push(id);
        }
        group.ops.clear();
        group.arrived.clear();
        self.free_groups.push(id);
    }

    /// Marks a group whose query was dropped before all of its reads ended. Only reads in flight keep their
    /// buffers. Staged reads leave the queue when their turn comes, and the group ends with its last read.
    #[cold]
    fn abandon(&mut self, id: u32) {
        let group = &mut self.groups[id as usize];
        group.abandoned = true;
        for &op in &group.ops {
            let op = &mut self.ops[op as usize];
            if op.stage == ReadStage::InFlight {
                continue;
            }
            if op.stage == ReadStage::Staged {
                op.stage = ReadStage::Withdrawn;
            }
            if let Some(buffer) = op.buffer.take() {
                self.pool.release(buffer);
            }
        }
        // The next staged read may find a buffer now.
        self.refused_at = None;
    }
}
