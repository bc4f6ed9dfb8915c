//! Addresses and options of stores, and the connection to them.

#[cfg(feature = "client")]
mod aws_profile;
#[cfg(feature = "client")]
mod builders;
mod cache;
mod options;
mod url;

#[cfg(feature = "client")]
pub(crate) use builders::connect;
pub use cache::{CacheOptions, CachePolicy, CacheStatus};
pub use options::StoreOptions;
#[cfg(feature = "client")]
pub(crate) use url::MOST_KEY_BYTES;
pub use url::ObjectUrl;
