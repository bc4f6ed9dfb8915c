//! Memory that queues read and change: bytes are copied in and out, and numbers of 8 bytes are changed
//! atomically.
//!
//! There are no references to such memory, since other threads or processes may be changing it. It is
//! accessed by atomic loads and stores of words only. Numbers are little-endian, as on the wire and on disk.

use super::in_place::available_len;
use crate::contract::{
    Action, Completion, Operation, Queue, Read, Span, Tier, TierProfile, WriteQueue, WriteTier, chains,
};
use crate::error::{FaultKind, ReadFault, TierError};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

/// Owner of the memory of [`Words`].
pub(crate) trait Memory: Send + Sync {
    /// Returns true if some of the memory is known to be lost: a file was truncated, or a page has failed.
    /// `thorough` allows a system call.
    fn is_lost(&self, thorough: bool) -> bool;
}

/// Memory, in words of 8 bytes, that any thread may change at any time.
pub(crate) struct Words {
    start: NonNull<u64>,
    len: usize,
    memory: Box<dyn Memory>,
}

// SAFETY: every access is atomic, and `memory`, which may be sent and shared, keeps the words in place.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Makes a copy of `bytes` in this process's memory.
    pub(crate) fn copy_of(bytes: &[u8]) -> Words {
        let mut boxed = vec![0_u64; bytes.len().div_ceil(8)].into_boxed_slice();
        let start = NonNull::from(&mut *boxed).cast();
        // SAFETY: the box is leaked into a raw pointer that `LeakedBox` frees, and has at least `bytes.len()`
        // bytes.
        let words = unsafe { Words::over(start, bytes.len(), Box::new(LeakedBox(Box::into_raw(boxed)))) };
        words.put(0, bytes.as_ptr(), bytes.len());
        words
    }

    /// Makes words over existing memory.
    ///
    /// # Safety
    /// From `start` on, `len` bytes rounded up to whole words are initialised and do not move until `memory`
    /// is dropped. In this process they are accessed through this value only.
    pub(crate) unsafe fn over(start: NonNull<u64>, len: usize, memory: Box<dyn Memory>) -> Words {
        Words { start, len, memory }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        debug_assert!(at < self.len);
        // SAFETY: within the words, all accesses to which are atomic.
        unsafe { AtomicU8::from_ptr(self.start.cast::<u8>().as_ptr().add(at)) }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= self.len.next_multiple_of(8));
        // SAFETY: within the words and aligned; all accesses to the words are atomic.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().byte_add(at)) }
    }

    /// Copies `len` bytes at offset `at` to `into`, which has room for them.
    pub(crate) fn get(&self, at: usize, into: *mut u8, len: usize) {
        let mut done = 0;
        while done < len {
            let (from, left) = (at + done, len - done);
            let to = into.wrapping_add(done);
            // SAFETY: the caller's buffer has room for `len` bytes.
            unsafe {
                if from.is_multiple_of(8) && left >= 8 {
                    to.cast::<u64>().write_unaligned(self.word(from).load(Ordering::Relaxed));
                    done += 8;
                } else {
                    to.write(self.byte(from).load(Ordering::Relaxed));
                    done += 1;
                }
            }
        }
    }

    /// Copies `len` bytes from `from` to offset `at`.
    pub(crate) fn put(&self, at: usize, from: *const u8, len: usize) {
        let mut done = 0;
        while done < len {
            let (to, left) = (at + done, len - done);
            let bytes = from.wrapping_add(done);
            // SAFETY: the caller gave `len` readable bytes.
            unsafe {
                if to.is_multiple_of(8) && left >= 8 {
                    self.word(to).store(bytes.cast::<u64>().read_unaligned(), Ordering::Relaxed);
                    done += 8;
                } else {
                    self.byte(to).store(bytes.read(), Ordering::Relaxed);
                    done += 1;
                }
            }
        }
    }

    /// Carries out one operation. Returns the number of bytes that it moved.
    ///
    /// Operations are sequentially consistent: a reader that sees a flag also sees the data that were written
    /// before the flag.
    ///
    /// # Errors
    /// [`FaultKind::Gone`] if memory is known to be lost; `EINVAL` for an operation outside the memory, or on
    /// a number at an unaligned offset.
    pub(crate) fn act(&self, operation: &Operation) -> Result<u32, ReadFault> {
        let moved = self.carry_out(operation)?;
        // Checked afterwards, since an operation may be the first to find its bytes lost.
        if self.memory.is_lost(false) { Err(ReadFault::of(FaultKind::Gone)) } else { Ok(moved) }
    }

    fn carry_out(&self, operation: &Operation) -> Result<u32, ReadFault> {
        let outside = ReadFault::system(libc::EINVAL);
        let at = usize::try_from(operation.offset).map_err(|_| outside)?;
        let len = operation.action.len();
        let reads = matches!(operation.action, Action::Read { .. });
        let inside = at.checked_add(len as usize).is_some_and(|end| end <= self.len);
        let number = matches!(operation.action, Action::CompareAndSwap { .. } | Action::FetchAndAdd { .. });
        if (!inside && !reads) || (number && !at.is_multiple_of(8)) {
            return Err(outside);
        }
        match operation.action {
            Action::Read { into, .. } => {
                let len = available_len(self.len as u64, operation.offset, len);
                std::sync::atomic::fence(Ordering::SeqCst);
                self.get(at, into, len as usize);
                return Ok(len);
            }
            Action::Write { from, .. } => {
                self.put(at, from, len as usize);
                std::sync::atomic::fence(Ordering::SeqCst);
            }
            Action::CompareAndSwap { expected, new, old } => {
                let (expected, new) = (expected.to_le(), new.to_le());
                let held = self.word(at).compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst);
                // SAFETY: room for the old number by the contract of `WriteQueue::submit_operations`.
                unsafe { old.write_unaligned(u64::from_le(held.unwrap_or_else(|held| held))) };
            }
            Action::FetchAndAdd { by, old } => {
                let add = |held: u64| Some(u64::from_le(held).wrapping_add(by).to_le());
                let held = self.word(at).fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
                // SAFETY: as above.
                unsafe { old.write_unaligned(u64::from_le(held.unwrap_or_else(|held| held))) };
            }
        }
        Ok(len)
    }
}

