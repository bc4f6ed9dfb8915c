//! The options of the subcommands that read a collection.

use std::path::PathBuf;

use bathyal_collection::Filter;
use bathyal_console::byte_size;
use bathyal_console::typed::{DEFAULT_K, MAX_K, parse_recall, parse_threads};
use clap::Args;
use clap::builder::RangedU64ValueParser;

use super::collection_open::{OpenArguments, parse_filter};
use super::search::DEFAULT_SHOWN_QUERIES;
use super::slips::CollectionSearchSlips;
use super::store::TwoStoresArguments;

/// `bathyal collection search`.
#[derive(Debug, Args)]
#[command(after_help = "\
--recall is the recall among the rows that match. A query finds fewer than k rows only if fewer match.

Examples:
  bathyal collection search my.collection queries.fbin -k 10 \\
      --filter \"year >= 2020 and lang in ('de', 'en') and not archived\"
  bathyal collection search my.collection --vector 0.1,0.7,0.2 --columns year,lang
  bathyal collection search my.collection queries.npy --output found.jsonl \\
      --filter '{\"year\": {\"$gte\": 2020}}'
  bathyal collection search my.collection queries.fbin --filter \"year = 2020\" --explain")]
pub struct CollectionSearchArguments {
    /// The collection
    pub collection: PathBuf,
    /// File of queries, with the field's dim and element
    #[arg(required_unless_present = "vector")]
    pub queries: Option<PathBuf>,
    /// One query, as numbers
    #[arg(
        long,
        value_name = "NUMBER,NUMBER,...",
        value_delimiter = ',',
        allow_hyphen_values = true,
        conflicts_with = "queries"
    )]
    pub vector: Option<Vec<f32>>,
    /// Vector field to search [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub field: Option<String>,
    /// Neighbours per query
    #[arg(short, long, default_value_t = DEFAULT_K,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=MAX_K))]
    pub k: u32,
    /// Filter: only rows that match are found; in words or in JSON [default: all rows]
    #[arg(long, value_name = "FILTER", value_parser = parse_filter)]
    pub filter: Option<Filter>,
    /// Columns to print for the rows found [default: all]
    #[arg(long, value_name = "COLUMN,COLUMN,...", value_delimiter = ',')]
    pub columns: Option<Vec<String>>,
    /// Print the vectors of the rows found, too
    #[arg(long)]
    pub vectors: bool,
    /// Recall to aim for; calibrations of the segments give the effort [default: 0.95]
    #[arg(long, value_parser = parse_recall)]
    pub recall: Option<f32>,
    /// Calibration that gives the effort for the recall: a name of `bathyal calibrate --name`, or build for
    /// those of the builds [default: the one named default, or else the largest effort of all]
    #[arg(long, value_name = "NAME", conflicts_with = "search_list")]
    pub calibration: Option<String>,
    /// Effort instead of recall: length of the candidate list in each segment, at least k
    #[arg(long, value_name = "L")]
    pub search_list: Option<u32>,
    /// Threads; 0 or auto means all cores
    #[arg(long, default_value = "0", value_parser = parse_threads)]
    pub threads: usize,
    /// Print how each part of the collection is searched, and why
    #[arg(long)]
    pub explain: bool,
    /// Number of queries whose neighbours are printed, from the first (with --json under results); --output
    /// writes those of all
    #[arg(long, value_name = "QUERIES", default_value_t = DEFAULT_SHOWN_QUERIES)]
    pub show: u32,
    /// Write the rows found to this file: .jsonl, with an object for each query
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// How the collection is opened
    #[command(flatten)]
    pub open: OpenArguments,
    /// Hidden options with names from other systems
    #[command(flatten)]
    slips: CollectionSearchSlips,
}

/// `bathyal collection get`.
#[derive(Debug, Args)]
#[command(after_help = "\
Rows are printed as JSON, one per line. If an id has no row, the command prints the other rows and fails.

Examples:
  bathyal collection get my.collection a b
  bathyal collection get my.collection --ids wanted.txt --columns year --vectors")]
pub struct CollectionGetArguments {
    /// The collection
    pub collection: PathBuf,
    /// Ids of the rows
    #[arg(value_name = "ID", required_unless_present = "file")]
    pub ids: Vec<String>,
    /// File of ids, which follow those on the command line: .npy of whole numbers, or text with an id per
    /// line
    #[arg(id = "file", long = "ids", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Columns to print [default: all]
    #[arg(long, value_name = "COLUMN,COLUMN,...", value_delimiter = ',')]
    pub columns: Option<Vec<String>>,
    /// Print the vectors, too
    #[arg(long)]
    pub vectors: bool,
    /// How the collection is opened
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `bathyal collection count`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bathyal collection count my.collection
  bathyal collection count my.collection --filter \"year is null or year < 2000\"")]
