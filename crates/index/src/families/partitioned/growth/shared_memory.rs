//! Memory that several processes change at the same time, as writers use it: operations are submitted in
//! batches, and a batch is awaited.

use crate::error::IndexError;
use bathyal_tier::contract::{Action, Operation, WriteQueue, WriteTier};
use bathyal_tier::{Completion, ReadError, ReadFault};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The most operations in flight, and the longest chain.
const DEPTH: u32 = 64;
/// The longest wait for a completion before tasks are polled again.
const WAIT: Duration = Duration::from_millis(5);
/// The time for which a writer waits before it reads again what another writer is about to change.
const PAUSE: Duration = Duration::from_micros(500);
/// Bits for the number of an operation in its batch. The number of the batch is above them.
const PLACE_BITS: u32 = 24;

/// The kind of an operation, with its data.
#[derive(Debug)]
pub(in super::super) enum OperationKind {
    /// Reads into these bytes.
    Read(Vec<u8>),
    /// Writes these bytes.
    Write(Vec<u8>),
    /// Replaces a number if it equals `expected`.
    Swap { expected: u64, new: u64 },
    /// Adds to a number.
    Add(u64),
}

/// An operation on shared memory.
#[derive(Debug)]
pub(in super::super) struct MemoryOperation {
    pub(in super::super) offset: u64,
    pub(in super::super) kind: OperationKind,
    /// True if the next operation of the batch begins after this one has ended.
    pub(in super::super) linked: bool,
    /// The previous value, after an operation on a number.
    pub(in super::super) old: u64,
}

impl MemoryOperation {
    pub(in super::super) fn new(offset: u64, kind: OperationKind) -> MemoryOperation {
        MemoryOperation { offset, kind, linked: false, old: 0 }
    }

    pub(in super::super) fn linked(offset: u64, kind: OperationKind) -> MemoryOperation {
        MemoryOperation { linked: true, ..MemoryOperation::new(offset, kind) }
    }

    /// Returns the bytes that are read or written.
    pub(in super::super) fn bytes(&self) -> &[u8] {
        match &self.kind {
            OperationKind::Read(bytes) | OperationKind::Write(bytes) => bytes,
            OperationKind::Swap { .. } | OperationKind::Add(_) => &[],
        }
    }
}

/// Shared memory, as a writer uses it.
pub(in super::super) trait GrowthMemory {
    /// Executes operations, and returns them with their results. Linked operations are executed in order,
    /// others in any order.
    async fn run(&self, operations: Vec<MemoryOperation>) -> Result<Vec<MemoryOperation>, IndexError>;

    /// Waits for a short time for other writers.
    async fn pause(&self);

    /// Returns the holder number of this writer, which is never 0.
    fn holder(&self) -> u64;

    /// Returns the numbers of all connected holders, which may still change something; `None` if that is
    /// unknown.
    fn holders(&self) -> Result<Option<Vec<u64>>, IndexError>;
}

/// Reads `len` bytes at an offset.
pub(in super::super) async fn read<M: GrowthMemory>(
    memory: &M,
    offset: u64,
    len: usize,
) -> Result<Vec<u8>, IndexError> {
    let done = memory.run(vec![MemoryOperation::new(offset, OperationKind::Read(vec![0; len]))]).await?;
    Ok(done.into_iter().next().map_or_else(Vec::new, |operation| match operation.kind {
        OperationKind::Read(bytes) => bytes,
        _ => Vec::new(),
    }))
}

/// Executes an operation on a number, and returns the previous value.
pub(in super::super) async fn update_number<M: GrowthMemory>(
    memory: &M,
    offset: u64,
    kind: OperationKind,
) -> Result<u64, IndexError> {
    let done = memory.run(vec![MemoryOperation::new(offset, kind)]).await?;
    Ok(done.first().map_or(0, |operation| operation.old))
}

/// An operation that failed.
struct FailedOperation {
    offset: u64,
    len: u32,
    fault: ReadFault,
}

/// Operations that are awaited together. The memory that they point to does not move.
struct OperationBatch {
    operations: Vec<MemoryOperation>,
    remaining: usize,
    /// The first one that failed.
    failed: Option<FailedOperation>,
    /// True if the future was dropped.
    orphaned: bool,
}

#[derive(Default)]
struct MemoryState {
    next: u64,
    batches: HashMap<u64, OperationBatch>,
    waiting: VecDeque<Operation>,
    in_flight: usize,
    done: Vec<Completion>,
}

/// The shared memory of a tier, for one thread.
pub(in super::super) struct TierMemory<'a> {
    /// Declared before `state`: the queue is dropped before the memory that its operations point to.
    queue: RefCell<Box<dyn WriteQueue>>,
    state: RefCell<MemoryState>,
    tier: &'a dyn WriteTier,
    file: PathBuf,
    holder: u64,
}

