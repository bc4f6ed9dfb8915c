//! `bathyal warm`.

use std::path::PathBuf;

use clap::Args;

use super::store::StoreArguments;

/// `bathyal warm`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bathyal warm s3://bucket/my.index --store-option cache=/mnt/nvme/blocks
  bathyal warm s3://bucket/my.collection --store-option cache=/mnt/nvme/blocks
  bathyal warm s3://bucket/my.index --all \\
      --store-option cache=/mnt/nvme/blocks --store-option cache_disk=200GB

The command reads the files that are loaded when the index is opened (codes, centroids, ids, ...), and with \
--all also the file of pages. Searches with the same store options find them in the cache. Blocks that the \
cache holds already are not requested again.")]
pub struct WarmArguments {
    /// The index or the collection, whose segments have indexes: an address in an object store
    pub index: PathBuf,
    /// Also read the file of pages
    #[arg(long)]
    pub all: bool,
    /// Most bytes to read, for example 20GB [default: as many as fit in the cache]
    #[arg(long, value_name = "SIZE", value_parser = bathyal_console::byte_size::parse)]
    pub limit: Option<u64>,
    /// How the store is reached, and the cache: cache=FOLDER, cache_disk=SIZE
    #[command(flatten)]
    pub store: StoreArguments,
}
