//! What reads a collection.

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
The recall that is asked for is that of the rows that match: fewer than k are found only where fewer match.

Examples:
  bathyal collection search my.collection queries.fbin -k 10 --filter \"year >= 2020 and lang in ('de', 'en') and not archived\"
  bathyal collection search my.collection --vector 0.1,0.7,0.2 --columns year,lang
  bathyal collection search my.collection queries.npy --filter '{\"year\": {\"$gte\": 2020}}' --output found.jsonl
  bathyal collection search my.collection queries.fbin --filter \"year = 2020\" --explain")]
pub struct CollectionSearchArguments {
    /// The collection
    pub collection: PathBuf,
    /// Queries: a file of vectors with the field's dim and element
    #[arg(required_unless_present = "vector")]
    pub queries: Option<PathBuf>,
    /// A query, typed
    #[arg(
        long,
        value_name = "NUMBER,NUMBER,...",
        value_delimiter = ',',
        allow_hyphen_values = true,
        conflicts_with = "queries"
    )]
    pub vector: Option<Vec<f32>>,
    /// The field of vectors that is searched [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub field: Option<String>,
    /// Neighbours a query
    #[arg(short, long, default_value_t = DEFAULT_K, value_parser = RangedU64ValueParser::<u32>::new().range(1..=MAX_K))]
    pub k: u32,
    /// Which rows may be found, in words or in JSON [default: all]
    #[arg(long, value_name = "FILTER", value_parser = parse_filter)]
    pub filter: Option<Filter>,
    /// The columns that are wanted of what is found [default: all]
    #[arg(long, value_name = "COLUMN,COLUMN,...", value_delimiter = ',')]
    pub columns: Option<Vec<String>>,
    /// Give the vectors of what is found, too
    #[arg(long)]
    pub vectors: bool,
    /// Recall to aim for; the collection knows the effort that it takes [default: 0.95]
    #[arg(long, conflicts_with = "search_list", value_parser = parse_recall)]
    pub recall: Option<f32>,
    /// Effort instead of recall: size of the candidate list of each segment, at least k
    #[arg(long, value_name = "L", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub search_list: Option<u32>,
    /// Threads; 0 or auto means all cores
    #[arg(long, default_value = "0", value_parser = parse_threads)]
    pub threads: usize,
    /// Say how each part of the collection is searched, and why
    #[arg(long)]
    pub explain: bool,
    /// Queries, the first ones, whose neighbours are printed (with --json under results); --output writes all
    #[arg(long, value_name = "QUERIES", default_value_t = DEFAULT_SHOWN_QUERIES)]
    pub show: u32,
    /// Write what is found to this file: .jsonl, an object for each query
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// How it is opened
    #[command(flatten)]
    pub open: OpenArguments,
    /// What is typed instead
    #[command(flatten)]
    slips: CollectionSearchSlips,
}

/// `bathyal collection get`.
#[derive(Debug, Args)]
#[command(after_help = "\
Rows are printed as JSON, one on each line. An id of which there is no row makes it fail, after the others.

Examples:
  bathyal collection get my.collection a b
  bathyal collection get my.collection --ids wanted.txt --columns year --vectors")]
pub struct CollectionGetArguments {
    /// The collection
    pub collection: PathBuf,
    /// The ids of the rows
    #[arg(value_name = "ID", required_unless_present = "file")]
    pub ids: Vec<String>,
    /// A file of ids: .npy of whole numbers, or text with an id on each line; all of them, after those that are typed
    #[arg(id = "file", long = "ids", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The columns that are wanted [default: all]
    #[arg(long, value_name = "COLUMN,COLUMN,...", value_delimiter = ',')]
    pub columns: Option<Vec<String>>,
    /// Give the vectors, too
    #[arg(long)]
    pub vectors: bool,
    /// How it is opened
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
    /// Which rows, in words or in JSON [default: all]
    #[arg(long, value_name = "FILTER", value_parser = parse_filter)]
    pub filter: Option<Filter>,
    /// How it is opened
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `bathyal collection inspect` and `verify`.
#[derive(Debug, Args)]
pub struct LookArguments {
    /// The collection
    pub collection: PathBuf,
    /// How it is opened
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `bathyal collection export`.
#[derive(Debug, Args)]
#[command(after_help = "\
Rows are written as they are when it begins, in the order of their ids. `add` reads what it writes, and `create --like` makes a
collection with the same schema. A file of vectors alone has the ids in a file beside it.

Examples:
  bathyal collection export my.collection rows.parquet
  bathyal collection export my.collection new.jsonl --filter \"year >= 2024\" --columns year,lang
  bathyal collection export my.collection base.fbin --ids names.txt")]
pub struct ExportArguments {
    /// The collection
    pub collection: PathBuf,
    /// File to write: .parquet .arrow .jsonl, or vectors alone: .fbin .npy and the others; what was there is replaced
    pub output: PathBuf,
    /// Which rows, in words or in JSON [default: all]
    #[arg(long, value_name = "FILTER", value_parser = parse_filter)]
    pub filter: Option<Filter>,
    /// The columns that are written [default: all]
    #[arg(long, value_name = "COLUMN,COLUMN,...", value_delimiter = ',')]
    pub columns: Option<Vec<String>>,
    /// The fields of vectors that are written [default: all]
    #[arg(
        long = "fields",
        value_name = "FIELD,FIELD,...",
        value_delimiter = ',',
        conflicts_with = "no_vectors"
    )]
    pub fields: Option<Vec<String>>,
    /// Leave vectors out
    #[arg(long)]
    pub no_vectors: bool,
    /// Where the ids go of a file of vectors alone: .npy, or text with an id on each line [default: beside it]
    #[arg(long, value_name = "FILE")]
    pub ids: Option<PathBuf>,
    /// How it is opened
    #[command(flatten)]
    pub open: OpenArguments,
}

/// `bathyal collection copy`.
#[derive(Debug, Args)]
#[command(after_help = "\
The copy holds what was there when it began. A copy that was killed goes on where it was when the same command is given again.

Examples:
  bathyal collection copy my.collection s3://bucket/my.collection
  bathyal collection copy s3://bucket/my.collection here.collection")]
pub struct CollectionCopyArguments {
    /// The collection that is read: a folder or an address
    pub collection: PathBuf,
    /// Where the copy goes: a folder or an address where nothing is
    pub output: PathBuf,
    /// How the stores are reached
    #[command(flatten)]
    pub stores: TwoStoresArguments,
}

/// `bathyal collection repair`.
#[derive(Debug, Args)]
#[command(after_help = "\
All that is whole is put into a new collection; the damaged one is only read. Segments without a fault are copied, of others each row
that is whole is written anew, and batches of the log are applied that are whole. The command says what is lost, and fails (exit code
3) if anything is, although the new collection is there. Nobody should write to the damaged one meanwhile.

Examples:
  bathyal collection repair my.collection --to repaired.collection
  bathyal collection repair my.collection --to repaired.collection --lost-ids lost.jsonl --json")]
pub struct CollectionRepairArguments {
    /// The damaged collection: a folder or an address
    pub collection: PathBuf,
    /// Where the new one goes: a folder or an address where nothing is
    #[arg(long, value_name = "COLLECTION")]
    pub to: PathBuf,
    /// Write the ids of rows that are lost, as far as they are known, to this file: JSON lines, `{"id": ...}` on each
    #[arg(long, value_name = "FILE")]
    pub lost_ids: Option<PathBuf>,
    /// Keep rows of which it is not known whether they were deleted or replaced: of segments whose list of deleted rows is damaged, of
    /// those that only versions name which cannot be read (such as a large batch), and of all where no version can be read
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
