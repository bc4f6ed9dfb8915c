//! What lies on disk: the manifest, the pages of the graph, and the directory that appears all at once.
//!
//! Every field is specified in `docs/format/`.

pub mod directory;
pub mod manifest;
pub mod pages;
