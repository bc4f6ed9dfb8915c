//! Tiers, layers and the engine from outside. One program, since each would link everything again.
//!
//! `cache_memory` stands beside it: it counts every byte that its process allocates.

mod balance;
mod budget;
mod cache;
mod conformance;
mod engine;
mod faults;
mod layers;
mod mapped;
mod mapped_files;
mod probe;
mod sim;
mod soak;
