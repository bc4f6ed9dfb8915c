//! The engine: one thread runs many queries at once, each a plain `async fn` that suspends at a read.
//!
//! This is the software pipeline of second-tier-memory (section 5) and the asynchronous execution of
//! e2lsh-on-storage (section 5.4), for all index families: while one query's reads are in flight, the others
//! compute. Reads need no wakers, no `Send` and no allocation: a completion pushes the number of its task
//! onto a ready list.

mod admission;
mod core;
mod device;
mod engine_waker;
mod groups;
mod ops;
mod reads;
mod region;
mod running;
mod stream;
#[cfg(test)]
mod tests;
mod wake;

pub use core::EngineStats;
pub use engine_waker::{EngineWaker, thread_waker};
pub use reads::{ArrivedRead, Batch, Cx, ReadFuture, Stream};
pub use region::{Region, RegionId};
pub use running::{RunningQueries, Step};
pub use wake::{ParkFuture, TaskWaker};

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

/// The longest sleep in the device before the engine checks cancellation and deadline again. Ctrl-C must take
/// effect within 100 ms.
const LONGEST_WAIT: Duration = Duration::from_millis(20);

/// Steps of queries between two checks of cancellation and deadline.
const CHECK_EVERY: u32 = 16;

/// Default time for which an ended run waits for reads that dropped queries left in flight. Devices answer in
/// milliseconds, and a longer wait gains nothing: a read without a completion keeps its buffer during later
/// runs too. Together with [`LONGEST_WAIT`] it stays within the 100 ms in which Ctrl-C must take effect.
const DRAIN_PATIENCE: Duration = Duration::from_millis(60);

/// Options of an engine.
#[derive(Debug, Clone, Copy)]
pub struct EngineOptions {
    /// Maximum number of reads in flight.
    pub depth: u32,
    /// Size in bytes of the frames that most reads fit into (a page of the index).
    pub frame_bytes: usize,
    /// Maximum size of all read buffers in bytes.
    pub buffer_budget_bytes: u64,
    /// Time for which an ended run waits for reads that dropped queries left in flight. A read that has not
    /// arrived by then keeps its buffer until it does, during a later run or never.
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

/// Conditions under which a run stops before its last query.
#[derive(Debug, Clone, Copy, Default)]
pub struct Control<'a> {
    /// Set by another thread or a signal handler; then the run returns [`RunError::Cancelled`].
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

/// Result of asking a source for its next query.
#[derive(Debug)]
pub enum NextQuery<F> {
    /// A query to run.
    Query(F),
    /// No query now; there may be one later.
    NoneNow,
    /// No further queries.
    End,
}

/// One thread's engine over one tier. It is not `Send`: each thread opens its own.
pub struct Engine {
    cx: Cx,
}

impl Engine {
    /// Opens a queue on `tier` and allocates the read buffers.
    pub fn new(tier: Arc<dyn Tier>, options: EngineOptions) -> Result<Engine, TierError> {
        Ok(Engine { cx: Cx(Rc::new(RefCell::new(Core::new(tier, options)?))) })
    }

    /// Returns the counts of the engine's reads since it was opened.
    pub fn stats(&self) -> EngineStats {
        self.cx.0.borrow().stats
    }

    /// Returns the bytes of read buffers that are allocated now.
    pub fn buffer_bytes(&self) -> u64 {
        self.cx.0.borrow().buffer_bytes()
    }

    /// Runs the queries that `next` makes, up to `width` at once, until it returns `None` and all have ended.
    /// `sink` receives each answer as soon as its query ends.
    ///
    /// # Errors
    /// After an error the unfinished queries are dropped and their reads drained; the engine stays usable. If
    /// the tier finds at the end of the run that bytes which it lent were missing, the run fails with
    /// [`TierError::Lost`], even if all queries have ended.
    pub fn run<F: Future>(
        &mut self,
        width: usize,
        mut next: impl FnMut(&Cx) -> Option<F>,
        sink: impl FnMut(F::Output),
        control: Control<'_>,
    ) -> Result<(), RunError> {
        let next = |cx: &Cx| next(cx).map_or(NextQuery::End, NextQuery::Query);
        self.run_fed(width, next, sink, control, &EngineWaker::new())
    }

