//! The options of `bathyal search` and `bathyal bench`.

use std::path::PathBuf;

use bathyal_console::byte_size;
use bathyal_console::typed::{
    DEFAULT_K, MAX_K, parse_device, parse_profile, parse_ratio, parse_recall, parse_threads,
};
use bathyal_gpu::DeviceChoice;
use bathyal_index::open::DEFAULT_BLOCK_QUERIES;
use bathyal_index::{Numa, SearchMode, TierChoice};
use bathyal_tier::TierProfile;
use bathyal_tier::layer::delay::DelayProfile;
use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};

use super::explained::ExplainedRows;
use super::slips::{BenchSlips, SearchSlips, SettingsSlips};
use super::stripe::PartsArguments;

/// Runs of each effort in `bench`: the median of three is not affected by one disturbed run.
pub const DEFAULT_REPEATS: u32 = 3;

/// Queries whose neighbours `search` prints: enough to see that the answers make sense, and few enough that
/// the figures above them stay on the screen.
pub const DEFAULT_SHOWN_QUERIES: u32 = 3;

/// When a query continues with the bytes that it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeName {
    /// Once its whole beam has arrived: the same answers on every tier and in every run.
    Batched,
    /// Once any read has arrived: faster on devices whose reads differ in latency.
    Pipelined,
}

impl From<SearchMode> for ModeName {
    fn from(mode: SearchMode) -> ModeName {
        match mode {
            SearchMode::Batched => ModeName::Batched,
            SearchMode::Pipelined => ModeName::Pipelined,
        }
    }
}

impl ModeName {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ModeName::Batched => "batched",
            ModeName::Pipelined => "pipelined",
        }
    }

    /// Returns the mode of the library.
    pub fn mode(self) -> SearchMode {
        match self {
            ModeName::Batched => SearchMode::Batched,
            ModeName::Pipelined => SearchMode::Pipelined,
        }
    }
}

/// The search options that `search` and `bench` share.
#[derive(Debug, Args)]
pub struct SearchSettings {
    /// Neighbours per query
    #[arg(short, long, default_value_t = DEFAULT_K,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=MAX_K))]
    pub k: u32,
    /// Threads at most; 0 or auto means all cores. A small --memory may leave fewer
    #[arg(long, default_value = "0", value_parser = parse_threads)]
    pub threads: usize,
    /// Tier that holds the index while it is searched: file, dram, mapped (huge pages), mapped:node=N (a NUMA
    /// node, such as CXL memory), mapped:PATH (a DAX device, or a file or folder on a DAX file system or
    /// tmpfs), or gpu (the memory of the card that --device names)
    #[arg(long, value_name = "TIER", default_value_t = TierChoice::File)]
    pub tier: TierChoice,
    /// Device that searches: cpu, gpu, or gpu:N for card number N. A graphics card searches cluster indexes
    /// and graphs. With gpu,cpu (or gpu:N,cpu) this machine's processor searches, and a note says so, if
    /// there is no card, if the card cannot search the index, or if the card fails
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceChoice::Cpu)]
    pub device: DeviceChoice,
    /// Queries that a launch on a graphics card waits for, or all queries in flight if they are fewer (the
    /// mini-batch of GustANN, section 4.1.3) [default: none; a query continues when its own page has arrived]
    #[arg(long, value_name = "QUERIES", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub mini_batch: Option<u32>,
    /// Where the parts of a striped index are, and how a store is reached
    #[command(flatten)]
    pub parts: PartsArguments,
    /// Placement of the index's memory on a machine with several NUMA nodes: off, interleave over the nodes,
    /// or copy to each node [default: interleave, if the system allows it]
    #[arg(long, value_name = "WAY")]
    pub numa: Option<Numa>,
    /// Emulate a slower device on top of the tier: cxl, nvm, rdma, connectx6, ssd, or a JSON file with its
    /// profile
    #[arg(long, value_name = "DEVICE", value_parser = parse_device)]
    pub delay: Option<DelayProfile>,
    /// Profile of the index's device, from `bathyal probe --output`: efforts, reads and queries in flight are
    /// chosen for it
    #[arg(long, value_name = "FILE", value_parser = parse_profile)]
    pub profile: Option<TierProfile>,
    /// How a query of a graph or of posting lists waits: for all reads of a round (batched), or for any of
    /// them (pipelined) [default: batched; pipelined for a graph in an object store]
    #[arg(long, value_enum)]
    pub mode: Option<ModeName>,
    /// Vectors that a query of a graph reads at once (W in DiskANN) [default: 4; 16 in an object store]
    #[arg(long, value_name = "W")]
    pub beam_width: Option<u32>,
    /// Queries in flight on each thread [default: chosen for the tier]
    #[arg(long, value_name = "QUERIES")]
    pub in_flight: Option<u32>,
    /// Groups that a query of a cluster index scans, or the most posting lists that a query reads [default:
    /// from the calibration]
    #[arg(long, value_name = "GROUPS")]
    pub probes: Option<u32>,
    /// Leave out posting lists that are more than 1 + SHARE times as far as the nearest one; 0 leaves none
    /// out [default: from the calibration]
    #[arg(long, value_name = "SHARE")]
    pub prune: Option<f32>,
    /// Additional buckets that a query reads in each hash table, each with as many blocks as its own bucket
    /// (for `lsh`; T in multi-probe LSH): fewer tables or shorter runs then reach the same recall [default:
    /// 0]
    #[arg(long, value_name = "PLACES")]
    pub multi_probe: Option<u32>,
    /// Memory that the open index and its searches may take, for example 1GB; an index that needs more is not
    /// opened. Outside this limit are the program itself, the queries and answers of a block, the ground
    /// truth, and pages in mapped memory other than --tier mapped; the output lists them (not_counted)
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub memory: Option<u64>,
    /// Hidden options with names from other systems
    #[command(flatten)]
    slips: SettingsSlips,
}

