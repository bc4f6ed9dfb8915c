//! What can be typed after `bathyal-repro second-tier`.

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

/// Queries interleaved on a thread in the figures: enough for the slowest of the emulated memories.
const PAPER_IN_FLIGHT: u32 = 16;

/// Times that each cell is measured: a median of five survives two disturbed runs.
const REPRO_REPEATS: u32 = 5;

/// Queries that are searched for in files: the slowest layouts answer some 100 a second there.
const FILE_QUERIES: u32 = 1000;

/// The experiments of second-tier-memory.
#[derive(Debug, Subcommand)]
pub enum SecondTier {
    /// The graph on slow memory: figures 4 (upper half), 8 and 9, and the cost model beside each measurement
    Graph(Box<GraphReproArguments>),
    /// Posting lists on slow memory: figures 4 (lower half), 10 and 12, and the cost model beside each measurement
    Cluster(Box<ClusterReproArguments>),
    /// Graph against posting lists, size and speed: figure 13 and table 5, with resident codes beside both
    Compare(Box<CompareReproArguments>),
}

/// The layouts of a graph that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GraphLayoutName {
    /// Whole records in pages.
    Padded,
    /// Records back to back.
    Csr,
}

impl GraphLayoutName {
    /// The name that is typed.
    pub fn name(self) -> &'static str {
        match self {
            GraphLayoutName::Padded => "padded",
            GraphLayoutName::Csr => "csr",
        }
    }
}

/// The layouts of posting lists that are compared.
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
    /// The name that is typed.
    pub fn name(self) -> &'static str {
        match self {
            ListLayoutName::Coupled => "coupled",
            ListLayoutName::Decoupled => "decoupled",
            ListLayoutName::Grouped => "grouped",
        }
    }
}

/// What every experiment is told: what is searched for in what, on which devices, and how it is measured.
#[derive(Debug, Args)]
pub struct TrialArguments {
    /// Vectors
    pub data: PathBuf,
    /// Queries, with the same dim and element
    pub queries: PathBuf,
    /// Exact neighbours of the queries among the vectors that are used [default: computed once, kept in the work folder]
    #[arg(long, value_name = "GT")]
    pub groundtruth: Option<PathBuf>,
    /// Folder of the indexes, made if it is not there
    #[arg(long, value_name = "FOLDER", default_value = "second-tier-work")]
    pub work: PathBuf,
    /// What the names of the indexes begin with, for indexes that are there already
    #[arg(long, value_name = "PREFIX", default_value = "")]
    pub prefix: String,
    /// Take the first N vectors only
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub vectors: Option<u32>,
    /// Take the first N queries only
    #[arg(long = "first-queries", value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub first_queries: Option<u32>,
    /// What near means
    #[arg(long, default_value_t = Metric::L2)]
    pub metric: Metric,
    /// Neighbours a query
    #[arg(short, default_value_t = DEFAULT_K, value_parser = RangedU64ValueParser::<u32>::new().range(1..=MAX_K))]
    pub k: u32,
    /// Recall that every index is searched for; the effort is found on the queries themselves
    #[arg(long, default_value_t = PAPER_RECALL, value_parser = parse_recall)]
    pub recall: f32,
    /// Devices to emulate: cxl, nvm, rdma, connectx6, ssd, or JSON files with profiles
    #[arg(long, value_name = "DEVICE,...", value_delimiter = ',', default_value = "cxl,nvm,rdma", value_parser = parse_device)]
    pub devices: Vec<DelayProfile>,
    /// Queries in flight on each thread, of the pipelined search
    #[arg(long, value_name = "QUERIES", default_value_t = PAPER_IN_FLIGHT, value_parser = RangedU64ValueParser::<u32>::new().range(2..=1024))]
    pub in_flight: u32,
    /// Threads that search; 0 means all cores
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Times that each cell is measured, in turn with all others; reports have the medians
    #[arg(long, default_value_t = REPRO_REPEATS, value_parser = RangedU64ValueParser::<u32>::new().range(1..=1000))]
    pub repeats: u32,
    /// Seconds that one measurement of a cell takes at least, in whole passes over the queries
    #[arg(long, default_value_t = 0.5)]
    pub seconds: f64,
    /// Leave out the search of the files themselves
    #[arg(long)]
    pub without_file: bool,
    /// Search files for the first N queries only
    #[arg(long, value_name = "N", default_value_t = FILE_QUERIES, value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub file_queries: u32,
    /// What `bathyal probe FOLDER --output FILE` said of the work folder's device, for the cost model
    #[arg(long, value_name = "FILE", value_parser = parse_profile)]
    pub file_profile: Option<TierProfile>,
}

/// `bathyal-repro second-tier graph`.
#[derive(Debug, Args)]
#[command(after_help = "\
Indexes are built once into the work folder, as PREFIXrDEGREE-LAYOUT, and used again. Devices are emulated in real time
on top of DRAM (docs/emulated-devices.md), and every result says so.

