//! What changes a collection.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use bathyal_collection::{Durability, Filter};
use bathyal_console::byte_size;
use bathyal_console::typed::parse_threads;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::collection_open::parse_filter;
use super::store::StoreArguments;

/// How a collection is written to.
#[derive(Clone, Debug, Args)]
pub struct WriteArguments {
    /// What a written row outlives: a power failure (disk), or the end of the process alone (system), which is faster
    #[arg(long, value_name = "WHAT", default_value = "disk",
          value_parser = PossibleValuesParser::new(["disk", "system"]).map(|name| parse_durability(&name)))]
    pub durability: Durability,
    /// Memory for rows that are not in segments yet, for example 512MB [default: 128 MiB]
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub write_memory: Option<u64>,
    /// Memory that building the indexes of a segment may take [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub build_memory: Option<u64>,
    /// The same where segments are merged, which happens beside the writes [default: that of --build-memory]
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub compact_memory: Option<u64>,
    /// Bytes of rows that merging reads a second at most, for example 50MB; 0 means as many as it can [default: 0]
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub compact_speed: Option<u64>,
    /// Threads of builds; 0 or auto means all cores
    #[arg(long, default_value = "0", value_parser = parse_threads)]
    pub threads: usize,
    /// How the store is reached
    #[command(flatten)]
    pub store: StoreArguments,
}

fn parse_durability(name: &str) -> Durability {
    if name == "system" { Durability::System } else { Durability::Disk }
}

/// `bathyal collection add` and `upsert`.
#[derive(Debug, Args)]
#[command(after_help = "\
A file has a column of ids, columns of vectors, and the columns of metadata, by name; where there is one field of vectors, its
column may be called `vector`. In JSON lines every row is an object: {\"id\": \"a\", \"vector\": [0.1, 0.7], \"year\": 2021}. A file
of vectors alone gets its ids from --ids, or numbers from --first-id on.

Each batch of rows is there whole or not at all. A command that fails says how many of the first rows were written.

Examples:
  bathyal collection add my.collection rows.parquet
  bathyal collection upsert my.collection changed.jsonl
  bathyal collection add my.collection base.fbin --ids names.txt")]
pub struct RowsArguments {
    /// The collection
    pub collection: PathBuf,
    /// Rows: .parquet .arrow .feather .jsonl, or vectors alone: .fbin .npy and the others; - for JSON lines from standard input
    pub rows: PathBuf,
    /// The ids of a file of vectors: .npy of whole numbers, or a text file with an id on each line
    #[arg(long, value_name = "FILE", conflicts_with = "first_id")]
    pub ids: Option<PathBuf>,
    /// The id of the first of a file of vectors; the others follow [default: 0]
    #[arg(long, value_name = "NUMBER")]
    pub first_id: Option<u64>,
    /// The column that has the ids [default: id]
    #[arg(long, value_name = "COLUMN")]
    pub id_column: Option<String>,
    /// The columns of metadata that are taken [default: all]
    #[arg(long, value_name = "COLUMN,COLUMN,...", value_delimiter = ',')]
    pub columns: Option<Vec<String>>,
    /// Rows that are written at once, at most [default: some megabytes of them]
    #[arg(long, value_name = "ROWS")]
    pub batch_rows: Option<NonZeroUsize>,
    /// How they are written
    #[command(flatten)]
    pub write: WriteArguments,
}

/// `bathyal collection update`.
#[derive(Debug, Args)]
#[command(after_help = "\
Columns that the file does not have stay as they are, and so do vectors: `upsert` replaces whole rows.

Examples:
  bathyal collection update my.collection years.parquet
  echo '{\"id\": \"a\", \"year\": 2022}' | bathyal collection update my.collection -")]
pub struct UpdateArguments {
    /// The collection
    pub collection: PathBuf,
    /// A file with a column of ids, and columns of metadata: .parquet .arrow .feather .jsonl; - for JSON lines from standard input
    pub rows: PathBuf,
    /// The column that has the ids [default: id]
    #[arg(long, value_name = "COLUMN")]
    pub id_column: Option<String>,
    /// The columns that are taken [default: all]
    #[arg(long, value_name = "COLUMN,COLUMN,...", value_delimiter = ',')]
    pub columns: Option<Vec<String>>,
    /// Rows that are written at once, at most [default: some megabytes of them]
    #[arg(long, value_name = "ROWS")]
    pub batch_rows: Option<NonZeroUsize>,
    /// How they are written
    #[command(flatten)]
    pub write: WriteArguments,
}

/// `bathyal collection delete`.
#[derive(Debug, Args)]
#[command(after_help = "\
All of them are deleted, or none. Ids of which there is no row are counted, and are no error.

Examples:
  bathyal collection delete my.collection a b c
  bathyal collection delete my.collection --ids gone.txt
  bathyal collection delete my.collection --filter \"year < 2000 or archived\"")]
pub struct CollectionDeleteArguments {
    /// The collection
    pub collection: PathBuf,
    /// The ids of the rows
    #[arg(value_name = "ID", required_unless_present_any = ["file", "filter"])]
    pub ids: Vec<String>,
    /// A file of ids: .npy of whole numbers, or text with an id on each line; all of them, after those that are typed
    #[arg(id = "file", long = "ids", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The rows that match this, in words or in JSON
    #[arg(long, value_name = "FILTER", value_parser = parse_filter, conflicts_with_all = ["ids", "file"])]
    pub filter: Option<Filter>,
    /// How they are written
    #[command(flatten)]
    pub write: WriteArguments,
}

/// `bathyal collection compact`.
#[derive(Debug, Args)]
#[command(after_help = "\
Searches and writes go on meanwhile. It takes the room of the new segment until it is done. Stopped or killed, the collection is
what it was.

Example:
  bathyal collection compact my.collection --build-memory 2GB")]
pub struct CollectionCompactArguments {
    /// The collection
    pub collection: PathBuf,
    /// Merge only the segments that a collection merges by itself
    #[arg(long)]
    pub light: bool,
    /// How it is written
    #[command(flatten)]
    pub write: WriteArguments,
}
