//! The memory of a graph's build: all at once where that fits, else parts as large as fit.

use super::adjacency::Adjacency;
use super::grow::Growth;
use super::local::Placed;
use super::options::{GraphLayoutChoice, GraphOptions};
use super::pack::Packer;
use super::places::Places;
use super::{connect, parts, whole, write};
use crate::build::options::BuildOptions;
use crate::form::source::Source;
use crate::partition::space::Space;
use crate::partition::{MOST_PARTS, sample_rows};

/// Memory of a graph's build besides what grows with the vectors: buffers, samples, code tables, thread stacks.
const FIXED_MEMORY: u64 = 96 << 20;
/// Memory of each thread: search state, read buffers, blocks of exact search.
const MEMORY_A_THREAD: u64 = 24 << 20;

/// How many vectors are grown at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    /// Bytes at the peak.
    pub(super) planned: u64,
    /// Most vectors of a part; all of them where the set fits.
    pub(super) rows: usize,
}

impl Plan {
    /// The plan for a budget: everything at once where that fits or no budget is given, else parts as large as fit. What is
    /// planned is above the budget only if no plan keeps within it.
    pub(super) fn new(data: &Source<'_>, own: &GraphOptions, options: &BuildOptions) -> Plan {
        let fixed = options.thread_count() as u64 * MEMORY_A_THREAD + FIXED_MEMORY;
        let whole = Plan { planned: fixed + whole_bytes(data, own, options), rows: data.count() };
        let Some(budget) = options.memory_bytes.filter(|budget| *budget < whole.planned) else {
            return whole;
        };
        if own.layout != GraphLayoutChoice::Padded {
            return whole;
        }
        let row = part_bytes(data, own, options, 1 << 20).div_ceil(1 << 20);
        let least = (2 * 2 * data.count()).div_ceil(MOST_PARTS).max(1);
        let rows = (budget.saturating_sub(fixed) / row) as usize;
        // Other stages may take more than the whole set does here, but what is divided at all is divided well.
        let rows = rows.max(least).min(data.count() / 2);
        let planned = fixed + rest_bytes(data, own).max(rows as u64 * row);
        if rows == 0 || planned >= whole.planned { whole } else { Plan { planned, rows } }
    }
}

/// Bytes of a build that has all vectors in memory.
fn whole_bytes(data: &Source<'_>, own: &GraphOptions, options: &BuildOptions) -> u64 {
    let (count, threads) = (data.count() as u64, options.thread_count() as u64);
    let codes = count * u64::from(own.codes().bytes(data.dim()));
    let rows = write::training_rows(data.count());
    let sample = write::sample_bytes(rows, data.dim()) + own.codes().training_bytes(data.dim());
    let growing = Adjacency::planned_bytes(count, own.max_degree) + Growth::planned_bytes(count, threads);
    let placed = match own.layout {
        GraphLayoutChoice::Padded => 0,
        GraphLayoutChoice::PageLocal => {
            whole::local_layout(data, own).map_or(0, |layout| Placed::planned_bytes(&layout, count))
        }
        GraphLayoutChoice::Csr => Places::planned_bytes(count) + Packer::BYTES_A_RECORD * count,
    };
    Space::planned_bytes(data, options.metric) + sample.max(codes) + growing + placed
}

/// Bytes of growing a part of so many vectors.
fn part_bytes(data: &Source<'_>, own: &GraphOptions, options: &BuildOptions, rows: usize) -> u64 {
    let (count, threads) = (rows as u64, options.thread_count() as u64);
    let growing = Adjacency::planned_bytes(count, parts::degree(own.max_degree))
        + Growth::planned_bytes(count, threads);
    Space::planned_rows(rows, data.row_bytes(), options.metric) + growing + parts::BYTES_A_ROW * count
}

/// Bytes of the largest of the stages that do not grow parts.
fn rest_bytes(data: &Source<'_>, own: &GraphOptions) -> u64 {
    let (count, dim) = (data.count(), data.dim());
    let codes = count as u64 * u64::from(own.codes().bytes(dim)) + own.codes().codec_bytes(dim);
    let training = write::sample_bytes(sample_rows(count, dim), dim) + own.codes().training_bytes(dim);
    let spreading = (sample_rows(count, dim) * (dim + 1) * 4 + 64 * sample_rows(count, dim)) as u64;
    let connecting = connect::BYTES_A_VECTOR * count as u64;
    codes.max(training).max(spreading).max(connecting)
}
