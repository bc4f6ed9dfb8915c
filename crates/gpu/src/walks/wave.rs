//! Walks of many queries by one launch.

use super::args::{Args, Work};
use super::{BEFORE, Counts, walk_bytes};
use crate::error::GpuError;
use crate::graph::{Codes, Navigation, THREADS};
use crate::hops::Asks;
use crate::service::{Batch, Blocks, Wave};

/// What a query hands over and gets back.
#[derive(Debug, Default)]
pub(super) struct Letter {
    /// The query, and its vector.
    pub(super) query: Vec<u8>,
    pub(super) asks: Asks,
    pub(super) wanted: u32,
    pub(super) counts: Counts,
    /// Of the answers, in order.
    pub(super) keys: Vec<u64>,
}

/// The wave of walks.
#[derive(Debug)]
pub(super) struct Walking {
    /// Copied to the card: queries, work.
    pub(super) batch: Batch<2>,
    pub(super) args: Args,
    pub(super) codes: Codes,
    pub(super) ids_end: u64,
}

impl Walking {
    /// The keys of query number `at`, the best first.
    fn keys(&self, at: usize) -> impl Iterator<Item = u64> + '_ {
        let answer = self.batch.answer(at).iter().skip(BEFORE);
        answer.map(|key| u64::from_le_bytes(*key)).take_while(|key| *key != u64::MAX)
    }
}

impl Wave for Walking {
    type Letter = Letter;

    fn begin(&mut self) {
        self.batch.clear();
        (self.args.graph_numbers[Navigation::LIST_ROOM], self.args.best_room) = (1, 1);
    }

    fn take(&mut self, _slot: u32, letter: &mut Letter) {
        let [staged, work] = &mut self.batch.packed;
        let (Asks { list, width, starts, step }, wanted) = (letter.asks, letter.wanted);
        Work { query: staged.len() as u32, list, width, starts, step, wanted }.append(work);
        staged.extend_from_slice(&letter.query);
        let list_room = &mut self.args.graph_numbers[Navigation::LIST_ROOM];
        *list_room = list.max(starts).max(*list_room);
        self.args.best_room = self.args.best_room.max(wanted);
        self.batch.count += 1;
    }

    fn launch(&mut self) -> Result<u64, GpuError> {
        let best_room = self.args.best_room;
        let copied = self.batch.launch(Blocks {
            threads: THREADS,
            shared_bytes: walk_bytes(&self.codes, self.args.graph_numbers[Navigation::LIST_ROOM], best_room),
            argument: &self.args.bytes(),
            answer_bytes: 8 * (BEFORE + best_room as usize),
        })?;
        let named = (0..self.batch.count).flat_map(|at| self.keys(at)).map(|key| key as u32);
        self.batch.check("vector", named, self.ids_end)?;
        Ok(copied)
    }

    fn answer(&mut self, at: usize, letter: &mut Letter) {
        let number = |i: usize| self.batch.answer(at).get(i).map_or(0, |number| u64::from_le_bytes(*number));
        let (walked, scored) = (number(0), number(1));
        letter.counts =
            Counts { hops: (walked >> 32) as u32, expanded: walked as u32, scored: scored as u32 };
        letter.keys.clear();
        letter.keys.extend(self.keys(at));
    }
}
