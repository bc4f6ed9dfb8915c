//! The index families with their builders and searchers, their bytes on disk, and the open index on top.
//!
//! * [`build()`] makes an index directory from a [`bathyal_vectors::VectorFile`];
//! * [`Index`] opens and searches one; [`verify`] and [`inspect`] look at it.

pub mod build;
pub mod cost;
pub mod error;
pub mod families;
pub mod format;
pub mod open;
mod partition;
mod query;

pub use build::{build, build_in};
pub use error::IndexError;
pub use families::graph::{
    BuildOptions, BuildReport, FamilyChoice, LayoutChoice, LayoutConversion, convert_layout,
    convert_layout_in,
};
pub use open::{
    Effort, Explanation, Index, IndexStats, InspectReport, ManyResult, MemorySplit, OpenOptions,
    RangeOptions, RangeResult, SearchOptions, SearchResult, SearchTotals, Searching, Shape, TierChoice,
    VerifyReport, WarmReport, inspect, inspect_in, search_many, verify, verify_in,
};
pub use query::{QueryStats, SearchMode};
