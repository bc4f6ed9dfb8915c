//! `bathyal advise`.

use std::path::PathBuf;

use bathyal_advise::request::{DEFAULT_CONCURRENCY, MOST_CONCURRENCY};
use bathyal_advise::{AdvicePrices, IndexLimits, SamplePace};
use bathyal_console::typed::{parse_ratio, parse_recall, parse_threads};
use bathyal_console::{Failure, byte_size};
use bathyal_index::{DEFAULT_K, DEFAULT_RECALL, DEFAULT_SEED};
use bathyal_kernels::Element;
use clap::Args;
use clap::builder::RangedU64ValueParser;

use super::{MetricArgument, StoreArguments};

/// `bathyal advise`.
#[derive(Debug, Args)]
#[command(after_help = "\
Small indexes of each family are built from a sample of the vectors and searched. What they count, the plan \
of the build and the profile of each device give size, memory and speed of the whole index. Indexes that \
meet all limits are ordered by queries a second at --concurrency; those within a tenth of each other by \
memory.

Examples:
  bathyal advise base.fbin --metric l2 --recall 0.95 --memory 2GB
  bathyal advise base.fbin queries.fbin --metric l2 --on dram --on /mnt/nvme --disk 50GB
  bathyal advise sample.fbin --vectors 100000000 --metric cosine --on disk.json --quick
  bathyal advise base.fbin --metric l2 --ratio 1.05
  bathyal advise base.fbin --metric l2 --filter 0.1,0.01
  bathyal advise base.fbin --metric l2 --rows-a-day 500000
  bathyal advise --vectors 100000000 --dim 768 --metric cosine --memory 64GB
  bathyal advise base.fbin --metric l2 --on s3://bucket/other.index --on remote://10.0.0.7/other.index
  bathyal advise base.fbin --metric l2 --output plan.json --page advice.html
  bathyal build base.fbin my.index --metric l2 --advice plan.json
  bathyal advise my.index queries.fbin --check")]
pub struct AdviseArguments {
    /// Vectors: .fbin .f16bin .bf16bin .u8bin .i8bin .b1bin .fvecs .bvecs .npy; with --check, an index.
    /// Without vectors, give --vectors and --dim
    #[arg(required_unless_present_any = ["vectors", "dim"])]
    pub data: Option<PathBuf>,
    /// Queries like those to come, in the same format [default: vectors held out of the sample]
    pub queries: Option<PathBuf>,
    /// Metric: l2, ip, cosine, or hamming [default with --check: that of the plan]
    #[arg(long, required_unless_present = "check")]
    pub metric: Option<MetricArgument>,
    /// Recall of searches; several, with commas between them, are answered from the same pilots. A plan is
    /// that of the first
    #[arg(long, value_delimiter = ',', default_values_t = [DEFAULT_RECALL], value_parser = parse_recall)]
    pub recall: Vec<f32>,
    /// Overall ratio of searches instead of a recall: at 1.05, the neighbours found are on average 5% farther
    /// away than the true ones. Each index is asked for the least recall that has it
    #[arg(long, value_name = "RATIO", conflicts_with = "recall", value_parser = parse_ratio)]
    pub ratio: Option<f32>,
    /// Neighbours per query
    #[arg(short, default_value_t = DEFAULT_K as u32,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub k: u32,
    /// Vectors of the index, if DATA is only a sample of them, or if there is no DATA
    #[arg(long, value_name = "COUNT")]
    pub vectors: Option<u64>,
    /// Components of vectors that do not exist yet: data is assumed, and intervals are wide
    #[arg(long, requires = "vectors", conflicts_with_all = ["data", "queries", "check"])]
    pub dim: Option<u32>,
    /// Element of vectors that do not exist yet: f32, f16, bf16, u8, i8 or b1
    #[arg(long, requires = "dim", default_value_t = Element::F32)]
    pub element: Element,
    /// Shares of the rows that filters of searches match, such as 0.1,0.01: searches under them are
    /// predicted, too, and count as much as those without a filter
    #[arg(long = "filter", value_name = "SHARE", value_delimiter = ',')]
    pub filters: Vec<f64>,
    /// Rows that are replaced each day: a collection is predicted, with its segments and merges
    #[arg(long, value_name = "ROWS")]
    pub rows_a_day: Option<u64>,
    /// A place from which the index may be read: dram, mapped, mapped:node=N, mapped:PATH, a folder, the
    /// address of an index on a memory node or in a bucket, all of which are measured, or a profile that
    /// `bathyal probe --output` wrote. May be repeated [default: dram, and the current folder]
    #[arg(long = "on", value_name = "PLACE")]
    pub places: Vec<PathBuf>,
    /// Options of the stores of --on, or of the index that is checked
    #[command(flatten)]
    pub store: StoreArguments,
    /// Limits
    #[command(flatten)]
    pub limits: LimitArguments,
    /// Queries in flight at which the limits hold and indexes are compared
    #[arg(long, value_name = "QUERIES", default_value_t = DEFAULT_CONCURRENCY,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=u64::from(MOST_CONCURRENCY)))]
    pub concurrency: u32,
    /// Threads of searches and of the build; 0 or auto means all cores
    #[arg(long, default_value = "0", value_parser = parse_threads)]
    pub threads: usize,
    /// Consider only this family. May be repeated
    #[arg(long = "family", value_name = "FAMILY")]
    pub families: Vec<String>,
    /// Answer in seconds, from a sample of 8,000 vectors and with the usual code size
    #[arg(long, conflicts_with = "thorough")]
    pub quick: bool,
    /// Take a sample of 40,000 vectors instead of 20,000, and consider more layouts
    #[arg(long)]
    pub thorough: bool,
    /// Seed of the sample and of the pilots
    #[arg(long, default_value_t = DEFAULT_SEED)]
    pub seed: u64,
    /// Folder for the pilots [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    pub work_folder: Option<PathBuf>,
    /// Write the plan of the best index to this file, for `bathyal build --advice`
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    pub output: Option<PathBuf>,
    /// Write the answer to this file as a page for a browser, with a plot of size against speed; a file that
    /// ends in .svg gets the plot alone, for the first recall
    #[arg(long, value_name = "FILE.html", conflicts_with = "check")]
    pub page: Option<PathBuf>,
    /// Compare the index DATA with this plan, by searching it with QUERIES [default: the plan that the index
    /// keeps, of a build with --advice]
    #[arg(long, value_name = "PLAN", num_args = 0..=1,
          conflicts_with_all = ["recall", "ratio", "k", "vectors", "filters", "rows_a_day", "places",
                                "concurrency", "threads", "families", "quick", "thorough", "seed",
                                "work_folder", "LimitArguments"])]
    pub check: Option<Option<PathBuf>>,
}

