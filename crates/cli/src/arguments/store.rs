//! Options that say how object stores and memory nodes are reached.

use bathyal_console::Failure;
use bathyal_index::StoreOptions;
use clap::Args;

/// The options of one store.
#[derive(Clone, Debug, Default, Args)]
pub struct StoreArguments {
    /// Option of an object store or a memory node (may be repeated). For s3://, gs:// and az://: region,
    /// endpoint, access_key_id and the other settings that environment variables can give; max_requests,
    /// hedge, scratch, profile, price_reads, price_gigabyte, emulate; cache=FOLDER, cache_memory=SIZE,
    /// cache_disk=SIZE and cache_policy for a cache on this machine. For remote://: keys, token and peer_key
    /// (for several nodes, one value each, with commas between them), transport, doorbell, timeout, wait and
    /// scratch [default: from environment variables]
    #[arg(long = "store-option", value_name = "KEY=VALUE")]
    pub store_options: Vec<String>,
}

/// The options of two stores: one that is read and one that is written.
#[derive(Clone, Debug, Default, Args)]
pub struct TwoStoresArguments {
    /// Option of the store that is read (may be repeated); --store-option is for the store that is written
    #[arg(long = "from-store-option", value_name = "KEY=VALUE")]
    pub from_store_options: Vec<String>,
    /// The options of the store that is written
    #[command(flatten)]
    pub to: StoreArguments,
}

impl TwoStoresArguments {
    /// Returns the options of the store that is read.
    ///
    /// # Errors
    /// An unknown key or an invalid value.
    pub fn from(&self) -> Result<StoreOptions, Failure> {
        parse(&self.from_store_options)
    }
}

fn parse(texts: &[String]) -> Result<StoreOptions, Failure> {
    StoreOptions::parse(texts).map_err(|error| Failure::usage(error.to_string()))
}

impl StoreArguments {
    /// Returns the options as the library takes them.
    ///
    /// # Errors
    /// An unknown key or an invalid value.
    pub fn options(&self) -> Result<StoreOptions, Failure> {
        parse(&self.store_options)
    }
}
