//! Indexes in object stores: Amazon S3 and what speaks its language, Google Cloud Storage, Azure, or the memory of this
//! process behind the same interface.
//!
//! * [`ObjectUrl`], [`StoreOptions`]: where a bucket is, and how it is reached.
//! * [`BucketStore`]: the [`Store`](bathyal_store::Store) whose generations lie in a bucket.
//! * [`tier`]: a tier whose reads are ranges of an object; near ones are one request.
//! * [`client`]: what sends requests: limits, retries, second requests for late ones.
//! * [`Cache`]: memory and local disk in front of all stores of a process.
//! * [`Shaper`]: makes any store as slow as one that is far away, for studies.
//!
//! The asynchronous runtime stays in here: callers are threads, and queries wait for a queue as of any other tier.

mod bucket;
mod cache;
pub mod client;
mod connect;
mod runtime;
mod shaper;
pub mod tier;

pub use bucket::{BucketStore, PruneOptions, Pruned};
pub use cache::{Cache, CacheOptions, CachePolicy, CacheStatus};
pub use connect::{ObjectUrl, StoreOptions};
pub use shaper::{Shaper, Shaping, SlowDown};
