//! Command-line arguments of `bathyal-repro cloud`.

use std::path::PathBuf;

use bathyal_kernels::Metric;
use bathyal_object::Shaping;
use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};

/// Default number of vectors: indexes of all kinds are built in minutes, and are in memory one at a time.
const VECTORS: u32 = 100_000;
/// Default number of queries for recall and counters: with a thousand, a recall is exact to about 0.003.
const QUERIES: u32 = 1000;
/// Approximate seconds of one measurement; slower searches run fewer queries.
const SECONDS: f64 = 6.0;
/// Neighbours per query (section 5.1).
const PAPER_K: u32 = 10;
/// Vectors and queries of a quick run, which only shows that everything works.
const QUICK: (u32, u32) = (2000, 50);

/// The object stores that can be emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreName {
    /// The paper's store: 31 ms, 20,000 GET/s, 5 Gbit/s.
    Paper,
    /// Amazon S3 in one region.
    S3,
    /// Amazon S3 Express One Zone.
    S3Express,
    /// A store in the same rack.
    Rack,
}

impl StoreName {
    /// Returns the delays and limits that emulate the store.
    pub(super) fn shaping(self) -> Shaping {
        match self {
            StoreName::Paper => Shaping::PAPER,
            StoreName::S3 => Shaping::S3,
            StoreName::S3Express => Shaping::S3_EXPRESS,
            StoreName::Rack => Shaping::RACK,
        }
    }

    /// Returns the name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            StoreName::Paper => "paper",
            StoreName::S3 => "s3",
            StoreName::S3Express => "s3-express",
            StoreName::Rack => "rack",
        }
    }
}

/// Arguments of `bathyal-repro cloud`.
#[derive(Debug, Args)]
#[command(after_help = "\
Indexes are built in the work folder, copied into an object store in the memory of this process,
and searched through an emulated network: a delayed first byte, a limit of requests per second,
and one link. All speeds are those of the emulation, and the report states that. Recall, rounds,
requests and bytes are exact.

Low dimensions and small elements (figures 10 to 12) are measured on all sets after the first. If
only one set is given, two are derived from it: one projected to fewer dimensions, and one with
bytes in place of floats (or floats in place of bytes).

Examples:
  bathyal-repro cloud --base base.fbin --query queries.fbin --work cloud --output report
  bathyal-repro cloud --base gist.fbin --query gist-queries.fbin --base deep.fbin \\
      --query deep-queries.fbin --vectors 1000000
  bathyal-repro cloud --base base.fbin --query queries.fbin --quick")]
pub struct CloudArguments {
    /// Vectors; repeat the option for each further set
    #[arg(long, value_name = "FILE", required = true)]
    pub base: Vec<PathBuf>,
    /// Queries, with the dim and element of the vectors; one file for each --base
    #[arg(long, value_name = "FILE", required = true)]
    pub query: Vec<PathBuf>,
    /// Exact neighbours of the queries, among all vectors or among those that are used; one file for each
    /// --base, or none [default: computed once, kept in the work folder]
    #[arg(long, value_name = "FILE")]
    pub groundtruth: Vec<PathBuf>,
    /// Folder of indexes, created if it does not exist
    #[arg(long, value_name = "FOLDER", default_value = "cloud-work")]
    pub work: PathBuf,
    /// Folder of the records, created if it does not exist
    #[arg(long, value_name = "FOLDER", default_value = "cloud")]
    pub output: PathBuf,
    /// Use only the first N vectors [default: 100000]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(100..))]
    pub vectors: Option<u32>,
    /// Queries for recall and counters; speeds use the first of them [default: 1000]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub queries: Option<u32>,
    /// Metric of the vectors
    #[arg(long, default_value_t = Metric::L2)]
    pub metric: Metric,
    /// Neighbours per query
    #[arg(short, default_value_t = PAPER_K, value_parser = RangedU64ValueParser::<u32>::new().range(1..=100))]
    pub k: u32,
    /// The emulated store [default: paper]
    #[arg(long, value_name = "STORE")]
    pub store: Option<StoreName>,
    /// Approximate seconds for measuring one speed [default: 6]
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub seconds: Option<f64>,
    /// Dimensions of the projected set [default: a quarter]
    #[arg(long, value_name = "DIM", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub low_dim: Option<u32>,
    /// Numbers of vectors for figure 13, besides all of them
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "10000,31623,100000,316228",
          value_parser = RangedU64ValueParser::<u32>::new().range(100..))]
    pub sizes: Vec<u32>,
    /// Send late requests a second time, which the paper's systems do not do
    #[arg(long)]
    pub hedge: bool,
    /// Seed of the emulated store
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Measure everything for a moment on little data, to see that it works; the default store is then the
    /// one in the same rack
    #[arg(long)]
    pub quick: bool,
}

impl CloudArguments {
    /// Returns the most vectors of a set.
    pub(super) fn most_vectors(&self) -> u32 {
        self.vectors.unwrap_or(if self.quick { QUICK.0 } else { VECTORS })
    }

    /// Returns the most queries of a set.
    pub(super) fn most_queries(&self) -> u32 {
        self.queries.unwrap_or(if self.quick { QUICK.1 } else { QUERIES })
    }

    /// Returns the emulated store.
    pub(super) fn store_name(&self) -> StoreName {
        self.store.unwrap_or(if self.quick { StoreName::Rack } else { StoreName::Paper })
    }

    /// Returns the approximate seconds of one measurement.
    pub(super) fn cell_seconds(&self) -> f64 {
        self.seconds.unwrap_or(if self.quick { 0.02 } else { SECONDS })
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(seconds),
        _ => Err("expected a number of seconds above 0 and at most 3600, for example 10".into()),
    }
}
