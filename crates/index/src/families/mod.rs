//! The index families, a folder each: builder beside searcher.

pub mod cluster;
pub mod graph;
pub mod spann;
