//! What an index consists of, and where it is kept: named immutable objects, published together.
//!
//! A [`Store`] holds generations by name. A [`Generation`] is a set of named objects that never change; one that is
//! being written is a [`Draft`], which appears under its name all at once or not at all ([`Draft::publish`]), and which
//! a later process can go on with when its writer was killed. An [`Object`] is read in ranges, or as a tier. What is changed
//! after that is appended to a [`Log`] of the generation.
//!
//! Nothing above this crate knows a path. [`local`] keeps a generation in a folder, [`memory`] in memory; [`faulty`]
//! stands in for a disk that fails, or loses power, where a test says so; [`stripe`] divides objects among several disks. All stores pass one [`conformance`] suite.

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
