//! Scans of many queries by one launch.

use super::args::{Args, Group, LIST_ROOM, Work};
use super::{KERNEL, Shape, THREADS};
use crate::card::{CardMemory, CardQueue, Launch};
use crate::error::GpuError;
use crate::service::Wave;

/// What a query hands over and gets back.
#[derive(Debug, Default)]
pub(super) struct Letter {
    pub(super) query: Vec<u8>,
    pub(super) groups: Vec<Group>,
    pub(super) list: u32,
    /// Of the best, in order.
    pub(super) keys: Vec<u64>,
}

/// What lies on the card, and what is copied to and from it.
#[derive(Debug)]
pub(super) struct Scanning {
    pub(super) queue: Box<dyn CardQueue>,
    pub(super) args: Args,
    pub(super) shape: Shape,
    /// Places that there are.
    pub(super) places: u64,
    /// Queries, work, groups: in this order what is copied there.
    pub(super) given: [Box<dyn CardMemory>; 3],
    pub(super) found: Box<dyn CardMemory>,
    #[expect(dead_code, reason = "held for as long as kernels run")]
    pub(super) codes: Box<dyn CardMemory>,
    /// What is copied.
    pub(super) packed: [Vec<u8>; 3],
    pub(super) answers: Vec<u8>,
    pub(super) count: usize,
}

impl Scanning {
    /// Keys that the launch answers each query with.
    fn list(&self) -> usize {
        self.args.numbers[LIST_ROOM] as usize
    }

    /// The keys of query number `at`, the best first.
    fn keys(&self, at: usize) -> impl Iterator<Item = u64> + '_ {
        let list = self.list();
        let own = self.answers[8 * list * at..][..8 * list].as_chunks::<8>().0;
        own.iter().map(|key| u64::from_le_bytes(*key)).take_while(|key| *key != u64::MAX)
    }
}

impl Wave for Scanning {
    type Letter = Letter;

    fn begin(&mut self) {
        self.packed.iter_mut().for_each(Vec::clear);
        self.count = 0;
        self.args.numbers[LIST_ROOM] = 1;
    }

    fn take(&mut self, _slot: u32, letter: &mut Letter) {
        let [queries, work, groups] = &mut self.packed;
        let (first, count) = ((groups.len() / Group::BYTES) as u32, letter.groups.len() as u32);
        // Short lists leave room for more blocks at a time.
        self.args.numbers[LIST_ROOM] = self.args.numbers[LIST_ROOM].max(letter.list);
        Work { query: queries.len() as u32, first, count, list: letter.list }.append(work);
        queries.extend_from_slice(&letter.query);
        letter.groups.iter().for_each(|group| group.append(groups));
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
        self.answers.resize(8 * self.count * self.list(), 0);
        self.queue.read(&*self.found, 0, &mut self.answers)?;
        let mut places = (0..self.count).flat_map(|at| self.keys(at)).map(|key| u64::from(key as u32));
        match places.find(|place| *place >= self.places) {
            // Whoever gets it reads what lies there.
            Some(place) => Err(GpuError::Kernel {
                kernel: KERNEL.name(),
                reason: format!("it names place {place} of {}", self.places),
            }),
            None => Ok(copied),
        }
    }

    fn answer(&mut self, at: usize, letter: &mut Letter) {
        letter.keys.clear();
        letter.keys.extend(self.keys(at));
    }
}
