//! Hops through pages of many queries by one launch.

use super::args::{Args, Work};
use super::shared_bytes;
use crate::error::GpuError;
use crate::graph::{Codes, NONE, THREADS};
use crate::service::{Batch, Blocks, Wave};

/// What a query hands over and gets back.
#[derive(Debug, Default)]
pub(super) struct Letter {
    /// The query, if it begins.
    pub(super) query: Vec<u8>,
    /// Where the links of each page end, then these; the entry point's place, if it begins.
    pub(super) ids: Vec<u32>,
    pub(super) pages: u32,
    pub(super) continues: bool,
    pub(super) list: u32,
    pub(super) width: u32,
    pub(super) starts: u32,
    pub(super) slack: f32,
    /// The pages to open next.
    pub(super) next: Vec<u32>,
    /// Pivots at which it begins.
    pub(super) begun: Vec<u32>,
    /// Codes that were scored.
    pub(super) scored: u32,
}

/// The wave of hops through pages.
#[derive(Debug)]
pub(super) struct Paging {
    /// Copied to the card: queries that begin, work, ids.
    pub(super) batch: Batch<3>,
    pub(super) args: Args,
    pub(super) codes: Codes,
    /// Pivots that any of them begins with.
    pub(super) starts: u32,
}

impl Paging {
    /// Of the answer to query number `at` so many words from `first` on, up to the first that is none.
    fn words(&self, at: usize, first: u32, count: u32) -> impl Iterator<Item = u32> + '_ {
        let words = &self.batch.answer::<4>(at)[first as usize..][..count as usize];
        words.iter().map(|word| u32::from_le_bytes(*word)).take_while(|word| *word != NONE)
    }

    fn pages(&self, at: usize) -> impl Iterator<Item = u32> + '_ {
        self.words(at, 1, self.args.hop.width_room)
    }

    fn begun(&self, at: usize) -> impl Iterator<Item = u32> + '_ {
        self.words(at, 1 + self.args.hop.width_room, self.starts)
    }
}

impl Wave for Paging {
    type Letter = Letter;

    fn begin(&mut self) {
        self.batch.clear();
        (*self.args.hop.list_room(), self.args.hop.width_room, self.starts) = (1, 1, 0);
    }

    fn take(&mut self, slot: u32, letter: &mut Letter) {
        let [staged, work, ids] = &mut self.batch.packed;
        let first = (ids.len() / 4) as u32;
        let query = if letter.query.is_empty() { NONE } else { staged.len() as u32 };
        staged.extend_from_slice(&letter.query);
        letter.ids.iter().for_each(|id| ids.extend(id.to_le_bytes()));
        let Letter { pages, list, width, starts, slack, .. } = *letter;
        // Short lists leave room for more blocks at a time.
        let list_room = self.args.hop.list_room();
        *list_room = list.max(starts).max(*list_room);
        self.args.hop.width_room = self.args.hop.width_room.max(width);
        if query != NONE {
            self.starts = self.starts.max(starts);
        }
        letter.query.clear();
        let continues = u32::from(letter.continues);
        Work { slot, first, pages, continues, query, list, width, starts, slack }.append(work);
        self.batch.count += 1;
    }

    fn launch(&mut self) -> Result<u64, GpuError> {
        self.args.answer_words = 1 + self.args.hop.width_room + self.starts;
        let copied = self.batch.launch(Blocks {
            threads: THREADS,
            shared_bytes: shared_bytes(&self.codes, *self.args.hop.list_room()),
            argument: &self.args.bytes(),
            answer_bytes: 4 * self.args.answer_words as usize,
        })?;
        let vectors = u64::from(self.args.vectors);
        let pages = vectors.div_ceil(u64::from(self.args.records));
        self.batch.check("page", (0..self.batch.count).flat_map(|at| self.pages(at)), pages)?;
        self.batch.check("vector", (0..self.batch.count).flat_map(|at| self.begun(at)), vectors)?;
        Ok(copied)
    }

    fn answer(&mut self, at: usize, letter: &mut Letter) {
        letter.next.clear();
        letter.next.extend(self.pages(at));
        letter.begun.clear();
        letter.begun.extend(self.begun(at));
        letter.scored = self.words(at, 0, 1).next().unwrap_or(0);
    }
}
