//! The memory plan of a build of posting lists: the peak of each stage, and the number of vectors that are
//! placed at a time.

use super::assign::ROUND_VECTORS;
use super::centroids::centroid_element;
use super::graph::CENTROID_DEGREE;
use super::members::{REQUEST_BYTES, SPILL_BYTES, buckets};
use super::options::SpannOptions;
use super::work::ListShape;
use crate::build::options::BuildOptions;
use crate::form::source::SourceVectors;
use crate::format::postings::Postings;
use crate::partition::placement::{Placement, exchange};
use crate::partition::space::Space;
use crate::partition::{MOST_PARTS, encoding, sample_rows};
use crate::proximity::adjacency::Adjacency;
use crate::proximity::insert::Inserter;
use crate::query::codes::plain_metric;

/// The program itself, thread stacks, and the reserves of the allocator.
const PROGRAM_BYTES: u64 = 28 << 20;
/// Blocks of the data's rows that threads read, and the large pages (2 MiB) that the system maps around the
/// headers of files.
const WINDOW_BYTES: u64 = 20 << 20;
/// Buffers of rows, ids and spilled vectors.
const BUFFER_BYTES: u64 = 16 << 20;
/// Search state and exact search of each thread.
const THREAD_BYTES: u64 = 4 << 20;
/// Bytes a vector for its id and its place in the order.
const PLACING_BYTES: u64 = 4 + 4 + 4;
/// Calibration of lists of codes: the vectors that a thread collects for a query.
const SCAN_BYTES: u64 = 4 << 20;
/// Calibration: the neighbours of each query that a thread keeps, with reserve for growing lists, and their
/// lists.
const TRUTH_BYTES: u64 = 1000 * 101 * 16;
const WHERE_BYTES: u64 = 1000 * 101 * 120;

/// The number of vectors that are placed at a time, and the memory of the build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpannPlan {
    /// Peak memory in bytes.
    pub(crate) planned: u64,
    /// The most vectors that are placed together, in whole leaves; all if the set fits.
    pub(crate) rows: usize,
}

impl SpannPlan {
    /// Plans for a budget: places all vectors at once if they fit or no budget is given, otherwise parts as
    /// large as possible. `planned` exceeds the budget only if no plan keeps within it.
    pub(crate) fn new(
        data: &SourceVectors<'_>,
        family_options: &SpannOptions,
        options: &BuildOptions,
    ) -> SpannPlan {
        let (count, shape) = (data.count(), ListShape::of(family_options, data));
        let threads = options.thread_count() as u64;
        let fixed = PROGRAM_BYTES + WINDOW_BYTES + BUFFER_BYTES + threads * THREAD_BYTES;
        let sizes = Sizes::of(data, options, &shape);
        let row = Space::planned_bytes(data, options.metric) / count as u64 + 1 + PLACING_BYTES;
        let row = row + Placement::KEY_BYTES.max(exchange::planned_bytes(data.dim(), shape.leaf));
        let means = (data.dim() * 4).div_ceil(shape.leaf) as u64;
        // A thread that divides small pieces holds their vectors as floats, twice.
        let halving = threads * 2 * 1024 * (data.dim() as u64 + 1) * 4;
        let placing = |rows: usize| sizes.centroids + rows as u64 * (row + means) + halving;
        let rest = sizes.rest(data, family_options, threads);
        let whole = fixed + rest.max(placing(count));
        let Some(budget) = options.memory_bytes.filter(|budget| *budget < whole) else {
            return SpannPlan { planned: whole, rows: count };
        };
        let leaves = count.next_multiple_of(shape.leaf);
        let least = (2 * count / MOST_PARTS).max(1).next_multiple_of(shape.leaf).min(leaves);
        let free = budget.saturating_sub(fixed + sizes.centroids + halving);
        let rows = (free / (row + means)) as usize / shape.leaf * shape.leaf;
        // A leaf may be larger than the set.
        let rows = rows.clamp(least, leaves).min(count);
        SpannPlan { planned: fixed + rest.max(placing(rows)), rows }
    }
}

/// Bytes that depend on the number of lists.
struct Sizes {
    lists: u64,
    centroid_row: u64,
    /// Bytes of the centroids in a [`Space`].
    centroids: u64,
}

impl Sizes {
    fn of(data: &SourceVectors<'_>, options: &BuildOptions, shape: &ListShape) -> Sizes {
        let lists = data.count() / shape.leaf + 1 + 2 * MOST_PARTS;
        let element = centroid_element(data.element(), options.metric);
        let centroid_row = element.row_bytes(data.dim());
        let centroids =
            Space::planned_rows(lists, centroid_row, plain_metric(options.metric)) + 4 * lists as u64;
        Sizes { lists: lists as u64, centroid_row: centroid_row as u64, centroids }
    }

    /// Returns the bytes of the largest stage other than the placing of vectors.
    fn rest(&self, data: &SourceVectors<'_>, family_options: &SpannOptions, threads: u64) -> u64 {
        let (count, dim) = (data.count() as u64, data.dim() as u64);
        let &Sizes { lists, centroid_row, centroids } = self;
        let spreading = sample_rows(data.count(), data.dim()) as u64 * ((dim + 1) * 4 + 32);
        // A fiftieth of the centroids waits with its links during a round of the graph's growth.
        let walking = Inserter::planned_bytes(lists) * threads;
        let growing = Adjacency::planned_bytes(lists, CENTROID_DEGREE) + lists * 12 + walking;
        let replicas = u64::from(family_options.list_replicas());
        let requests = 2 * (ROUND_VECTORS as u64 * replicas) * REQUEST_BYTES as u64;
        let assigning = SPILL_BYTES as u64 + requests + lists * 4;
        // The codec holds its sample twice: as it is, and centred.
        let sample = sample_rows(lists as usize, data.dim()) as u64 * dim * 4;
        let codes = family_options.centroid_codes();
        let coding = 2 * sample + codes.training_bytes(data.dim()) + u64::from(codes.bytes(data.dim()));
        let navigating = centroids + growing + assigning.max(coding);
        // Buckets have equal numbers of lists, not of requests.
        let bucket =
            2 * count * replicas * REQUEST_BYTES as u64 / buckets(count, family_options.list_replicas());
        let admitting = count / 8 + 2 * bucket + lists * 8;
        // Owner and place, then place and id by place, and packed ids.
        let writing = count / 8 + 12 * count + lists * 24 + Postings::planned_bytes(lists);
        let queries = 1000 * (data.given_row_bytes() as u64 + 8 * dim);
        let finding = 2 * lists * (centroid_row + 4 * u64::from(CENTROID_DEGREE) + 8);
        let calibrating =
            (finding + WHERE_BYTES).max(threads * TRUTH_BYTES) + queries + TRUTH_BYTES + count / 8;
        let common = spreading.max(navigating).max(admitting).max(writing).max(calibrating);
        if family_options.code_kind.is_none() {
            return common;
        }
        // Lists of codes: their codec, the codes of the true neighbours, and the collected vectors of each
        // thread.
        let coding = encoding::planned_bytes(data.count(), data.dim(), family_options.codes(), threads);
        let truth = 1000 * 101 * (family_options.codes().of_groups(data.dim()).1 as u64 + 16);
        common.max(coding).max(calibrating + truth + threads * SCAN_BYTES)
    }
}
