//! The thread of a card: whatever was asked while it was busy is the next launch.

use super::slot::{Shared, State};
use crate::error::GpuError;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// What is done for many queries by one launch.
pub(crate) trait Wave: Send + 'static {
    /// What a query writes, and reads.
    type Letter: Default + Send;

    /// Forgets the last launch.
    fn begin(&mut self);

    /// Takes a letter from `slot`.
    fn take(&mut self, slot: u32, letter: &mut Self::Letter);

    /// Has the card answer all that were taken, and returns how many bytes were copied to it for that.
    fn launch(&mut self) -> Result<u64, GpuError>;

    /// Writes the answer to the letter that was taken as number `at`.
    fn answer(&mut self, at: usize, letter: &mut Self::Letter);
}

/// The thread's own.
pub(super) struct Conductor<W: Wave> {
    shared: Arc<Shared<W::Letter>>,
    wave: W,
    slots: Vec<u32>,
}

impl<W: Wave> Conductor<W> {
    pub(super) fn new(shared: Arc<Shared<W::Letter>>, wave: W) -> Conductor<W> {
        Conductor { shared, wave, slots: Vec::new() }
    }

    /// Until all is over. A defect here must not leave queries waiting for ever.
    pub(super) fn run(mut self) {
        let shared = self.shared.clone();
        if std::panic::catch_unwind(AssertUnwindSafe(|| self.serve())).is_err() {
            shared.fail_all(&GpuError::Lost("its thread has panicked; please report it".into()));
        }
    }

    fn serve(&mut self) {
        while self.wait() {
            self.wave.begin();
            for slot in &self.slots {
                self.wave.take(*slot, &mut self.shared.letter(*slot).content);
            }
            let answered = self.wave.launch().map(|bytes| {
                let counts = [1, self.slots.len() as u64, bytes];
                for (counted, more) in self.shared.counted.iter().zip(counts) {
                    counted.fetch_add(more, Ordering::Relaxed);
                }
            });
            if let Err(error) = &answered {
                let mut line = self.shared.line();
                line.failed = Some(error.clone());
                // Whoever asks from here on is told.
                self.slots.append(&mut line.asked);
            }
            self.deliver(&answered);
        }
    }

    /// Waits until something was asked, and takes it; false at the end.
    fn wait(&mut self) -> bool {
        self.slots.clear();
        let mut line = self.shared.line();
        while line.asked.is_empty() {
            if line.ended {
                return false;
            }
            line = self.shared.bell.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut self.slots, &mut line.asked);
        true
    }

    fn deliver(&mut self, answered: &Result<(), GpuError>) {
        for (at, slot) in self.slots.iter().enumerate() {
            let mut letter = self.shared.letter(*slot);
            if answered.is_ok() {
                self.wave.answer(at, &mut letter.content);
            }
            if letter.state == (State::Asked { abandoned: true }) {
                letter.state = State::Own;
                drop(letter);
                self.shared.give_back(*slot);
                continue;
            }
            letter.state = State::Answered(answered.clone());
            if let Some(waker) = letter.waker.take() {
                waker.wake();
            }
        }
    }
}
