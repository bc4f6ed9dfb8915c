//! The engine: one thread runs many queries at once, each a plain `async fn` that suspends at a read.
//!
//! This is the software pipeline of second-tier-memory (section 5) and the asynchronous execution of
//! e2lsh-on-storage (section 5.4) for every index at once: while one query's reads are in flight the
//! others compute. There are no wakers, no `Send` and no allocation a read: a completion pushes its
//! task's index onto a ready list.

mod admission;
mod core;
mod reads;

pub use core::EngineStats;
pub use reads::{Arrived, Batch, Cx, Reading, Stream};

use self::core::Core;
use crate::contract::Tier;
use crate::error::{RunError, TierError};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The longest that the engine sleeps in the device before it looks at cancellation and deadline again.
/// Ctrl-C must be felt within 100 ms.
const LONGEST_WAIT: Duration = Duration::from_millis(20);

/// Steps of queries between two looks at cancellation and deadline.
const CHECK_EVERY: u32 = 16;

/// How long an ended run waits for reads that dropped queries left in flight. Devices answer in
/// milliseconds, and waiting longer buys nothing: an unanswered read keeps its buffer, whatever runs next.
/// Together with [`LONGEST_WAIT`] it stays within the 100 ms in which Ctrl-C must be felt.
const DRAIN_PATIENCE: Duration = Duration::from_millis(60);

/// How an engine is set up.
#[derive(Debug, Clone, Copy)]
pub struct EngineOptions {
    /// Reads in flight at most.
    pub depth: u32,
    /// Size in bytes of the frames that most reads fit into (a page of the index).
    pub frame_bytes: usize,
    /// Bytes of read buffers at most.
    pub buffer_budget_bytes: u64,
    /// How long an ended run waits for reads that dropped queries left in flight. What has not arrived by
    /// then keeps its buffer until it does, during a later run or never.
    pub drain_patience: Duration,
}

impl Default for EngineOptions {
    fn default() -> Self {
        // 128 reads keep a datacentre SSD busy; 64 MiB holds that many reads of half a megabyte.
        EngineOptions {
            depth: 128,
            frame_bytes: 4096,
            buffer_budget_bytes: 64 << 20,
            drain_patience: DRAIN_PATIENCE,
        }
    }
}

/// When a run must stop before its last query.
#[derive(Debug, Clone, Copy, Default)]
pub struct Control<'a> {
    /// Raised by another thread or a signal handler.
    pub cancel: Option<&'a AtomicBool>,
    /// The moment after which unanswered queries fail.
    pub deadline: Option<Instant>,
}

impl Control<'_> {
    fn check(&self) -> Result<(), RunError> {
        if self.cancel.is_some_and(|c| c.load(Ordering::Relaxed)) {
            return Err(RunError::Cancelled);
        }
        if self.deadline.is_some_and(|d| Instant::now() >= d) {
            return Err(RunError::Deadline);
        }
        Ok(())
    }

    fn wait(&self) -> Duration {
        match self.deadline {
            Some(d) => d.saturating_duration_since(Instant::now()).min(LONGEST_WAIT),
            None => LONGEST_WAIT,
        }
    }
}

/// One thread's engine over one tier. Not `Send`: open one a thread.
pub struct Engine {
    cx: Cx,
}

impl Engine {
    /// Opens a queue on `tier` and allocates the read buffers.
    pub fn new(tier: Arc<dyn Tier>, options: EngineOptions) -> Result<Engine, TierError> {
        Ok(Engine { cx: Cx(Rc::new(RefCell::new(Core::new(tier, options)?))) })
    }

    /// What the engine's reads have cost since it was opened.
    pub fn stats(&self) -> EngineStats {
        self.cx.0.borrow().stats
    }

    /// Bytes of read buffers allocated now.
    pub fn buffer_bytes(&self) -> u64 {
        self.cx.0.borrow().buffer_bytes()
    }

    /// Runs the queries that `next` makes, up to `width` at once, until it returns `None` and all have ended;
    /// each answer goes to `sink` as it comes.
    ///
    /// On an error the unfinished queries are dropped and their reads drained; the engine stays usable. Where the tier
    /// finds at the end that bytes which it lent were not there, that is the error, whatever the queries made of them.
    pub fn run<F: Future>(
        &mut self,
        width: usize,
        mut next: impl FnMut(&Cx) -> Option<F>,
        mut sink: impl FnMut(F::Output),
        control: Control<'_>,
    ) -> Result<(), RunError> {
        let width = width.max(1);
        let mut slots: Vec<Pin<Box<Option<F>>>> = Vec::with_capacity(width);
        let outcome = self.drive(width, &mut slots, &mut next, &mut sink, control);
        drop(slots);
        let mut core = self.cx.0.borrow_mut();
        let drained = core.drain_after_run();
        if let Err(lost @ TierError::Lost { .. }) = core.look_after_run() {
            return Err(lost.into());
        }
        outcome.and(drained.map_err(RunError::from))
    }

    /// Runs one query to its end.
    pub fn run_one<F: Future>(
        &mut self,
        make: impl FnOnce(&Cx) -> F,
        control: Control<'_>,
    ) -> Result<F::Output, RunError> {
        let mut make = Some(make);
        let mut answer = None;
        self.run(1, |cx| make.take().map(|make| make(cx)), |a| answer = Some(a), control)?;
        answer.ok_or(RunError::Stalled)
    }

    fn drive<F: Future>(
        &mut self,
        width: usize,
        slots: &mut Vec<Pin<Box<Option<F>>>>,
        next: &mut impl FnMut(&Cx) -> Option<F>,
        sink: &mut impl FnMut(F::Output),
        control: Control<'_>,
    ) -> Result<(), RunError> {
        let mut free: Vec<u32> = Vec::with_capacity(width);
        let mut exhausted = false;
        let mut active = 0_usize;
        let mut turn = 0_u32;
        loop {
            // A clock costs as much as a step; the flag is free, but both are felt soon enough.
            if turn.is_multiple_of(CHECK_EVERY) {
                control.check()?;
            }
            turn = turn.wrapping_add(1);
            while !exhausted && active < width {
                let Some(future) = next(&self.cx) else {
                    exhausted = true;
                    break;
                };
                let slot = match free.pop() {
                    Some(slot) => {
                        slots[slot as usize].as_mut().set(Some(future));
                        slot
                    }
                    None => {
                        slots.push(Box::pin(Some(future)));
                        (slots.len() - 1) as u32
                    }
                };
                active += 1;
                self.cx.0.borrow_mut().set_current(slot);
                if self.step(slot, slots, sink) {
                    free.push(slot);
                    active -= 1;
                }
                self.cx.0.borrow_mut().flush_if_full()?;
            }
            let task = self.cx.0.borrow_mut().next_ready()?;
            if let Some(slot) = task {
                if self.step(slot, slots, sink) {
                    free.push(slot);
                    active -= 1;
                }
            } else if active == 0 {
                return Ok(());
            } else {
                self.cx.0.borrow_mut().advance(|| control.wait())?;
                control.check()?;
            }
        }
    }

    /// Polls one task, which must be the current one; true when it has ended.
    #[inline]
    fn step<F: Future>(
        &self,
        slot: u32,
        slots: &mut [Pin<Box<Option<F>>>],
        sink: &mut impl FnMut(F::Output),
    ) -> bool {
        let place = &mut slots[slot as usize];
        let Some(future) = place.as_mut().as_pin_mut() else { return false };
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => false,
            Poll::Ready(answer) => {
                place.as_mut().set(None);
                sink(answer);
                true
            }
        }
    }
}
