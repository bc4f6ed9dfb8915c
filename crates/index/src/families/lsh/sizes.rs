//! The files of an LSH index, their sizes, and the stages of its build.

use super::options::LshOptions;
use super::section::{CODEC_NAME, CODES_NAME, FENCES_NAME, HASHES_NAME, TABLES_NAME};
use crate::build::options::{BuildOptions, Details};
use crate::build::plan::{FamilyPlan, PlannedCodes, PlannedFile};
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::format::groups::GroupLayout;
use crate::format::tables::TableLayout;
use bathyal_kernels::Metric;
use bathyal_kernels::lsh::CompoundHashes;

/// Returns the files, the stages, and the parameters, with defaults in place of options that were left open.
pub(super) fn plan(
    data: &SourceVectors<'_>,
    own: &LshOptions,
    options: &BuildOptions,
) -> Result<FamilyPlan, IndexError> {
    let (layout, count) = (layout_of(data)?, data.count() as u64);
    let pages = count.div_ceil(layout.group_vectors() as u64);
    let tables = TableLayout::new(layout.file_bytes(pages), own.block_bytes, own.tables, count)
        .map_err(IndexError::Parameter)?;
    // Under the inner product, points have one more value.
    let point_dim = data.dim() + usize::from(options.metric == Metric::InnerProduct);
    let hashes = CompoundHashes::file_bytes(point_dim, own.tables as usize, own.hashes as usize);
    let codes = PlannedCodes::lone(own.codes(), data.dim());
    let mut parameters = Details::from(codes.parameters());
    parameters.extend([
        ("tables", own.tables.into()),
        ("hashes", own.hashes.into()),
        ("block_bytes", own.block_bytes.into()),
    ]);
    let files = vec![
        PlannedFile::exactly(TABLES_NAME, tables.file_bytes()),
        PlannedFile::exactly(FENCES_NAME, tables.fence_bytes()),
        PlannedFile::exactly(HASHES_NAME, hashes),
        PlannedFile::within(CODES_NAME, codes.file_bytes(count..=count)),
        PlannedFile::within(CODEC_NAME, codes.codec_bytes()),
    ];
    let stages = stages(data, own).into_iter().map(|(name, seconds)| (name, Some(seconds))).collect();
    Ok(FamilyPlan { parameters, rows: data.count(), stages, files })
}

/// Returns a layout of pages with as many vectors as fit in 4 KiB, or with one longer vector.
pub(super) fn layout_of(data: &SourceVectors<'_>) -> Result<GroupLayout, IndexError> {
    let dim = data.dim() as u32;
    let one = GroupLayout::choose(data.element(), dim, 1).map_err(IndexError::Parameter)?;
    GroupLayout::new(data.element(), dim, one.page_bytes() as u32, 1).map_err(IndexError::Parameter)
}

/// Returns the stages, with their expected seconds on a reference machine.
pub(super) fn stages(data: &SourceVectors<'_>, own: &LshOptions) -> [(&'static str, f64); 6] {
    let millions = data.count() as f64 / 1e6;
    let values = millions * data.dim() as f64 / 128.0;
    let tables = f64::from(own.tables) / 16.0;
    [
        ("writing vectors", 0.5 * values),
        ("training codes", 1.0),
        ("encoding", 2.0 * values),
        ("hashing", tables * (3.0 * values + 3.0 * millions)),
        ("exact neighbours", 3.0 * values),
        ("calibrating", 8.0),
    ]
}
