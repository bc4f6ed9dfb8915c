//! Admission: gives staged reads their buffers, in order, and to a batch all of its buffers or none.

use super::core::Core;
use super::ops::{Op, ReadFailure};
use std::collections::HashSet;

impl Core {
    /// Returns one past the last staged read that is admitted together with the staged read number `first`. A
    /// batch is admitted as a whole, since none of its buffers is used or released before its last read has
    /// arrived. Reads of a stream are admitted one by one.
    fn unit_end(&self, first: usize) -> usize {
        let group = self.staged_op(first).group;
        if self.groups[group as usize].stream {
            return first + 1;
        }
        let more = (first..self.staged.len()).take_while(|at| self.staged_op(*at).group == group);
        first + more.count()
    }

    fn staged_op(&self, at: usize) -> &Op {
        &self.ops[self.staged[at] as usize]
    }

    /// Takes buffers for the staged reads `first..end`: for all of them or for none. Returns true if they
    /// have them.
    fn reserve(&mut self, first: usize, end: usize) -> bool {
        for at in first..end {
            let op = &mut self.ops[self.staged[at] as usize];
            if op.is_withdrawn() || op.is_claim() {
                continue;
            }
            op.buffer = self.pool.take(op.len as usize);
            if op.buffer.is_none() {
                for back in first..at {
                    let op = &mut self.ops[self.staged[back] as usize];
                    if let Some(buffer) = op.buffer.take_if(|buffer| !buffer.is_claim()) {
                        self.pool.release(buffer);
                    }
                }
                return false;
            }
        }
        true
    }

    /// Gives staged reads their buffers, in order and each batch as a whole, until `room` reads have them. If
    /// a batch could take a part of its buffers, two batches could each hold buffers that the other waits
    /// for.
    pub(super) fn admit(&mut self, room: usize) {
        while self.admitted < self.staged.len().min(room) && self.refused_at != Some(self.pool.releases()) {
            let end = self.unit_end(self.admitted);
            if self.reserve(self.admitted, end) {
                (self.admitted, self.refused_at) = (end, None);
            } else {
                self.refused_at = Some(self.pool.releases());
            }
        }
    }

    /// Admits the first unit that can have its buffers, out of order, or fails one unit. Called when nothing
    /// is in flight and the first unit cannot have its buffers: every query waits then, so none releases a
    /// buffer by itself.
    #[cold]
    pub(super) fn break_deadlock(&mut self) {
        let mut first = 0;
        while first < self.staged.len() {
            let end = self.unit_end(first);
            if self.reserve(first, end) {
                self.staged.make_contiguous()[..end].rotate_right(end - first);
                (self.admitted, self.refused_at) = (end - first, None);
                return;
            }
            first = end;
        }
        // The unit to fail is the first whose task holds buffers while it waits for more: the task then
        // releases some.
        let task_of = |op: &Op| self.groups[op.group as usize].task;
        let holders: HashSet<u32> = self.ops.iter().filter(|op| op.buffer.is_some()).map(task_of).collect();
        let holds = |at: &usize| holders.contains(&task_of(self.staged_op(*at)));
        let victim = (0..self.staged.len()).find(holds).unwrap_or(0);
        let end = self.unit_end(victim);
        let unit: Vec<u32> = self.staged.drain(victim..end).collect();
        let needed = self.pool.budget_for(unit.iter().map(|op| self.ops[*op as usize].len as usize));
        self.refused_at = None;
        for id in unit {
            self.fail(id, ReadFailure::Budget { needed });
        }
    }
}
