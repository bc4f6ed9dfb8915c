//! `bathyal warm`.

use std::path::PathBuf;

use clap::Args;

use super::store::StoreArguments;

/// `bathyal warm`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bathyal warm s3://bucket/my.index --store-option cache=/mnt/nvme/blocks
  bathyal warm s3://bucket/my.index --store-option cache=/mnt/nvme/blocks --store-option cache_disk=200GB --all

Read are the files that are loaded when the index is opened (codes, centroids, ids, ...), and with --all the file of pages, too.
Searches find them with the same store options. What is there already is not asked for again.")]
pub struct WarmArguments {
    /// The index: an address in an object store
    pub index: PathBuf,
    /// Read the file of pages, too
    #[arg(long)]
    pub all: bool,
    /// Read so many bytes at most, for example 20GB [default: what the cache has room for]
    #[arg(long, value_name = "SIZE", value_parser = bathyal_console::byte_size::parse)]
    pub limit: Option<u64>,
    /// How the store is reached, and the cache: cache=FOLDER, cache_disk=SIZE
    #[command(flatten)]
    pub store: StoreArguments,
}
