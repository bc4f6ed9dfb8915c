//! From an address to a store that answers.

mod aws_profile;
mod builders;
mod options;
mod url;

pub(crate) use builders::connect;
pub use options::StoreOptions;
pub(crate) use url::MOST_KEY_BYTES;
pub use url::ObjectUrl;
