//! Command-line arguments of `bathyal-repro second-tier`.

use std::path::PathBuf;

use bathyal_console::typed::{DEFAULT_K, MAX_K, parse_device, parse_profile, parse_recall};
use bathyal_index::families::spann::DEFAULT_CENTROID_SHARE;
use bathyal_kernels::Metric;
use bathyal_tier::TierProfile;
use bathyal_tier::layer::delay::DelayProfile;
use clap::builder::RangedU64ValueParser;
use clap::{Args, Subcommand, ValueEnum};

use crate::workload::Sources;

/// Recall of the paper's figures: "at least 90% across all experiments".
const PAPER_RECALL: f32 = 0.9;

/// Default queries in flight per thread in the figures: enough for the slowest of the emulated memories.
const PAPER_IN_FLIGHT: u32 = 16;

/// Default number of repeats of each measurement: the median of five is robust against two disturbed runs.
const REPRO_REPEATS: u32 = 5;

/// Default number of queries for searches of files: the slowest layouts answer only some 100 a second there.
const FILE_QUERIES: u32 = 1000;

/// The experiments of second-tier-memory.
#[derive(Debug, Subcommand)]
pub enum SecondTier {
    /// The graph on slow memory: figures 4 (upper half), 8 and 9, and the cost model's prediction for each
    /// measurement
    Graph(Box<GraphReproArguments>),
    /// Posting lists on slow memory: figures 4 (lower half), 10 and 12, and the cost model's prediction for
    /// each measurement
    Cluster(Box<ClusterReproArguments>),
    /// Graph against posting lists, size and speed: figure 13 and table 5, compared with groups whose codes
    /// are in memory
    Compare(Box<CompareReproArguments>),
}

/// The compared layouts of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GraphLayoutName {
    /// Whole records in pages.
    Padded,
    /// Records back to back.
    Csr,
}

impl GraphLayoutName {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            GraphLayoutName::Padded => "padded",
            GraphLayoutName::Csr => "csr",
        }
    }
}

/// The compared layouts of posting lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListLayoutName {
    /// A copy of a vector in each of its lists.
    Coupled,
    /// Lists of addresses, vectors stored once.
    Decoupled,
    /// Vectors stored once, in one of their lists; their addresses in the others.
    Grouped,
}

impl ListLayoutName {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ListLayoutName::Coupled => "coupled",
            ListLayoutName::Decoupled => "decoupled",
            ListLayoutName::Grouped => "grouped",
        }
    }
}

/// Arguments of every experiment: data, queries, devices, and conditions of the measurements.
#[derive(Debug, Args)]
pub struct TrialArguments {
    /// Vectors
    pub data: PathBuf,
    /// Queries, with the same dim and element
    pub queries: PathBuf,
    /// Exact neighbours of the queries among the vectors that are used [default: computed once, kept in the
    /// work folder]
    #[arg(long, value_name = "GT")]
    pub groundtruth: Option<PathBuf>,
    /// Folder of the indexes, created if it does not exist
    #[arg(long, value_name = "FOLDER", default_value = "second-tier-work")]
    pub work: PathBuf,
    /// Prefix of the indexes' names, to reuse existing indexes
    #[arg(long, value_name = "PREFIX", default_value = "")]
    pub prefix: String,
    /// Use only the first N vectors
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub vectors: Option<u32>,
    /// Use only the first N queries
    #[arg(long = "first-queries", value_name = "N",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub first_queries: Option<u32>,
    /// Metric of the vectors
    #[arg(long, default_value_t = Metric::L2)]
    pub metric: Metric,
    /// Neighbours per query
    #[arg(short, default_value_t = DEFAULT_K,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=MAX_K))]
    pub k: u32,
    /// Recall of all searches; the effort for it is found with the queries themselves
    #[arg(long, default_value_t = PAPER_RECALL, value_parser = parse_recall)]
    pub recall: f32,
    /// Devices to emulate: cxl, nvm, rdma, connectx6, ssd, or JSON files with profiles
    #[arg(long, value_name = "DEVICE,...", value_delimiter = ',', default_value = "cxl,nvm,rdma",
          value_parser = parse_device)]
    pub devices: Vec<DelayProfile>,
    /// Queries in flight on each thread in pipelined searches
    #[arg(long, value_name = "QUERIES", default_value_t = PAPER_IN_FLIGHT,
          value_parser = RangedU64ValueParser::<u32>::new().range(2..=1024))]
    pub in_flight: u32,
    /// Search threads; 0 means all cores
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Repeats of each measurement, which take turns; reports have the medians
    #[arg(long, default_value_t = REPRO_REPEATS,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=1000))]
    pub repeats: u32,
    /// Least seconds of one measurement, which consists of whole passes over the queries
    #[arg(long, default_value_t = 0.5)]
    pub seconds: f64,
    /// Do not search the files themselves
    #[arg(long)]
    pub without_file: bool,
    /// Queries for searches of files: the first N
    #[arg(long, value_name = "N", default_value_t = FILE_QUERIES,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub file_queries: u32,
    /// Profile of the work folder's device, as written by `bathyal probe FOLDER --output FILE`, for the cost
    /// model
    #[arg(long, value_name = "FILE", value_parser = parse_profile)]
    pub file_profile: Option<TierProfile>,
}

