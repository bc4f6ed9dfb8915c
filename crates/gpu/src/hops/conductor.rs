//! The thread of a card: whatever was asked while it was busy is the next launch.

use super::args::{NONE, Work};
use super::slot::{Shared, State};
use super::{KERNEL, THREADS};
use crate::card::{CardMemory, CardQueue, Launch};
use crate::error::GpuError;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// What lies on the card.
#[derive(Debug)]
pub(super) struct OnCard {
    pub(super) queue: Box<dyn CardQueue>,
    pub(super) argument: Vec<u8>,
    pub(super) shared_bytes: u32,
    pub(super) width: usize,
    pub(super) vectors: u64,
    pub(super) staged: Box<dyn CardMemory>,
    pub(super) work: Box<dyn CardMemory>,
    pub(super) ids: Box<dyn CardMemory>,
    pub(super) next: Box<dyn CardMemory>,
    /// What only the kernel reads and writes.
    #[expect(dead_code, reason = "held for as long as kernels run")]
    pub(super) kept: [Box<dyn CardMemory>; 4],
}

/// What is copied to the card for a launch, and what comes back.
#[derive(Debug, Default)]
struct Packed {
    staged: Vec<u8>,
    work: Vec<u8>,
    ids: Vec<u8>,
    next: Vec<u8>,
}

impl OnCard {
    /// Has the card answer `count` letters.
    fn answer(&mut self, count: usize, packed: &mut Packed) -> Result<(), GpuError> {
        let OnCard { queue, staged, work, ids, next, .. } = self;
        for (memory, bytes) in [(staged, &packed.staged), (work, &packed.work), (ids, &packed.ids)] {
            if !bytes.is_empty() {
                queue.write(&**memory, 0, bytes)?;
            }
        }
        queue.launch(&Launch {
            kernel: KERNEL,
            blocks: count as u32,
            threads: THREADS,
            shared_bytes: self.shared_bytes,
            argument: &self.argument,
        })?;
        packed.next.resize(4 * count * self.width, 0);
        queue.read(&**next, 0, &mut packed.next)?;
        let mut ids = packed.next.as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id));
        match ids.find(|id| *id != NONE && u64::from(*id) >= self.vectors) {
            // Whoever gets it reads what lies there.
            Some(id) => Err(GpuError::Kernel {
                kernel: KERNEL.name(),
                reason: format!("it names vector {id} of {}", self.vectors),
            }),
            None => Ok(()),
        }
    }
}

/// The thread's own.
pub(super) struct Conductor {
    shared: Arc<Shared>,
    card: OnCard,
    packed: Packed,
    slots: Vec<u32>,
}

impl Conductor {
    pub(super) fn new(shared: Arc<Shared>, card: OnCard) -> Conductor {
        Conductor { shared, card, packed: Packed::default(), slots: Vec::new() }
    }

    /// Until all is over.
    pub(super) fn run(mut self) {
        while self.wait() {
            self.pack();
            let answered = self.card.answer(self.slots.len(), &mut self.packed);
            let counted = &self.shared.counted;
            counted[0].fetch_add(1, Ordering::Relaxed);
            counted[1].fetch_add(self.slots.len() as u64, Ordering::Relaxed);
            let bytes = self.packed.staged.len() + self.packed.work.len() + self.packed.ids.len();
            counted[2].fetch_add(bytes as u64, Ordering::Relaxed);
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

    fn pack(&mut self) {
        let Packed { staged, work, ids, .. } = &mut self.packed;
        staged.clear();
        work.clear();
        ids.clear();
        for slot in &self.slots {
            let mut letter = self.shared.letter(*slot);
            let (first, count) = ((ids.len() / 4) as u32, letter.ids.len() as u32);
            let query = if letter.query.is_empty() { NONE } else { staged.len() as u32 };
            staged.extend_from_slice(&letter.query);
            letter.query.clear();
            letter.ids.iter().for_each(|id| ids.extend(id.to_le_bytes()));
            Work { slot: *slot, first, count, query, list: letter.list, width: letter.width }.append(work);
        }
    }

    fn deliver(&mut self, answered: &Result<(), GpuError>) {
        let width = self.card.width;
        for (at, slot) in self.slots.iter().enumerate() {
            let mut letter = self.shared.letter(*slot);
            letter.next.clear();
            if answered.is_ok() {
                let own = self.packed.next[4 * width * at..][..4 * width].as_chunks::<4>().0;
                let ids = own.iter().map(|id| u32::from_le_bytes(*id));
                letter.next.extend(ids.take_while(|id| *id != NONE));
            }
            if letter.state == (State::Asked { abandoned: true }) {
                letter.state = State::Own;
                drop(letter);
                self.shared.line().free.push(*slot);
                continue;
            }
            letter.state = State::Answered(answered.clone());
            if let Some(waker) = letter.waker.take() {
                waker.wake();
            }
        }
    }
}
