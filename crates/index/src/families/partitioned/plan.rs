//! The memory plan of a build of partitions: the peak of each stage.

use super::assign::Assignment;
use super::meta::MetaIndex;
use super::sizes::partitions;
use super::subindex::hnsw::Hnsw;
use super::subindex::options::PartitionedOptions;
use crate::build::options::BuildOptions;
use crate::form::source::SourceVectors;
use crate::partition::space::Space;

/// The program itself, thread stacks, and the reserves of the allocator.
const PROGRAM_BYTES: u64 = 40 << 20;
/// Blocks of rows and search state of each thread, and exact search.
const THREAD_BYTES: u64 = 4 << 20;
/// Calibration: queries with their neighbours, and the ranks at which these were found.
const TRUTH_BYTES: u64 = 1000 * 101 * (16 + 6);
/// Finished sub-indexes that a thread holds, because they are written in order.
pub(super) const READY: usize = 2;

/// Returns the peak memory of a build, in bytes.
pub(super) fn planned_bytes(
    data: &SourceVectors<'_>,
    family_options: &PartitionedOptions,
    options: &BuildOptions,
) -> u64 {
    let (count, threads) = (data.count() as u64, options.thread_count() as u64);
    // Dividing large partitions makes at most twice as many and one.
    let all = 2 * partitions(data.count(), family_options) as u64 + 1;
    let fixed = PROGRAM_BYTES
        + threads * THREAD_BYTES
        + MetaIndex::planned_bytes(all, data.row_bytes(), family_options);
    let assignment = Assignment::planned_bytes(count, u64::from(family_options.replicas), all);
    let most = (family_options.most_vectors() as u64).min(count);
    let space = Space::planned_rows(most as usize, data.row_bytes(), options.metric);
    let bytes = most * (data.row_bytes() as u64 + 4 * 3 * u64::from(family_options.links) + 16);
    // A growing buffer has up to twice the capacity of its contents.
    let one = space + Hnsw::planned_bytes(most, family_options) + 2 * bytes;
    let building = threads.min(all) * (one + READY as u64 * bytes);
    let queries = 1000 * (data.given_row_bytes() as u64 + 8 * data.dim() as u64 + 192 * 8);
    // The partition of each vector, which is collected at the end of the build.
    let assignment = assignment + if family_options.growth > 0.0 { 4 * count } else { 0 };
    fixed + assignment + building + queries + TRUTH_BYTES + threads * TRUTH_BYTES
}
