//! All algorithms of Bathyal: index families with their builders and searchers, formats, ground truth.
//!
//! * [`build()`] makes an index directory from a [`vectors::VectorFile`];
//! * [`Index`] opens and searches one; [`verify`] and [`inspect`] look at it;
//! * [`vectors`] reads and writes files of vectors and ids; [`groundtruth`] computes exact answers.

pub mod build;
pub mod cluster;
pub mod cost;
pub mod error;
pub mod format;
pub mod groundtruth;
pub mod index;
mod order;
mod parts;
pub mod progress;
mod query;
pub mod spann;
pub mod vamana;
pub mod vectors;

pub use build::build;
pub use error::IndexError;
pub use index::{
    Effort, Explanation, Index, IndexStats, InspectReport, ManyResult, MemorySplit, OpenOptions,
    RangeOptions, RangeResult, SearchOptions, SearchResult, SearchTotals, Shape, TierChoice, VerifyReport,
    WarmReport, inspect, search_many, verify,
};
pub use query::{QueryStats, SearchMode};
pub use vamana::{BuildOptions, BuildReport, FamilyChoice, LayoutChoice, LayoutConversion, convert_layout};
