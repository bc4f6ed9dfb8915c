//! Indexes in object stores: Amazon S3 and compatible stores, Google Cloud Storage, Azure, and a store in
//! this process's memory with the same interface.
//!
//! * [`ObjectUrl`], [`StoreOptions`]: the address of a bucket, and the options of its connection.
//! * `BucketStore`: the [`Store`](bathyal_store::Store) whose generations are in a bucket.
//! * `tier`: a tier whose reads are ranges of an object; near reads share one request.
//! * `client`: sends requests, with limits, retries and hedged requests.
//! * `Claims`: numbered objects by which processes agree on one of them.
//! * `Cache`: a cache in memory and on local disk in front of all stores of a process.
//! * [`Shaper`]: delays the requests to a store, to emulate a slower one in studies.
//!
//! The asynchronous runtime is private to this crate: callers are threads, and a query waits for a queue as
//! for that of any other tier.
//!
//! Without the feature `client`, the crate contains only addresses and options, and needs no network
//! libraries.

// Options of the client are parsed and stored without the feature `client`, too, but nothing reads them then.
#![cfg_attr(not(feature = "client"), allow(dead_code))]

#[cfg(feature = "client")]
mod bucket;
#[cfg(feature = "client")]
mod cache;
#[cfg(feature = "client")]
mod claims;
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
#[cfg(feature = "client")]
pub use claims::Claims;
pub use connect::{CacheOptions, CachePolicy, CacheStatus, ObjectUrl, StoreOptions};
pub use pruning::{PruneOptions, PruneReport};
pub use shaper::{Shaper, Shaping, SlowDown};

/// The largest gap in bytes between two reads that share a request: another request costs more than these
/// bytes on any link. Libraries that join ranges a megabyte apart read some 200 times the bytes that a beam
/// needs.
pub const GAP_BYTES: u64 = 16 << 10;