    /// Runs queries as [`Engine::run`] does, for a source that gets queries while the engine runs. `next` may
    /// return [`NextQuery::NoneNow`]; it is called again whenever fewer than `width` queries run. While no
    /// query can be stepped, the thread sleeps, in the device or idle; a thread that adds a query to the
    /// source calls [`EngineWaker::wake`] to end the sleep.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub fn run_fed<F: Future>(
        &mut self,
        width: usize,
        mut next: impl FnMut(&Cx) -> NextQuery<F>,
        mut sink: impl FnMut(F::Output),
        control: Control<'_>,
        waker: &EngineWaker,
    ) -> Result<(), RunError> {
        let width = width.max(1);
        let mut queries = Queries::with_capacity(width);
        let outcome = self.drive(width, &mut queries, &mut next, &mut sink, control, waker);
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

    /// Waits briefly for reads that dropped queries left in flight, and checks that lent bytes were present.
    /// Called after the last query.
    fn settle(&mut self) -> Result<(), RunError> {
        let mut core = self.cx.0.borrow_mut();
        let drained = core.drain_after_run();
        if let Err(lost @ TierError::Lost { .. }) = core.check_lent_after_run() {
            return Err(lost.into());
        }
        drained.map_err(RunError::from)
    }

    fn drive<F: Future>(
        &mut self,
        width: usize,
        queries: &mut Queries<F>,
        next: &mut impl FnMut(&Cx) -> NextQuery<F>,
        sink: &mut impl FnMut(F::Output),
        control: Control<'_>,
        waker: &EngineWaker,
    ) -> Result<(), RunError> {
        let mut sleep_wakers = SleepWakers::default();
        let mut exhausted = false;
        let mut turn = 0_u32;
        loop {
            // Reading the clock costs as much as a step, so it is not read at every step.
            if turn.is_multiple_of(CHECK_EVERY) {
                control.check()?;
            }
            turn = turn.wrapping_add(1);
            while !exhausted && queries.may_begin(width) {
                match next(&self.cx) {
                    NextQuery::Query(query) => queries.start(&self.cx, query, sink)?,
                    NextQuery::NoneNow => {
                        sleep_wakers.prepare(&self.cx);
                        break;
                    }
                    NextQuery::End => exhausted = true,
                }
            }
            if queries.step(&self.cx, sink)? {
                continue;
            }
            if queries.active() == 0 && exhausted {
                return Ok(());
            }
            let idle = queries.active() == 0;
            if !queries.begin_after_poll(width) {
                self.sleep(idle, &sleep_wakers, control, waker)?;
            } else if !idle {
                self.cx.0.borrow_mut().advance(None)?;
            }
            queries.note_poll();
            control.check()?;
        }
    }

    #[inline]
    fn sleep(
        &self,
        idle: bool,
        sleep_wakers: &SleepWakers,
        control: Control<'_>,
        waker: &EngineWaker,
    ) -> Result<(), RunError> {
        let limit = control.wait();
        match sleep_wakers {
            // The source has never been without a query: only arrivals end this sleep.
            SleepWakers { thread: None, .. } => self.cx.0.borrow_mut().advance(Some(limit)),
            SleepWakers { thread: Some(thread), .. } if idle => {
                waker.idle(thread, Some(limit));
                Ok(())
            }
            SleepWakers { device, .. } => {
                waker.sleep_in(device.as_ref(), limit, |limit| self.cx.0.borrow_mut().advance(limit))
            }
        }
    }
}

/// An engine between two runs, with no read in flight and no [`Cx`] that refers to it. Any thread may take it
/// over.
pub struct ParkedEngine(Engine);

// SAFETY: `Engine::park` has checked that this holds the only reference to the core, so no other thread can
// touch its cells. The queue in it may be handed to another thread, since nothing is in flight. The buffers
// are plain memory.
unsafe impl Send for ParkedEngine {}

impl Engine {
    /// Makes the engine ready for another thread.
    ///
    /// # Errors
    /// The engine itself, unchanged, if a read is in flight or a [`Cx`] still refers to it.
    pub fn park(self) -> Result<ParkedEngine, Engine> {
        let quiet = Rc::strong_count(&self.cx.0) == 1
            && Rc::weak_count(&self.cx.0) == 0
            && self.cx.0.borrow().in_flight() == 0;
        if quiet { Ok(ParkedEngine(self)) } else { Err(self) }
    }
}

impl ParkedEngine {
    /// Returns the engine, for use by this thread.
    pub fn unpark(self) -> Engine {
        self.0
    }
}

/// SleepWakers of a run whose source gets queries while it runs. They are made when the source first returns
/// [`NextQuery::NoneNow`].
#[derive(Default)]
struct SleepWakers {
    thread: Option<Waker>,
    device: Option<Waker>,
}

impl SleepWakers {
    fn prepare(&mut self, cx: &Cx) {
        if self.thread.is_none() {
            (self.thread, self.device) = (Some(thread_waker()), cx.0.borrow_mut().waker());
        }
    }
}