impl<'a> TierMemory<'a> {
    pub(in super::super) fn new(
        tier: &'a dyn WriteTier,
        file: PathBuf,
    ) -> Result<TierMemory<'a>, IndexError> {
        let (queue, holder) = (RefCell::new(tier.open_write(DEPTH)?), tier.holder());
        Ok(TierMemory { queue, state: RefCell::default(), tier, file, holder })
    }

    pub(in super::super) fn tier(&self) -> &'a dyn WriteTier {
        self.tier
    }

    /// Runs tasks to completion, at most `at_once` at a time, and calls `each` with the result of each task.
    /// Stops at the first error.
    pub(in super::super) fn run_tasks<T, F: Future<Output = Result<T, IndexError>>>(
        &self,
        at_once: usize,
        mut tasks: impl Iterator<Item = F>,
        mut each: impl FnMut(T) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let mut running: Vec<Pin<Box<F>>> = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        loop {
            while running.len() < at_once.max(1)
                && let Some(task) = tasks.next()
            {
                running.push(Box::pin(task));
            }
            if running.is_empty() {
                return Ok(());
            }
            let (before, mut at) = (running.len(), 0);
            while at < running.len() {
                match running[at].as_mut().poll(&mut context) {
                    Poll::Ready(outcome) => {
                        each(outcome?)?;
                        drop(running.swap_remove(at));
                    }
                    Poll::Pending => at += 1,
                }
            }
            // A finished task makes room for another.
            self.advance(running.len() == before)?;
        }
    }

    /// Runs one task to completion.
    pub(in super::super) fn block_on<T>(
        &self,
        task: impl Future<Output = Result<T, IndexError>>,
    ) -> Result<T, IndexError> {
        let mut task = pin!(task);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(outcome) = task.as_mut().poll(&mut context) {
                return outcome;
            }
            self.advance(true)?;
        }
    }

    fn failed(&self, FailedOperation { offset, len, fault }: FailedOperation) -> IndexError {
        let source = ReadError::Device { offset, len, kind: fault.kind, errno: fault.errno };
        IndexError::Read { file: self.file.clone(), source }
    }

    /// Submits waiting operations, and processes completions.
    fn advance(&self, wait: bool) -> Result<(), IndexError> {
        let (mut queue, state) = (self.queue.borrow_mut(), &mut *self.state.borrow_mut());
        if !state.waiting.is_empty() {
            let waiting = state.waiting.make_contiguous();
            // SAFETY: the operations point to memory of a batch, which stays until all of them have
            // completed; the queue is dropped before the batches.
            let taken = unsafe { queue.submit_operations(waiting)? };
            state.waiting.drain(..taken);
            state.in_flight += taken;
        }
        if state.in_flight == 0 {
            if wait {
                // All tasks wait for other writers.
                std::thread::sleep(PAUSE);
            }
            return Ok(());
        }
        queue.reap(&mut state.done, wait.then_some(WAIT))?;
        for Completion { id, result } in state.done.drain(..) {
            state.in_flight -= 1;
            let number = id >> PLACE_BITS;
            let Some(batch) = state.batches.get_mut(&number) else { continue };
            batch.remaining -= 1;
            let operation = &batch.operations[(id & ((1 << PLACE_BITS) - 1)) as usize];
            let wanted = match &operation.kind {
                OperationKind::Swap { .. } | OperationKind::Add(_) => 8,
                _ => operation.bytes().len() as u32,
            };
            let short = |got: u32| (got < wanted).then(|| ReadFault::system(libc::EINVAL));
            let fault = result.map_or_else(Some, short);
            let failed = |fault| FailedOperation { offset: operation.offset, len: wanted, fault };
            batch.failed = batch.failed.take().or(fault.map(failed));
            if batch.remaining == 0 && batch.orphaned {
                state.batches.remove(&number);
            }
        }
        Ok(())
    }
}

impl GrowthMemory for TierMemory<'_> {
    async fn run(&self, operations: Vec<MemoryOperation>) -> Result<Vec<MemoryOperation>, IndexError> {
        BatchFuture { memory: self, number: self.begin(operations) }.await
    }

    async fn pause(&self) {
        let until = Instant::now() + PAUSE;
        std::future::poll_fn(|_| if Instant::now() >= until { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn holder(&self) -> u64 {
        self.holder
    }

    fn holders(&self) -> Result<Option<Vec<u64>>, IndexError> {
        Ok(self.tier.holders()?)
    }
}

impl TierMemory<'_> {
    fn begin(&self, operations: Vec<MemoryOperation>) -> u64 {
        let state = &mut *self.state.borrow_mut();
        state.next += 1;
        let number = state.next;
        let mut batch =
            OperationBatch { remaining: operations.len(), operations, failed: None, orphaned: false };
        for (place, operation) in (0..).zip(&mut batch.operations) {
            let old = &raw mut operation.old;
            let action = match &mut operation.kind {
                OperationKind::Read(bytes) => {
                    Action::Read { into: bytes.as_mut_ptr(), len: bytes.len() as u32 }
                }
                OperationKind::Write(bytes) => {
                    Action::Write { from: bytes.as_ptr(), len: bytes.len() as u32 }
                }
                OperationKind::Swap { expected, new } => {
                    Action::CompareAndSwap { expected: *expected, new: *new, old }
                }
                OperationKind::Add(by) => Action::FetchAndAdd { by: *by, old },
            };
            let (id, linked) = (number << PLACE_BITS | place, operation.linked);
            state.waiting.push_back(Operation { id, offset: operation.offset, action, linked });
        }
        state.batches.insert(number, batch);
        number
    }
}

/// The future of a batch.
struct BatchFuture<'a, 'b> {
    memory: &'a TierMemory<'b>,
    number: u64,
}

impl Future for BatchFuture<'_, '_> {
    type Output = Result<Vec<MemoryOperation>, IndexError>;

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Self::Output> {
        let state = &mut *self.memory.state.borrow_mut();
        if state.batches.get(&self.number).is_some_and(|batch| batch.remaining > 0) {
            return Poll::Pending;
        }
        let Some(batch) = state.batches.remove(&self.number) else { return Poll::Pending };
        Poll::Ready(match batch.failed {
            Some(failed) => Err(self.memory.failed(failed)),
            None => Ok(batch.operations),
        })
    }
}

impl Drop for BatchFuture<'_, '_> {
    fn drop(&mut self) {
        // Operations in flight still write to the batch.
        if let Ok(mut state) = self.memory.state.try_borrow_mut()
            && let Some(batch) = state.batches.get_mut(&self.number)
        {
            batch.orphaned = true;
        }
    }
}
