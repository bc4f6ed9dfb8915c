//! What can be typed after `bathyal-repro cloud`.

use std::path::PathBuf;

use bathyal_kernels::Metric;
use bathyal_object::Shaping;
use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};

/// Vectors that are taken by default: indexes of all kinds are built in minutes, and lie in memory one after the other.
const VECTORS: u32 = 100_000;
/// Queries that recall and counters are of: recalls of a thousand are known to some 0.003.
const QUERIES: u32 = 1000;
/// Seconds that one measurement takes about; what is slower than that has fewer queries.
const SECONDS: f64 = 6.0;
/// Neighbours a query (section 5.1).
const PAPER_K: u32 = 10;
/// Vectors and queries of a run that is only to show that everything works.
const QUICK: (u32, u32) = (2000, 50);

/// The stores that can be emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreName {
    /// That of the paper: 31 ms, 20,000 GET/s, 5 Gbit/s.
    Paper,
    /// Amazon S3 in one region.
    S3,
    /// Amazon S3 Express One Zone.
    S3Express,
    /// A store in the same rack.
    Rack,
}

impl StoreName {
    /// What it is emulated by.
    pub(super) fn shaping(self) -> Shaping {
        match self {
            StoreName::Paper => Shaping::PAPER,
            StoreName::S3 => Shaping::S3,
            StoreName::S3Express => Shaping::S3_EXPRESS,
            StoreName::Rack => Shaping::RACK,
        }
    }

    /// The name that is typed.
    pub(super) fn name(self) -> &'static str {
        match self {
            StoreName::Paper => "paper",
            StoreName::S3 => "s3",
            StoreName::S3Express => "s3-express",
            StoreName::Rack => "rack",
        }
    }
}

/// `bathyal-repro cloud`.
#[derive(Debug, Args)]
#[command(after_help = "\
Indexes are built in the work folder, copied into an object store in the memory of this process, and searched through an
emulated network: a late first byte, a limit of requests a second, one link. All speeds are of that emulation, and the report
says so; recall, rounds, requests and bytes are exact.

Sets after the first are what low dimensions and small elements are measured on (figures 10 to 12). With one set they are
made of it: projected to fewer dimensions, and with bytes for floats (or floats for bytes).

Examples:
  bathyal-repro cloud --base base.fbin --query queries.fbin --work cloud --output report
  bathyal-repro cloud --base gist.fbin --query gist-queries.fbin --base deep.fbin --query deep-queries.fbin --vectors 1000000
  bathyal-repro cloud --base base.fbin --query queries.fbin --quick")]
pub struct CloudArguments {
    /// Vectors; given again for each further set
    #[arg(long, value_name = "FILE", required = true)]
    pub base: Vec<PathBuf>,
    /// Queries, with the same dim and element; as many files as of vectors
    #[arg(long, value_name = "FILE", required = true)]
    pub query: Vec<PathBuf>,
    /// Exact neighbours of the queries, of all vectors or of those that are used; none or as many files as of vectors
    /// [default: computed once, kept in the work folder]
    #[arg(long, value_name = "FILE")]
    pub groundtruth: Vec<PathBuf>,
    /// Folder of indexes, made if it is not there
    #[arg(long, value_name = "FOLDER", default_value = "cloud-work")]
    pub work: PathBuf,
    /// Folder of the records, made if it is not there
    #[arg(long, value_name = "FOLDER", default_value = "cloud")]
    pub output: PathBuf,
    /// Take the first N vectors only [default: 100000]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(100..))]
    pub vectors: Option<u32>,
    /// Queries that recall and counters are of; speeds are of the first of them [default: 1000]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub queries: Option<u32>,
    /// What near means
    #[arg(long, default_value_t = Metric::L2)]
    pub metric: Metric,
    /// Neighbours a query
    #[arg(short, default_value_t = PAPER_K, value_parser = RangedU64ValueParser::<u32>::new().range(1..=100))]
    pub k: u32,
    /// The store that is emulated [default: paper]
    #[arg(long, value_name = "STORE")]
    pub store: Option<StoreName>,
    /// Seconds that one speed is measured for, about [default: 6]
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub seconds: Option<f64>,
    /// Dimensions that the set of low dimension is projected to [default: a quarter]
    #[arg(long, value_name = "DIM", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub low_dim: Option<u32>,
    /// Numbers of vectors for figure 13, beside all
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "10000,31623,100000,316228",
          value_parser = RangedU64ValueParser::<u32>::new().range(100..))]
    pub sizes: Vec<u32>,
    /// Send requests that are late a second time, which the paper's systems do not
    #[arg(long)]
    pub hedge: bool,
    /// Seed of the emulated store
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Everything on little data for a moment, to see that it works; by default with a store in the same rack
    #[arg(long)]
    pub quick: bool,
}

impl CloudArguments {
    /// Vectors of a set, at most.
    pub(super) fn most_vectors(&self) -> u32 {
        self.vectors.unwrap_or(if self.quick { QUICK.0 } else { VECTORS })
    }

    /// Queries of a set, at most.
    pub(super) fn most_queries(&self) -> u32 {
        self.queries.unwrap_or(if self.quick { QUICK.1 } else { QUERIES })
    }

    /// The store that is emulated.
    pub(super) fn store_name(&self) -> StoreName {
        self.store.unwrap_or(if self.quick { StoreName::Rack } else { StoreName::Paper })
    }

    /// Seconds of one measurement, about.
    pub(super) fn cell_seconds(&self) -> f64 {
        self.seconds.unwrap_or(if self.quick { 0.02 } else { SECONDS })
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(seconds),
        _ => Err("is a number of seconds above 0, for example 10".into()),
    }
}
