//! Graphics cards: what searches do on them ([`hops`], [`pages`], [`walks`], [`scans`]), exact ones too ([`nearest`]), what builds do there
//! ([`losses`]), and how they are reached ([`card`]).
//!
//! A card is met as a device is: a query hands it what has arrived, suspends, and goes on when the card has answered; what many
//! queries have handed over meanwhile is one launch. Kernels are CUDA C++ in `kernels/`, with the PTX that was made of them
//! beside them; nothing of CUDA is needed to build this, and the driver is opened when a card is asked for. Tests run the same
//! sources without a card: `crates/simt`.

pub mod card;
#[cfg(feature = "driver")]
mod cuda;
mod error;
mod exact;
pub mod graph;
pub mod hops;
pub mod losses;
pub mod nearest;
pub mod pages;
pub mod scans;
mod service;
pub mod walks;

pub use card::{Card, DeviceChoice};
pub use error::GpuError;
pub use exact::{Exact, VectorUpload, Vectors};
pub use service::{CardCounters, MOST_MINI_BATCH, slots};
