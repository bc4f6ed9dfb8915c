//! Memory that is read and changed through queues: bytes copied in and out, and numbers of 8 bytes changed as one.
//!
//! Nobody gets a reference to such memory, since others may be changing it: it is touched by atomic loads and stores of
//! words, whoever else does the same. Numbers are little-endian, as on the wire and on disk.

use super::in_place::arrived;
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

/// What keeps words where they are.
pub(crate) trait Memory: Send + Sync {
    /// Whether some of them are known to be gone: a file was cut, a page has failed. `thorough` where a system call is
    /// affordable.
    fn is_lost(&self, thorough: bool) -> bool;
}

/// Words of memory that any thread may change at any time.
pub(crate) struct Words {
    start: NonNull<u64>,
    len: usize,
    memory: Box<dyn Memory>,
}

// SAFETY: every access is an atomic one, and `memory`, which may be sent and shared, keeps the words where they are.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// A copy of `bytes` in this process's memory.
    pub(crate) fn of(bytes: &[u8]) -> Words {
        let mut words = vec![0_u64; bytes.len().div_ceil(8)].into_boxed_slice();
        let start = NonNull::from(&mut *words).cast();
        // SAFETY: the box is leaked into a raw pointer that `Owned` frees, and holds `bytes.len()` bytes at least.
        let made = unsafe { Words::over(start, bytes.len(), Box::new(Owned(Box::into_raw(words)))) };
        made.put(0, bytes.as_ptr(), bytes.len());
        made
    }

    /// # Safety
    /// From `start` on, `len` bytes rounded up to whole words are initialised, stay where they are until `memory` is
    /// dropped, and are touched by nobody in this process but through this.
    pub(crate) unsafe fn over(start: NonNull<u64>, len: usize, memory: Box<dyn Memory>) -> Words {
        Words { start, len, memory }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        debug_assert!(at < self.len);
        // SAFETY: within the words, which are touched atomically alone.
        unsafe { AtomicU8::from_ptr(self.start.cast::<u8>().as_ptr().add(at)) }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= self.len.next_multiple_of(8));
        // SAFETY: within the words, aligned, and touched atomically alone.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().byte_add(at)) }
    }

    /// Copies `len` bytes from `at` on to `into`, which has room for them.
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

    /// Copies `len` bytes from `from` to `at`.
    pub(crate) fn put(&self, at: usize, from: *const u8, len: usize) {
        let mut done = 0;
        while done < len {
            let (to, left) = (at + done, len - done);
            let bytes = from.wrapping_add(done);
            // SAFETY: the caller has `len` readable bytes.
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

    /// Carries out one operation, unless bytes are known to be gone; how many bytes it moved.
    ///
    /// What came before on any thread that this one has heard of is seen, and what comes after sees this: a flag that is
    /// changed after the data tells of the data.
    pub(crate) fn act(&self, operation: &Operation) -> Result<u32, ReadFault> {
        let moved = self.carry_out(operation)?;
        // Afterwards: an operation may be the first to find that its bytes are gone.
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
                let len = arrived(self.len as u64, operation.offset, len);
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

/// Frees what was leaked.
struct Owned(*mut [u64]);

// SAFETY: an address that is freed once.
unsafe impl Send for Owned {}
// SAFETY: nothing can be done with a shared reference to it.
unsafe impl Sync for Owned {}

impl Memory for Owned {
    fn is_lost(&self, _thorough: bool) -> bool {
        false
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` in `Words::of`, and nobody refers to it any more.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// Memory of any kind whose bytes may be changed, by this process or, where it is opened for reading alone, by others.
/// Clones share it.
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
            // Others may be changing the bytes: they are copied, never lent.
            addressable: false,
            latency_ns: 0,
            iops: 0.0,
            bandwidth_bytes_per_s: 0.0,
            depth: 64,
            issue_ns: 0,
        };
        WritableTier { words: Arc::new(words), profile, changeable: true }
    }

    /// Where its first byte lies, for a device that is to reach it: as long as this or a clone of it is there. It is touched by
    /// atomic accesses alone.
    pub fn address(&self) -> *mut u8 {
        self.words.start.as_ptr().cast()
    }

    /// Copies the bytes from `offset` on; fewer than `into` has room for where the memory ends.
    ///
    /// # Errors
    /// [`FaultKind::Gone`].
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<u32, ReadFault> {
        let len = u32::try_from(into.len()).unwrap_or(u32::MAX);
        self.act(offset, Action::Read { into: into.as_mut_ptr(), len })
    }

    /// Puts `bytes` at `offset`.
    ///
    /// # Errors
    /// As of an operation: bytes that are not all inside, or gone; memory that is for reading alone.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<u32, ReadFault> {
        let len = u32::try_from(bytes.len()).map_err(|_| ReadFault::system(libc::EINVAL))?;
        self.act(offset, Action::Write { from: bytes.as_ptr(), len })
    }

    /// Replaces the number at `offset` if it is `expected`; the one that was there.
    ///
    /// # Errors
    /// As [`WritableTier::write`]; an offset that is no multiple of 8.
    pub fn compare_and_swap(&self, offset: u64, expected: u64, new: u64) -> Result<u64, ReadFault> {
        let mut old = 0;
        self.act(offset, Action::CompareAndSwap { expected, new, old: &raw mut old }).map(|_| old)
    }

    /// Adds to the number at `offset`; the one that was there.
    ///
    /// # Errors
    /// As [`WritableTier::compare_and_swap`].
    pub fn fetch_and_add(&self, offset: u64, by: u64) -> Result<u64, ReadFault> {
        let mut old = 0;
        self.act(offset, Action::FetchAndAdd { by, old: &raw mut old }).map(|_| old)
    }

    /// What the action points to is the caller's, for as long as this takes.
    fn act(&self, offset: u64, action: Action) -> Result<u32, ReadFault> {
        if !self.changeable && !matches!(action, Action::Read { .. }) {
            return Err(ReadFault::of(FaultKind::Denied));
        }
        self.words.act(&Operation { id: 0, offset, action, linked: false })
    }

    /// The same memory by another name, as of the machine that it is in.
    pub fn named(self, kind: &str, method: String) -> WritableTier {
        let profile = TierProfile { kind: kind.into(), method, ..self.profile };
        WritableTier { profile, ..self }
    }

    /// The same; where `changeable` is false, for reading alone.
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
            let what = format!("{}: is mapped for reading alone; map it for writing", self.profile.method);
            return Err(TierError::Parameter(what));
        }
        Ok(Box::new(WordsQueue::new(self.words.clone(), depth)))
    }
}

/// Everything is done when it is submitted, and told when it is reaped.
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
            self.done.iter_mut().for_each(|one| one.result = Err(ReadFault::of(FaultKind::Gone)));
        }
        done.append(&mut self.done);
        Ok(())
    }

    fn map(&self, _span: Span) -> Option<&[u8]> {
        None
    }

    /// None: others may be changing the bytes.
    fn lend(&self) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, _region: *mut u8, _len: usize) -> Result<(), TierError> {
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    /// None: nothing here ever waits.
    fn waker(&mut self) -> Option<Waker> {
        None
    }
}

impl WriteQueue for WordsQueue {
    unsafe fn submit_operations(&mut self, operations: &[Operation]) -> Result<usize, TierError> {
        let mut taken = 0;
        for chain in chains(operations) {
            if chain.len() > self.depth {
                return Err(crate::contract::too_long_a_chain(chain.len(), self.depth));
            }
            if chain.len() > self.depth - self.done.len() {
                break;
            }
            let mut broken = false;
            for operation in chain {
                let result =
                    if broken { Err(ReadFault::of(FaultKind::Skipped)) } else { self.words.act(operation) };
                broken |= result.is_err();
                self.done.push(Completion { id: operation.id, result });
            }
            taken += chain.len();
        }
        Ok(taken)
    }
}
