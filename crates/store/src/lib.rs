//! Stores of indexes: named immutable objects that are published together.
//!
//! A [`Store`] holds generations by name. A [`Generation`] is a set of named objects that never change. A
//! [`Draft`] is a generation that is being written: it appears under its name all at once or not at all
//! ([`Draft::publish`]), and a later process can continue it if its writer was killed. An [`Object`] is read
//! in ranges, or as a tier. Later changes are appended to a [`Log`] of the generation.
//!
//! Code above this crate uses no paths. [`local`] keeps a generation in a folder, [`memory`] in memory;
//! [`faulty`] is a disk for tests that fails or loses power at a chosen operation; [`stripe`] divides objects
//! among several disks. All stores pass one [`conformance`] suite.

mod cancel;
pub mod conformance;
mod contract;
pub mod disk;
mod error;
mod extension;
pub mod faulty;
mod folder;
mod leaving;
pub mod local;
pub mod memory;
mod name;
pub mod size;
pub mod stripe;
mod traffic;

pub use cancel::Cancelling;
pub use contract::{
    Append, Attend, Backing, Draft, Durability, Generation, Log, LogWriter, Object, Replace, Store,
};
pub use error::StoreError;
pub use extension::{DraftExt, GenerationExt, ObjectExt, ObjectReader, StoreExt};
pub use folder::usual_folder;
pub use leaving::Leaving;
pub use name::check_name;
pub use traffic::{CacheCounts, CacheLevel, CacheUse, Prices, Requests, TOLD_ROUNDS, Traffic, round_name};