/// Arguments of `bathyal-repro second-tier graph`.
#[derive(Debug, Args)]
#[command(after_help = "\
Indexes are built once in the work folder, as PREFIXrDEGREE-LAYOUT, and reused. Devices are
emulated in real time on top of DRAM (docs/emulated-devices.md), and every result states that.

Examples:
  bathyal-repro second-tier graph base.u8bin queries.u8bin --groundtruth gt.ibin \\
      --work graphs --output report
  bathyal-repro second-tier graph base.u8bin queries.u8bin --vectors 100000 --degrees 16,32 \\
      --devices cxl --repeats 3")]
pub struct GraphReproArguments {
    /// Data, devices and conditions of the measurements
    #[command(flatten)]
    pub trial: TrialArguments,
    /// Folder of the records, created if it does not exist
    #[arg(long, value_name = "FOLDER", default_value = "second-tier-graph")]
    pub output: PathBuf,
    /// Largest degrees of the graphs
    #[arg(long, value_name = "R,R,...", value_delimiter = ',', default_value = "8,16,24,32,48,64",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=4096))]
    pub degrees: Vec<u32>,
    /// Layouts; figure 9 uses the last
    #[arg(long, value_enum, value_delimiter = ',',
          default_values_t = [GraphLayoutName::Padded, GraphLayoutName::Csr])]
    pub layouts: Vec<GraphLayoutName>,
    /// Degree of the graph for the sweep of queries in flight [default: the middle one]
    #[arg(long, value_name = "R", value_parser = RangedU64ValueParser::<u32>::new().range(1..=4096))]
    pub sweep_degree: Option<u32>,
    /// Numbers of queries in flight in the sweep
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "1,2,4,8,16,32,64",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=1024))]
    pub sweep: Vec<u32>,
    /// Vectors that a query reads at once (W in DiskANN)
    #[arg(long, value_name = "W", default_value_t = bathyal_index::DEFAULT_BEAM_WIDTH)]
    pub beam_width: u32,
}

/// Arguments of `bathyal-repro second-tier cluster`.
#[derive(Debug, Args)]
#[command(after_help = "\
Indexes are built once in the work folder, as PREFIXxREPLICAS-LAYOUT, and reused. Devices are
emulated in real time on top of DRAM (docs/emulated-devices.md), and every result states that.

Examples:
  bathyal-repro second-tier cluster base.u8bin queries.u8bin --groundtruth gt.ibin \\
      --work lists --output report
  bathyal-repro second-tier cluster base.u8bin queries.u8bin --vectors 100000 \\
      --replicas 1,8 --devices cxl --repeats 3")]
