//! The memory that a build of partitions takes: each stage at its peak.

use super::assign::Assignment;
use super::meta::MetaIndex;
use super::sizes::partitions;
use super::subindex::hnsw::Hnsw;
use super::subindex::options::PartitionedOptions;
use crate::build::options::BuildOptions;
use crate::form::source::Source;
use crate::partition::space::Space;

/// The program itself, thread stacks, and what the allocator keeps.
const PROGRAM_BYTES: u64 = 40 << 20;
/// Blocks of rows and search state of each thread, and exact search.
const THREAD_BYTES: u64 = 4 << 20;
/// Calibration: queries with their neighbours, and where these were found.
const TRUTH_BYTES: u64 = 1000 * 101 * (16 + 6);
/// Sub-indexes that a thread has ready at once: they are written in order.
pub(super) const READY: usize = 2;

/// Bytes that a build takes at its peak.
pub(super) fn planned_bytes(data: &Source<'_>, own: &PartitionedOptions, options: &BuildOptions) -> u64 {
    let (count, threads) = (data.count() as u64, options.thread_count() as u64);
    // Dividing large ones makes up to twice as many and one.
    let all = 2 * partitions(data.count(), own) as u64 + 1;
    let fixed = PROGRAM_BYTES + threads * THREAD_BYTES + MetaIndex::planned_bytes(all, data.row_bytes(), own);
    let assignment = Assignment::planned_bytes(count, u64::from(own.replicas), all);
    let most = (own.most_vectors() as u64).min(count);
    let space = Space::planned_rows(most as usize, data.row_bytes(), options.metric);
    let bytes = most * (data.row_bytes() as u64 + 4 * 3 * u64::from(own.links) + 16);
    // A buffer that grows has been twice as long as what is in it.
    let one = space + Hnsw::planned_bytes(most, own) + 2 * bytes;
    let building = threads.min(all) * (one + READY as u64 * bytes);
    let queries = 1000 * (data.given_row_bytes() as u64 + 8 * data.dim() as u64 + 192 * 8);
    // Which partition each is in, at the end, once nothing is built any more.
    let assignment = assignment + if own.growth > 0.0 { 4 * count } else { 0 };
    fixed + assignment + building + queries + TRUTH_BYTES + threads * TRUTH_BYTES
}
