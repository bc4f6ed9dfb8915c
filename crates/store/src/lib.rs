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
mod keep_drafts;
pub mod local;
pub mod memory;
mod name;
pub mod size;
pub mod stripe;
mod traffic;

pub use cancel::CancelScope;
pub use contract::{
    Append, Backing, Draft, Durability, Generation, Log, LogWriter, Object, ProgressFn, Replace, Store,
};
pub use error::StoreError;
pub use extension::{DraftExt, GenerationExt, ObjectExt, ObjectReader, StoreExt};
pub use folder::default_cache_folder;
pub use keep_drafts::KeepDrafts;
pub use name::check_name;
pub use traffic::{COUNTED_ROUNDS, CacheCounts, CacheLevel, CacheUse, Prices, Requests, Traffic, round_name};
