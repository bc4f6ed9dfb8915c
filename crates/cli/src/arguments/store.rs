//! How a store far away is reached.

use bathyal_console::Failure;
use bathyal_index::StoreOptions;
use clap::Args;

/// What is said of a store besides its address.
#[derive(Clone, Debug, Default, Args)]
pub struct StoreArguments {
    /// How the store of s3://, gs:// or az:// is reached (may be repeated): region, endpoint, access_key_id and whatever else
    /// the environment could say; max_requests, hedge, scratch, profile, emulate; cache=FOLDER, cache_memory=SIZE, cache_disk=SIZE, cache_policy to keep
    /// on this machine what was read [default: as the environment says]
    #[arg(long = "store-option", value_name = "KEY=VALUE")]
    pub store_options: Vec<String>,
}

impl StoreArguments {
    /// As the library is told.
    ///
    /// # Errors
    /// A value that makes no sense.
    pub fn options(&self) -> Result<StoreOptions, Failure> {
        StoreOptions::parse(&self.store_options).map_err(|error| Failure::usage(error.to_string()))
    }
}
