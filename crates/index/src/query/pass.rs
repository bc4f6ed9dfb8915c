//! A pass over all vectors that answers many queries: each block of vectors is read once and compared with
//! all of them. Threads share a pass by taking units of the file in turn. Each thread has a [`PassPart`] with
//! lists of its own; the last one to end merges them.

use super::changes::Changes;
use super::set::VectorSet;
use super::within::RowFilter;
use super::{Clock, Phase, QueryStats};
use crate::error::IndexError;
use bathyal_kernels::TopK;
use bathyal_tier::Cx;
use bathyal_vectors::groundtruth::{Farthest, QueryTiles, RowPanels};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// Bytes of packed vectors in a block. A block and a tile of queries fit in the second-level cache of a core
/// (512 KiB or more on today's cores).
const BLOCK_BYTES: usize = 256 << 10;
/// A block is packed and screened for so many queries, if a component of a vector is a byte, and for fewer if
/// it is longer: packing a vector takes about as long as comparing it with so many queries one by one.
const LEAST_SCREENED: usize = 32;
/// Bytes of vectors that are compared with a query before other tasks of the thread run, summed over all
/// queries: about a millisecond.
const BYTES_AT_ONCE: usize = 64 << 20;
/// Bytes of a part besides its queries, its lists and its block.
const PART_BYTES: u64 = 4096;

/// The state that the threads of a pass share.
pub(crate) struct SharedPass {
    /// The numbers of its queries.
    queries: Range<usize>,
    /// The first unit that no thread has taken, and the number of units, once it is known.
    next: AtomicU32,
    units: AtomicU32,
    farthest: Farthest,
    started: OnceLock<Instant>,
    gathered: Mutex<Gathered>,
}

/// The results of the parts that have ended.
struct Gathered {
    parts_left: usize,
    found: PassFound,
}

/// The results of a pass.
#[derive(Default)]
pub(crate) struct PassFound {
    /// The nearest vectors of each query.
    pub(crate) nearest: Vec<TopK>,
    /// The reads of all queries together, and the distances of each.
    pub(crate) cost: QueryStats,
    pub(crate) clock: Clock,
}

impl SharedPass {
    /// Creates a pass for these queries, which `parts` threads run.
    pub(crate) fn new(queries: Range<usize>, parts: usize) -> SharedPass {
        SharedPass {
            next: AtomicU32::new(0),
            units: AtomicU32::new(u32::MAX),
            farthest: Farthest::new(queries.len()),
            started: OnceLock::new(),
            gathered: Mutex::new(Gathered { parts_left: parts, found: PassFound::default() }),
            queries,
        }
    }

    /// Returns the numbers of its queries.
    pub(crate) fn queries(&self) -> Range<usize> {
        self.queries.clone()
    }

    /// Returns the instant at which the first thread has begun.
    pub(crate) fn started(&self) -> Instant {
        *self.started.get_or_init(Instant::now)
    }

    /// Takes the next of `units` units.
    pub(crate) fn take_unit(&self, units: u32) -> Option<u32> {
        self.units.store(units, Relaxed);
        let taken = self.next.load(Relaxed) < units;
        taken.then(|| self.next.fetch_add(1, Relaxed)).filter(|unit| *unit < units)
    }

    /// Returns the share of its units that are taken, as a number of its queries.
    pub(crate) fn progress(&self) -> u64 {
        let units = u64::from(self.units.load(Relaxed)).max(1);
        self.queries.len() as u64 * u64::from(self.next.load(Relaxed)).min(units) / units
    }

    /// Merges the results of a part. Returns those of all parts if this is the last.
    pub(crate) fn hand_in(&self, part: PassFound) -> Option<PassFound> {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        let Gathered { parts_left, found } = &mut *gathered;
        if found.nearest.is_empty() {
            found.nearest = part.nearest;
        } else {
            for (merged, list) in found.nearest.iter_mut().zip(part.nearest) {
                list.iter().for_each(|near| {
                    merged.push(near.id, near.distance);
                });
            }
        }
        found.cost.add(&part.cost);
        found.clock.add(&part.clock);
        *parts_left -= 1;
        (*parts_left == 0).then(|| std::mem::take(found))
    }
}

