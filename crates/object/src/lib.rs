//! Indexes in object stores: Amazon S3 and what speaks its language, Google Cloud Storage, Azure, or the memory of this
//! process behind the same interface.
//!
//! * [`ObjectUrl`], [`StoreOptions`]: where a bucket is, and how it is reached.
//! * `BucketStore`: the [`Store`](bathyal_store::Store) whose generations lie in a bucket.
//! * `tier`: a tier whose reads are ranges of an object; near ones are one request.
//! * `client`: what sends requests: limits, retries, second requests for late ones.
//! * `Cache`: memory and local disk in front of all stores of a process.
//! * [`Shaper`]: makes any store as slow as one that is far away, for studies.
//!
//! The asynchronous runtime stays in here: callers are threads, and queries wait for a queue as of any other tier.
//!
//! Without the feature `client` there are addresses and options alone, and none of the libraries that a network needs.

// What is said of a client is checked and kept without one, and read by nobody.
#![cfg_attr(not(feature = "client"), allow(dead_code))]

#[cfg(feature = "client")]
mod bucket;
#[cfg(feature = "client")]
mod cache;
#[cfg(feature = "client")]
pub mod client;
mod connect;
mod pruning;
#[cfg(feature = "client")]
mod runtime;
mod shaper;
#[cfg(feature = "client")]
pub mod tier;

#[cfg(feature = "client")]
pub use bucket::BucketStore;
#[cfg(feature = "client")]
pub use cache::Cache;
pub use connect::{CacheOptions, CachePolicy, CacheStatus, ObjectUrl, StoreOptions};
pub use pruning::{PruneOptions, Pruned};
pub use shaper::{Shaper, Shaping, SlowDown};

/// Bytes between two reads that are read with them: a request more costs more than so many bytes of any link. Libraries that
/// join ranges a megabyte apart read some two hundred times what a beam needs.
pub const GAP_BYTES: u64 = 16 << 10;
