//! What the books hold: reads, and the groups in which queries await them.

use crate::buffers::Buffer;
use crate::contract::Span;
use crate::error::ReadFault;
use std::collections::VecDeque;

/// What has become of a read so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Free,
    Staged,
    /// Staged by a query that has gone: it ends when its turn comes, instead of being searched for in the line.
    Withdrawn,
    InFlight,
    /// Ended with all its bytes.
    Arrived,
    /// Ended without.
    Failed,
}

/// Why a read failed; smaller than the error that it becomes on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    Device(ReadFault),
    Short { got: u32 },
    Outside,
    Budget { needed: u64 },
    NoPlace,
}

/// One read and what it has come to.
pub(super) struct Op {
    pub(super) stage: Stage,
    /// The round of its query that asked for it, at most the last that fits. Any wider, and reads would be a tenth slower.
    pub(super) round: u16,
    pub(super) generation: u32,
    pub(super) group: u32,
    /// The number that its query knows it by.
    pub(super) place: u32,
    /// Where the group lists it.
    pub(super) at: u32,
    /// The span as the query asked for it.
    pub(super) want: Span,
    /// The aligned span that is read, and the buffer that it is read into.
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) buffer: Option<Buffer>,
    /// Of a failed read.
    pub(super) failure: Failure,
}

impl Op {
    pub(super) const FREE: Op = Op {
        stage: Stage::Free,
        round: 0,
        generation: 0,
        group: 0,
        place: 0,
        at: 0,
        want: Span { offset: 0, len: 0 },
        offset: 0,
        len: 0,
        buffer: None,
        failure: Failure::Outside,
    };

    pub(super) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Arrived | Stage::Failed)
    }

    /// Whether it goes into a region of the caller's.
    pub(super) fn is_claim(&self) -> bool {
        self.buffer.is_some_and(|buffer| buffer.is_claim())
    }

    /// Whether it stands in the line for a query that has gone.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.stage == Stage::Withdrawn
    }
}

/// Reads that one task awaits together ([`super::Batch`]) or one by one ([`super::Stream`]).
pub(super) struct Group {
    pub(super) task: u32,
    /// Of a batch that is served in place: its spans, and nothing else is booked.
    pub(super) lent: Vec<Span>,
    /// Of a batch in order; of a stream in any, without those that have been handed out and given back.
    pub(super) ops: Vec<u32>,
    pub(super) unfinished: u32,
    /// Finished, but not with all their bytes.
    pub(super) failed: u32,
    /// Finished and not yet handed out; only used by streams.
    pub(super) arrived: VecDeque<u32>,
    /// The number of a stream's next read.
    pub(super) next_place: u32,
    pub(super) stream: bool,
    pub(super) waiting: bool,
    pub(super) orphaned: bool,
}
