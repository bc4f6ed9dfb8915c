//! The options of the subcommands that change a collection.

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
    /// Events that a written row survives: a power failure (disk), or only the end of the process (system),
    /// which is faster
    #[arg(long, value_name = "WHAT", default_value = "disk",
          value_parser = PossibleValuesParser::new(["disk", "system"]).map(|name| parse_durability(&name)))]
    pub durability: Durability,
    /// Memory for rows that are not in segments yet, for example 512MB [default: 128 MiB]
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub write_memory: Option<u64>,
    /// Memory that building the indexes of a segment may take [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub build_memory: Option<u64>,
    /// Memory that merging segments may take, which runs beside the writes [default: that of --build-memory]
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub compact_memory: Option<u64>,
    /// Most bytes of rows that merging reads per second, for example 50MB; 0 means no limit [default: 0]
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
A file has a column of ids, columns of vectors and columns of metadata, by name. If the collection has one \
vector field, its column may be called `vector`. In JSON lines every row is an object: {\"id\": \"a\", \
\"vector\": [0.1, 0.7], \"year\": 2021}. Rows of a file of vectors alone get their ids from --ids, or \
numbers from --first-id on.

A batch of rows is written whole or not at all. A command that fails prints how many of the first rows were \
written.

Examples:
  bathyal collection add my.collection rows.parquet
  bathyal collection upsert my.collection changed.jsonl
  bathyal collection add my.collection base.fbin --ids names.txt")]
pub struct RowsArguments {
    /// The collection
    pub collection: PathBuf,
    /// File of rows: .parquet .arrow .feather .jsonl, or vectors alone: .fbin .npy and the other formats of
    /// vectors; - for JSON lines from standard input
    pub rows: PathBuf,
    /// File of ids for a file of vectors: .npy of whole numbers, or text with an id per line
    #[arg(long, value_name = "FILE", conflicts_with = "first_id")]
    pub ids: Option<PathBuf>,
    /// Id of the first vector in a file of vectors; the others follow [default: 0]
    #[arg(long, value_name = "NUMBER")]
    pub first_id: Option<u64>,
    /// The column with the ids [default: id]
    #[arg(long, value_name = "COLUMN")]
    pub id_column: Option<String>,
    /// Columns of metadata to take [default: all]
    #[arg(long, value_name = "COLUMN,COLUMN,...", value_delimiter = ',')]
    pub columns: Option<Vec<String>>,
    /// Most rows in one batch [default: as many as make some megabytes]
    #[arg(long, value_name = "ROWS")]
    pub batch_rows: Option<NonZeroUsize>,
    /// How rows are written
    #[command(flatten)]
    pub write: WriteArguments,
}

/// `bathyal collection update`.
#[derive(Debug, Args)]
#[command(after_help = "\
Columns that the file does not have are not changed, and neither are vectors: `upsert` replaces whole rows.

Examples:
  bathyal collection update my.collection years.parquet
  echo '{\"id\": \"a\", \"year\": 2022}' | bathyal collection update my.collection -")]
pub struct UpdateArguments {
    /// The collection
    pub collection: PathBuf,
    /// File with a column of ids and columns of metadata: .parquet .arrow .feather .jsonl; - for JSON lines
    /// from standard input
    pub rows: PathBuf,
    /// The column with the ids [default: id]
    #[arg(long, value_name = "COLUMN")]
    pub id_column: Option<String>,
    /// Columns to take [default: all]
    #[arg(long, value_name = "COLUMN,COLUMN,...", value_delimiter = ',')]
    pub columns: Option<Vec<String>>,
    /// Most rows in one batch [default: as many as make some megabytes]
    #[arg(long, value_name = "ROWS")]
    pub batch_rows: Option<NonZeroUsize>,
    /// How rows are written
    #[command(flatten)]
    pub write: WriteArguments,
}

/// `bathyal collection delete`.
#[derive(Debug, Args)]
#[command(after_help = "\
The command deletes all of them or none. Ids without a row are counted; they are not an error.

Examples:
  bathyal collection delete my.collection a b c
  bathyal collection delete my.collection --ids gone.txt
  bathyal collection delete my.collection --filter \"year < 2000 or archived\"")]
pub struct CollectionDeleteArguments {
    /// The collection
    pub collection: PathBuf,
    /// Ids of the rows
    #[arg(value_name = "ID", required_unless_present_any = ["file", "filter"])]
    pub ids: Vec<String>,
    /// File of ids, which follow those on the command line: .npy of whole numbers, or text with an id per
    /// line
    #[arg(id = "file", long = "ids", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Filter: delete the rows that match; in words or in JSON
    #[arg(long, value_name = "FILTER", value_parser = parse_filter, conflicts_with_all = ["ids", "file"])]
    pub filter: Option<Filter>,
    /// How rows are written
    #[command(flatten)]
    pub write: WriteArguments,
}

/// `bathyal collection compact`.
#[derive(Debug, Args)]
#[command(after_help = "\
Searches and writes continue meanwhile. Until it is done, a compaction needs disk space for the new segment. \
If it is stopped or killed, the collection is unchanged.

Example:
  bathyal collection compact my.collection --build-memory 2GB")]
pub struct CollectionCompactArguments {
    /// The collection
    pub collection: PathBuf,
    /// Merge only the segments that the collection would merge by itself
    #[arg(long)]
    pub light: bool,
    /// How the collection is written
    #[command(flatten)]
    pub write: WriteArguments,
}
