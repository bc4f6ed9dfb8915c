//! `bathyal search` and `bathyal bench`: how an index is searched.

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

use super::slips::{BenchSlips, SearchSlips, SettingsSlips};
use super::stripe::PartsArguments;

/// Times that each effort is run in `bench`: the median of three shrugs off one disturbed run.
pub const DEFAULT_REPEATS: u32 = 3;

/// Queries whose neighbours `search` prints: enough to see that the answers make sense, and few enough to see the figures above.
pub const DEFAULT_SHOWN_QUERIES: u32 = 3;

/// Recall when neither `--recall` nor `--search-list` is given: what most people mean by "good".
pub const DEFAULT_RECALL: f32 = 0.95;

/// When a query goes on with what it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeName {
    /// When its whole beam has arrived: the same answers on every tier and in every run.
    Batched,
    /// As soon as anything has arrived: faster on devices whose reads differ in latency.
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
    /// The name that is typed.
    pub fn name(self) -> &'static str {
        match self {
            ModeName::Batched => "batched",
            ModeName::Pipelined => "pipelined",
        }
    }

    /// What the library calls it.
    pub fn mode(self) -> SearchMode {
        match self {
            ModeName::Batched => SearchMode::Batched,
            ModeName::Pipelined => SearchMode::Pipelined,
        }
    }
}

/// How an index is searched, as far as `search` and `bench` have it in common.
#[derive(Debug, Args)]
pub struct SearchSettings {
    /// Neighbours a query
    #[arg(short, long, default_value_t = DEFAULT_K, value_parser = RangedU64ValueParser::<u32>::new().range(1..=MAX_K))]
    pub k: u32,
    /// Threads; 0 or auto means all cores
    #[arg(long, default_value = "0", value_parser = parse_threads)]
    pub threads: usize,
    /// Where the index is searched: file, dram, or mapped memory: mapped (huge pages), mapped:node=N (a NUMA node, such
    /// as CXL memory), mapped:PATH (a DAX device, or a file or folder on a DAX file system or tmpfs); or gpu, the memory of the
    /// card that --device names
    #[arg(long, value_name = "TIER", default_value_t = TierChoice::File)]
    pub tier: TierChoice,
    /// What searches: cpu, gpu, or gpu:N for the card number N. A graphics card searches cluster indexes and graphs. gpu,cpu
    /// (gpu:N,cpu) has this processor go on where there is no card, where the index does not suit it, and where it fails; a note
    /// says so
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceChoice::Cpu)]
    pub device: DeviceChoice,
    /// Queries that a launch on a graphics card waits for, or for all that are under way (mini-batches of GustANN, section 4.1.3)
    /// [default: none, a query goes on when its own page is there]
    #[arg(long, value_name = "QUERIES", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub mini_batch: Option<u32>,
    /// Where the index's parts are
    #[command(flatten)]
    pub parts: PartsArguments,
    /// On a machine of several NUMA nodes: off, interleave what the index keeps in memory, or copy it to each of them
    /// [default: interleave, as far as the system lets]
    #[arg(long, value_name = "WAY")]
    pub numa: Option<Numa>,
    /// Emulate a slower device on top of the tier: cxl, nvm, rdma, connectx6, ssd, or a JSON file with its profile
    #[arg(long, value_name = "DEVICE", value_parser = parse_device)]
    pub delay: Option<DelayProfile>,
    /// What `bathyal probe --output` measured of the device that the index lies on: efforts, reads and queries in flight follow
    /// it
    #[arg(long, value_name = "FILE", value_parser = parse_profile)]
    pub profile: Option<TierProfile>,
    /// Whether a query of a graph or of posting lists waits for all that it reads at once (batched), or goes on with what has
    /// arrived [default: batched, or pipelined of a graph in an object store]
    #[arg(long, value_enum)]
    pub mode: Option<ModeName>,
    /// Vectors that a query of a graph reads at once (W in DiskANN) [default: 4, or 16 in an object store]
    #[arg(long, value_name = "W")]
    pub beam_width: Option<u32>,
    /// Queries in flight on each thread [default: suits the tier]
    #[arg(long, value_name = "QUERIES", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub in_flight: Option<u32>,
    /// Groups that a cluster index scans, or posting lists at most [default: by the calibration]
    #[arg(long, value_name = "GROUPS", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub probes: Option<u32>,
    /// Posting lists that are more than 1 + SHARE times as far as the nearest are left out; 0 leaves none out [default:
    /// by the calibration]
    #[arg(long, value_name = "SHARE")]
    pub prune: Option<f32>,
    /// Further places that a query looks at in each hash table (of `lsh`; T in multi-probe LSH), each with as many blocks as
    /// its own: fewer tables, or shorter runs, then find as much [default: 0]
    #[arg(long, value_name = "PLACES")]
    pub multi_probe: Option<u32>,
    /// Memory that the open index may take, with the searches that run in it, for example 1GB; refused if it needs more. It
    /// does not count the program itself, the queries and answers of a block, the ground truth, and pages in mapped memory
    /// other than --tier mapped: the answer says how much these are (not_counted)
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub memory: Option<u64>,
    /// What is typed instead
    #[command(flatten)]
    slips: SettingsSlips,
}

impl SearchSettings {
    /// The tier in words, which say so where a device is emulated on top of it; `kind` is what an index reads that is not
    /// loaded, which lies in files or elsewhere.
    pub fn tier_name(&self, kind: &str) -> String {
        match &self.delay {
            None if matches!(self.tier, TierChoice::File | TierChoice::Card) => kind.to_owned(),
            None => self.tier.to_string(),
            Some(device) => format!("emulated {} over {}", device.name, self.tier),
        }
    }

