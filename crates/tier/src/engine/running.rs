//! Queries that run on one engine, a step at a time: for a thread that has more to do than one run.

use super::{Alarm, Cx, Engine};
use crate::error::{RunError, TierError};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What a step of [`Running`] came to.
#[derive(Debug)]
pub enum Step<T> {
    /// A query has ended with this answer.
    Answered(T),
    /// A query has gone on and waits again.
    Suspended,
    /// Every query waits for the tier.
    Waiting,
}

/// Running queries and their engine.
///
/// Its thread adds queries by [`Running::start`], steps them while [`Running::step`] finds one to step, and sleeps by
/// [`Running::wait`]. [`Engine::run`] and [`Engine::run_fed`] are that loop.
pub struct Running<F: Future> {
    // Before the engine: what they read is given back while there is one.
    queries: Queries<F>,
    engine: Engine,
    /// What ends a sleep in the device, once it has been asked for.
    device: Option<Option<Waker>>,
}

/// Slots of running queries; a slot's number is the engine's name for its task.
pub(super) struct Queries<F> {
    slots: Vec<Pin<Box<Option<F>>>>,
    free: Vec<u32>,
}

impl<F: Future> Queries<F> {
    pub(super) fn with_room(width: usize) -> Queries<F> {
        Queries { slots: Vec::with_capacity(width), free: Vec::with_capacity(width) }
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
        cx.0.borrow_mut().begin(slot);
        self.poll(slot, sink);
        cx.0.borrow_mut().flush_if_full()
    }

    /// Polls the next query whose reads have arrived; `false` where every query waits.
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
        let place = &mut self.slots[slot as usize];
        // None where the query has been dropped and its wake came too late to be taken back.
        let Some(query) = place.as_mut().as_pin_mut() else { return };
        if let Poll::Ready(answer) = query.poll(&mut Context::from_waker(Waker::noop())) {
            place.as_mut().set(None);
            self.free.push(slot);
            sink(answer);
        }
    }

    /// Drops the queries that `keep` refuses. What they have in flight keeps its buffers until it arrives.
    fn retain(&mut self, mut keep: impl FnMut(&F) -> bool) {
        for (slot, place) in (0_u32..).zip(&mut self.slots) {
            if place.as_ref().get_ref().as_ref().is_some_and(|query| !keep(query)) {
                place.as_mut().set(None);
                self.free.push(slot);
            }
        }
    }
}

impl<F: Future> Running<F> {
    /// No query yet, on an engine of this thread.
    pub fn new(engine: Engine) -> Running<F> {
        Running { queries: Queries::with_room(0), engine, device: None }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Queries that have begun and not ended.
    pub fn active(&self) -> usize {
        self.queries.active()
    }

    /// Begins the query that `make` makes; its answer if it has one at once.
    ///
    /// # Errors
    /// The tier fails as a whole: every query should be given up.
    pub fn start(&mut self, make: impl FnOnce(&Cx) -> F) -> Result<Option<F::Output>, TierError> {
        let (query, mut answer) = (make(&self.engine.cx), None);
        self.queries.start(&self.engine.cx, query, &mut |ended| answer = Some(ended))?;
        Ok(answer)
    }

    /// Steps one query whose reads have arrived.
    ///
    /// # Errors
    /// As [`Running::start`].
    pub fn step(&mut self) -> Result<Step<F::Output>, TierError> {
        let mut answer = None;
        let stepped = self.queries.step(&self.engine.cx, &mut |ended| answer = Some(ended))?;
        Ok(match answer {
            Some(answer) => Step::Answered(answer),
            None if stepped => Step::Suspended,
            None => Step::Waiting,
        })
    }

    /// Hands over what queries have asked for and collects what has arrived, without sleeping.
    ///
    /// # Errors
    /// As [`Running::start`]; [`RunError::Stalled`] where a query waits for something that is no read.
    pub fn poll(&mut self) -> Result<(), RunError> {
        if self.active() == 0 {
            return Ok(());
        }
        self.engine.cx.0.borrow_mut().advance(None)
    }

    /// The same, sleeping up to `limit` for an arrival, or until `alarm` is rung if there is one.
    ///
    /// # Errors
    /// As [`Running::poll`].
    pub fn wait(&mut self, alarm: Option<&Alarm>, limit: Duration) -> Result<(), RunError> {
        if self.active() == 0 {
            return Ok(());
        }
        let core = &self.engine.cx.0;
        let Some(alarm) = alarm else { return core.borrow_mut().advance(Some(limit)) };
        let device = self.device.get_or_insert_with(|| core.borrow_mut().waker());
        alarm.sleep_in(device.as_ref(), limit, |limit| core.borrow_mut().advance(limit))
    }

    /// Drops the queries that `keep` refuses. Buffers that a device may write into are given back as their reads end.
    pub fn retain(&mut self, keep: impl FnMut(&F) -> bool) {
        self.queries.retain(keep);
    }

    /// Ends all queries, waits briefly for their reads, and gives the engine back.
    ///
    /// # Errors
    /// As [`Engine::run`]: bytes that the tier lent were not there, or the tier fails.
    pub fn end(self) -> (Engine, Result<(), RunError>) {
        let Running { queries, mut engine, .. } = self;
        drop(queries);
        let outcome = engine.settle();
        (engine, outcome)
    }

    /// Asks a tier that lends its bytes whether all of them were there; others have nothing to say.
    ///
    /// # Errors
    /// [`TierError::Lost`]: nothing that was answered since the last look may be believed.
    pub fn look(&mut self) -> Result<(), TierError> {
        self.engine.cx.0.borrow_mut().look_after_run()
    }
}
