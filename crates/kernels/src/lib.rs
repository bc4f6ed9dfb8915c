//! Kernels of Bathyal: element types, metrics, SIMD distances, and bounded result lists.
//!
//! The crate does no I/O. Vectors are little-endian bytes of any alignment, so a record is scored without a
//! copy: in a mapped file, in a page that a device has just filled, in an array.

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
