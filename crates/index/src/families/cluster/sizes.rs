//! The planned files of a cluster build.

use super::centroids::GROUPS_PER_RUN;
use super::options::ClusterOptions;
use super::plan::ClusterPlan;
use super::section::{
    CENTROIDS_NAME, CODEC_NAME, CODES_NAME, PLACES_NAME, POSITIONS_NAME, ROWS_NAME, VECTORS_NAME,
};
use crate::build::options::{BuildOptions, Details};
use crate::build::plan::{FamilyPlan, PlannedCodes, PlannedFile};
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::format::groups::GroupLayout;
use crate::format::places::Places;
use crate::format::positions;
use crate::partition::MOST_PARTS;
use crate::partition::staged::all_stages;
use bathyal_kernels::Metric;
use bathyal_kernels::quantize::SCAN_BLOCK;
use std::ops::RangeInclusive;

/// Plans the files and the stages, and fills in the options without a value.
pub(super) fn plan(
    data: &SourceVectors<'_>,
    cluster_options: &ClusterOptions,
    options: &BuildOptions,
) -> Result<FamilyPlan, IndexError> {
    let layout = choose_layout(data, cluster_options)?;
    let (count, rows) = (data.count(), ClusterPlan::new(data, cluster_options, options, &layout).rows);
    let full = count.div_ceil(layout.group_vectors()) as u64;
    // Each piece of a divided set begins with a new group and a new run. A part has about two pieces.
    let pieces = if rows >= count { 0 } else { 2 * MOST_PARTS as u64 };
    let groups = full..=full + pieces;
    let runs =
        full.div_ceil(GROUPS_PER_RUN as u64)..=(full + pieces).div_ceil(GROUPS_PER_RUN as u64) + pieces;
    let codes = PlannedCodes::grouped(cluster_options.codes(), data.dim());
    let range = |bytes: &dyn Fn(u64) -> u64| bytes(*groups.start())..=bytes(*groups.end());
    let blocks = (layout.group_blocks() * SCAN_BLOCK) as u64;
    let group_extra = if options.metric == Metric::Cosine { 8 } else { 4 };
    // The rows have their cluster_options file. Each group has a checksum of its row, and under cosine the
    // square of its centroid.
    let centroids = |groups: u64, runs: u64, code: u64| {
        layout.centroid_bytes(groups, runs, code) - layout.row_bytes(groups) + group_extra * groups
    };
    let code = codes.code_bytes();
    let centroids: RangeInclusive<u64> = centroids(*groups.start(), *runs.start(), *code.start())
        ..=centroids(*groups.end(), *runs.end(), *code.end());
    let mut files = vec![
        PlannedFile::within(VECTORS_NAME, range(&|groups| layout.file_bytes(groups))),
        PlannedFile::within(CODES_NAME, codes.file_bytes(range(&|groups| groups * blocks))),
        PlannedFile::within(CODEC_NAME, codes.codec_bytes()),
        PlannedFile::within(CENTROIDS_NAME, centroids),
        PlannedFile::within(ROWS_NAME, range(&|groups| layout.row_bytes(groups))),
        PlannedFile::exactly(POSITIONS_NAME, positions::file_bytes(count as u64)),
    ];
    if Places::are_needed(&layout) {
        let places = range(&|groups| Places::file_bytes(&layout, groups));
        files.push(PlannedFile::within(PLACES_NAME, places));
    }
    let mut parameters = Details::from(codes.parameters());
    parameters.insert("group_vectors", layout.group_vectors().into());
    let stages = all_stages(data, cluster_options, &layout, rows);
    Ok(FamilyPlan { parameters, rows, stages, files })
}

/// Chooses the layout, with groups of about the requested number of vectors.
pub(super) fn choose_layout(
    data: &SourceVectors<'_>,
    cluster_options: &ClusterOptions,
) -> Result<GroupLayout, IndexError> {
    GroupLayout::choose(data.element(), data.dim() as u32, cluster_options.group_vectors as usize)
        .map_err(IndexError::Parameter)
}
