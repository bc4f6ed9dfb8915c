//! Launches that execute the hops of many queries.

use super::GraphSearchParameters;
use super::args::{Args, Work};
use crate::error::GpuError;
use crate::graph::{Codes, NONE, THREADS};
use crate::service::{Batch, BatchLaunch, LaunchParameters};

/// Request of a query for one hop, with the response.
#[derive(Debug, Default)]
pub(super) struct HopRequest {
    /// The query, if it begins; otherwise empty.
    pub(super) query: Vec<u8>,
    pub(super) ids: Vec<u32>,
    pub(super) parameters: GraphSearchParameters,
    /// Response: the vectors to expand next.
    pub(super) next: Vec<u32>,
}

/// Launch of hops.
#[derive(Debug)]
pub(super) struct HopLaunch {
    /// Inputs: queries that begin, work, ids.
    pub(super) batch: Batch<3>,
    pub(super) args: Args,
    pub(super) codes: Codes,
    pub(super) vectors: u64,
}

impl HopLaunch {
    /// Returns the ids that query number `at` expands next.
    fn next(&self, at: usize) -> impl Iterator<Item = u32> + '_ {
        self.batch.output_of(at).iter().map(|id| u32::from_le_bytes(*id)).take_while(|id| *id != NONE)
    }
}

impl BatchLaunch for HopLaunch {
    type Request = HopRequest;

    fn clear(&mut self) {
        self.batch.clear();
        (*self.args.list_room(), self.args.width_room) = (1, 1);
    }

    fn add(&mut self, slot: u32, request: &mut HopRequest) {
        let [staged, work, ids] = &mut self.batch.packed;
        let (first, count) = ((ids.len() / 4) as u32, request.ids.len() as u32);
        let query = if request.query.is_empty() { NONE } else { staged.len() as u32 };
        staged.extend_from_slice(&request.query);
        request.query.clear();
        request.ids.iter().for_each(|id| ids.extend(id.to_le_bytes()));
        let GraphSearchParameters { list, width, starts, step } = request.parameters;
        // Short lists leave room for more blocks at a time.
        let list_room = self.args.list_room();
        *list_room = list.max(starts).max(*list_room);
        self.args.width_room = self.args.width_room.max(width);
        Work { slot, first, count, query, list, width, starts, step }.append(work);
        self.batch.count += 1;
    }

    fn run(&mut self) -> Result<u64, GpuError> {
        let copied = self.batch.launch(LaunchParameters {
            threads: THREADS,
            shared_bytes: self.codes.shared_bytes(*self.args.list_room()),
            argument: &self.args.bytes(),
            output_bytes: 4 * self.args.width_room as usize,
        })?;
        let numbers = (0..self.batch.count).flat_map(|at| self.next(at));
        self.batch.check("vector", numbers, self.vectors)?;
        Ok(copied)
    }

    fn write_response(&mut self, at: usize, request: &mut HopRequest) {
        request.next.clear();
        request.next.extend(self.next(at));
    }
}
