//! How a store far away is reached.

use bathyal_console::Failure;
use bathyal_index::StoreOptions;
use clap::Args;

/// What is said of a store besides its address.
#[derive(Clone, Debug, Default, Args)]
pub struct StoreArguments {
    /// How the store of s3://, gs:// or az:// is reached (may be repeated): region, endpoint, access_key_id and whatever else
    /// the environment could say; max_requests, hedge, scratch, profile, price_reads, price_gigabyte, emulate; cache=FOLDER,
    /// cache_memory=SIZE, cache_disk=SIZE, cache_policy to keep on this machine what was read; of remote://, keys, token,
    /// peer_key (of several nodes one each, with commas between them), transport, doorbell, timeout, wait and scratch [default:
    /// as the environment says]
    #[arg(long = "store-option", value_name = "KEY=VALUE")]
    pub store_options: Vec<String>,
}

/// The same of two stores: one that is read, and one that is written.
#[derive(Clone, Debug, Default, Args)]
pub struct TwoStoresArguments {
    /// How the store that is read is reached, as --store-option says it of the one that is written
    #[arg(long = "from-store-option", value_name = "KEY=VALUE")]
    pub from_store_options: Vec<String>,
    /// How the store that is written is reached
    #[command(flatten)]
    pub to: StoreArguments,
}

impl TwoStoresArguments {
    /// The options of the store that is read.
    ///
    /// # Errors
    /// A value that makes no sense.
    pub fn from(&self) -> Result<StoreOptions, Failure> {
        parse(&self.from_store_options)
    }
}

fn parse(texts: &[String]) -> Result<StoreOptions, Failure> {
    StoreOptions::parse(texts).map_err(|error| Failure::usage(error.to_string()))
}

impl StoreArguments {
    /// As the library is told.
    ///
    /// # Errors
    /// A value that makes no sense.
    pub fn options(&self) -> Result<StoreOptions, Failure> {
        parse(&self.store_options)
    }
}
