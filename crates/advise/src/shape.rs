//! The shape of vectors.

use bathyal_kernels::Element;

/// The shape of the vectors of an index.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VectorShape {
    /// Element of the given vectors.
    pub element: Element,
    /// Dimensions.
    pub dim: usize,
    /// Number of vectors.
    pub count: u64,
}
