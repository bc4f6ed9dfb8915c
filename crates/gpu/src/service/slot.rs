//! The places of queries, and the letters that they and the card's threads exchange.

use crate::error::GpuError;
use bathyal_tier::TaskWaker;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Where a letter is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// With the query.
    #[default]
    Own,
    /// With the card; the query is gone if so.
    Asked { abandoned: bool },
    /// It has been answered.
    Answered(Result<(), GpuError>),
}

/// What a query hands over and gets back. Its memory is reused.
#[derive(Default)]
pub(crate) struct Letter<L> {
    pub(super) state: State,
    pub(super) waker: Option<TaskWaker>,
    /// What is written there.
    pub(crate) content: L,
}

/// How queries meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Queries under way at most.
    pub(crate) slots: u32,
    /// Queries of a launch at most.
    pub(crate) room: u32,
    /// Queries that a launch waits for, of those that are under way; `None` waits for none.
    pub(crate) mini_batch: Option<u32>,
}

impl Terms {
    /// Queries of a launch at most.
    pub(super) fn launched(&self) -> usize {
        self.mini_batch.unwrap_or(self.room).min(self.room) as usize
    }
}

/// Who waits.
#[derive(Default)]
pub(super) struct Line {
    /// The slots whose letters are to be answered.
    pub(super) asked: Vec<u32>,
    pub(super) free: Vec<u32>,
    /// Who waits for a slot.
    pub(super) waiting: Vec<TaskWaker>,
    pub(super) ended: bool,
    /// Why nothing is answered any more.
    pub(super) failed: Option<GpuError>,
}

/// What queries and the card's threads share.
pub(crate) struct Shared<L> {
    pub(super) terms: Terms,
    line: Mutex<Line>,
    pub(super) bell: Condvar,
    letters: Vec<Mutex<Letter<L>>>,
    /// Launches, what was asked, bytes.
    pub(super) counted: [AtomicU64; 3],
}

impl<L> std::fmt::Debug for Shared<L> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").field("slots", &self.letters.len()).finish_non_exhaustive()
    }
}

impl<L: Default> Shared<L> {
    pub(super) fn new(terms: Terms) -> Shared<L> {
        Shared {
            terms,
            line: Mutex::new(Line { free: (0..terms.slots).rev().collect(), ..Line::default() }),
            bell: Condvar::new(),
            letters: (0..terms.slots).map(|_| Mutex::default()).collect(),
            counted: Default::default(),
        }
    }
}

impl<L> Shared<L> {
    pub(super) fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn letter(&self, slot: u32) -> MutexGuard<'_, Letter<L>> {
        self.letters[slot as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is a launch to be made. Where queries are waited for, those of another launch and those that read pages are among
    /// them, for they will ask again or give their places back.
    pub(super) fn is_ready(&self, line: &Line) -> bool {
        let (asked, under_way) = (line.asked.len(), self.letters.len() - line.free.len());
        let enough = self.terms.mini_batch.is_none() || asked >= self.terms.launched() || asked >= under_way;
        asked > 0 && (enough || line.ended)
    }

    /// Tells the card's threads to end.
    pub(super) fn end(&self) {
        self.line().ended = true;
        self.bell.notify_all();
    }

    /// Gives a slot to whoever wants one next.
    pub(super) fn give_back(&self, slot: u32) {
        let mut line = self.line();
        line.free.push(slot);
        // All: one who was woken for something else has asked twice, or is gone, and whoever it was that he was woken instead of would wait
        // for ever. Who comes too late waits again.
        let waiting = std::mem::take(&mut line.waiting);
        // All others may have asked.
        let ready = self.is_ready(&line);
        drop(line);
        if ready {
            self.bell.notify_one();
        }
        waiting.iter().for_each(TaskWaker::wake);
    }
}

/// A place for a query on the card.
#[derive(Debug)]
pub(crate) struct Place<L> {
    shared: Arc<Shared<L>>,
    number: u32,
}

impl<L> Place<L> {
    /// A free place; `None` while as many are taken as there are, in which case `waker` is woken when one is free.
    pub(crate) fn take(shared: &Arc<Shared<L>>, waker: Option<TaskWaker>) -> Option<Place<L>> {
        let mut line = shared.line();
        let Some(number) = line.free.pop() else {
            line.waiting.extend(waker);
            return None;
        };
        Some(Place { shared: shared.clone(), number })
    }

    /// Writes the letter that is sent next.
    pub(crate) fn write(&mut self, write: impl FnOnce(&mut L)) {
        write(&mut self.shared.letter(self.number).content);
    }

    /// Sends the letter; `waker` is woken when its answer is there.
    pub(crate) fn send(&mut self, waker: TaskWaker) {
        let mut letter = self.shared.letter(self.number);
        letter.waker = Some(waker);
        letter.state = State::Asked { abandoned: false };
        drop(letter);
        let mut line = self.shared.line();
        if let Some(error) = &line.failed {
            let lost = GpuError::Lost(error.to_string());
            drop(line);
            let mut letter = self.shared.letter(self.number);
            letter.state = State::Answered(Err(lost));
            if let Some(waker) = letter.waker.take() {
                waker.wake();
            }
            return;
        }
        line.asked.push(self.number);
        drop(line);
        self.shared.bell.notify_one();
    }

    /// Lets `read` look at the answer, once it is there; `None` before.
    ///
    /// # Errors
    /// [`GpuError`].
    pub(crate) fn answer(&mut self, read: impl FnOnce(&L)) -> Option<Result<(), GpuError>> {
        let mut letter = self.shared.letter(self.number);
        if !matches!(letter.state, State::Answered(_)) {
            return None;
        }
        let State::Answered(answered) = std::mem::take(&mut letter.state) else { return None };
        if answered.is_ok() {
            read(&letter.content);
        }
        Some(answered)
    }
}

impl<L> Drop for Place<L> {
    fn drop(&mut self) {
        let mut letter = self.shared.letter(self.number);
        if let State::Asked { abandoned } = &mut letter.state {
            // The card may be at it: its thread gives the place back.
            *abandoned = true;
            letter.waker = None;
            return;
        }
        letter.state = State::Own;
        drop(letter);
        self.shared.give_back(self.number);
    }
}
