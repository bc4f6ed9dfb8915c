//! Operations of streams: reads are returned and released one by one.

use super::core::Core;
use super::ops::ReadStage;
use crate::error::ReadError;

impl Core {
    /// Returns the number of a read within its stream.
    pub(crate) fn place(&self, op: u32) -> u32 {
        self.ops[op as usize].place
    }

    /// Returns start and length of the bytes of a finished read.
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

    /// Takes the next arrival of a stream and returns the number of its `Op`. If nothing has arrived, returns
    /// `None`, and the next arrival wakes the task.
    pub(crate) fn take_arrived(&mut self, group: u32) -> Option<u32> {
        let task = self.current;
        let group = &mut self.groups[group as usize];
        let arrived = group.arrived.pop_front();
        // The task that waits need not be the one that opened the stream.
        (group.task, group.waiting) = (task, arrived.is_none());
        if let Some(op) = arrived {
            self.note_received(op);
        }
        arrived
    }

    /// Has staged reads submitted before the current task continues, and puts the task on the ready list.
    /// Returns false, and does nothing, on an addressable tier: no device works on loads meanwhile.
    pub(crate) fn yield_for_submission(&mut self) -> bool {
        if self.addressable {
            return false;
        }
        self.submit_now = true;
        self.ready.push_back(self.current);
        true
    }

    /// Releases one finished read of a stream: its buffer and its `Op`. A stream may thus have any number of
    /// reads.
    pub(crate) fn release_arrived(&mut self, id: u32) {
        let op = &mut self.ops[id as usize];
        debug_assert!(op.is_done(), "a read is released before it has ended");
        let failed = u32::from(op.stage == ReadStage::Failed);
        op.stage = ReadStage::Free;
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
}
