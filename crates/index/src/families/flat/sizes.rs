//! What the build of a flat index makes.

use super::build::{layout_of, stages};
use super::options::FlatOptions;
use super::section::{CODEC_NAME, CODES_NAME, VECTORS_NAME};
use crate::build::options::{BuildOptions, Details};
use crate::build::plan::{FamilyPlan, PlannedCodes, PlannedFile};
use crate::error::IndexError;
use crate::form::source::Source;

/// The files, and what stands for options that were left open.
pub(super) fn plan(
    data: &Source<'_>,
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
