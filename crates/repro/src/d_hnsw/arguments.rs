//! What can be typed after `bathyal-repro d-hnsw`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use bathyal_console::typed::parse_device;
use bathyal_index::families::partitioned::{DEFAULT_PARTITION_VECTORS, DEFAULT_PROBES};
use bathyal_kernels::Metric;
use bathyal_tier::layer::delay::DelayProfile;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde::Serialize;

use crate::sets::{Given, Set, SetFacts};

/// Queries of a batch (section 4).
const PAPER_BATCH: u32 = 2000;
/// Queries that are taken by default: five batches of the paper's.
const QUERIES: u32 = 10_000;
/// Times that each cell is measured: a median of three survives one that was disturbed.
const REPEATS: u32 = 3;
/// Vectors, queries, queries of a batch and vectors of a partition of a run that is only to show that everything works.
const QUICK: Quick = Quick { vectors: 4000, queries: 400, batch: 200, partition_vectors: 50 };

struct Quick {
    vectors: u32,
    queries: u32,
    batch: u32,
    partition_vectors: u32,
}

/// A part of what is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Latency over recall of the paper's schemes and ours; batches, doorbells, caches.
    Schemes,
    /// Sub-indexes and other families, asked for recalls.
    Families,
    /// Inserts until there are twice as many vectors.
    Inserts,
}

/// `bathyal-repro d-hnsw`.
#[derive(Debug, Args)]
#[command(after_help = "\
Indexes are built once into the work folder and used again. Each is copied into a memory node in this process and searched through
a network card that is emulated: its latency, its link, and doorbell batches. Everything that was measured says so; recall, round
trips, reads and bytes are exact.

Examples:
  bathyal-repro d-hnsw --base base.u8bin --query queries.u8bin --work d-hnsw-work --output report
  bathyal-repro d-hnsw --base sift.fbin --query sift-queries.fbin --base gist.fbin --query gist-queries.fbin
  bathyal-repro d-hnsw --base base.fbin --query queries.fbin --quick")]
pub struct DhnswArguments {
    /// Vectors; given again for each further set
    #[arg(long, value_name = "FILE", required = true)]
    pub base: Vec<PathBuf>,
    /// Queries, with the same dim and element; as many files as of vectors
    #[arg(long, value_name = "FILE", required = true)]
    pub query: Vec<PathBuf>,
    /// Exact neighbours of the queries, of all vectors; none or as many files as of vectors
    /// [default: computed once, kept in the work folder]
    #[arg(long, value_name = "FILE")]
    pub groundtruth: Vec<PathBuf>,
    /// Folder of indexes, made if it is not there
    #[arg(long, value_name = "FOLDER", default_value = "d-hnsw-work")]
    pub work: PathBuf,
    /// Folder of the records, made if it is not there
    #[arg(long, value_name = "FOLDER", default_value = "d-hnsw")]
    pub output: PathBuf,
    /// Take the first N vectors only [default: all]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(100..))]
    pub vectors: Option<u32>,
    /// Take the first N queries only [default: 10000]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub queries: Option<u32>,
    /// What near means
    #[arg(long, default_value_t = Metric::L2)]
    pub metric: Metric,
    /// Neighbours a query, of each curve
    #[arg(short, value_name = "K,...", value_delimiter = ',', default_value = "1,10",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=100))]
    pub k: Vec<u32>,
    /// Sub-indexes that a query searches (b)
    #[arg(long, value_name = "N", default_value_t = DEFAULT_PROBES, value_parser = RangedU64ValueParser::<u32>::new().range(1..=1000))]
    pub probes: u32,
    /// Vectors of a sub-index, on average [default: 2000, as 500 sub-indexes of a million have]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(8..=1_000_000))]
    pub partition_vectors: Option<u32>,
    /// Queries of a batch [default: 2000]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..=100_000))]
    pub batch: Option<u32>,
    /// Reads of a doorbell batch
    #[arg(long, value_name = "N", default_value = "16")]
    pub doorbell: NonZeroU32,
    /// Share of the sub-indexes that is kept
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = parse_share)]
    pub cache_share: f64,
    /// The network card that is emulated: the name of a device, or a JSON file with its profile
    #[arg(long, value_name = "PROFILE", default_value = "connectx6", value_parser = parse_device)]
    pub emulate: DelayProfile,
    /// Times that each cell is measured; the one of median time is reported [default: 3]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..=100))]
    pub repeats: Option<u32>,
    /// What is measured: the paper's schemes, other families on the same network, inserts [default: all]
    #[arg(long, value_name = "PART,...", value_delimiter = ',', value_enum)]
    pub parts: Vec<Part>,
    /// Everything on little data for a moment, to see that it works
    #[arg(long)]
    pub quick: bool,
}

/// What the line about the run says.
#[derive(Debug, Serialize)]
pub(super) struct Details<'a> {
    sets: Vec<SetFacts<'a>>,
    metric: &'static str,
    probes: u32,
    partition_vectors: u32,
    batch: usize,
    doorbell: NonZeroU32,
    cache_share: f64,
    repeats: u32,
    device: Device<'a>,
}

/// The network card that is emulated.
#[derive(Debug, Serialize)]
struct Device<'a> {
    name: &'a str,
    latency_ns: u64,
    bandwidth_bytes_per_s: f64,
}

impl DhnswArguments {
    /// What the line about the run says of these arguments and of the sets that they name.
    pub(super) fn details<'a>(&'a self, sets: &'a [Set]) -> Details<'a> {
        let DelayProfile { name, latency_ns, bandwidth_bytes_per_s, .. } = &self.emulate;
        Details {
            sets: sets.iter().map(Set::facts).collect(),
            metric: self.metric.name(),
            probes: self.probes,
            partition_vectors: self.subindex_vectors(),
            batch: self.batch_queries(),
            doorbell: self.doorbell,
            cache_share: self.cache_share,
            repeats: self.cell_repeats(),
            device: Device { name, latency_ns: *latency_ns, bandwidth_bytes_per_s: *bandwidth_bytes_per_s },
        }
    }

    /// The sets that are measured.
    pub(super) fn given(&self) -> Given<'_> {
        Given {
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

    /// Whether a part is measured.
    pub(super) fn has(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }

    /// Queries of a batch.
    pub(super) fn batch_queries(&self) -> usize {
        self.batch.unwrap_or(if self.quick { QUICK.batch } else { PAPER_BATCH }) as usize
    }

    /// Vectors of a sub-index.
    pub(super) fn subindex_vectors(&self) -> u32 {
        self.partition_vectors.unwrap_or(if self.quick {
            QUICK.partition_vectors
        } else {
            DEFAULT_PARTITION_VECTORS
        })
    }

    /// How often a cell is measured.
    pub(super) fn cell_repeats(&self) -> u32 {
        self.repeats.unwrap_or(if self.quick { 1 } else { REPEATS })
    }

    /// The neighbours of the curves, from few to many.
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
        _ => Err("is a share of the sub-indexes above 0 and at most 0.9, for example 0.1".into()),
    }
}
