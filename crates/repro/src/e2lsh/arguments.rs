//! Command-line arguments of `bathyal-repro e2lsh`.

use std::path::PathBuf;

use bathyal_console::typed::{parse_profile, parse_ratio};
use bathyal_tier::TierProfile;
use clap::Args;
use clap::builder::RangedU64ValueParser;

/// The paper's tables for SIFT (table 4).
const PAPER_TABLES: u32 = 25;
/// Overall ratio of the paper's comparisons (section 3.2).
const PAPER_RATIO: f32 = 1.05;
/// Default width of a hash, in units of the radius: near it the theory's exponent is smallest, at a ratio of
/// 2.
const DEFAULT_WIDTH: f64 = 4.0;
/// Default number of repeats of speed measurements.
const REPEATS: u32 = 5;
/// Default number of queries: with a thousand, a ratio is exact to about 0.001.
const QUERIES: u32 = 1000;
/// Default number of queries for synchronous reads: each waits for about a hundred reads, so a run takes
/// seconds.
const SYNCHRONOUS_QUERIES: u32 = 200;

/// Arguments of `bathyal-repro e2lsh`.
#[derive(Debug, Args)]
#[command(after_help = "\
The paper's hash tables are built in the work folder for each gamma; those of the best gamma are
kept until the end. For a million vectors they take some 8 GB there, and as much memory while they
are measured in memory. The devices of tables 2 and 3 are emulated in real time on top of DRAM
(docs/emulated-devices.md), and every result states that.

Examples:
  bathyal-repro e2lsh base.u8bin queries.u8bin --groundtruth gt.ibin --work lsh --output report
  bathyal-repro e2lsh base.fbin queries.fbin --tables 12 --gammas 0.3,0.5 \\
      --sizes 1000,10000 --repeats 3")]
pub struct E2lshArguments {
    /// Vectors
    pub data: PathBuf,
    /// Queries, with the same dim and element
    pub queries: PathBuf,
    /// Exact neighbours of the queries among the vectors that are used, with distances [default: computed
    /// once, kept in the work folder]
    #[arg(long, value_name = "GT")]
    pub groundtruth: Option<PathBuf>,
    /// Folder of indexes, created if it does not exist
    #[arg(long, value_name = "FOLDER", default_value = "e2lsh-work")]
    pub work: PathBuf,
    /// Folder of the records, created if it does not exist
    #[arg(long, value_name = "FOLDER", default_value = "e2lsh")]
    pub output: PathBuf,
    /// Use only the first N vectors
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(2..))]
    pub vectors: Option<u32>,
    /// Use only the first N queries
    #[arg(long = "first-queries", value_name = "N", default_value_t = QUERIES,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub first_queries: u32,
    /// Queries for the measurement of synchronous reads
    #[arg(long, value_name = "N", default_value_t = SYNCHRONOUS_QUERIES,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub synchronous_queries: u32,
    /// Neighbours per query; the parameters are chosen for the first number
    #[arg(short, value_name = "K,K,...", value_delimiter = ',', default_value = "1,10,100",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=1000))]
    pub k: Vec<u32>,
    /// Overall ratio for all comparisons
    #[arg(long, default_value_t = PAPER_RATIO, value_parser = parse_ratio)]
    pub ratio: f32,
    /// Hash tables per radius (L)
    #[arg(long, value_name = "L", default_value_t = PAPER_TABLES,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=1024))]
    pub tables: u32,
    /// Parallelism of a hash in units of the radius (w)
    #[arg(long, value_name = "W", default_value_t = DEFAULT_WIDTH, value_parser = parse_width)]
    pub width: f64,
    /// Number of values in a compound hash, in units of log n / log(1/p2)
    #[arg(long, value_name = "GAMMA,...", value_delimiter = ',', default_value = "0.3,0.4,0.5,0.6",
          value_parser = parse_gamma)]
    pub gammas: Vec<f64>,
    /// Bits of a hash value that select a slot of a table (u) [default: 4 fewer than an id has]
    #[arg(long, value_name = "U", value_parser = RangedU64ValueParser::<u32>::new().range(1..=28))]
    pub slot_bits: Option<u32>,
    /// Further block sizes for figure 3, in bytes; everything else uses 512
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', default_value = "128,256,1024,4096",
          value_parser = RangedU64ValueParser::<u32>::new().range(64..=65536))]
    pub block_sizes: Vec<u32>,
    /// Numbers of vectors for figure 14, besides all of them
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "10000,31623,100000,316228",
          value_parser = RangedU64ValueParser::<u32>::new().range(100..))]
    pub sizes: Vec<u32>,
    /// Microseconds that SRS takes for a query in memory on this machine at the ratio, for the first k:
    /// figures 4 to 6 and 11 are relative to it
    #[arg(long, value_name = "US")]
    pub srs_us: Option<f64>,
    /// Queries interleaved on each thread
    #[arg(long, value_name = "QUERIES", default_value_t = 32,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=1024))]
    pub in_flight: u32,
    /// Repeats of speed measurements, which take turns; reports have the medians
    #[arg(long, default_value_t = REPEATS, value_parser = RangedU64ValueParser::<u32>::new().range(1..=1000))]
    pub repeats: u32,
    /// Profile of the work folder's device, as written by `bathyal probe FOLDER --output FILE`, for the model
    #[arg(long, value_name = "FILE", value_parser = parse_profile)]
    pub file_profile: Option<TierProfile>,
    /// Seed of the hash functions
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

fn parse_width(text: &str) -> Result<f64, String> {
    positive(text, "the width of a hash, in units of the radius, must be more than 0, for example 4")
}

fn parse_gamma(text: &str) -> Result<f64, String> {
    positive(text, "gamma must be more than 0, for example 0.5; 1 gives the hashes of equation 5")
}

fn positive(text: &str, refusal: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number <= 1e6 => Ok(number),
        _ => Err(refusal.to_owned()),
    }
}
