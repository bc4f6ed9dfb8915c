//! Tests of tiers, layers and the engine through the public API. They are one program, since each program is
//! linked with everything again.
//!
//! `cache_memory` is a program of its own: it counts every byte that its process allocates.

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
