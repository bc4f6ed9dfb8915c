//! Command-line arguments of `bathyal-repro d-hnsw`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use bathyal_console::typed::parse_device;
use bathyal_index::families::partitioned::{DEFAULT_PARTITION_VECTORS, DEFAULT_PROBES};
use bathyal_kernels::Metric;
use bathyal_tier::layer::delay::DelayProfile;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde::Serialize;

use crate::sets::{DataSet, SetArguments, SetFacts};

/// Queries per batch (section 4).
const PAPER_BATCH: u32 = 2000;
/// Default number of queries: five of the paper's batches.
const QUERIES: u32 = 10_000;
/// Default number of repeats of each measurement: the median of three is robust against one disturbed run.
const REPEATS: u32 = 3;
/// Vectors, queries, queries per batch and vectors per partition of a quick run, which only shows that
/// everything works.
const QUICK: Quick = Quick { vectors: 4000, queries: 400, batch: 200, partition_vectors: 50 };

struct Quick {
    vectors: u32,
    queries: u32,
    batch: u32,
    partition_vectors: u32,
}

/// A group of measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Latency over recall of the paper's schemes and ours; batches, doorbells, caches
    Schemes,
    /// Sub-indexes and other families at requested recalls
    Families,
    /// Inserts that double the number of vectors
    Inserts,
}

/// Arguments of `bathyal-repro d-hnsw`.
#[derive(Debug, Args)]
#[command(after_help = "\
Indexes are built once in the work folder and reused. Each is copied into a memory node in this
process and searched through an emulated network card: its latency, its link, and doorbell
batches. All measured times are marked as emulated; recall, round trips, reads and bytes are
exact.

Examples:
  bathyal-repro d-hnsw --base base.u8bin --query queries.u8bin --work d-hnsw-work --output report
  bathyal-repro d-hnsw --base sift.fbin --query sift-queries.fbin --base gist.fbin \\
      --query gist-queries.fbin
  bathyal-repro d-hnsw --base base.fbin --query queries.fbin --quick")]
pub struct DhnswArguments {
    /// Vectors; repeat the option for each further set
    #[arg(long, value_name = "FILE", required = true)]
    pub base: Vec<PathBuf>,
    /// Queries, with the dim and element of the vectors; one file for each --base
    #[arg(long, value_name = "FILE", required = true)]
    pub query: Vec<PathBuf>,
    /// Exact neighbours of the queries, among all vectors; one file for each --base, or none [default:
    /// computed once, kept in the work folder]
    #[arg(long, value_name = "FILE")]
    pub groundtruth: Vec<PathBuf>,
    /// Folder of indexes, created if it does not exist
    #[arg(long, value_name = "FOLDER", default_value = "d-hnsw-work")]
    pub work: PathBuf,
    /// Folder of the records, created if it does not exist
    #[arg(long, value_name = "FOLDER", default_value = "d-hnsw")]
    pub output: PathBuf,
    /// Use only the first N vectors [default: all]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(100..))]
    pub vectors: Option<u32>,
    /// Use only the first N queries [default: 10000]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub queries: Option<u32>,
    /// Metric of the vectors
    #[arg(long, default_value_t = Metric::L2)]
    pub metric: Metric,
    /// Neighbours per query, one number for each curve
    #[arg(short, value_name = "K,...", value_delimiter = ',', default_value = "1,10",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=100))]
    pub k: Vec<u32>,
    /// Sub-indexes that a query searches (b)
    #[arg(long, value_name = "N", default_value_t = DEFAULT_PROBES,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=1000))]
    pub probes: u32,
    /// Mean number of vectors per sub-index [default: 2000, as with 500 sub-indexes of a million vectors]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(8..=1_000_000))]
    pub partition_vectors: Option<u32>,
    /// Queries per batch [default: 2000]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..=100_000))]
    pub batch: Option<u32>,
    /// Most reads per doorbell batch
    #[arg(long, value_name = "N", default_value = "16")]
    pub doorbell: NonZeroU32,
    /// Share of the sub-indexes that the cache keeps
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = parse_share)]
    pub cache_share: f64,
    /// The emulated network card: the name of a device, or a JSON file with its profile
    #[arg(long, value_name = "PROFILE", default_value = "connectx6", value_parser = parse_device)]
    pub emulate: DelayProfile,
    /// Repeats of each measurement; the one with the median time is reported [default: 3]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..=100))]
    pub repeats: Option<u32>,
    /// The measurements: the paper's schemes, other families on the same network, inserts [default: all]
    #[arg(long, value_name = "PART,...", value_delimiter = ',', value_enum)]
    pub parts: Vec<Part>,
    /// Measure everything for a moment on little data, to see that it works
    #[arg(long)]
    pub quick: bool,
}

