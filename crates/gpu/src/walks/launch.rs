//! Launches that execute the walks of many queries.

use super::args::{Args, Work};
use super::{HEADER_WORDS, WalkCounters, walk_bytes};
use crate::error::GpuError;
use crate::graph::{Codes, Navigation, THREADS};
use crate::hops::GraphSearchParameters;
use crate::service::{Batch, BatchLaunch, LaunchParameters};

/// Request of a query for a walk, with the response.
#[derive(Debug, Default)]
pub(super) struct WalkRequest {
    /// The query for the codes, then its vector.
    pub(super) query: Vec<u8>,
    pub(super) parameters: GraphSearchParameters,
    pub(super) wanted: u32,
    pub(super) counters: WalkCounters,
    /// Keys of the results, in order.
    pub(super) keys: Vec<u64>,
}

/// Launch of walks.
#[derive(Debug)]
pub(super) struct WalkLaunch {
    /// Inputs: queries, work.
    pub(super) batch: Batch<2>,
    pub(super) args: Args,
    pub(super) codes: Codes,
    pub(super) ids_end: u64,
}

impl WalkLaunch {
    /// Returns the keys of query number `at`, the nearest first.
    fn keys(&self, at: usize) -> impl Iterator<Item = u64> + '_ {
        let output = self.batch.output_of(at).iter().skip(HEADER_WORDS);
        output.map(|key| u64::from_le_bytes(*key)).take_while(|key| *key != u64::MAX)
    }
}

impl BatchLaunch for WalkLaunch {
    type Request = WalkRequest;

    fn clear(&mut self) {
        self.batch.clear();
        (self.args.graph_numbers[Navigation::LIST_ROOM], self.args.best_room) = (1, 1);
    }

    fn add(&mut self, _slot: u32, request: &mut WalkRequest) {
        let [staged, work] = &mut self.batch.packed;
        let (GraphSearchParameters { list, width, starts, step }, wanted) =
            (request.parameters, request.wanted);
        Work { query: staged.len() as u32, list, width, starts, step, wanted }.append(work);
        staged.extend_from_slice(&request.query);
        let list_room = &mut self.args.graph_numbers[Navigation::LIST_ROOM];
        *list_room = list.max(starts).max(*list_room);
        self.args.best_room = self.args.best_room.max(wanted);
        self.batch.count += 1;
    }

    fn run(&mut self) -> Result<u64, GpuError> {
        let best_room = self.args.best_room;
        let copied = self.batch.launch(LaunchParameters {
            threads: THREADS,
            shared_bytes: walk_bytes(&self.codes, self.args.graph_numbers[Navigation::LIST_ROOM], best_room),
            argument: &self.args.bytes(),
            output_bytes: 8 * (HEADER_WORDS + best_room as usize),
        })?;
        let numbers = (0..self.batch.count).flat_map(|at| self.keys(at)).map(|key| key as u32);
        self.batch.check("vector", numbers, self.ids_end)?;
        Ok(copied)
    }

    fn write_response(&mut self, at: usize, request: &mut WalkRequest) {
        let number =
            |i: usize| self.batch.output_of(at).get(i).map_or(0, |number| u64::from_le_bytes(*number));
        let (walked, scored) = (number(0), number(1));
        request.counters =
            WalkCounters { hops: (walked >> 32) as u32, expanded: walked as u32, scored: scored as u32 };
        request.keys.clear();
        request.keys.extend(self.keys(at));
    }
}