pub struct CountArguments {
    /// The collection
    pub collection: PathBuf,
    /// Filter: only rows that match; in words or in JSON [default: all rows]
    #[arg(long, value_name = "FILTER", value_parser = parse_filter)]
    pub filter: Option<Filter>,
    /// How the collection is opened
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `bathyal collection inspect` and `verify`.
#[derive(Debug, Args)]
pub struct LookArguments {
    /// The collection
    pub collection: PathBuf,
    /// How the collection is opened
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `bathyal collection export`.
#[derive(Debug, Args)]
#[command(after_help = "\
The file holds the rows at the time when the export begins, in the order of their ids. `add` reads such a \
file, and `create --like` creates a collection with its schema. The ids of a file of vectors alone go to a \
second file beside it.

Examples:
  bathyal collection export my.collection rows.parquet
  bathyal collection export my.collection new.jsonl --columns year,lang \\
      --filter \"year >= 2024\"
  bathyal collection export my.collection base.fbin --ids names.txt")]
pub struct ExportArguments {
    /// The collection
    pub collection: PathBuf,
    /// File to write: .parquet .arrow .jsonl, or vectors alone: .fbin .npy and the other formats of vectors;
    /// an existing file is replaced
    pub output: PathBuf,
    /// Filter: only rows that match; in words or in JSON [default: all rows]
    #[arg(long, value_name = "FILTER", value_parser = parse_filter)]
    pub filter: Option<Filter>,
    /// Columns to write [default: all]
    #[arg(long, value_name = "COLUMN,COLUMN,...", value_delimiter = ',')]
    pub columns: Option<Vec<String>>,
    /// Vector fields to write [default: all]
    #[arg(
        long = "fields",
        value_name = "FIELD,FIELD,...",
        value_delimiter = ',',
        conflicts_with = "no_vectors"
    )]
    pub fields: Option<Vec<String>>,
    /// Write no vectors
    #[arg(long)]
    pub no_vectors: bool,
    /// File for the ids that belong to a file of vectors alone: .npy, or text with an id per line [default:
    /// beside it]
    #[arg(long, value_name = "FILE")]
    pub ids: Option<PathBuf>,
    /// How the collection is opened
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `bathyal collection copy`.
#[derive(Debug, Args)]
#[command(after_help = "\
The copy holds the rows at the time when it began. After a kill, the same command continues it.

Examples:
  bathyal collection copy my.collection s3://bucket/my.collection
  bathyal collection copy s3://bucket/my.collection here.collection")]
pub struct CollectionCopyArguments {
    /// The collection to copy: a folder or an address
    pub collection: PathBuf,
    /// The copy: a folder or an address where nothing exists
    pub output: PathBuf,
    /// How the stores are reached
    #[command(flatten)]
    pub stores: TwoStoresArguments,
}

/// `bathyal collection repair`.
#[derive(Debug, Args)]
#[command(after_help = "\
All undamaged parts go into a new collection; the damaged one is only read. Undamaged segments are copied. \
From damaged segments, the undamaged rows are written anew. The undamaged batches of the log are applied. \
The command prints what is lost; if anything is lost, it fails (exit code 3) although the new collection \
exists. No process should write to the damaged collection meanwhile.

Examples:
  bathyal collection repair my.collection --to repaired.collection
  bathyal collection repair my.collection --to repaired.collection \\
      --lost-ids lost.jsonl --json")]
pub struct CollectionRepairArguments {
    /// The damaged collection: a folder or an address
    pub collection: PathBuf,
    /// The new collection: a folder or an address where nothing exists
    #[arg(long, value_name = "COLLECTION")]
    pub to: PathBuf,
    /// Write the known ids of lost rows to this file: JSON lines, each `{"id": ...}`
    #[arg(long, value_name = "FILE")]
    pub lost_ids: Option<PathBuf>,
    /// Keep rows that may have been deleted or replaced: rows of segments whose list of deleted rows is
    /// damaged, of segments that only unreadable versions name (such as a large batch), and of all segments
    /// if no version can be read
    #[arg(long)]
    pub keep_uncertain: bool,
    /// Memory that building the indexes of a segment may take [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub build_memory: Option<u64>,
    /// Threads of builds; 0 or auto means all cores
    #[arg(long, default_value = "0", value_parser = parse_threads)]
    pub threads: usize,
    /// How the stores are reached
    #[command(flatten)]
    pub stores: TwoStoresArguments,
}