/// Details in the line about the run.
#[derive(Debug, Serialize)]
pub(super) struct DhnswDetails<'a> {
    sets: Vec<SetFacts<'a>>,
    metric: &'static str,
    probes: u32,
    partition_vectors: u32,
    batch: usize,
    doorbell: NonZeroU32,
    cache_share: f64,
    repeats: u32,
    device: EmulatedDevice<'a>,
}

/// The emulated network card, in the line about the run.
#[derive(Debug, Serialize)]
struct EmulatedDevice<'a> {
    name: &'a str,
    latency_ns: u64,
    bandwidth_bytes_per_s: f64,
}

impl DhnswArguments {
    /// Returns these arguments and the sets for the line about the run.
    pub(super) fn details<'a>(&'a self, sets: &'a [DataSet]) -> DhnswDetails<'a> {
        let DelayProfile { name, latency_ns, bandwidth_bytes_per_s, .. } = &self.emulate;
        DhnswDetails {
            sets: sets.iter().map(DataSet::facts).collect(),
            metric: self.metric.name(),
            probes: self.probes,
            partition_vectors: self.subindex_vectors(),
            batch: self.batch_queries(),
            doorbell: self.doorbell,
            cache_share: self.cache_share,
            repeats: self.cell_repeats(),
            device: EmulatedDevice {
                name,
                latency_ns: *latency_ns,
                bandwidth_bytes_per_s: *bandwidth_bytes_per_s,
            },
        }
    }

    /// Returns the options that select the sets.
    pub(super) fn set_arguments(&self) -> SetArguments<'_> {
        SetArguments {
            base: &self.base,
            query: &self.query,
            groundtruth: &self.groundtruth,
            work: &self.work,
            output: &self.output,
            vectors: self.vectors.or(self.quick.then_some(QUICK.vectors)),
            queries: self.queries.unwrap_or(if self.quick { QUICK.queries } else { QUERIES }),
            metric: self.metric,
            k: self.neighbours().last().copied().unwrap_or(1),
        }
    }

    /// Returns true if `part` is to be measured.
    pub(super) fn has(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }

    /// Returns the number of queries per batch.
    pub(super) fn batch_queries(&self) -> usize {
        self.batch.unwrap_or(if self.quick { QUICK.batch } else { PAPER_BATCH }) as usize
    }

    /// Returns the mean number of vectors per sub-index.
    pub(super) fn subindex_vectors(&self) -> u32 {
        self.partition_vectors.unwrap_or(if self.quick {
            QUICK.partition_vectors
        } else {
            DEFAULT_PARTITION_VECTORS
        })
    }

    /// Returns the number of repeats of each measurement.
    pub(super) fn cell_repeats(&self) -> u32 {
        self.repeats.unwrap_or(if self.quick { 1 } else { REPEATS })
    }

    /// Returns the numbers of neighbours of the curves, in ascending order.
    pub(super) fn neighbours(&self) -> Vec<u32> {
        let mut all = self.k.clone();
        all.sort_unstable();
        all.dedup();
        all
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 0.9 => Ok(share),
        _ => Err("expected a share above 0 and at most 0.9, for example 0.1".into()),
    }
}
