//! The files of a flat index, their sizes, and the stages of its build.

use super::options::FlatOptions;
use super::section::{CODEC_NAME, CODES_NAME, VECTORS_NAME};
use crate::build::options::{BuildOptions, Details};
use crate::build::plan::{FamilyPlan, PlannedCodes, PlannedFile};
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::format::groups::GroupLayout;

/// Approximate bytes of one read of a scan: a device takes longer to transfer them than the processor to
/// request them.
const READ_BYTES: usize = 64 << 10;

/// Returns the files, the stages, and the parameters, with defaults in place of options that were left open.
pub(super) fn plan(
    data: &SourceVectors<'_>,
    own: &FlatOptions,
    _options: &BuildOptions,
) -> Result<FamilyPlan, IndexError> {
    let layout = layout_of(data)?;
    let (count, dim) = (data.count() as u64, data.dim());
    let reads = count.div_ceil(layout.group_vectors() as u64);
    let mut files = vec![PlannedFile::exactly(VECTORS_NAME, layout.file_bytes(reads))];
    let mut parameters = Details::new();
    if let Some(choice) = own.codes() {
        let codes = PlannedCodes::grouped(choice, dim);
        parameters.extend(codes.parameters());
        files.push(PlannedFile::within(CODES_NAME, codes.file_bytes(count..=count)));
        // The mean of the vectors comes before the codec.
        let (shift, codec) = (4 * dim as u64, codes.codec_bytes());
        files.push(PlannedFile::within(CODEC_NAME, shift + codec.start()..=shift + codec.end()));
    }
    let stages = stages(data, own).into_iter().map(|(name, seconds)| (name, Some(seconds))).collect();
    Ok(FamilyPlan { parameters, rows: data.count(), stages, files })
}

/// Returns a layout of pages with as many vectors as fit in 4 KiB, and of reads with as many pages as fit in
/// [`READ_BYTES`] or as the vectors fill.
pub(super) fn layout_of(data: &SourceVectors<'_>) -> Result<GroupLayout, IndexError> {
    let dim = data.dim() as u32;
    let one = GroupLayout::choose(data.element(), dim, 1).map_err(IndexError::Parameter)?;
    let needed = data.count().div_ceil(one.page_vectors()).max(1);
    let pages = (READ_BYTES / one.page_bytes()).clamp(1, needed);
    GroupLayout::new(data.element(), dim, one.page_bytes() as u32, pages as u32)
        .map_err(IndexError::Parameter)
}

/// Returns the stages, with their expected seconds on a reference machine.
pub(super) fn stages(data: &SourceVectors<'_>, own: &FlatOptions) -> Vec<(&'static str, f64)> {
    let values = data.count() as f64 * data.dim() as f64 / 128e6;
    let mut stages = vec![("writing vectors", 0.5 * values)];
    if own.codes().is_some() {
        let codes = [("training codes", 1.0), ("encoding", 2.0 * values)];
        stages.extend(
            codes.into_iter().chain([("exact neighbours", 3.0 * values), ("calibrating", 3.0 * values)]),
        );
    }
    stages
}
