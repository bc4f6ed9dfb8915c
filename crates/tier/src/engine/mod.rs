//! The engine: one thread runs many queries at once, each a plain `async fn` that suspends at a read.
//!
//! This is the software pipeline of second-tier-memory (section 5) and the asynchronous execution of
//! e2lsh-on-storage (section 5.4) for every index at once: while one query's reads are in flight the
//! others compute. There are no wakers, no `Send` and no allocation a read: a completion pushes its
//! task's index onto a ready list.

mod admission;
mod alarm;
mod core;
mod device;
mod groups;
mod ops;
mod reads;
mod region;
mod running;
mod stream;
#[cfg(test)]
mod tests;
mod wake;

pub use alarm::{Alarm, thread_waker};
pub use core::EngineStats;
pub use reads::{Arrived, Batch, Cx, Reading, Stream};
pub use region::{Region, RegionId};
pub use running::{Running, Step};
pub use wake::{TaskWaker, Waking};

use self::core::Core;
use self::running::Queries;
use crate::contract::Tier;
use crate::error::{RunError, TierError};
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
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

/// What a source of queries has to give.
#[derive(Debug)]
pub enum Next<F> {
    /// A query to run.
    Query(F),
    /// None now, maybe later.
    NoneNow,
    /// None any more.
    End,
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
        sink: impl FnMut(F::Output),
        control: Control<'_>,
    ) -> Result<(), RunError> {
        let next = |cx: &Cx| next(cx).map_or(Next::End, Next::Query);
        self.run_fed(width, next, sink, control, &Alarm::new())
    }

    /// The same where queries come and go while it runs: `next` may have none for now, is asked again whenever there is
    /// room, and its thread sleeps, in the device or idle, until `alarm` is rung by whoever has more.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub fn run_fed<F: Future>(
        &mut self,
        width: usize,
        mut next: impl FnMut(&Cx) -> Next<F>,
        mut sink: impl FnMut(F::Output),
        control: Control<'_>,
        alarm: &Alarm,
    ) -> Result<(), RunError> {
        let width = width.max(1);
        let mut queries = Queries::with_room(width);
        let outcome = self.drive(width, &mut queries, &mut next, &mut sink, control, alarm);
        drop(queries);
        let settled = self.settle();
        match settled {
            Err(lost @ RunError::Tier(TierError::Lost { .. })) => Err(lost),
            settled => outcome.and(settled),
        }
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

    /// After the last query: waits briefly for what dropped ones left in flight, and asks whether lent bytes were there.
    fn settle(&mut self) -> Result<(), RunError> {
        let mut core = self.cx.0.borrow_mut();
        let drained = core.drain_after_run();
        if let Err(lost @ TierError::Lost { .. }) = core.look_after_run() {
            return Err(lost.into());
        }
        drained.map_err(RunError::from)
    }

    fn drive<F: Future>(
        &mut self,
        width: usize,
        queries: &mut Queries<F>,
        next: &mut impl FnMut(&Cx) -> Next<F>,
        sink: &mut impl FnMut(F::Output),
        control: Control<'_>,
        alarm: &Alarm,
    ) -> Result<(), RunError> {
        let mut wakers = Wakers::default();
        let mut exhausted = false;
        let mut turn = 0_u32;
        loop {
            // A clock costs as much as a step; the flag is free, but both are felt soon enough.
            if turn.is_multiple_of(CHECK_EVERY) {
                control.check()?;
            }
            turn = turn.wrapping_add(1);
            while !exhausted && queries.active() < width {
                match next(&self.cx) {
                    Next::Query(query) => queries.start(&self.cx, query, sink)?,
                    Next::NoneNow => {
                        wakers.prepare(&self.cx);
                        break;
                    }
                    Next::End => exhausted = true,
                }
            }
            if queries.step(&self.cx, sink)? {
                continue;
            }
            if queries.active() == 0 && exhausted {
                return Ok(());
            }
            self.sleep(queries.active() == 0, &wakers, control, alarm)?;
            control.check()?;
        }
    }

    #[inline]
    fn sleep(
        &self,
        idle: bool,
        wakers: &Wakers,
        control: Control<'_>,
        alarm: &Alarm,
    ) -> Result<(), RunError> {
        let limit = control.wait();
        match wakers {
            // Nobody feeds this run: only arrivals end its sleep.
            Wakers { thread: None, .. } => self.cx.0.borrow_mut().advance(Some(limit)),
            Wakers { thread: Some(thread), .. } if idle => {
                alarm.idle(thread, Some(limit));
                Ok(())
            }
            Wakers { device, .. } => {
                alarm.sleep_in(device.as_ref(), limit, |limit| self.cx.0.borrow_mut().advance(limit))
            }
        }
    }
}

/// An engine between two runs, with nothing in flight and nobody who knows it: any thread may take it up.
pub struct Parked(Engine);

// SAFETY: the only reference to the books is the one in here (`Engine::park` has counted), so no other thread can touch
// their cells; the queue in them may be handed over, since nothing is in flight; the buffers are plain memory.
unsafe impl Send for Parked {}

impl Engine {
    /// Makes the engine ready for another thread; back as it was where a read is in flight or a [`Cx`] still refers to it.
    ///
    /// # Errors
    /// The engine itself.
    pub fn park(self) -> Result<Parked, Engine> {
        let quiet = Rc::strong_count(&self.cx.0) == 1
            && Rc::weak_count(&self.cx.0) == 0
            && self.cx.0.borrow().in_flight() == 0;
        if quiet { Ok(Parked(self)) } else { Err(self) }
    }
}

impl Parked {
    /// The engine, for this thread.
    pub fn unpark(self) -> Engine {
        self.0
    }
}

/// What wakes a run that is fed while it runs; made when its source first has none for now.
#[derive(Default)]
struct Wakers {
    thread: Option<Waker>,
    device: Option<Waker>,
}

impl Wakers {
    fn prepare(&mut self, cx: &Cx) {
        if self.thread.is_none() {
            (self.thread, self.device) = (Some(thread_waker()), cx.0.borrow_mut().waker());
        }
    }
}
