//! Scans of many queries by one launch.

use super::args::{Args, Group, LIST_ROOM, RerankArgs, Work};
use super::{Shape, THREADS};
use crate::error::GpuError;
use crate::service::{Batch, Blocks, Wave};

/// What a query hands over and gets back.
#[derive(Debug, Default)]
pub(super) struct Letter {
    pub(super) query: Vec<u8>,
    pub(super) groups: Vec<Group>,
    pub(super) list: u32,
    /// Answers that are wanted, where vectors are compared.
    pub(super) answers: u32,
    /// Codes that were found.
    pub(super) found: u32,
    /// Of the best, in order.
    pub(super) keys: Vec<u64>,
}

/// The wave of scans.
#[derive(Debug)]
pub(super) struct Scanning {
    /// Copied to the card: queries, work, groups.
    pub(super) batch: Batch<3>,
    pub(super) args: Args,
    /// Where vectors are compared as well.
    pub(super) rerank: Option<RerankArgs>,
    pub(super) shape: Shape,
    /// Places that there are.
    pub(super) places: u64,
}

impl Scanning {
    /// The keys of query number `at`, the best first.
    fn keys(&self, at: usize) -> impl Iterator<Item = u64> + '_ {
        let before = usize::from(self.rerank.is_some());
        let keys = self.batch.answer(at).iter().skip(before);
        keys.map(|key| u64::from_le_bytes(*key)).take_while(|key| *key != u64::MAX)
    }
}

impl Wave for Scanning {
    type Letter = Letter;

    fn begin(&mut self) {
        self.batch.clear();
        self.args.numbers[LIST_ROOM] = 1;
        self.rerank.iter_mut().for_each(|rerank| rerank.best_room = 1);
    }

    fn take(&mut self, _slot: u32, letter: &mut Letter) {
        let [queries, work, groups] = &mut self.batch.packed;
        let (first, count) = ((groups.len() / Group::BYTES) as u32, letter.groups.len() as u32);
        // Short lists leave room for more blocks at a time.
        self.args.numbers[LIST_ROOM] = self.args.numbers[LIST_ROOM].max(letter.list);
        self.rerank.iter_mut().for_each(|rerank| rerank.best_room = rerank.best_room.max(letter.answers));
        Work { query: queries.len() as u32, first, count, list: letter.list }.append(work);
        queries.extend_from_slice(&letter.query);
        letter.groups.iter().for_each(|group| group.append(groups));
        self.batch.count += 1;
    }

    fn launch(&mut self) -> Result<u64, GpuError> {
        let (list, mut argument) = (self.args.numbers[LIST_ROOM], self.args.bytes());
        argument.extend(self.rerank.iter().flat_map(RerankArgs::bytes));
        let answers = self.rerank.as_ref().map(|rerank| rerank.best_room);
        let copied = self.batch.launch(Blocks {
            threads: THREADS,
            shared_bytes: self.shape.shared_bytes(list, answers.unwrap_or(0)),
            argument: &argument,
            answer_bytes: 8 * answers.map_or(list, |answers| 1 + answers) as usize,
        })?;
        let named = (0..self.batch.count).flat_map(|at| self.keys(at)).map(|key| key as u32);
        let what = if answers.is_some() { "vector" } else { "place" };
        self.batch.check(what, named, self.places)?;
        Ok(copied)
    }

    fn answer(&mut self, at: usize, letter: &mut Letter) {
        letter.keys.clear();
        letter.keys.extend(self.keys(at));
        let first = self.batch.answer(at).first().map_or(0, |number| u64::from_le_bytes(*number));
        letter.found = if self.rerank.is_some() { first as u32 } else { letter.keys.len() as u32 };
    }
}
