//! `bathyal remove`.

use std::path::PathBuf;

use clap::Args;

use super::store::StoreArguments;

/// `bathyal remove`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bathyal remove my.index
  bathyal remove my.collection --yes
  bathyal remove s3://bucket/my.index --json --yes
  bathyal remove remote://HOST:PORT/my.index --store-option keys=keys --yes

The command removes the index or the collection with everything that belongs to it: parts of striped \
files, logs, older versions, and what interrupted builds have left. Other files in its folder stay there. \
It removes nothing else than indexes and collections, and none that is being changed. Open searches of \
local files, and of the memory of a node, go on; in a bucket they fail. After a kill, the index or the \
collection cannot be opened any more unless all of it is still there, and the same command removes the \
rest.")]
pub struct RemoveArguments {
    /// The index or the collection: a folder or an address
    pub target: PathBuf,
    /// Remove it without a question. Required if stdin or stderr is not a terminal
    #[arg(short, long)]
    pub yes: bool,
    /// How the store is reached
    #[command(flatten)]
    pub store: StoreArguments,
}
