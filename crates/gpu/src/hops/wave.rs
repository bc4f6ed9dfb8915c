//! Hops of many queries by one launch.

use super::args::{Args, LIST_ROOM, NONE, WIDTH_ROOM, Work};
use super::{Asks, KERNEL, Shape, THREADS};
use crate::card::{CardMemory, CardQueue, Launch};
use crate::error::GpuError;
use crate::service::Wave;

/// What a query hands over and gets back.
#[derive(Debug, Default)]
pub(super) struct Letter {
    /// The query, if it begins.
    pub(super) query: Vec<u8>,
    pub(super) ids: Vec<u32>,
    pub(super) asks: Asks,
    pub(super) next: Vec<u32>,
}

/// What lies on the card, and what is copied to and from it.
#[derive(Debug)]
pub(super) struct Hopping {
    pub(super) queue: Box<dyn CardQueue>,
    pub(super) args: Args,
    pub(super) shape: Shape,
    pub(super) vectors: u64,
    /// Queries that begin, work, ids: in this order what is copied there.
    pub(super) given: [Box<dyn CardMemory>; 3],
    pub(super) next: Box<dyn CardMemory>,
    /// What only the kernel reads and writes.
    #[expect(dead_code, reason = "held for as long as kernels run")]
    pub(super) kept: [Box<dyn CardMemory>; 5],
    /// What is copied.
    pub(super) packed: [Vec<u8>; 3],
    pub(super) answers: Vec<u8>,
    pub(super) count: usize,
}

impl Hopping {
    /// Ids that the launch answers each query with.
    fn width(&self) -> usize {
        self.args.numbers[WIDTH_ROOM] as usize
    }
}

impl Wave for Hopping {
    type Letter = Letter;

    fn begin(&mut self) {
        self.packed.iter_mut().for_each(Vec::clear);
        self.count = 0;
        (self.args.numbers[LIST_ROOM], self.args.numbers[WIDTH_ROOM]) = (1, 1);
    }

    fn take(&mut self, slot: u32, letter: &mut Letter) {
        let [staged, work, ids] = &mut self.packed;
        let (first, count) = ((ids.len() / 4) as u32, letter.ids.len() as u32);
        let query = if letter.query.is_empty() { NONE } else { staged.len() as u32 };
        staged.extend_from_slice(&letter.query);
        letter.query.clear();
        letter.ids.iter().for_each(|id| ids.extend(id.to_le_bytes()));
        let Asks { list, width, starts, step } = letter.asks;
        // Short lists leave room for more blocks at a time.
        let [list_room, width_room] = [LIST_ROOM, WIDTH_ROOM].map(|at| self.args.numbers[at]);
        self.args.numbers[LIST_ROOM] = list_room.max(list).max(starts);
        self.args.numbers[WIDTH_ROOM] = width_room.max(width);
        Work { slot, first, count, query, list, width, starts, step }.append(work);
        self.count += 1;
    }

    fn launch(&mut self) -> Result<u64, GpuError> {
        let mut copied = 0;
        for (memory, bytes) in self.given.iter().zip(&self.packed).filter(|(_, bytes)| !bytes.is_empty()) {
            self.queue.write(&**memory, 0, bytes)?;
            copied += bytes.len() as u64;
        }
        self.queue.launch(&Launch {
            kernel: KERNEL,
            blocks: self.count as u32,
            threads: THREADS,
            shared_bytes: self.shape.shared_bytes(self.args.numbers[LIST_ROOM]) as u32,
            argument: &self.args.bytes(),
        })?;
        self.answers.resize(4 * self.count * self.width(), 0);
        self.queue.read(&*self.next, 0, &mut self.answers)?;
        let mut ids = self.answers.as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id));
        match ids.find(|id| *id != NONE && u64::from(*id) >= self.vectors) {
            // Whoever gets it reads what lies there.
            Some(id) => Err(GpuError::Kernel {
                kernel: KERNEL.name(),
                reason: format!("it names vector {id} of {}", self.vectors),
            }),
            None => Ok(copied),
        }
    }

    fn answer(&mut self, at: usize, letter: &mut Letter) {
        let width = self.width();
        let own = self.answers[4 * width * at..][..4 * width].as_chunks::<4>().0;
        let ids = own.iter().map(|id| u32::from_le_bytes(*id));
        letter.next.clear();
        letter.next.extend(ids.take_while(|id| *id != NONE));
    }
}