/// The part of one thread in a pass.
pub(crate) struct PassPart<'a> {
    pub(crate) shared: &'a SharedPass,
    /// The changes since the index was built.
    changes: Option<&'a Changes>,
    /// The rows that may be found; `None` for all.
    within: Option<&'a RowFilter>,
    /// Returns true once the answers are not wanted any more.
    stopped: &'a dyn Fn() -> bool,
    queries: PartQueries,
    block: Block,
    scores: Vec<f32>,
    pub(crate) found: PassFound,
}

/// Queries in the form in which they are compared with stored vectors.
struct PartQueries {
    bytes: Vec<u8>,
    row_bytes: usize,
    /// The queries packed for screening; `None` for few queries.
    tiles: Option<QueryTiles>,
}

impl PartQueries {
    fn get(&self, query: usize) -> &[u8] {
        &self.bytes[query * self.row_bytes..][..self.row_bytes]
    }
}

/// Vectors that wait for their comparison.
struct Block {
    /// The most vectors.
    most: usize,
    ids: Vec<u32>,
    rows: Vec<u8>,
    panels: Option<RowPanels>,
}

/// Returns the queries of a pass in packed form if that is worthwhile for `count` of them.
fn tiles_of(set: &VectorSet, count: usize) -> Option<QueryTiles> {
    (count * set.row_bytes() >= LEAST_SCREENED * set.dim).then(|| set.exact.tiles())
}

/// Returns the number of vectors in a block.
fn block_rows(set: &VectorSet, tiles: Option<&QueryTiles>) -> usize {
    let row = tiles.map_or(0, QueryTiles::row_bytes).max(set.row_bytes());
    (BLOCK_BYTES / row / QueryTiles::LANES).max(1) * QueryTiles::LANES
}

impl<'a> PassPart<'a> {
    /// Returns the most bytes of memory of a part for `queries` queries, if the pass has `parts` parts. They
    /// include a part of the results of those that have ended.
    pub(crate) fn bytes(set: &VectorSet, k: usize, queries: usize, parts: usize) -> u64 {
        let tiles = tiles_of(set, queries);
        let k = k.min(set.vectors as usize).max(1);
        // Lists double their space, and the first one has space for four.
        let list = k.next_power_of_two().max(4) * size_of::<u64>() + size_of::<TopK>();
        let prepared = set.exact.query_bytes() + size_of::<f32>();
        let packed = tiles
            .as_ref()
            .map_or(0, |tiles| tiles.query_bytes() * queries.next_multiple_of(QueryTiles::LANES));
        let row = set.row_bytes() + size_of::<u32>() + size_of::<f32>();
        let row = row + tiles.as_ref().map_or(0, QueryTiles::row_bytes);
        let block = block_rows(set, tiles.as_ref()) * row + 4 * set.dim * size_of::<f32>();
        (queries * (parts.min(2) * list + prepared) + packed + block) as u64 + PART_BYTES
    }

    /// Creates the part of a thread in the pass `shared`; `queries` are its queries as they were given.
    pub(crate) fn new<'q>(
        shared: &'a SharedPass,
        set: &VectorSet,
        (queries, k): (impl Iterator<Item = &'q [u8]>, usize),
        (changes, within): (Option<&'a Changes>, Option<&'a RowFilter>),
        (stopped, timed): (&'a dyn Fn() -> bool, bool),
    ) -> PassPart<'a> {
        let (clock, count) = (Clock::begin(timed), shared.queries.len());
        let mut tiles = tiles_of(set, count);
        tiles.iter_mut().for_each(|tiles| tiles.reserve(count));
        let (mut floats, mut one) = (vec![0.0; set.dim], Vec::new());
        let mut bytes = Vec::with_capacity(count * set.exact.query_bytes());
        for query in queries {
            set.form.floats(query, &mut floats);
            set.form.query(query, &floats, &mut one);
            bytes.extend_from_slice(&one);
            tiles.iter_mut().for_each(|tiles| {
                tiles.push(&one);
            });
        }
        let most = block_rows(set, tiles.as_ref());
        PassPart {
            shared,
            changes,
            within,
            stopped,
            block: Block {
                most,
                ids: Vec::with_capacity(most),
                rows: Vec::with_capacity(most * set.row_bytes()),
                panels: tiles.as_ref().map(|tiles| tiles.block(most)),
            },
            queries: PartQueries { bytes, row_bytes: set.exact.query_bytes(), tiles },
            scores: Vec::with_capacity(most),
            found: PassFound { nearest: vec![TopK::new(k); count], cost: QueryStats::default(), clock },
        }
    }

