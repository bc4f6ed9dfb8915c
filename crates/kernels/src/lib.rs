//! Kernels of Bathyal: element types, metrics, distances by SIMD, and bounded result lists.
//!
//! No I/O happens here. Vectors are plain little-endian bytes of any alignment, so a record can be
//! scored where it lies: in a mapped file, in a page that a device has just filled, in an array.

pub mod distance;
pub mod element;
pub mod kmeans;
pub mod lsh;
pub mod metric;
pub mod product;
pub mod quantize;
pub mod topk;

pub use distance::{
    Distance, Isa, Rows, dot, first_non_finite, from_f32, normalize_f32, squared_norm, to_f32,
};
pub use element::Element;
pub use metric::{Metric, MetricName};
pub use topk::{CandidateList, Neighbor, TopK};
