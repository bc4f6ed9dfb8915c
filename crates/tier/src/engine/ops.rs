//! Reads, and the groups in which queries await them.

use crate::buffers::Buffer;
use crate::contract::Span;
use crate::error::ReadFault;
use std::collections::VecDeque;

/// State of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadStage {
    Free,
    Staged,
    /// Staged by a query that was dropped: it ends when its turn comes, instead of being searched for in the
    /// queue.
    Withdrawn,
    InFlight,
    /// Ended with all its bytes.
    Arrived,
    /// Ended without all its bytes.
    Failed,
}

/// Reason for which a read failed; smaller than the [`ReadError`](crate::error::ReadError) that is made from
/// it on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadFailure {
    Device(ReadFault),
    Short { got: u32 },
    Outside,
    Budget { needed: u64 },
    NoPlace,
}

/// One read and its state.
pub(super) struct Op {
    pub(super) stage: ReadStage,
    /// Round of its query in which it was staged; saturates. A wider integer made reads a tenth slower.
    pub(super) round: u16,
    pub(super) generation: u32,
    pub(super) group: u32,
    /// Number of the read within its group or stream, for the query.
    pub(super) place: u32,
    /// Index of the read in its group's `ops`.
    pub(super) at: u32,
    /// The span that the query requested.
    pub(super) want: Span,
    /// The aligned span that is read, and the buffer that it is read into.
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) buffer: Option<Buffer>,
    /// Set for a failed read only.
    pub(super) failure: ReadFailure,
}

impl Op {
    pub(super) const FREE: Op = Op {
        stage: ReadStage::Free,
        round: 0,
        generation: 0,
        group: 0,
        place: 0,
        at: 0,
        want: Span { offset: 0, len: 0 },
        offset: 0,
        len: 0,
        buffer: None,
        failure: ReadFailure::Outside,
    };

    pub(super) fn is_done(&self) -> bool {
        matches!(self.stage, ReadStage::Arrived | ReadStage::Failed)
    }

    /// Returns true if it is read into a region of the caller.
    pub(super) fn is_claim(&self) -> bool {
        self.buffer.is_some_and(|buffer| buffer.is_claim())
    }

    /// Returns true if it is staged and its query was dropped.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.stage == ReadStage::Withdrawn
    }
}

/// Reads that one task awaits together ([`super::Batch`]) or one by one ([`super::Stream`]).
pub(super) struct Group {
    pub(super) task: u32,
    /// Spans of a batch that is served in place; it has no entries in `ops`.
    pub(super) lent: Vec<Span>,
    /// Reads of a batch, in order; reads of a stream, in any order, without those that were released.
    pub(super) ops: Vec<u32>,
    pub(super) unfinished: u32,
    /// Number of finished reads that have failed.
    pub(super) failed: u32,
    /// Finished reads that were not returned yet; only used by streams.
    pub(super) arrived: VecDeque<u32>,
    /// Number of a stream's next read.
    pub(super) next_place: u32,
    pub(super) stream: bool,
    /// True if the task waits for this group.
    pub(super) waiting: bool,
    /// True if the query was dropped before all reads ended.
    pub(super) abandoned: bool,
}
