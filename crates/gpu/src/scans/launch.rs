//! Launches that execute the scans of many queries.

use super::args::{Args, Group, LIST_ROOM, RerankArgs, Work};
use super::{Shape, THREADS};
use crate::error::GpuError;
use crate::service::{Batch, BatchLaunch, LaunchParameters};

/// Request of a query for a scan, with the response.
#[derive(Debug, Default)]
pub(super) struct ScanRequest {
    pub(super) query: Vec<u8>,
    pub(super) groups: Vec<Group>,
    pub(super) list: u32,
    /// Number of nearest vectors to return, if the card holds vectors.
    pub(super) results: u32,
    /// Response: number of codes that were found.
    pub(super) found: u32,
    /// Response: keys of the best codes or nearest vectors, in order.
    pub(super) keys: Vec<u64>,
}

/// Launch of scans.
#[derive(Debug)]
pub(super) struct ScanLaunch {
    /// Inputs: queries, work, groups.
    pub(super) batch: Batch<3>,
    pub(super) args: Args,
    /// The further arguments, if the card holds vectors.
    pub(super) rerank: Option<RerankArgs>,
    pub(super) shape: Shape,
    /// Number of places.
    pub(super) places: u64,
}

impl ScanLaunch {
    /// Returns the keys of query number `at`, the nearest first.
    fn keys(&self, at: usize) -> impl Iterator<Item = u64> + '_ {
        let header_words = usize::from(self.rerank.is_some());
        let keys = self.batch.output_of(at).iter().skip(header_words);
        keys.map(|key| u64::from_le_bytes(*key)).take_while(|key| *key != u64::MAX)
    }
}

impl BatchLaunch for ScanLaunch {
    type Request = ScanRequest;

    fn clear(&mut self) {
        self.batch.clear();
        self.args.numbers[LIST_ROOM] = 1;
        self.rerank.iter_mut().for_each(|rerank| rerank.best_room = 1);
    }

    fn add(&mut self, _slot: u32, request: &mut ScanRequest) {
        let [queries, work, groups] = &mut self.batch.packed;
        let (first, count) = ((groups.len() / Group::BYTES) as u32, request.groups.len() as u32);
        // Short lists leave room for more blocks at a time.
        self.args.numbers[LIST_ROOM] = self.args.numbers[LIST_ROOM].max(request.list);
        self.rerank.iter_mut().for_each(|rerank| rerank.best_room = rerank.best_room.max(request.results));
        Work { query: queries.len() as u32, first, count, list: request.list }.append(work);
        queries.extend_from_slice(&request.query);
        request.groups.iter().for_each(|group| group.append(groups));
        self.batch.count += 1;
    }

    fn run(&mut self) -> Result<u64, GpuError> {
        let (list, mut argument) = (self.args.numbers[LIST_ROOM], self.args.bytes());
        argument.extend(self.rerank.iter().flat_map(RerankArgs::bytes));
        let results = self.rerank.as_ref().map(|rerank| rerank.best_room);
        let copied = self.batch.launch(LaunchParameters {
            threads: THREADS,
            shared_bytes: self.shape.shared_bytes(list, results.unwrap_or(0)),
            argument: &argument,
            output_bytes: 8 * results.map_or(list, |results| 1 + results) as usize,
        })?;
        let numbers = (0..self.batch.count).flat_map(|at| self.keys(at)).map(|key| key as u32);
        let what = if results.is_some() { "vector" } else { "place" };
        self.batch.check(what, numbers, self.places)?;
        Ok(copied)
    }

    fn write_response(&mut self, at: usize, request: &mut ScanRequest) {
        request.keys.clear();
        request.keys.extend(self.keys(at));
        let first = self.batch.output_of(at).first().map_or(0, |number| u64::from_le_bytes(*number));
        request.found = if self.rerank.is_some() { first as u32 } else { request.keys.len() as u32 };
    }
}
