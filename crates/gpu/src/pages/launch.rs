//! Launches that execute the hops through pages of many queries.

use super::args::{Args, Work};
use super::shared_bytes;
use crate::error::GpuError;
use crate::graph::{Codes, NONE, THREADS};
use crate::service::{Batch, BatchLaunch, LaunchParameters};

/// Request of a query for one hop, with the response.
#[derive(Debug, Default)]
pub(super) struct PageRequest {
    /// The query, if it begins; otherwise empty.
    pub(super) query: Vec<u8>,
    /// Ends of the links of each page, then the links; the place of the entry point if the query begins.
    pub(super) ids: Vec<u32>,
    pub(super) pages: u32,
    pub(super) continues: bool,
    pub(super) list: u32,
    pub(super) width: u32,
    pub(super) starts: u32,
    pub(super) slack: f32,
    /// Response: the pages to read next.
    pub(super) next: Vec<u32>,
    /// Response: the pivots at which the query begins.
    pub(super) start_pivots: Vec<u32>,
    /// Response: the number of codes that were scored.
    pub(super) scored: u32,
}

/// Launch of hops through pages.
#[derive(Debug)]
pub(super) struct PageLaunch {
    /// Inputs: queries that begin, work, ids.
    pub(super) batch: Batch<3>,
    pub(super) args: Args,
    pub(super) codes: Codes,
    /// Maximum number of pivots at which a query of the launch begins.
    pub(super) starts: u32,
}

impl PageLaunch {
    /// Returns up to `count` words of the output of query number `at`, from `first` on, up to the first
    /// absent one.
    fn words(&self, at: usize, first: u32, count: u32) -> impl Iterator<Item = u32> + '_ {
        let words = &self.batch.output_of::<4>(at)[first as usize..][..count as usize];
        words.iter().map(|word| u32::from_le_bytes(*word)).take_while(|word| *word != NONE)
    }

    fn pages(&self, at: usize) -> impl Iterator<Item = u32> + '_ {
        self.words(at, 1, self.args.hop.width_room)
    }

    fn start_pivots(&self, at: usize) -> impl Iterator<Item = u32> + '_ {
        self.words(at, 1 + self.args.hop.width_room, self.starts)
    }
}

impl BatchLaunch for PageLaunch {
    type Request = PageRequest;

    fn clear(&mut self) {
        self.batch.clear();
        (*self.args.hop.list_room(), self.args.hop.width_room, self.starts) = (1, 1, 0);
    }

    fn add(&mut self, slot: u32, request: &mut PageRequest) {
        let [staged, work, ids] = &mut self.batch.packed;
        let first = (ids.len() / 4) as u32;
        let query = if request.query.is_empty() { NONE } else { staged.len() as u32 };
        staged.extend_from_slice(&request.query);
        request.ids.iter().for_each(|id| ids.extend(id.to_le_bytes()));
        let PageRequest { pages, list, width, starts, slack, .. } = *request;
        // Short lists leave room for more blocks at a time.
        let list_room = self.args.hop.list_room();
        *list_room = list.max(starts).max(*list_room);
        self.args.hop.width_room = self.args.hop.width_room.max(width);
        if query != NONE {
            self.starts = self.starts.max(starts);
        }
        request.query.clear();
        let continues = u32::from(request.continues);
        Work { slot, first, pages, continues, query, list, width, starts, slack }.append(work);
        self.batch.count += 1;
    }

    fn run(&mut self) -> Result<u64, GpuError> {
        self.args.output_words = 1 + self.args.hop.width_room + self.starts;
        let copied = self.batch.launch(LaunchParameters {
            threads: THREADS,
            shared_bytes: shared_bytes(&self.codes, *self.args.hop.list_room()),
            argument: &self.args.bytes(),
            output_bytes: 4 * self.args.output_words as usize,
        })?;
        let vectors = u64::from(self.args.vectors);
        let pages = vectors.div_ceil(u64::from(self.args.records));
        self.batch.check("page", (0..self.batch.count).flat_map(|at| self.pages(at)), pages)?;
        self.batch.check("vector", (0..self.batch.count).flat_map(|at| self.start_pivots(at)), vectors)?;
        Ok(copied)
    }

    fn write_response(&mut self, at: usize, request: &mut PageRequest) {
        request.next.clear();
        request.next.extend(self.pages(at));
        request.start_pivots.clear();
        request.start_pivots.extend(self.start_pivots(at));
        request.scored = self.words(at, 0, 1).next().unwrap_or(0);
    }
}
