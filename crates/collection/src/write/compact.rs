//! Which segments are merged, and when.

use super::rank::Rank;
use super::shared::Shared;
use crate::error::CollectionError;
use crate::state::{SegmentState, State};
use bathyal_vectors::progress::Progress;
use serde::Serialize;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// So many segments become one, and each of them has at most so many times the rows of all smaller ones. With more of it segments are
/// merged more seldom, and searched until then (docs/decisions/collections.md).
const TIER: usize = 4;
/// A segment of which as many rows are deleted is written again: the space that a collection takes stays below one and a half
/// times what it holds.
const DELETED_SHARE: f64 = 0.3;
/// Rows of a segment at most.
const MOST_ROWS: u64 = 1 << 31;

/// How to compact.
#[derive(Debug, Clone, Copy, Default)]
pub struct CompactOptions {
    /// Whether all segments become one, and no row that is deleted stays. Without, as much is done as a collection does by itself.
    pub full: bool,
}

/// What a compaction did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Compacted {
    /// Segments before and after.
    pub segments_before: usize,
    /// After.
    pub segments_after: usize,
    /// Rows of the segments that were made.
    pub rows_written: u64,
    /// Those of them that were on the disk: merges which were stopped had written them, and this one has gone on.
    pub rows_resumed: u64,
    /// Bytes of all segments before.
    pub bytes_before: u64,
    /// After.
    pub bytes_after: u64,
    /// Seconds it took.
    pub seconds: f64,
}

impl Shared {
    /// Writes memory as a segment and merges segments.
    pub(crate) fn compact(
        self: &Arc<Self>,
        options: &CompactOptions,
        progress: &dyn Progress,
    ) -> Result<Compacted, CollectionError> {
        let started = Instant::now();
        let (segments_before, bytes_before) = sizes(&self.state());
        // Nobody else waits for that.
        self.flush_all(self.share())?;
        let _merging = self.merging.lock().unwrap_or_else(PoisonError::into_inner);
        // From here on the log is kept; until here it may have been let go of.
        self.acquire(&mut self.writing())?;
        let (mut rows_written, mut rows_resumed) = (0, 0);
        loop {
            let state = self.state();
            let names = match options.full {
                true => all(&state),
                false => self.worth_merging().or_else(|| hasty(&state)),
            };
            let Some(names) = names else { break };
            let writing = self.options.of_merging(!self.is_read());
            let merged =
                self.beside(progress, |rank, progress| self.merge(&names, (&writing, rank), progress));
            let merged = merged.map_err(|error| self.judged(&mut self.writing(), error))?;
            rows_written += merged.rows;
            rows_resumed += if merged.resumed { merged.rows } else { 0 };
            if options.full {
                break;
            }
        }
        // Nobody looks at what was merged any more, unless a search or a snapshot does.
        self.clean();
        let (segments_after, bytes_after) = sizes(&self.state());
        Ok(Compacted {
            segments_before,
            segments_after,
            rows_written,
            rows_resumed,
            bytes_before,
            bytes_after,
            seconds: started.elapsed().as_secs_f64(),
        })
    }

    /// Merges what is worth it, if nobody else does. What fails is tried again after the next segment.
    pub(super) fn compact_some(&self) {
        let Ok(_merging) = self.merging.try_lock() else { return };
        while let Some(names) = self.worth_merging() {
            let options = self.options.of_merging(false);
            let merge =
                |rank: Rank<'_>, progress: &dyn Progress| self.merge(&names, (&options, rank), progress);
            if self.beside(&Closing(self), merge).is_err() {
                return;
            }
        }
    }
}

impl Shared {
    /// The segments that are worth merging now: first those with which a merge was begun.
    fn worth_merging(&self) -> Option<Vec<String>> {
        self.stopped_merge().or_else(|| worth_merging(&self.state()))
    }

    /// Merges what is worth it beside the writes, or here where nothing is done beside them.
    pub(super) fn compact_beside(self: &Arc<Self>) {
        let none = self.segments.stopped().is_empty() && worth_merging(&self.state()).is_none();
        if !self.options.compact || none {
            return;
        }
        if !self.options.background {
            return self.compact_some();
        }
        // One that is at work looks for itself when it has done what it does. Without a thread the next segment brings it about.
        if self.merging.try_lock().is_ok() {
            let shared = self.clone();
            self.writing().begin_beside("bathyal-merge", move || shared.compact_some());
        }
    }
}

/// Ends a merge that nobody has asked for when the collection is closed: it may take long, and can be done at any time.
struct Closing<'a>(&'a Shared);

impl Progress for Closing<'_> {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        self.0.closing.load(Ordering::Relaxed) || self.0.stopping.load(Ordering::Relaxed)
    }
}

/// How many segments there are, and their bytes.
fn sizes(state: &State) -> (usize, u64) {
    (state.segments.len(), state.segments.iter().map(|segment| segment.segment.entry().bytes).sum())
}

/// The names of some segments.
fn names<'a>(state: &'a State, some: impl IntoIterator<Item = &'a usize>) -> Vec<String> {
    some.into_iter().map(|at| state.segments[*at].segment.entry().name.clone()).collect()
}

/// The segments that were written in haste, if there are any.
fn hasty(state: &State) -> Option<Vec<String>> {
    let at = |at: &usize| state.segments[*at].segment.entry().hasty;
    let some: Vec<usize> = (0..state.segments.len()).filter(at).collect();
    (!some.is_empty()).then(|| names(state, &some))
}

/// All segments, unless they are one of which nothing is deleted and that was not written in haste, or more than one may hold.
fn all(state: &State) -> Option<Vec<String>> {
    let rows: u64 = state.segments.iter().map(|segment| u64::from(segment.live())).sum();
    let whole = |one: &SegmentState| one.published.count() == 0 && !one.segment.entry().hasty;
    let clean = state.segments.len() <= 1 && state.segments.iter().all(whole);
    (!clean && rows < MOST_ROWS).then(|| names(state, &(0..state.segments.len()).collect::<Vec<_>>()))
}

/// The segments that are worth merging now: those of which too much is deleted, or several that are about as large.
fn worth_merging(state: &State) -> Option<Vec<String>> {
    let holed = state
        .segments
        .iter()
        .position(|one| f64::from(one.published.count()) >= DELETED_SHARE * f64::from(one.segment.rows()));
    if let Some(holed) = holed {
        return Some(names(state, &[holed]));
    }
    let live = |at: &usize| {
        let one = &state.segments[*at];
        u64::from(one.segment.rows() - one.published.count())
    };
    let mut order: Vec<usize> = (0..state.segments.len()).collect();
    order.sort_by_key(live);
    // From the smallest on: as many as are not much larger than all before them together.
    let (mut first, mut sum) = (0, 0);
    for (at, segment) in order.iter().enumerate() {
        let (some, rows) = (at - first, live(segment));
        if some >= TIER && rows > sum / (TIER as u64 - 1) || sum + rows > MOST_ROWS {
            return (some >= TIER).then(|| names(state, &order[first..at]));
        }
        if some > 0 && some < TIER && rows > sum * TIER as u64 {
            // Too large for these, which wait for others of their size.
            (first, sum) = (at, 0);
        }
        sum += rows;
    }
    (order.len() - first >= TIER).then(|| names(state, &order[first..]))
}
