//! What a search will cost before it is run: pure functions of a device's profile and of an index's counters.
//!
//! One file a family, and what they share in [`demand`]. Nothing here reads a file or a clock.

pub mod cluster;
pub mod coupled;
pub mod demand;
pub mod graph;
