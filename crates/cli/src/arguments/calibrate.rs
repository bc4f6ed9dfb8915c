//! `bathyal calibrate`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::RangedU64ValueParser;

use super::pass::PassArguments;

/// `bathyal calibrate`.
#[derive(Debug, Args)]
#[command(after_help = "\
An index is calibrated with vectors of its own data when it is built. Queries from another source, such as \
texts that search images, find less than the recall that they ask for. This command measures the recall of \
such queries, and searches use the result from then on. It changes nothing else, and takes seconds to \
minutes. Give some hundred queries or more; of more than --queries, a sample is measured.

All segments of a collection are calibrated at once. It keeps the queries, up to 1000, and measures every \
segment to come with them.

A search that names no calibration uses the one named `default`. If there is none, it takes the largest \
effort that any calibration of the index chooses.

Examples:
  bathyal calibrate my.index queries.fbin
  bathyal calibrate my.index texts.fbin --name text
  bathyal search my.index more-texts.fbin --recall 0.95 --calibration text
  bathyal calibrate my.index --remove text
  bathyal calibrate my.collection texts.fbin")]
pub struct CalibrateArguments {
    /// The index or the collection
    pub index: PathBuf,
    /// File of queries like those to come: .fbin .f16bin .bf16bin .u8bin .i8bin .b1bin .fvecs .bvecs .npy
    #[arg(required_unless_present = "remove")]
    pub queries: Option<PathBuf>,
    /// Name of the calibration; one of the same name is replaced
    #[arg(long, value_name = "NAME", default_value = bathyal_index::DEFAULT_CALIBRATION)]
    pub name: String,
    /// Vector field of a collection [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub field: Option<String>,
    /// Exact neighbours of the queries in an index, as `bathyal groundtruth` writes them [default: found by
    /// one pass over the index]
    #[arg(long, value_name = "IDS")]
    pub groundtruth: Option<PathBuf>,
    /// Most queries to measure; of more, a sample is taken
    #[arg(long = "queries", value_name = "QUERIES", default_value_t = 1000,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub count: u32,
    /// Remove the calibration of this name
    #[arg(long, value_name = "NAME", conflicts_with_all = ["queries", "name", "groundtruth", "count"])]
    pub remove: Option<String>,
    /// How the index is opened and searched
    #[command(flatten)]
    pub pass: PassArguments,
}
