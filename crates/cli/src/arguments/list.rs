//! `bathyal list`.

use std::path::PathBuf;

use clap::Args;

use super::store::StoreArguments;

/// `bathyal list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bathyal list
  bathyal list s3://bucket
  bathyal list s3://bucket/indexes --json
  bathyal list remote://HOST:PORT --store-option keys=keys

The command reads the manifest of each index, which is small. It does not search subfolders.")]
pub struct ListArguments {
    /// A folder, or the address of a bucket, of a folder in it or of a memory node [default: the current
    /// folder]
    #[arg(default_value = ".", hide_default_value = true)]
    pub place: PathBuf,
    /// How the store is reached
    #[command(flatten)]
    pub store: StoreArguments,
}
