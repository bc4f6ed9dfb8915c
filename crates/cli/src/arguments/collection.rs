//! `bathyal collection`: what can be typed after it.

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
A collection holds rows: each has an id, a vector (or several), and columns of metadata. Rows are added, replaced and deleted at
any time; what a command has written outlives a crash. One process writes at a time, any number read.

Example, from nothing to answers:
  bathyal collection create my.collection --vector embedding:4 --column year:int64 --column lang:string
  echo '{\"id\": \"a\", \"vector\": [0.1, 0.7, 0.2, 0.4], \"year\": 2021, \"lang\": \"de\"}' | bathyal collection add my.collection -
  bathyal collection search my.collection --vector 0.1,0.7,0.2,0.4 --filter \"year >= 2020 and lang in ('de', 'en')\"")]
pub enum CollectionCommand {
    /// Create a collection
    Create(CreateArguments),
    /// Add the rows of a file; an id that is there already is refused
    #[command(visible_alias = "import")]
    Add(RowsArguments),
    /// Add the rows of a file, or replace those with their ids
    Upsert(RowsArguments),
    /// Change the metadata of rows: the columns that a file has of them
    Update(UpdateArguments),
    /// Delete rows by their ids, or those that match a filter
    Delete(CollectionDeleteArguments),
    /// Print rows by their ids
    Get(CollectionGetArguments),
    /// Search for the rows whose vectors are nearest, among those that match a filter
    Search(CollectionSearchArguments),
    /// Count rows, or those that match a filter
    Count(CountArguments),
    /// Write all rows into one segment and give the space of deleted rows back
    Compact(CollectionCompactArguments),
    /// Say what a collection is made of: schema, rows, segments, sizes
    Inspect(LookArguments),
    /// Read every byte of a collection and say whether all is well
    Verify(LookArguments),
    /// Write rows to a file
    Export(ExportArguments),
    /// Copy a collection to another place, while others go on writing
    Copy(CollectionCopyArguments),
    /// Put all that is whole of a damaged collection into a new one, and say what is lost
    Repair(CollectionRepairArguments),
}