    /// Adds a vector that has arrived, unless it is deleted or may not be found.
    #[inline]
    pub(crate) fn add(&mut self, id: u32, row: &[u8]) {
        self.found.cost.full_distances += 1;
        if self.changes.is_some_and(|changes| changes.is_deleted(id))
            || self.within.is_some_and(|among| !among.has(id))
        {
            return;
        }
        self.block.ids.push(id);
        self.block.rows.extend_from_slice(row);
        if let Some(panels) = &mut self.block.panels {
            panels.push(row);
        }
    }

    /// Returns true if `more` vectors may not have space beside those that wait.
    #[inline]
    pub(crate) fn is_full(&self, more: usize) -> bool {
        self.block.ids.len() + more > self.block.most
    }

    /// Compares the queries with the vectors that wait. Other tasks of the thread run meanwhile.
    ///
    /// # Errors
    /// [`IndexError::Cancelled`].
    pub(crate) async fn compare(&mut self, cx: &Cx, set: &VectorSet) -> Result<(), IndexError> {
        let (count, at_once) = (self.found.nearest.len(), QueryTiles::LANES);
        let (block_bytes, mut compared) = (self.block.rows.len() * at_once, 0);
        for (tile, first) in (0..count).step_by(at_once).enumerate() {
            if (self.stopped)() {
                return Err(IndexError::Cancelled);
            }
            if compared >= BYTES_AT_ONCE {
                compared = 0;
                cx.task_waker().wake();
                cx.parked().await;
            }
            compared += block_bytes;
            match self.queries.tiles {
                Some(_) => self.compare_tile(tile, set),
                None => self.compare_each(first..count.min(first + at_once), set),
            }
        }
        self.block.ids.clear();
        self.block.rows.clear();
        self.block.panels.iter_mut().for_each(RowPanels::clear);
        self.found.clock.spent(Phase::Rerank);
        Ok(())
    }

    /// Compares the vectors of the block that the screen lets pass with the queries of a tile.
    fn compare_tile(&mut self, tile: usize, set: &VectorSet) {
        let PassPart { shared, queries, block, found, .. } = self;
        let (Some(tiles), Some(panels)) = (&queries.tiles, &block.panels) else { return };
        let (row_bytes, nearest) = (set.row_bytes(), &mut found.nearest);
        let farthest = |query: usize| set.exact.kernel_limit(shared.farthest.get(query));
        tiles.compare(tile, panels, farthest, |query, first, mut mask| {
            let (bytes, nearest) = (queries.get(query), &mut nearest[query]);
            while mask != 0 {
                let at = first + mask.trailing_zeros() as usize;
                mask &= mask - 1;
                let row = &block.rows[at * row_bytes..][..row_bytes];
                nearest.push(block.ids[at], set.exact.between(bytes, row));
            }
            set.exact.kernel_limit(shared.farthest.lower(query, nearest.threshold()))
        });
    }

    /// Compares all vectors of the block with some queries.
    fn compare_each(&mut self, some: Range<usize>, set: &VectorSet) {
        let PassPart { queries, block, scores, found, .. } = self;
        scores.resize(block.ids.len(), 0.0);
        for query in some {
            set.exact.score_block(queries.get(query), &block.rows, scores);
            for (id, distance) in block.ids.iter().zip(scores.iter()) {
                found.nearest[query].push(*id, *distance);
            }
        }
    }
}
