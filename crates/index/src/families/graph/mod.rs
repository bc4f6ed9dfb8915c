//! The Vamana graph (DiskANN, NeurIPS'19): builder and searcher.
//!
//! * [`build`]: two passes of search and robust prune over vectors in memory, then pages, codes, calibration.
//! * [`search`]: one `async fn` for every tier; codes in memory navigate, full vectors from the tier re-rank.

pub(crate) mod adjacency;
pub mod build;
pub(crate) mod calibrate;
pub(crate) mod grow;
pub(crate) mod insert;
mod local;
pub mod options;
mod pack;
pub(crate) mod page_search;
mod places;
mod prune;
mod relayout;
mod repair;
mod rounds;
pub mod search;
pub(crate) mod space;
pub(crate) mod visited;
pub(crate) mod walk;
pub(crate) mod write;

pub use options::{BuildOptions, BuildReport, FamilyChoice, LayoutChoice};
pub use relayout::{LayoutConversion, convert_layout, convert_layout_in};
