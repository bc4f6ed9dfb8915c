//! Queries that run on one engine, a step at a time: for a thread that does other work besides one run.

use super::{Cx, Engine, EngineWaker};
use crate::error::{RunError, TierError};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Result of one step of [`RunningQueries`].
#[derive(Debug)]
pub enum Step<T> {
    /// A query has ended with this answer.
    Answered(T),
    /// A query was polled and waits again.
    Suspended,
    /// Every query waits for the tier.
    Waiting,
}

/// Running queries and their engine.
///
/// The thread adds queries with [`RunningQueries::start`] while [`RunningQueries::may_begin`], steps them
/// with [`RunningQueries::step`] until it returns [`Step::Waiting`], and sleeps in [`RunningQueries::wait`].
/// [`Engine::run`] and [`Engine::run_fed`] are that loop.
pub struct RunningQueries<F: Future> {
    // Dropped before the engine, to which the queries give their buffers back.
    queries: Queries<F>,
    engine: Engine,
    /// The queue's waker, once it has been requested; it ends a sleep in the device.
    device_waker: Option<Option<Waker>>,
}

/// Slots of running queries. The number of a slot is the number of its task in the engine.
pub(super) struct Queries<F> {
    slots: Vec<Pin<Box<Option<F>>>>,
    free: Vec<u32>,
    /// Queries that have begun since the tier was last polled.
    begun: usize,
}

impl<F: Future> Queries<F> {
    pub(super) fn with_capacity(width: usize) -> Queries<F> {
        Queries { slots: Vec::with_capacity(width), free: Vec::with_capacity(width), begun: 0 }
    }

    /// Returns true if another query may begin: fewer than `width` run, and fewer than `width` have begun
    /// since the tier was last polled. Without the second limit, queries that end at once, without a read,
    /// would be followed by more of them while those that wait for the tier are not resumed.
    #[inline]
    pub(super) fn may_begin(&self, width: usize) -> bool {
        self.active() < width && self.begun < width
    }

    /// Returns true if more queries may begin as soon as the tier has been polled.
    #[inline]
    pub(super) fn begin_after_poll(&self, width: usize) -> bool {
        self.active() < width && self.begun >= width
    }

    /// Notes that the tier is polled now.
    #[inline]
    pub(super) fn note_poll(&mut self) {
        self.begun = 0;
    }

    #[inline]
    pub(super) fn active(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Begins a query and polls it for the first time.
    #[inline]
    pub(super) fn start(
        &mut self,
        cx: &Cx,
        query: F,
        sink: &mut impl FnMut(F::Output),
    ) -> Result<(), TierError> {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize].as_mut().set(Some(query));
                slot
            }
            None => {
                self.slots.push(Box::pin(Some(query)));
                (self.slots.len() - 1) as u32
            }
        };
        self.begun += 1;
        cx.0.borrow_mut().begin(slot);
        self.poll(slot, sink);
        cx.0.borrow_mut().flush_if_full()
    }

    /// Polls the next query whose reads have arrived. Returns false if every query waits.
    #[inline]
    pub(super) fn step(&mut self, cx: &Cx, sink: &mut impl FnMut(F::Output)) -> Result<bool, TierError> {
        let task = cx.0.borrow_mut().next_ready()?;
        if let Some(slot) = task {
            self.poll(slot, sink);
        }
        Ok(task.is_some())
    }

    /// Polls one task, which must be the current one.
    #[inline]
    fn poll(&mut self, slot: u32, sink: &mut impl FnMut(F::Output)) {
        let query_slot = &mut self.slots[slot as usize];
        // The slot is empty if the query was dropped after its task had been put on the ready list.
        let Some(query) = query_slot.as_mut().as_pin_mut() else { return };
        if let Poll::Ready(answer) = query.poll(&mut Context::from_waker(Waker::noop())) {
            query_slot.as_mut().set(None);
            self.free.push(slot);
            sink(answer);
        }
    }

    /// Drops the queries for which `keep` returns false. Their reads in flight keep their buffers until they
    /// arrive.
    fn retain(&mut self, mut keep: impl FnMut(&F) -> bool) {
        for (slot, query_slot) in (0_u32..).zip(&mut self.slots) {
            if query_slot.as_ref().get_ref().as_ref().is_some_and(|query| !keep(query)) {
                query_slot.as_mut().set(None);
                self.free.push(slot);
            }
        }
    }
}