/// The limits of an index.
#[derive(Debug, Args)]
pub struct LimitArguments {
    /// Memory of the open index while it searches, for example 2GB
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub memory: Option<u64>,
    /// Bytes of its files
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub disk: Option<u64>,
    /// Milliseconds of the median query
    #[arg(long, value_name = "MS")]
    pub p50: Option<f64>,
    /// Milliseconds of the 99th percentile
    #[arg(long, value_name = "MS")]
    pub p99: Option<f64>,
    /// Queries per second
    #[arg(long, value_name = "RATE")]
    pub qps: Option<f64>,
    /// Seconds of the build
    #[arg(long, value_name = "SECONDS")]
    pub build_seconds: Option<f64>,
    /// Memory of the build
    #[arg(long, value_name = "SIZE", value_parser = byte_size::parse)]
    pub build_memory: Option<u64>,
    /// Dollars a month for memory, storage and processors
    #[arg(long, value_name = "DOLLARS")]
    pub cost: Option<f64>,
    /// Dollars of a GB of memory for a month
    #[arg(long, value_name = "DOLLARS", default_value_t = AdvicePrices::default().dram_gb_month)]
    pub memory_price: f64,
    /// Dollars of a GB of disk for a month
    #[arg(long, value_name = "DOLLARS", default_value_t = AdvicePrices::default().disk_gb_month)]
    pub disk_price: f64,
    /// Dollars of a GB in an object store for a month
    #[arg(long, value_name = "DOLLARS", default_value_t = AdvicePrices::default().bucket_gb_month)]
    pub bucket_price: f64,
    /// Dollars of a processor thread for an hour
    #[arg(long, value_name = "DOLLARS", default_value_t = AdvicePrices::default().thread_hour)]
    pub thread_price: f64,
}

impl LimitArguments {
    /// Returns the limits.
    pub fn limits(&self) -> IndexLimits {
        let micros = |ms: Option<f64>| ms.map(|ms| ms * 1e3);
        IndexLimits {
            dram_bytes: self.memory,
            disk_bytes: self.disk,
            p50_us: micros(self.p50),
            p99_us: micros(self.p99),
            queries_per_second: self.qps,
            build_seconds: self.build_seconds,
            build_memory_bytes: self.build_memory,
            dollars_per_month: self.cost,
        }
    }

    /// Returns the prices.
    pub fn prices(&self) -> AdvicePrices {
        AdvicePrices {
            dram_gb_month: self.memory_price,
            disk_gb_month: self.disk_price,
            bucket_gb_month: self.bucket_price,
            thread_hour: self.thread_price,
        }
    }
}

impl AdviseArguments {
    /// Returns the first recall, and the others.
    ///
    /// # Errors
    /// Without any recall.
    pub fn recalls(&self) -> Result<(f32, Vec<f32>), Failure> {
        let (first, others) =
            self.recall.split_first().ok_or_else(|| Failure::usage("--recall needs a number"))?;
        Ok((*first, others.to_vec()))
    }

    /// Returns the time for the answer.
    pub fn pace(&self) -> SamplePace {
        match (self.quick, self.thorough) {
            (true, _) => SamplePace::Quick,
            (_, true) => SamplePace::Thorough,
            _ => SamplePace::Usual,
        }
    }
}
