//! What the build of an LSH index makes.

use super::build::{layout_of, stages};
use super::options::LshOptions;
use super::section::{CODEC_NAME, CODES_NAME, FENCES_NAME, HASHES_NAME, TABLES_NAME};
use crate::build::options::{BuildOptions, Details};
use crate::build::plan::{FamilyPlan, PlannedCodes, PlannedFile};
use crate::error::IndexError;
use crate::form::source::Source;
use crate::format::tables::TableLayout;
use bathyal_kernels::Metric;
use bathyal_kernels::lsh::CompoundHashes;

/// The files, and what stands for options that were left open.
pub(super) fn plan(
    data: &Source<'_>,
    own: &LshOptions,
    options: &BuildOptions,
) -> Result<FamilyPlan, IndexError> {
    let (layout, count) = (layout_of(data)?, data.count() as u64);
    let pages = count.div_ceil(layout.group_vectors() as u64);
    let tables = TableLayout::new(layout.file_bytes(pages), own.block_bytes, own.tables, count)
        .map_err(IndexError::Parameter)?;
    // Points under the inner product have a value more.
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