impl SearchSettings {
    /// Returns the name of the tier, with the device that is emulated on top of it if there is one. `kind` is
    /// the name for an index that is not loaded, whose bytes are in files or in a store.
    pub fn tier_name(&self, kind: &str) -> String {
        match &self.delay {
            None if matches!(self.tier, TierChoice::File | TierChoice::Card) => kind.to_owned(),
            None => self.tier.to_string(),
            Some(device) => format!("emulated {} over {}", device.name, self.tier),
        }
    }

    /// Returns the name of the emulated device, if there is one.
    pub fn emulated(&self) -> Option<String> {
        self.delay.as_ref().map(|device| device.name.clone())
    }
}

/// `bathyal search`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bathyal search my.index queries.fbin -k 10 --recall 0.95
  bathyal search my.index queries.fbin --search-list 100 --groundtruth gt.ibin --json
  bathyal search my.index queries.fbin --output found.ibin --threads 4
  bathyal search my.index queries.fbin --radius 1.5 --output found.rbin
  bathyal search first.index queries.fbin --also second.index --also third.index
  bathyal search my.index queries.fbin --explain=7
  bathyal search my.index queries.fbin --tier dram --delay cxl")]
pub struct SearchArguments {
    /// The index
    pub index: PathBuf,
    /// File of queries, with the index's dim and element
    pub queries: PathBuf,
    /// How to search
    #[command(flatten)]
    pub settings: SearchSettings,
    /// Recall to aim for; the index's calibration gives the effort [default: 0.95]
    #[arg(long, value_parser = parse_recall)]
    pub recall: Option<f32>,
    /// Calibration that gives the effort for the recall: a name of `bathyal calibrate --name`, or build for
    /// the one of the build [default: the one named default, or else the largest effort of all]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["search_list", "ratio", "radius", "also"])]
    pub calibration: Option<String>,
    /// Overall ratio to aim for instead of a recall: at 1.05, the neighbours found are on average 5% farther
    /// away than the true ones (only `lsh`, under l2 and cosine)
    #[arg(long, value_name = "RATIO", conflicts_with = "radius", value_parser = parse_ratio)]
    pub ratio: Option<f32>,
    /// Probability that is promised, for any data, of finding a vector at most --within times as far away as
    /// the nearest (only `lsh`, under l2 and cosine)
    #[arg(long, value_name = "P", conflicts_with = "radius")]
    pub probability: Option<f32>,
    /// Ratio for which --probability is promised [default: 4]
    #[arg(long, value_name = "RATIO", conflicts_with = "radius")]
    pub within: Option<f32>,
    /// Effort instead of recall: length of the candidate list (L in DiskANN), at least k; for posting lists
    /// of vectors, the number of lists
    #[arg(long, value_name = "L")]
    pub search_list: Option<u32>,
    /// File of exact neighbours (.ibin .ivecs .npy), to measure recall with
    #[arg(long, value_name = "GT")]
    pub groundtruth: Option<PathBuf>,
    /// Write the neighbours found to this file: .ibin (with distances) or .ivecs; with --radius: .rbin
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Find all vectors within this distance, in the unit of answers (under l2 squared), instead of the k
    /// nearest
    #[arg(long, value_name = "DISTANCE", allow_hyphen_values = true,
          conflicts_with_all = ["k", "search_list", "probes", "prune", "block", "groundtruth", "also",
                                "explain"])]
    pub radius: Option<f32>,
    /// Most neighbours of a query within the radius: the nearest ones [default: no limit]
    #[arg(long, value_name = "NEIGHBOURS", requires = "radius",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub limit: Option<u32>,
    /// Search this index, too, and merge the answers by distance (may be repeated); its ids begin after those
    /// of the index before. Options of a store are those of the addresses among the indexes
    #[arg(long, value_name = "INDEX", conflicts_with_all = ["explain", "stripe"])]
    pub also: Vec<PathBuf>,
    /// Answer one query, by its row (0 if none is given), or several one after the other (0..100, or all),
    /// and print what it took: pages, bytes, time by phase, memory; and which assumptions of the cost model
    /// failed
    #[arg(long, value_name = "ROWS", num_args = 0..=1, require_equals = true, default_missing_value = "0",
          conflicts_with_all = ["output", "groundtruth", "block", "threads", "in_flight"])]
    pub explain: Option<ExplainedRows>,
    /// Wait until everything that an index in an object store keeps in memory has arrived, instead of
    /// answering earlier
    #[arg(long)]
    pub wait: bool,
    /// Search random queries first, so that threads, buffers and caches exist when the measurement begins
    #[arg(long)]
    pub warm: bool,
    /// Time every query by phase, which costs a system call between two phases
    #[arg(long, conflicts_with_all = ["radius", "also", "explain"])]
    pub phases: bool,
    /// Queries that are in memory at once, with their answers
    #[arg(long, value_name = "QUERIES", default_value_t = DEFAULT_BLOCK_QUERIES as u32,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub block: u32,
    /// Number of queries whose neighbours are printed, from the first (with --json under first_neighbors); 0
    /// prints none, and --output writes those of all
    #[arg(long, value_name = "QUERIES", default_value_t = DEFAULT_SHOWN_QUERIES, conflicts_with = "explain")]
    pub show: u32,
    /// Hidden options with names from other systems
    #[command(flatten)]
    slips: SearchSlips,
}

