//! Building posting lists.

use crate::error::IndexError;
use crate::progress::Progress;
use crate::vamana::{BuildOptions, BuildReport};
use crate::vectors::VectorFile;
use std::path::Path;

/// Bytes of memory at the build's peak.
pub(crate) fn planned_memory(_data: &VectorFile, _options: &BuildOptions) -> u64 {
    0
}

/// Builds posting lists over `data` at `target`.
pub(crate) fn build(
    _data: &VectorFile,
    _target: &Path,
    _options: &BuildOptions,
    _planned: u64,
    _progress: &dyn Progress,
) -> Result<BuildReport, IndexError> {
    Err(IndexError::Internal("posting lists cannot be built yet".into()))
}
