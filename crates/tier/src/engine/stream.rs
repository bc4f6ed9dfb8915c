//! What only streams ask of the books: reads taken and given back one by one.

use super::core::Core;
use super::ops::Stage;
use crate::error::ReadError;

impl Core {
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

    /// Takes the next arrival of a stream, by its number in the books; `None` when nothing has arrived, in which case the task is woken
    /// by the next one.
    pub(crate) fn take_arrived(&mut self, group: u32) -> Option<u32> {
        let task = self.current;
        let group = &mut self.groups[group as usize];
        let arrived = group.arrived.pop_front();
        // The task that waits need not be the one that opened the stream.
        (group.task, group.waiting) = (task, arrived.is_none());
        if let Some(op) = arrived {
            self.given(op);
        }
        arrived
    }

    /// Lets what is staged go to the device before the current task goes on, which is readied for that; false where reads are
    /// loads, which no device works on meanwhile.
    pub(crate) fn give_way(&mut self) -> bool {
        if self.addressable {
            return false;
        }
        self.submit_now = true;
        self.ready.push_back(self.current);
        true
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
}