/// `bathyal bench`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without --groundtruth, the exact neighbours are found by one pass over the current vectors of the index.

Examples:
  bathyal bench my.index queries.fbin
  bathyal bench my.index queries.fbin --recall 0.9,0.95,0.99
  bathyal bench my.index queries.fbin --groundtruth gt.ibin -k 100 \\
      --threads 8 --output results/k100
  bathyal bench my.index queries.fbin --groundtruth gt.ibin \\
      --search-lists 20,50,100 --repeats 5
  bathyal bench first.index queries.fbin --also second.index")]
pub struct BenchArguments {
    /// The index
    pub index: PathBuf,
    /// File of queries, with the index's dim and element
    pub queries: PathBuf,
    /// Measure this index of the same vectors, too (may be repeated): the indexes take turns, and share the
    /// table and the plot. Each of them may take --memory. Options of a store are those of the addresses
    /// among them
    #[arg(long, value_name = "INDEX", conflicts_with = "stripe")]
    pub also: Vec<PathBuf>,
    /// File of exact neighbours (.ibin .ivecs .npy), at least k per query [default: found among the vectors
    /// of the first index]
    #[arg(long, value_name = "GT")]
    pub groundtruth: Option<PathBuf>,
    /// Write the exact neighbours that were found to this file: .ibin (with distances) or .ivecs
    #[arg(long, value_name = "FILE", conflicts_with = "groundtruth")]
    pub save_groundtruth: Option<PathBuf>,
    /// How to search
    #[command(flatten)]
    pub settings: SearchSettings,
    /// Recalls to aim for, whose efforts the calibration of the index gives: what was asked for is reported
    /// beside what was found
    #[arg(long, value_name = "RECALL,RECALL,...", value_delimiter = ',', value_parser = parse_recall)]
    pub recall: Vec<f32>,
    /// Calibration that gives the efforts for --recall: a name of `bathyal calibrate --name`, or build for
    /// the one of the build [default: as for search]
    #[arg(long, value_name = "NAME", requires = "recall")]
    pub calibration: Option<String>,
    /// Efforts to measure: lengths of the candidate list [default: from k up, each 1.4 times the one before]
    #[arg(long, value_name = "L,L,...", value_delimiter = ',')]
    pub search_lists: Vec<u32>,
    /// Runs of each effort; medians are reported
    #[arg(long, default_value_t = DEFAULT_REPEATS,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=1000))]
    pub repeats: u32,
    /// File of the vectors that the index holds: an exact scan of them in memory is measured and printed, too
    #[arg(long, value_name = "DATA")]
    pub data: Option<PathBuf>,
    /// Output files: FILE.jsonl with a line per effort and index, and FILE.svg with the plot [default:
    /// INDEX-bench in the current folder]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Hidden options with names from other systems
    #[command(flatten)]
    slips: BenchSlips,
}
