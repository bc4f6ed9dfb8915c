//! Graphics cards: parts of searches ([`hops`], [`pages`], [`walks`], [`scans`]), exact search ([`nearest`]),
//! a step of builds ([`losses`]), and access to cards ([`card`]).
//!
//! A query uses a card like an I/O device: it submits a request, suspends, and continues when the card has
//! responded. One launch serves all requests that were submitted in the meantime. The kernels are CUDA C++ in
//! `kernels/`, beside the PTX that was compiled from them. The build needs nothing of CUDA, and the driver is
//! opened when a card is used. Tests run the same sources without a card: `crates/simt`.
pub mod card;
#[cfg(feature = "driver")]
mod cuda;
mod error;
mod exact;
mod fields;
pub mod graph;
pub mod hops;
pub mod losses;
pub mod nearest;
pub mod pages;
pub mod scans;
pub mod service;
pub mod walks;

pub use card::{Card, DeviceChoice};
pub use error::GpuError;
pub use exact::{Exact, VectorUpload, Vectors};
pub use service::{CardCounters, MOST_MINI_BATCH, slots};
