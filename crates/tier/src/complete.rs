//! Reads and changes that a thread waits for, without an engine.

use crate::contract::{Completion, Operation, Queue, Read, WriteQueue};
use crate::error::TierError;
use std::ops::ControlFlow;
use std::time::Duration;

/// Longest single wait, after which the caller is asked whether to continue.
const WAIT: Duration = Duration::from_millis(50);

/// Submits `reads` as the queue takes them, waits for all of them, and returns their completions in the order
/// in which they came.
///
/// # Errors
/// As [`Queue::submit`] and [`Queue::reap`]. Some of the reads may then be in flight.
///
/// # Safety
/// As [`Queue::submit`], for all `reads`. After an error the buffers must stay valid until the queue has been
/// dropped.
pub unsafe fn complete_reads(queue: &mut dyn Queue, reads: &[Read]) -> Result<Vec<Completion>, TierError> {
    let mut all = Vec::with_capacity(reads.len());
    let collect = |done: &[Completion]| {
        all.extend_from_slice(done);
        ControlFlow::Continue(())
    };
    // SAFETY: the caller keeps the contract for all reads.
    complete_all(queue, reads.len(), |queue, from| unsafe { queue.submit(&reads[from..]) }, collect)?;
    Ok(all)
}

/// Completes `operations` as [`complete_reads`] completes reads.
///
/// # Errors
/// As [`WriteQueue::submit_operations`] and [`Queue::reap`]. Some operations may then be in flight.
///
/// # Safety
/// As [`WriteQueue::submit_operations`], for all `operations`. After an error their memory must stay valid
/// until the queue has been dropped.
pub unsafe fn complete_operations(
    queue: &mut dyn WriteQueue,
    operations: &[Operation],
) -> Result<Vec<Completion>, TierError> {
    let mut all = Vec::with_capacity(operations.len());
    let collect = |done: &[Completion]| {
        all.extend_from_slice(done);
        ControlFlow::Continue(())
    };
    complete_all(
        queue,
        operations.len(),
        // SAFETY: the caller keeps the contract for all operations.
        |queue, from| unsafe { queue.submit_operations(&operations[from..]) },
        collect,
    )?;
    Ok(all)
}

/// Completes `count` reads or operations. `submit` submits those from a number on, and returns how many were
/// taken. `ended` receives the completions of each wait, possibly none. If it breaks, the rest is not
/// submitted, and what is in flight is given up and drained.
///
/// # Errors
/// The error of `submit`, and that of [`Queue::reap`]. Some reads or operations may then be in flight.
pub fn complete_all<Q: Queue + ?Sized>(
    queue: &mut Q,
    count: usize,
    mut submit: impl FnMut(&mut Q, usize) -> Result<usize, TierError>,
    mut ended: impl FnMut(&[Completion]) -> ControlFlow<()>,
) -> Result<(), TierError> {
    let (mut taken, mut completed) = (0, 0);
    let mut done = Vec::new();
    while completed < count {
        if taken < count {
            taken += submit(queue, taken)?;
        }
        done.clear();
        queue.reap(&mut done, Some(WAIT))?;
        completed += done.len();
        if ended(&done).is_break() {
            queue.give_up();
            while completed < taken {
                done.clear();
                queue.reap(&mut done, Some(WAIT))?;
                completed += done.len();
            }
            return Ok(());
        }
    }
    Ok(())
}
