//! The parameters with which a graph grows.

use crate::error::IndexError;

/// Pruning factor (alpha), applied to squared distances as in the DiskANN papers.
pub const DEFAULT_ALPHA: f32 = 1.2;
/// Largest pruning factor. A larger one would keep nearly every candidate.
const MAX_ALPHA: f32 = 10.0;

/// The parameters with which a graph grows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GrowthOptions {
    /// Most links of a vector: R in DiskANN.
    pub(crate) max_degree: u32,
    /// Length of the candidate list: L in DiskANN.
    pub(crate) search_list: u32,
    /// Factor by which robust pruning scales distances between neighbours: alpha in DiskANN, at least 1.
    pub(crate) alpha: f32,
}

/// Checks that `alpha` can make a graph.
///
/// # Errors
/// [`IndexError::Parameter`].
pub(crate) fn check_alpha(alpha: f32) -> Result<(), IndexError> {
    if (1.0..=MAX_ALPHA).contains(&alpha) {
        return Ok(());
    }
    Err(IndexError::Parameter(format!("alpha is {alpha}; it must be between 1 and {MAX_ALPHA}")))
}