impl<F: Future> RunningQueries<F> {
    /// Makes a set without queries over an engine of this thread.
    pub fn new(engine: Engine) -> RunningQueries<F> {
        RunningQueries { queries: Queries::with_capacity(0), engine, device_waker: None }
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the number of queries that have begun and not ended.
    pub fn active(&self) -> usize {
        self.queries.active()
    }

    /// Returns true if another query may begin: fewer than `width` run, and fewer than `width` have begun
    /// since the last [`RunningQueries::poll`] or [`RunningQueries::wait`].
    pub fn may_begin(&self, width: usize) -> bool {
        self.queries.may_begin(width)
    }

    /// Returns true if more queries may begin as soon as the tier has been polled, so that a thread should
    /// not sleep until a read arrives.
    pub fn begin_after_poll(&self, width: usize) -> bool {
        self.queries.begin_after_poll(width)
    }

    /// Begins the query that `make` makes. Returns its answer if it ends at once.
    ///
    /// # Errors
    /// [`TierError`] if the tier fails as a whole; the caller should then drop every query.
    pub fn start(&mut self, make: impl FnOnce(&Cx) -> F) -> Result<Option<F::Output>, TierError> {
        let (query, mut answer) = (make(&self.engine.cx), None);
        self.queries.start(&self.engine.cx, query, &mut |ended| answer = Some(ended))?;
        Ok(answer)
    }

    /// Steps one query whose reads have arrived.
    ///
    /// # Errors
    /// As [`RunningQueries::start`].
    pub fn step(&mut self) -> Result<Step<F::Output>, TierError> {
        let mut answer = None;
        let stepped = self.queries.step(&self.engine.cx, &mut |ended| answer = Some(ended))?;
        Ok(match answer {
            Some(answer) => Step::Answered(answer),
            None if stepped => Step::Suspended,
            None => Step::Waiting,
        })
    }

    /// Submits staged reads and collects arrivals, without sleeping.
    ///
    /// # Errors
    /// As [`RunningQueries::start`]; [`RunError::Stalled`] if a query waits for a future that is not the
    /// engine's.
    pub fn poll(&mut self) -> Result<(), RunError> {
        self.queries.note_poll();
        if self.active() == 0 {
            return Ok(());
        }
        self.engine.cx.0.borrow_mut().advance(None)
    }

    /// Submits and collects as [`RunningQueries::poll`] does, but sleeps up to `limit` for an arrival. A call
    /// of [`EngineWaker::wake`] on `waker`, if given, ends the sleep.
    ///
    /// # Errors
    /// As [`RunningQueries::poll`].
    pub fn wait(&mut self, waker: Option<&EngineWaker>, limit: Duration) -> Result<(), RunError> {
        self.queries.note_poll();
        if self.active() == 0 {
            return Ok(());
        }
        let core = &self.engine.cx.0;
        let Some(waker) = waker else { return core.borrow_mut().advance(Some(limit)) };
        let device_waker = self.device_waker.get_or_insert_with(|| core.borrow_mut().waker());
        waker.sleep_in(device_waker.as_ref(), limit, |limit| core.borrow_mut().advance(limit))
    }

    /// Drops the queries for which `keep` returns false. A buffer that a device may write into is released
    /// when its read ends.
    pub fn retain(&mut self, keep: impl FnMut(&F) -> bool) {
        self.queries.retain(keep);
    }

    /// Drops all queries, waits briefly for their reads, and returns the engine.
    ///
    /// # Errors
    /// As [`Engine::run`]: the tier fails, or bytes that it lent were missing.
    pub fn end(self) -> (Engine, Result<(), RunError>) {
        let RunningQueries { queries, mut engine, .. } = self;
        drop(queries);
        let outcome = engine.settle();
        (engine, outcome)
    }

    /// Checks that all bytes that the tier has lent were present. Does nothing on a tier that lends none.
    ///
    /// # Errors
    /// [`TierError::Lost`]: answers since the last check may come from missing bytes and must be discarded.
    pub fn check_lent(&mut self) -> Result<(), TierError> {
        self.engine.cx.0.borrow_mut().check_lent_after_run()
    }
}