Examples:
  bathyal-repro second-tier graph base.u8bin queries.u8bin --groundtruth gt.ibin --work graphs --output report
  bathyal-repro second-tier graph base.u8bin queries.u8bin --vectors 100000 --degrees 16,32 --devices cxl --repeats 3")]
pub struct GraphReproArguments {
    /// What is searched, where and how
    #[command(flatten)]
    pub trial: TrialArguments,
    /// Folder of the records, made if it is not there
    #[arg(long, value_name = "FOLDER", default_value = "second-tier-graph")]
    pub output: PathBuf,
    /// Largest degrees of the graphs
    #[arg(long, value_name = "R,R,...", value_delimiter = ',', default_value = "8,16,24,32,48,64",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=4096))]
    pub degrees: Vec<u32>,
    /// Layouts; figure 9 takes the last
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [GraphLayoutName::Padded, GraphLayoutName::Csr])]
    pub layouts: Vec<GraphLayoutName>,
    /// The degree whose graph the sweep of queries in flight uses [default: the middle one]
    #[arg(long, value_name = "R", value_parser = RangedU64ValueParser::<u32>::new().range(1..=4096))]
    pub sweep_degree: Option<u32>,
    /// Numbers of queries in flight of the sweep
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "1,2,4,8,16,32,64",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=1024))]
    pub sweep: Vec<u32>,
    /// Vectors that a query reads at once (W in DiskANN)
    #[arg(long, value_name = "W", default_value_t = bathyal_index::DEFAULT_BEAM_WIDTH)]
    pub beam_width: u32,
}

/// `bathyal-repro second-tier cluster`.
#[derive(Debug, Args)]
#[command(after_help = "\
Indexes are built once into the work folder, as PREFIXxREPLICAS-LAYOUT, and used again. Devices are emulated in real
time on top of DRAM (docs/emulated-devices.md), and every result says so.

Examples:
  bathyal-repro second-tier cluster base.u8bin queries.u8bin --groundtruth gt.ibin --work lists --output report
  bathyal-repro second-tier cluster base.u8bin queries.u8bin --vectors 100000 --replicas 1,8 --devices cxl --repeats 3")]
pub struct ClusterReproArguments {
    /// What is searched, where and how
    #[command(flatten)]
    pub trial: TrialArguments,
    /// Folder of the records, made if it is not there
    #[arg(long, value_name = "FOLDER", default_value = "second-tier-cluster")]
    pub output: PathBuf,
    /// Most lists that a vector is in
    #[arg(long, value_name = "R,R,...", value_delimiter = ',', default_value = "1,2,4,8",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=8))]
    pub replicas: Vec<u32>,
    /// Lists for each vector
    #[arg(long, value_name = "SHARE", default_value_t = DEFAULT_CENTROID_SHARE)]
    pub centroid_share: f32,
    /// Layouts; figure 12 takes the last
    #[arg(long, value_enum, value_delimiter = ',',
          default_values_t = [ListLayoutName::Coupled, ListLayoutName::Decoupled, ListLayoutName::Grouped])]
    pub layouts: Vec<ListLayoutName>,
}

/// `bathyal-repro second-tier compare`.
#[derive(Debug, Args)]
#[command(after_help = "\
Indexes are built once into the work folder, as PREFIXrDEGREE-LAYOUT, PREFIXxREPLICAS-LAYOUT and PREFIXcodes, and used
again, those of the other experiments too. All indexes are held in memory at once. Devices are emulated in real time on
top of DRAM (docs/emulated-devices.md), and every result says so.

Examples:
  bathyal-repro second-tier compare base.u8bin queries.u8bin --groundtruth gt.ibin --work indexes --output report
  bathyal-repro second-tier compare base.u8bin queries.u8bin --vectors 100000 --degrees 32 --replicas 8 --devices cxl")]
pub struct CompareReproArguments {
    /// What is searched, where and how
    #[command(flatten)]
    pub trial: TrialArguments,
    /// Folder of the records, made if it is not there
    #[arg(long, value_name = "FOLDER", default_value = "second-tier-compare")]
    pub output: PathBuf,
    /// Largest degrees of the graphs
    #[arg(long, value_name = "R,R,...", value_delimiter = ',', default_value = "16,24,32,64",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=4096))]
    pub degrees: Vec<u32>,
    /// Layouts of the graphs
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [GraphLayoutName::Padded, GraphLayoutName::Csr])]
    pub graph_layouts: Vec<GraphLayoutName>,
    /// Most posting lists that a vector is in
    #[arg(long, value_name = "R,R,...", value_delimiter = ',', default_value = "1,2,4,8",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=8))]
    pub replicas: Vec<u32>,
    /// Posting lists for each vector
    #[arg(long, value_name = "SHARE", default_value_t = DEFAULT_CENTROID_SHARE)]
    pub centroid_share: f32,
    /// Layouts of the posting lists
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [ListLayoutName::Coupled, ListLayoutName::Grouped])]
    pub list_layouts: Vec<ListLayoutName>,
    /// Leave out groups with resident codes
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
