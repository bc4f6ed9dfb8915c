//! The places of queries, and the letters that they and the card's thread exchange.

use crate::error::GpuError;
use bathyal_tier::TaskWaker;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Where a letter is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum State {
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
pub(super) struct Letter {
    pub(super) state: State,
    /// The query, if it begins.
    pub(super) query: Vec<u8>,
    pub(super) ids: Vec<u32>,
    pub(super) list: u32,
    pub(super) width: u32,
    pub(super) next: Vec<u32>,
    pub(super) waker: Option<TaskWaker>,
}

/// Who waits.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The slots whose letters are to be answered.
    pub(super) asked: Vec<u32>,
    pub(super) free: Vec<u32>,
    pub(super) ended: bool,
    /// Why nothing is answered any more.
    pub(super) failed: Option<GpuError>,
}

/// What queries and the card's thread share.
pub(super) struct Shared {
    pub(super) line: Mutex<Line>,
    pub(super) bell: Condvar,
    pub(super) letters: Vec<Mutex<Letter>>,
    /// Launches, hops, bytes.
    pub(super) counted: [AtomicU64; 3],
    vectors: u64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").field("slots", &self.letters.len()).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(slots: u32, vectors: u64) -> Shared {
        Shared {
            line: Mutex::new(Line { free: (0..slots).rev().collect(), ..Line::default() }),
            bell: Condvar::new(),
            letters: (0..slots).map(|_| Mutex::default()).collect(),
            counted: Default::default(),
            vectors,
        }
    }

    pub(super) fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn letter(&self, slot: u32) -> MutexGuard<'_, Letter> {
        self.letters[slot as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the card's thread to end.
    pub(super) fn end(&self) {
        self.line().ended = true;
        self.bell.notify_one();
    }
}

/// A place for a query on the card.
#[derive(Debug)]
pub struct Slot {
    shared: Arc<Shared>,
    number: u32,
}

impl Slot {
    pub(super) fn take(shared: &Arc<Shared>) -> Option<Slot> {
        let number = shared.line().free.pop()?;
        Some(Slot { shared: shared.clone(), number })
    }

    /// Begins a query that keeps `list` candidates and expands `width` of them at a time: both at most what the shape says. `write` writes
    /// it, by [`write_query`](super::write_query).
    pub fn begin(&mut self, list: u32, width: u32, write: impl FnOnce(&mut Vec<u8>)) {
        let mut letter = self.shared.letter(self.number);
        write(&mut letter.query);
        (letter.list, letter.width) = (list, width);
    }

    /// Hands over `ids`, to be scored and made candidates; `waker` is woken when the answer is there.
    ///
    /// # Panics
    /// When there is no vector of an id, which is a caller's bug: the card would read what is not there.
    pub fn ask(&mut self, ids: &[u32], waker: TaskWaker) {
        let inside = ids.iter().all(|id| u64::from(*id) < self.shared.vectors);
        assert!(inside, "an id beyond the codes");
        let mut letter = self.shared.letter(self.number);
        letter.ids.clear();
        letter.ids.extend_from_slice(ids);
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

    /// Writes the vectors to expand next, the nearest first, to `next`, once they are there; `None` before.
    ///
    /// # Errors
    /// [`GpuError`].
    pub fn answer(&mut self, next: &mut Vec<u32>) -> Option<Result<(), GpuError>> {
        let mut letter = self.shared.letter(self.number);
        if !matches!(letter.state, State::Answered(_)) {
            return None;
        }
        let State::Answered(answered) = std::mem::take(&mut letter.state) else { return None };
        next.clear();
        next.extend_from_slice(&letter.next);
        Some(answered)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut letter = self.shared.letter(self.number);
        if let State::Asked { abandoned } = &mut letter.state {
            // The card may be at it: its thread gives the slot back.
            *abandoned = true;
            letter.waker = None;
            return;
        }
        letter.state = State::Own;
        drop(letter);
        self.shared.line().free.push(self.number);
    }
}