/// Owner of a leaked box, which it frees.
struct LeakedBox(*mut [u64]);

// SAFETY: an address that is freed once.
unsafe impl Send for LeakedBox {}
// SAFETY: a shared reference gives no access to the memory.
unsafe impl Sync for LeakedBox {}

impl Memory for LeakedBox {
    fn is_lost(&self, _thorough: bool) -> bool {
        false
    }
}

impl Drop for LeakedBox {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` in `Words::copy_of`, and no longer referred to.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// A tier of memory whose bytes may change: by this process, or only by others if it was opened for reading.
/// Clones share the memory.
#[derive(Clone)]
pub struct WritableTier {
    words: Arc<Words>,
    profile: TierProfile,
    changeable: bool,
}

impl WritableTier {
    pub(super) fn new(words: Words, kind: &str, method: String) -> WritableTier {
        let profile = TierProfile {
            kind: kind.into(),
            method,
            granularity: crate::memory::CACHE_LINE as u32,
            alignment: 1,
            // Others may be changing the bytes, so they are copied, never lent.
            addressable: false,
            latency_ns: 0,
            iops: 0.0,
            bandwidth_bytes_per_s: 0.0,
            depth: 64,
            issue_ns: 0,
            rates: Vec::new(),
        };
        WritableTier { words: Arc::new(words), profile, changeable: true }
    }

    /// Returns the address of the first byte, for a device that accesses the memory. It is valid while this
    /// or a clone of it exists. Processors access the memory atomically only.
    pub fn address(&self) -> *mut u8 {
        self.words.start.as_ptr().cast()
    }

    /// Copies the bytes from `offset` on into `into`. Returns how many were copied: fewer than `into` holds
    /// at the end of the memory.
    ///
    /// # Errors
    /// [`FaultKind::Gone`] if memory was lost.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<u32, ReadFault> {
        let len = u32::try_from(into.len()).unwrap_or(u32::MAX);
        self.act(offset, Action::Read { into: into.as_mut_ptr(), len })
    }

    /// Writes `bytes` at `offset`. Returns their number.
    ///
    /// # Errors
    /// `EINVAL` if they do not all lie inside the memory; [`FaultKind::Gone`] if memory was lost;
    /// [`FaultKind::Denied`] if it was opened for reading.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<u32, ReadFault> {
        let len = u32::try_from(bytes.len()).map_err(|_| ReadFault::system(libc::EINVAL))?;
        self.act(offset, Action::Write { from: bytes.as_ptr(), len })
    }

    /// Replaces the number at `offset` if it is `expected`. Returns the number before the operation.
    ///
    /// # Errors
    /// As [`WritableTier::write`]; also `EINVAL` if `offset` is not a multiple of 8.
    pub fn compare_and_swap(&self, offset: u64, expected: u64, new: u64) -> Result<u64, ReadFault> {
        let mut old = 0;
        self.act(offset, Action::CompareAndSwap { expected, new, old: &raw mut old }).map(|_| old)
    }

    /// Adds to the number at `offset`. Returns the number before the operation.
    ///
    /// # Errors
    /// As [`WritableTier::compare_and_swap`].
    pub fn fetch_and_add(&self, offset: u64, by: u64) -> Result<u64, ReadFault> {
        let mut old = 0;
        self.act(offset, Action::FetchAndAdd { by, old: &raw mut old }).map(|_| old)
    }

    /// Carries out one action. Its pointers are valid for the duration of the call.
    fn act(&self, offset: u64, action: Action) -> Result<u32, ReadFault> {
        if !self.changeable && !matches!(action, Action::Read { .. }) {
            return Err(ReadFault::of(FaultKind::Denied));
        }
        self.words.act(&Operation { id: 0, offset, action, linked: false })
    }

    /// Returns the same memory with another kind and method in its profile, such as the name of its machine.
    pub fn named(self, kind: &str, method: String) -> WritableTier {
        let profile = TierProfile { kind: kind.into(), method, ..self.profile };
        WritableTier { profile, ..self }
    }

    /// Returns the same memory, for reading only if `changeable` is false.
    pub(super) fn changeable(self, changeable: bool) -> WritableTier {
        WritableTier { changeable, ..self }
    }
}

impl fmt::Debug for WritableTier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "WritableTier({}, {} bytes)", self.profile.method, self.words.len())
    }
}

impl Tier for WritableTier {
    fn profile(&self) -> &TierProfile {
        &self.profile
    }

    fn len(&self) -> u64 {
        self.words.len() as u64
    }

    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError> {
        Ok(Box::new(WordsQueue::new(self.words.clone(), depth)))
    }

    fn writable(&self) -> Option<&dyn WriteTier> {
        self.changeable.then_some(self)
    }

    fn is_shared(&self) -> bool {
        true
    }
}

impl WriteTier for WritableTier {
    fn open_write(&self, depth: u32) -> Result<Box<dyn WriteQueue>, TierError> {
        if !self.changeable {
            let what =
                format!("{}: the memory is mapped for reading only; map it for writing", self.profile.method);
            return Err(TierError::Parameter(what));
        }
        Ok(Box::new(WordsQueue::new(self.words.clone(), depth)))
    }
}

/// Queue over [`Words`]: a submission carries out all operations, and `reap` returns their completions.
struct WordsQueue {
    words: Arc<Words>,
    depth: usize,
    done: Vec<Completion>,
}

impl WordsQueue {
    fn new(words: Arc<Words>, depth: u32) -> WordsQueue {
        WordsQueue { words, depth: depth.max(1) as usize, done: Vec::new() }
    }
}

impl Queue for WordsQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        let taken = reads.len().min(self.depth - self.done.len());
        for Read { id, offset, len, buffer, .. } in &reads[..taken] {
            let action = Action::Read { into: *buffer, len: *len };
            let operation = Operation { id: *id, offset: *offset, action, linked: false };
            self.done.push(Completion { id: *id, result: self.words.act(&operation) });
        }
        Ok(taken)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, _wait: Option<Duration>) -> Result<(), TierError> {
        if !self.done.is_empty() && self.words.memory.is_lost(true) {
            self.done.iter_mut().for_each(|done| done.result = Err(ReadFault::of(FaultKind::Gone)));
        }
        done.append(&mut self.done);
        Ok(())
    }

    fn map(&self, _span: Span) -> Option<&[u8]> {
        None
    }

    /// Returns `None`: others may be changing the bytes.
    fn lend(&self) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, _region: *mut u8, _len: usize) -> Result<(), TierError> {
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    /// Returns `None`: no call of this queue waits.
    fn waker(&mut self) -> Option<Waker> {
        None
    }
}

impl WriteQueue for WordsQueue {
    unsafe fn submit_operations(&mut self, operations: &[Operation]) -> Result<usize, TierError> {
        let mut taken = 0;
        for chain in chains(operations) {
            if chain.len() > self.depth {
                return Err(crate::contract::chain_too_long(chain.len(), self.depth));
            }
            if chain.len() > self.depth - self.done.len() {
                break;
            }
            let mut failed = false;
            for operation in chain {
                let result =
                    if failed { Err(ReadFault::of(FaultKind::Skipped)) } else { self.words.act(operation) };
                failed |= result.is_err();
                self.done.push(Completion { id: operation.id, result });
            }
            taken += chain.len();
        }
        Ok(taken)
    }
}
