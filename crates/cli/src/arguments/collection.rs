//! The subcommands of `bathyal collection`.

use super::collection_change::{
    CollectionCompactArguments, CollectionDeleteArguments, RowsArguments, UpdateArguments,
};
use super::collection_create::CreateArguments;
use super::collection_read::{
    CollectionCopyArguments, CollectionGetArguments, CollectionRepairArguments, CollectionSearchArguments,
    CountArguments, ExportArguments, LookArguments,
};
use clap::Subcommand;

/// The commands on collections.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A collection holds rows: each has an id, a vector (or several), and columns of metadata. Rows can be added, \
replaced and deleted at any time, and a write survives a crash once its command has ended. One process \
writes at a time; any number read.

Example, from nothing to answers:
  bathyal collection create my.collection --vector embedding:4 \\
      --column year:int64 --column lang:string
  echo '{\"id\": \"a\", \"vector\": [0.1, 0.7, 0.2, 0.4], \"year\": 2021, \"lang\": \"de\"}' |
      bathyal collection add my.collection -
  bathyal collection search my.collection --vector 0.1,0.7,0.2,0.4 \\
      --filter \"year >= 2020 and lang in ('de', 'en')\"")]
pub enum CollectionCommand {
    /// Create a collection
    Create(CreateArguments),
    /// Add the rows of a file; fail if an id exists already
    #[command(visible_alias = "import")]
    Add(RowsArguments),
    /// Add the rows of a file, or replace those with their ids
    Upsert(RowsArguments),
    /// Change the metadata of rows: the columns that a file names
    Update(UpdateArguments),
    /// Delete rows by their ids, or those that match a filter
    Delete(CollectionDeleteArguments),
    /// Print rows by their ids
    Get(CollectionGetArguments),
    /// Find the rows with the nearest vectors, among those that match a filter
    Search(CollectionSearchArguments),
    /// Count rows, or those that match a filter
    Count(CountArguments),
    /// Merge all rows into one segment, and free the space of deleted rows
    Compact(CollectionCompactArguments),
    /// Describe a collection: schema, rows, segments, sizes
    Inspect(LookArguments),
    /// Read every byte of a collection and report damage
    Verify(LookArguments),
    /// Write rows to a file
    Export(ExportArguments),
    /// Copy a collection to another place, while other processes write to it
    Copy(CollectionCopyArguments),
    /// Save all undamaged parts of a collection into a new one, and print what is lost
    Repair(CollectionRepairArguments),
}
