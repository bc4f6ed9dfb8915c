//! `bathyal audit`.

use std::path::PathBuf;

use bathyal_collection::Filter;
use bathyal_index::{DEFAULT_K, DEFAULT_RECALL, MOST_AUDITED};
use clap::Args;
use clap::builder::RangedU64ValueParser;

use super::collection_open::parse_filter;
use super::pass::PassArguments;

/// `bathyal audit`.
#[derive(Debug, Args)]
#[command(after_help = "\
The queries are answered by searches for each recall, and exactly, by one pass over the index or over all \
rows of the collection. The answer \
has the recall that was found, with its 95% confidence interval. The exit code is 1 if a recall that was \
asked for lies above its interval. `bathyal calibrate` with such queries mends it. Of more than --queries, \
a sample is audited.

Examples:
  bathyal audit my.index queries.fbin
  bathyal audit my.index texts.fbin --recall 0.9,0.95,0.99 -k 100
  bathyal audit my.index texts.fbin --calibration build --json
  bathyal audit my.collection queries.fbin --filter \"year >= 2020\"")]
pub struct AuditArguments {
    /// The index or the collection
    pub index: PathBuf,
    /// File of queries: .fbin .f16bin .bf16bin .u8bin .i8bin .b1bin .fvecs .bvecs .npy
    pub queries: PathBuf,
    /// Recalls to ask for, separated by commas
    #[arg(long, value_name = "RECALLS", value_delimiter = ',', default_value = DEFAULT_RECALL.to_string())]
    pub recall: Vec<f32>,
    /// Neighbours per query
    #[arg(short, default_value_t = DEFAULT_K as u32,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub k: u32,
    /// Most queries to audit; of more, a sample is taken
    #[arg(long = "queries", value_name = "QUERIES", default_value_t = MOST_AUDITED as u32,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub count: u32,
    /// Calibration that gives the effort for a recall: a name of `bathyal calibrate --name`, or build for
    /// that of the build [default: as for `bathyal search`]
    #[arg(long, value_name = "NAME")]
    pub calibration: Option<String>,
    /// Vector field of a collection [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub field: Option<String>,
    /// Filter of a collection: the recall among the rows that match [default: all rows]
    #[arg(long, value_name = "FILTER", value_parser = parse_filter)]
    pub filter: Option<Filter>,
    /// How the index is opened and searched
    #[command(flatten)]
    pub pass: PassArguments,
}
