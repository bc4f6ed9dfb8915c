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

Of each index the manifest is read, which is small. Folders in folders are not looked into.")]
pub struct ListArguments {
    /// A folder, an address of a bucket or of a folder in it, or of a memory node [default: the folder where the command runs]
    #[arg(default_value = ".", hide_default_value = true)]
    pub place: PathBuf,
    /// How the store is reached
    #[command(flatten)]
    pub store: StoreArguments,
}
