//! The operations of one queue, whichever way they reach the node: how many fit, how they end without an
//! answer, and when the node counts as lost.

use bathyal_tier::contract::Operation;
use bathyal_tier::{Completion, FaultKind, ReadFault, TierError};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// An operation that has not ended.
pub(super) trait Pending {
    /// Returns the caller's number of the operation.
    fn id(&self) -> u64;

    /// Returns true if it may be sent again after a lost connection: a read that is not linked to others.
    fn is_repeatable(&self) -> bool;
}

/// The operations of one queue that its caller has not reaped.
pub(super) struct Operations<P> {
    /// Operations that have not ended, in the order of submission.
    pub(super) pending: VecDeque<P>,
    /// Completions of operations that ended without an answer of the node.
    pub(super) ended: Vec<Completion>,
    depth: usize,
    /// Time after which a silent node counts as lost.
    timeout: Duration,
    /// Time at which the node last answered, or the queue stopped being idle.
    last_progress: Instant,
    /// True if the pending operations have been sent a second time, and none has ended since.
    was_repeated: bool,
}

impl<P: Pending> Operations<P> {
    pub(super) fn new(depth: u32, timeout: Duration) -> Operations<P> {
        Operations {
            pending: VecDeque::new(),
            ended: Vec::new(),
            depth: depth.max(1) as usize,
            timeout,
            last_progress: Instant::now(),
            was_repeated: false,
        }
    }

    /// Returns how many operations the queue holds at most.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn in_flight(&self) -> usize {
        self.pending.len() + self.ended.len()
    }

    /// Returns how many more operations fit.
    pub(super) fn room(&self) -> usize {
        self.depth - self.in_flight()
    }

    /// Returns true if a chain of linked operations fits now.
    ///
    /// # Errors
    /// [`TierError::Parameter`] if the chain is longer than the depth.
    pub(super) fn admits(&self, chain: &[Operation]) -> Result<bool, TierError> {
        let (len, depth) = (chain.len(), self.depth);
        if len > depth {
            return Err(TierError::Parameter(format!(
                "{len} linked operations do not fit a queue of depth {depth}: open it deeper, or link fewer"
            )));
        }
        Ok(len <= self.room())
    }

    pub(super) fn push(&mut self, operation: P) {
        if self.pending.is_empty() {
            (self.last_progress, self.was_repeated) = (Instant::now(), false);
        }
        self.pending.push_back(operation);
    }

    /// Ends an operation that is not pending.
    pub(super) fn end(&mut self, id: u64, result: Result<u32, ReadFault>) {
        self.ended.push(Completion { id, result });
    }

    /// Removes the first pending operation, which the node has answered.
    pub(super) fn take_answered(&mut self) -> Option<P> {
        self.was_repeated = false;
        self.pending.pop_front()
    }

    /// Notes that the node has answered, or that there is a new connection to it.
    pub(super) fn note_progress(&mut self) {
        self.last_progress = Instant::now();
    }

    /// Returns true if the node has been silent for longer than the timeout.
    pub(super) fn is_overdue(&self) -> bool {
        self.last_progress.elapsed() > self.timeout
    }

    /// Returns the time after which a silent node counts as lost.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns true if all pending operations have been sent a second time, and none has ended since.
    pub(super) fn was_repeated(&self) -> bool {
        self.was_repeated
    }

    /// Notes that the pending operations are about to be sent a second time. Returns false if they already
    /// were.
    pub(super) fn begin_repetition(&mut self) -> bool {
        !std::mem::replace(&mut self.was_repeated, true)
    }

    /// Keeps the pending operations that may be sent again after a loss. Fails the others, because it is not
    /// known whether they were executed.
    pub(super) fn keep_repeatable(&mut self, errno: i32) {
        let (repeatable, failed): (Vec<_>, Vec<_>) = self.pending.drain(..).partition(P::is_repeatable);
        let result = Err(ReadFault { kind: FaultKind::LostPeer, errno });
        self.ended.extend(failed.into_iter().map(|failed| Completion { id: failed.id(), result }));
        self.pending.extend(repeatable);
    }

    /// Fails all pending operations.
    pub(super) fn fail_all(&mut self, fault: ReadFault) {
        self.was_repeated = false;
        let failed = self.pending.drain(..).map(|failed| Completion { id: failed.id(), result: Err(fault) });
        self.ended.extend(failed);
    }

    /// Fails a chain that finds no connection. Changes do not wait for a lost node, because its content may
    /// have changed when it comes back.
    pub(super) fn fail_chain(&mut self, chain: &[Operation]) {
        let lost = ReadFault::of(FaultKind::LostPeer);
        self.ended.extend(chain.iter().map(|one| Completion { id: one.id, result: Err(lost) }));
    }
}