    /// The name of the device that is emulated, if any.
    pub fn emulated(&self) -> Option<String> {
        self.delay.as_ref().map(|device| device.name.clone())
    }
}

/// `bathyal search`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bathyal search my.index queries.fbin -k 10 --recall 0.95
  bathyal search my.index queries.fbin -k 10 --search-list 100 --groundtruth gt.ibin --json
  bathyal search my.index queries.fbin --output found.ibin --threads 4
  bathyal search my.index queries.fbin --radius 1.5 --output found.rbin
  bathyal search first.index queries.fbin --also second.index --also third.index
  bathyal search my.index queries.fbin --explain=7
  bathyal search my.index queries.fbin --tier dram --delay cxl")]
pub struct SearchArguments {
    /// The index
    pub index: PathBuf,
    /// Queries: a file of vectors with the index's dim and element
    pub queries: PathBuf,
    /// How to search
    #[command(flatten)]
    pub settings: SearchSettings,
    /// Recall to aim for; the index knows the effort that it takes [default: 0.95]
    #[arg(long, conflicts_with = "search_list", value_parser = parse_recall)]
    pub recall: Option<f32>,
    /// Overall ratio to aim for instead of a recall, such as 1.05: answers lie 5% farther away than the nearest, in the mean
    /// (of `lsh`, under l2 and cosine)
    #[arg(long, value_name = "RATIO", conflicts_with_all = ["recall", "search_list", "radius"], value_parser = parse_ratio)]
    pub ratio: Option<f32>,
    /// Effort instead of recall: size of the candidate list (L in DiskANN), at least k; of posting lists of vectors their
    /// number
    #[arg(long, value_name = "L", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub search_list: Option<u32>,
    /// Exact neighbours (.ibin .ivecs), to measure the recall that came out
    #[arg(long, value_name = "GT")]
    pub groundtruth: Option<PathBuf>,
    /// Write the neighbours found to this file: .ibin (with distances) or .ivecs; with --radius: .rbin
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Find all vectors within this distance (as answers give it: l2 squared) instead of the k nearest
    #[arg(long, value_name = "DISTANCE", allow_hyphen_values = true,
          conflicts_with_all = ["k", "search_list", "probes", "prune", "block", "groundtruth", "also", "explain"])]
    pub radius: Option<f32>,
    /// Most neighbours of a query within the radius; the nearest are kept [default: no limit]
    #[arg(long, value_name = "NEIGHBOURS", requires = "radius", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub limit: Option<u32>,
    /// Search this index too (may be repeated) and merge by distance; its ids go on where those before end
    #[arg(long, value_name = "INDEX", conflicts_with_all = ["explain", "stripe"])]
    pub also: Vec<PathBuf>,
    /// Answer one query, by its row (0 if none is given), and say what it took: pages, bytes, time by phase, memory
    #[arg(long, value_name = "ROW", num_args = 0..=1, require_equals = true, default_missing_value = "0",
          conflicts_with_all = ["output", "groundtruth", "block", "threads", "in_flight"])]
    pub explain: Option<usize>,
    /// Wait until all is there that an index in an object store keeps in memory, instead of answering before
    #[arg(long)]
    pub wait: bool,
    /// Search made-up queries first, so that threads, buffers and caches are there
    #[arg(long)]
    pub warm: bool,
    /// Time every query by phase, which costs a system call between two of them
    #[arg(long, conflicts_with_all = ["radius", "also", "explain"])]
    pub phases: bool,
    /// Queries that are in memory at once, with their answers: the others wait in their file
    #[arg(long, value_name = "QUERIES", default_value_t = DEFAULT_BLOCK_QUERIES as u32, value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub block: u32,
    /// Queries, the first ones, whose neighbours are printed (with --json under first_neighbors); 0 prints none, --output writes all
    #[arg(long, value_name = "QUERIES", default_value_t = DEFAULT_SHOWN_QUERIES, conflicts_with = "explain")]
    pub show: u32,
    /// What is typed instead
    #[command(flatten)]
    slips: SearchSlips,
}

/// `bathyal bench`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bathyal bench my.index queries.fbin --groundtruth gt.ibin
  bathyal bench my.index queries.fbin --groundtruth gt.ibin -k 100 --threads 8 --output results/k100
  bathyal bench my.index queries.fbin --groundtruth gt.ibin --search-lists 20,50,100 --repeats 5")]
pub struct BenchArguments {
    /// The index
    pub index: PathBuf,
    /// Queries: a file of vectors with the index's dim and element
    pub queries: PathBuf,
    /// Exact neighbours (.ibin .ivecs), at least k a query
    #[arg(long, value_name = "GT")]
    pub groundtruth: PathBuf,
    /// How to search
    #[command(flatten)]
    pub settings: SearchSettings,
    /// Efforts to measure: sizes of the candidate list [default: from k up, each 1.4 times the last]
    #[arg(long, value_name = "L,L,...", value_delimiter = ',',
          value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub search_lists: Vec<u32>,
    /// Times to run each effort; medians are reported
    #[arg(long, default_value_t = DEFAULT_REPEATS, value_parser = RangedU64ValueParser::<u32>::new().range(1..=1000))]
    pub repeats: u32,
    /// The vectors that the index holds: what an exact scan of them takes in memory is measured, too, and printed beside
    #[arg(long, value_name = "DATA")]
    pub data: Option<PathBuf>,
    /// Where to write: FILE.jsonl gets a line an effort, FILE.svg the plot [default: INDEX-bench here]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// What is typed instead
    #[command(flatten)]
    slips: BenchSlips,
}
