//! Plans the memory of a cluster build: the peak of each stage, and the number of vectors that are placed at
//! a time.

use super::centroids::GROUPS_PER_RUN;
use super::options::ClusterOptions;
use crate::build::options::BuildOptions;
use crate::form::source::SourceVectors;
use crate::format::groups::GroupLayout;
use crate::partition::placement::{Placement, exchange};
use crate::partition::space::Space;
use crate::partition::{MOST_PARTS, sample_rows};
use bathyal_kernels::quantize::SCAN_BLOCK;

/// Bytes of the program itself, of thread stacks, and of memory that the allocator keeps.
const PROGRAM_BYTES: u64 = 24 << 20;
/// Bytes of the blocks of rows that threads read, and of the large pages (2 MiB) that the system maps for the
/// headers of files.
const WINDOW_BYTES: u64 = 20 << 20;
/// Bytes of the buffers of pages, codes and spilled vectors.
const BUFFER_BYTES: u64 = 20 << 20;
/// Bytes of the search state, exact search and code tables of each thread.
const THREAD_BYTES: u64 = 4 << 20;
/// Bytes of each vector for its id and its place in the order.
const PLACING_BYTES: u64 = 4 + 4 + 4;
/// Bytes of the neighbours of the queries of a calibration, which each thread keeps, with spare capacity.
const TRUTH_BYTES: u64 = 1000 * 101 * 16;

/// The planned memory of a build, and the number of vectors that are placed at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClusterPlan {
    /// Bytes at the peak.
    pub(crate) planned: u64,
    /// Most vectors that are placed together: whole runs of groups, or the number of all vectors if they fit.
    pub(crate) rows: usize,
}

impl ClusterPlan {
    /// Plans a build: everything at once if that fits or if there is no budget, otherwise parts as large as
    /// fit. The planned bytes exceed the budget only if no plan fits.
    pub(crate) fn new(
        data: &SourceVectors<'_>,
        cluster_options: &ClusterOptions,
        options: &BuildOptions,
        layout: &GroupLayout,
    ) -> ClusterPlan {
        let count = data.count();
        let threads = options.thread_count() as u64;
        let fixed = PROGRAM_BYTES + WINDOW_BYTES + BUFFER_BYTES + threads * THREAD_BYTES;
        let rest = rest(data, cluster_options, layout, threads);
        let row = Space::planned_bytes(data, options.metric) / count as u64 + 1 + PLACING_BYTES;
        let row = row + Placement::KEY_BYTES.max(exchange::planned_bytes(data.dim(), layout.group_vectors()));
        let means = (data.dim() * 4).div_ceil(layout.group_vectors()) as u64;
        let placing = |rows: usize| rows as u64 * (row + means) + threads * halving_bytes(data.dim());
        let whole = fixed + rest.max(placing(count));
        let Some(budget) = options.memory_bytes.filter(|budget| *budget < whole) else {
            return ClusterPlan { planned: whole, rows: count };
        };
        let run = GROUPS_PER_RUN * layout.group_vectors();
        let least = (2 * count / MOST_PARTS).max(1).next_multiple_of(run).min(count.next_multiple_of(run));
        let free = budget.saturating_sub(fixed + threads * halving_bytes(data.dim()));
        let rows = (free / (row + means)) as usize / run * run;
        // A run may be larger than the set.
        let rows = rows.clamp(least, count.next_multiple_of(run)).min(count);
        ClusterPlan { planned: fixed + rest.max(placing(rows)), rows }
    }
}

/// Returns the bytes of a thread that divides small pieces: two copies of their vectors as f32.
fn halving_bytes(dim: usize) -> u64 {
    2 * 1024 * (dim as u64 + 1) * 4
}

/// Returns the bytes of the largest stage that does not place vectors.
fn rest(
    data: &SourceVectors<'_>,
    cluster_options: &ClusterOptions,
    layout: &GroupLayout,
    threads: u64,
) -> u64 {
    let (count, dim) = (data.count(), data.dim() as u64);
    let groups = (count / layout.group_vectors() + 1 + 2 * MOST_PARTS) as u64;
    let sample = sample_rows(count, data.dim()) as u64 * (dim + 1) * 4;
    let code = u64::from(cluster_options.codes().bytes(data.dim())).max(dim / 8 + 8);
    // Rows of groups and runs, counts, checksums and squares, and a code of each centroid, in blocks that may
    // be half empty.
    let centroids = groups * (2 * dim + 2 * dim / GROUPS_PER_RUN as u64 + 20 + 2 * code);
    let codes = groups * (layout.group_blocks() * SCAN_BLOCK) as u64 * code;
    // The codec keeps its sample and a centred copy.
    let (choice, codec) = (cluster_options.codes(), cluster_options.codes().codec_bytes(data.dim()));
    let training = centroids + 2 * sample + choice.training_bytes(data.dim());
    let making_centroids = groups * dim * 4 + centroids + codec;
    let spreading = sample + sample_rows(count, data.dim()) as u64 * 32;
    let queries = 1000 * (data.given_row_bytes() as u64 + 8 * dim);
    // The bytes of the centroids and the parsed centroids are in memory at the same time.
    let scanning = codes + codec + 2 * centroids + groups * 24 * threads;
    let calibrating = scanning.max(threads * TRUTH_BYTES) + queries + TRUTH_BYTES;
    training.max(making_centroids).max(spreading).max(calibrating)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::places::Places;
    use bathyal_kernels::Element;

    /// Returns the bytes of vectors with ids and checksums, and of codes and centroids, as shares of the
    /// bytes of the data. There are so many vectors that an incomplete last group does not matter.
    fn shares(element: Element, dim: u32) -> (f64, f64) {
        let options = ClusterOptions::default();
        let layout = GroupLayout::choose(element, dim, options.group_vectors as usize).expect("a layout");
        let count = 1_u64 << 24;
        let groups = count.div_ceil(layout.group_vectors() as u64);
        let runs = groups.div_ceil(GROUPS_PER_RUN as u64);
        // One more byte, because not every kind of code can have exactly the requested length.
        let code_bytes = options.codes().of_groups(dim as usize).1 as u64 + 1;
        let codes = groups * (layout.group_blocks() * SCAN_BLOCK) as u64 * code_bytes;
        let places = if Places::are_needed(&layout) { Places::file_bytes(&layout, groups) } else { 0 };
        // Each row has a checksum.
        let centroids = layout.centroid_bytes(groups, runs, code_bytes) + 4 * groups;
        let data = (count * element.row_bytes(dim as usize) as u64) as f64;
        (layout.file_bytes(groups) as f64 / data, (codes + centroids + places) as f64 / data)
    }

    #[test]
    fn an_index_is_at_most_a_few_percent_larger_than_its_data() {
        for element in [Element::F32, Element::F16, Element::U8, Element::B1] {
            // For vectors of a few bytes, the ids alone exceed the limit.
            for dim in (8..=3072).step_by(if element == Element::B1 { 8 } else { 1 }) {
                let bytes = element.row_bytes(dim as usize);
                if bytes < 96 {
                    continue;
                }
                let (vectors, others) = shares(element, dim);
                let most = if bytes >= 512 { 1.06 } else { 1.10 };
                assert!(vectors <= most, "{dim} x {element}: vectors take {vectors}");
                if element == Element::F32 && dim >= 96 {
                    // Checksums of single vectors are a notable share of short vectors.
                    let most = if bytes >= 512 { 1.15 } else { 1.16 };
                    assert!(vectors + others <= most, "{dim} x {element}: all takes {}", vectors + others);
                }
            }
        }
    }
}
