//! The threads of a card: whatever was asked while they were busy is the next launch, and while one launch runs another is packed.

use super::slot::{Shared, State};
use crate::error::GpuError;
use std::collections::VecDeque;
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

/// A thread's own.
pub(super) struct Conductor<W: Wave> {
    shared: Arc<Shared<W::Letter>>,
    wave: W,
    /// Those of its launch that were not told of it yet, in the order in which they were taken.
    slots: VecDeque<u32>,
}

impl<W: Wave> Conductor<W> {
    pub(super) fn new(shared: Arc<Shared<W::Letter>>, wave: W) -> Conductor<W> {
        Conductor { shared, wave, slots: VecDeque::new() }
    }

    /// Until all is over. A defect here must not leave queries waiting for ever.
    pub(super) fn run(mut self) {
        if std::panic::catch_unwind(AssertUnwindSafe(|| self.serve())).is_err() {
            self.fail(GpuError::Lost("its thread has panicked; please report it".into()));
        }
    }

    fn serve(&mut self) {
        while self.wait() {
            self.wave.begin();
            for slot in &self.slots {
                self.wave.take(*slot, &mut self.shared.letter(*slot).content);
            }
            match self.wave.launch() {
                Ok(bytes) => {
                    let counts = [1, self.slots.len() as u64, bytes];
                    for (counted, more) in self.shared.counted.iter().zip(counts) {
                        counted.fetch_add(more, Ordering::Relaxed);
                    }
                    self.deliver(&Ok(()));
                }
                Err(error) => self.fail(error),
            }
        }
    }

    /// Waits until there is a launch to be made, and takes its slots; false at the end.
    fn wait(&mut self) -> bool {
        let mut line = self.shared.line();
        while !self.shared.is_ready(&line) {
            if line.ended {
                return false;
            }
            line = self.shared.bell.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        let taken = line.asked.len().min(self.shared.terms.launched());
        self.slots.extend(line.asked.drain(..taken));
        if self.shared.is_ready(&line) {
            self.shared.bell.notify_one();
        }
        true
    }

    /// Tells `error` to its own and to all that wait; whoever asks from here on is told. What another launch has taken is that one's.
    fn fail(&mut self, error: GpuError) {
        let mut line = self.shared.line();
        line.failed.get_or_insert_with(|| error.clone());
        self.slots.extend(line.asked.drain(..));
        drop(line);
        self.deliver(&Err(error));
    }

    fn deliver(&mut self, answered: &Result<(), GpuError>) {
        let all = self.slots.len();
        while let Some(slot) = self.slots.front().copied() {
            let mut letter = self.shared.letter(slot);
            if answered.is_ok() {
                self.wave.answer(all - self.slots.len(), &mut letter.content);
            }
            // From here on the slot may be anyone's.
            self.slots.pop_front();
            if letter.state == (State::Asked { abandoned: true }) {
                letter.state = State::Own;
                drop(letter);
                self.shared.give_back(slot);
                continue;
            }
            letter.state = State::Answered(answered.clone());
            if let Some(waker) = letter.waker.take() {
                waker.wake();
            }
        }
    }
}
