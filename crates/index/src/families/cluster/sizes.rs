//! What the build of a cluster index makes.

use super::centroids::GROUPS_A_RUN;
use super::options::ClusterOptions;
use super::plan::Plan;
use super::section::{
    CENTROIDS_NAME, CODEC_NAME, CODES_NAME, PLACES_NAME, POSITIONS_NAME, ROWS_NAME, VECTORS_NAME,
};
use crate::build::options::{BuildOptions, Details};
use crate::build::plan::{FamilyPlan, PlannedCodes, PlannedFile};
use crate::error::IndexError;
use crate::form::source::Source;
use crate::format::groups::GroupLayout;
use crate::format::places::Places;
use crate::format::positions;
use crate::partition::MOST_PARTS;
use crate::partition::staged::all_stages;
use bathyal_kernels::Metric;
use bathyal_kernels::quantize::SCAN_BLOCK;
use std::ops::RangeInclusive;

/// The files, and what stands for options that were left open.
pub(super) fn plan(
    data: &Source<'_>,
    own: &ClusterOptions,
    options: &BuildOptions,
) -> Result<FamilyPlan, IndexError> {
    let layout = layout_of(data, own)?;
    let (count, rows) = (data.count(), Plan::new(data, own, options, &layout).rows);
    let full = count.div_ceil(layout.group_vectors()) as u64;
    // Groups and runs begin anew with each piece of a divided set, of which there are some two for each part.
    let anew = if rows >= count { 0 } else { 2 * MOST_PARTS as u64 };
    let groups = full..=full + anew;
    let runs = full.div_ceil(GROUPS_A_RUN as u64)..=(full + anew).div_ceil(GROUPS_A_RUN as u64) + anew;
    let codes = PlannedCodes::grouped(own.codes(), data.dim());
    let of_groups = |bytes: &dyn Fn(u64) -> u64| bytes(*groups.start())..=bytes(*groups.end());
    let blocks = (layout.group_blocks() * SCAN_BLOCK) as u64;
    let of_group = if options.metric == Metric::Cosine { 8 } else { 4 };
    // A checksum for each row, and what groups are behind by: the rows have a file of their own.
    let centroids = |groups: u64, runs: u64, code: u64| {
        layout.centroid_bytes(groups, runs, code) - layout.row_bytes(groups) + of_group * groups
    };
    let code = codes.code_bytes();
    let centroids: RangeInclusive<u64> = centroids(*groups.start(), *runs.start(), *code.start())
        ..=centroids(*groups.end(), *runs.end(), *code.end());
    let mut files = vec![
        PlannedFile::within(VECTORS_NAME, of_groups(&|groups| layout.file_bytes(groups))),
        PlannedFile::within(CODES_NAME, codes.file_bytes(of_groups(&|groups| groups * blocks))),
        PlannedFile::within(CODEC_NAME, codes.codec_bytes()),
        PlannedFile::within(CENTROIDS_NAME, centroids),
        PlannedFile::within(ROWS_NAME, of_groups(&|groups| layout.row_bytes(groups))),
        PlannedFile::exactly(POSITIONS_NAME, positions::file_bytes(count as u64)),
    ];
    if Places::are_needed(&layout) {
        let places = of_groups(&|groups| Places::file_bytes(&layout, groups));
        files.push(PlannedFile::within(PLACES_NAME, places));
    }
    let mut parameters = Details::from(codes.parameters());
    parameters.insert("group_vectors", layout.group_vectors().into());
    let stages = all_stages(data, own, &layout, rows);
    Ok(FamilyPlan { parameters, rows, stages, files })
}

/// Where vectors lie: groups of about as many as were asked for.
pub(super) fn layout_of(data: &Source<'_>, own: &ClusterOptions) -> Result<GroupLayout, IndexError> {
    GroupLayout::choose(data.element(), data.dim() as u32, own.group_vectors as usize)
        .map_err(IndexError::Parameter)
}
