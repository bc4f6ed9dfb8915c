//! Plans the memory of a graph build: all vectors at once if they fit, otherwise parts as large as fit.

use super::local::LocalPlacement;
use super::options::{GraphLayoutChoice, GraphOptions};
use super::pack::Packer;
use super::places::Places;
use super::{connect, parts, whole};
use crate::build::options::BuildOptions;
use crate::form::source::SourceVectors;
use crate::partition::plain_codes::{sample_bytes, training_rows};
use crate::partition::space::Space;
use crate::partition::{MOST_PARTS, sample_rows};
use crate::proximity::adjacency::Adjacency;
use crate::proximity::grow::Growth;

/// Memory of a graph build that does not grow with the vectors: buffers, samples, code tables, thread stacks.
const FIXED_MEMORY: u64 = 96 << 20;
/// Memory of each thread: search state, read buffers, blocks of exact search.
const MEMORY_PER_THREAD: u64 = 24 << 20;

/// The planned memory of a build, and the size of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GraphPlan {
    /// Bytes at the peak.
    pub(super) planned: u64,
    /// Most vectors of a part; the number of all vectors if they are built at once.
    pub(super) rows: usize,
}

impl GraphPlan {
    /// Plans a build: everything at once if that fits or if there is no budget, otherwise parts as large as
    /// fit. The planned bytes exceed the budget only if no plan fits.
    pub(super) fn new(
        data: &SourceVectors<'_>,
        graph_options: &GraphOptions,
        options: &BuildOptions,
    ) -> GraphPlan {
        let fixed = options.thread_count() as u64 * MEMORY_PER_THREAD + FIXED_MEMORY;
        let whole =
            GraphPlan { planned: fixed + whole_bytes(data, graph_options, options), rows: data.count() };
        let Some(budget) = options.memory_bytes.filter(|budget| *budget < whole.planned) else {
            return whole;
        };
        if graph_options.layout != GraphLayoutChoice::Padded {
            return whole;
        }
        let row = part_bytes(data, graph_options, options, 1 << 20).div_ceil(1 << 20);
        let least = (2 * 2 * data.count()).div_ceil(MOST_PARTS).max(1);
        let rows = (budget.saturating_sub(fixed) / row) as usize;
        // Other stages may take more memory than growing the whole set would, but divided data always has at
        // least two parts.
        let rows = rows.max(least).min(data.count() / 2);
        let planned = fixed + rest_bytes(data, graph_options).max(rows as u64 * row);
        if rows == 0 || planned >= whole.planned { whole } else { GraphPlan { planned, rows } }
    }
}

/// Returns the bytes of a build with all vectors in memory.
fn whole_bytes(data: &SourceVectors<'_>, graph_options: &GraphOptions, options: &BuildOptions) -> u64 {
    let (count, threads) = (data.count() as u64, options.thread_count() as u64);
    let codes = count * u64::from(graph_options.codes().bytes(data.dim()));
    let rows = training_rows(data.count());
    let sample = sample_bytes(rows, data.dim()) + graph_options.codes().training_bytes(data.dim());
    let growing =
        Adjacency::planned_bytes(count, graph_options.max_degree) + Growth::planned_bytes(count, threads);
    let placement = match graph_options.layout {
        GraphLayoutChoice::Padded => 0,
        GraphLayoutChoice::PageLocal => whole::local_layout(data, graph_options)
            .map_or(0, |layout| LocalPlacement::planned_bytes(&layout, count)),
        GraphLayoutChoice::Csr => Places::planned_bytes(count) + Packer::BYTES_PER_RECORD * count,
    };
    Space::planned_bytes(data, options.metric) + sample.max(codes) + growing + placement
}

/// Returns the bytes of growing a part of `rows` vectors.
fn part_bytes(
    data: &SourceVectors<'_>,
    graph_options: &GraphOptions,
    options: &BuildOptions,
    rows: usize,
) -> u64 {
    let (count, threads) = (rows as u64, options.thread_count() as u64);
    let growing = Adjacency::planned_bytes(count, parts::degree(graph_options.max_degree))
        + Growth::planned_bytes(count, threads);
    Space::planned_rows(rows, data.row_bytes(), options.metric) + growing + parts::BYTES_PER_ROW * count
}

/// Returns the bytes of the largest stage that does not grow parts.
fn rest_bytes(data: &SourceVectors<'_>, graph_options: &GraphOptions) -> u64 {
    let (count, dim) = (data.count(), data.dim());
    let codes =
        count as u64 * u64::from(graph_options.codes().bytes(dim)) + graph_options.codes().codec_bytes(dim);
    let training = sample_bytes(sample_rows(count, dim), dim) + graph_options.codes().training_bytes(dim);
    let spreading = (sample_rows(count, dim) * (dim + 1) * 4 + 64 * sample_rows(count, dim)) as u64;
    let connecting = connect::BYTES_PER_VECTOR * count as u64;
    codes.max(training).max(spreading).max(connecting)
}