pub struct ClusterReproArguments {
    /// Data, devices and conditions of the measurements
    #[command(flatten)]
    pub trial: TrialArguments,
    /// Folder of the records, created if it does not exist
    #[arg(long, value_name = "FOLDER", default_value = "second-tier-cluster")]
    pub output: PathBuf,
    /// Most lists that a vector is in
    #[arg(long, value_name = "R,R,...", value_delimiter = ',', default_value = "1,2,4,8",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=8))]
    pub replicas: Vec<u32>,
    /// Lists per vector
    #[arg(long, value_name = "SHARE", default_value_t = DEFAULT_CENTROID_SHARE)]
    pub centroid_share: f32,
    /// Layouts; figure 12 uses the last
    #[arg(long, value_enum, value_delimiter = ',',
          default_values_t = [ListLayoutName::Coupled, ListLayoutName::Decoupled, ListLayoutName::Grouped])]
    pub layouts: Vec<ListLayoutName>,
}

/// Arguments of `bathyal-repro second-tier compare`.
#[derive(Debug, Args)]
#[command(after_help = "\
Indexes are built once in the work folder, as PREFIXrDEGREE-LAYOUT, PREFIXxREPLICAS-LAYOUT and
PREFIXcodes, and reused, also those of the other experiments. All indexes are in memory at once.
Devices are emulated in real time on top of DRAM (docs/emulated-devices.md), and every result
states that.

Examples:
  bathyal-repro second-tier compare base.u8bin queries.u8bin --groundtruth gt.ibin \\
      --work indexes --output report
  bathyal-repro second-tier compare base.u8bin queries.u8bin --vectors 100000 --degrees 32 \\
      --replicas 8 --devices cxl")]
pub struct CompareReproArguments {
    /// Data, devices and conditions of the measurements
    #[command(flatten)]
    pub trial: TrialArguments,
    /// Folder of the records, created if it does not exist
    #[arg(long, value_name = "FOLDER", default_value = "second-tier-compare")]
    pub output: PathBuf,
    /// Largest degrees of the graphs
    #[arg(long, value_name = "R,R,...", value_delimiter = ',', default_value = "16,24,32,64",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=4096))]
    pub degrees: Vec<u32>,
    /// Layouts of the graphs
    #[arg(long, value_enum, value_delimiter = ',',
          default_values_t = [GraphLayoutName::Padded, GraphLayoutName::Csr])]
    pub graph_layouts: Vec<GraphLayoutName>,
    /// Most posting lists that a vector is in
    #[arg(long, value_name = "R,R,...", value_delimiter = ',', default_value = "1,2,4,8",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=8))]
    pub replicas: Vec<u32>,
    /// Posting lists per vector
    #[arg(long, value_name = "SHARE", default_value_t = DEFAULT_CENTROID_SHARE)]
    pub centroid_share: f32,
    /// Layouts of the posting lists
    #[arg(long, value_enum, value_delimiter = ',',
          default_values_t = [ListLayoutName::Coupled, ListLayoutName::Grouped])]
    pub list_layouts: Vec<ListLayoutName>,
    /// Leave out groups whose codes are in memory
    #[arg(long)]
    pub without_codes: bool,
    /// Vectors that a query of a graph reads at once (W in DiskANN)
    #[arg(long, value_name = "W", default_value_t = bathyal_index::DEFAULT_BEAM_WIDTH)]
    pub beam_width: u32,
}

impl<'a> From<&'a TrialArguments> for Sources<'a> {
    fn from(arguments: &'a TrialArguments) -> Sources<'a> {
        Sources {
            data: &arguments.data,
            queries: &arguments.queries,
            groundtruth: arguments.groundtruth.as_deref(),
            work: &arguments.work,
            vectors: arguments.vectors,
            first_queries: arguments.first_queries,
            file_queries: arguments.file_queries,
            metric: arguments.metric,
            k: arguments.k,
        }
    }
}
