//! Hops of many queries by one launch.

use super::Asks;
use super::args::{Args, Work};
use crate::error::GpuError;
use crate::graph::{Codes, NONE, THREADS};
use crate::service::{Batch, Blocks, Wave};

/// What a query hands over and gets back.
#[derive(Debug, Default)]
pub(super) struct Letter {
    /// The query, if it begins.
    pub(super) query: Vec<u8>,
    pub(super) ids: Vec<u32>,
    pub(super) asks: Asks,
    pub(super) next: Vec<u32>,
}

/// The wave of hops.
#[derive(Debug)]
pub(super) struct Hopping {
    /// Copied to the card: queries that begin, work, ids.
    pub(super) batch: Batch<3>,
    pub(super) args: Args,
    pub(super) codes: Codes,
    pub(super) vectors: u64,
}

impl Hopping {
    /// The ids that query number `at` expands next.
    fn next(&self, at: usize) -> impl Iterator<Item = u32> + '_ {
        self.batch.answer(at).iter().map(|id| u32::from_le_bytes(*id)).take_while(|id| *id != NONE)
    }
}

impl Wave for Hopping {
    type Letter = Letter;

    fn begin(&mut self) {
        self.batch.clear();
        (*self.args.list_room(), self.args.width_room) = (1, 1);
    }

    fn take(&mut self, slot: u32, letter: &mut Letter) {
        let [staged, work, ids] = &mut self.batch.packed;
        let (first, count) = ((ids.len() / 4) as u32, letter.ids.len() as u32);
        let query = if letter.query.is_empty() { NONE } else { staged.len() as u32 };
        staged.extend_from_slice(&letter.query);
        letter.query.clear();
        letter.ids.iter().for_each(|id| ids.extend(id.to_le_bytes()));
        let Asks { list, width, starts, step } = letter.asks;
        // Short lists leave room for more blocks at a time.
        let list_room = self.args.list_room();
        *list_room = list.max(starts).max(*list_room);
        self.args.width_room = self.args.width_room.max(width);
        Work { slot, first, count, query, list, width, starts, step }.append(work);
        self.batch.count += 1;
    }

    fn launch(&mut self) -> Result<u64, GpuError> {
        let copied = self.batch.launch(Blocks {
            threads: THREADS,
            shared_bytes: self.codes.shared_bytes(*self.args.list_room()),
            argument: &self.args.bytes(),
            answer_bytes: 4 * self.args.width_room as usize,
        })?;
        let named = (0..self.batch.count).flat_map(|at| self.next(at));
        self.batch.check("vector", named, self.vectors)?;
        Ok(copied)
    }

    fn answer(&mut self, at: usize, letter: &mut Letter) {
        letter.next.clear();
        letter.next.extend(self.next(at));
    }
}
