//! What can be typed after `bathyal-repro gustann`.

use std::path::PathBuf;

use bathyal_index::families::graph::DEFAULT_MAX_DEGREE;
use bathyal_kernels::Metric;
use bathyal_kernels::quantize::Codec;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde::Serialize;

use super::model::Machine;
use crate::sets::{Given, Set, SetFacts};

/// Queries that are taken by default.
const QUERIES: u32 = 2000;
/// Vectors and queries of a run that is only to show that everything works.
const QUICK: (u32, u32) = (3000, 200);

/// `bathyal-repro gustann`.
#[derive(Debug, Args)]
#[command(after_help = "\
Indexes are built once into the work folder and used again. Recall, pages, rounds, bytes and memory are counted and exact: a card does
what the processor does, hop for hop. No time is measured: throughput is predicted by a model of a machine, whose numbers can be given.
Where searches begin is varied over the graph in memory, all of its file and codes.

Examples:
  bathyal-repro gustann --base base.u8bin --query queries.u8bin --groundtruth gt.ibin --work gustann-work --output report
  bathyal-repro gustann --base base.fbin --query queries.fbin --ssds 12 --link 55e9 --card-memory 3.3e12
  bathyal-repro gustann --base base.fbin --query queries.fbin --quick")]
pub struct GustannArguments {
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
    #[arg(long, value_name = "FOLDER", default_value = "gustann-work")]
    pub work: PathBuf,
    /// Folder of the records, made if it is not there
    #[arg(long, value_name = "FOLDER", default_value = "gustann")]
    pub output: PathBuf,
    /// Take the first N vectors only [default: all]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(100..))]
    pub vectors: Option<u32>,
    /// Take the first N queries only [default: 2000]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub queries: Option<u32>,
    /// What near means
    #[arg(long, default_value_t = Metric::L2)]
    pub metric: Metric,
    /// Neighbours a query
    #[arg(short, value_name = "K", default_value_t = 10, value_parser = RangedU64ValueParser::<u32>::new().range(1..=100))]
    pub k: u32,
    /// Disks of the machine that is predicted
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = RangedU64ValueParser::<u32>::new().range(1..=64))]
    pub ssds: u32,
    /// Reads a second of each of them [default: those of 4 KiB that 10 GB/s are]
    #[arg(long, value_name = "READS", default_value_t = 2.44e6, value_parser = parse_positive)]
    pub ssd_reads: f64,
    /// Bytes a second into the card [default: PCIe 4.0 x16]
    #[arg(long, value_name = "BYTES", default_value_t = 24e9, value_parser = parse_positive)]
    pub link: f64,
    /// Bytes a second of the card's memory [default: A100, 40 GB]
    #[arg(long, value_name = "BYTES", default_value_t = 1.555e12, value_parser = parse_positive)]
    pub card_memory: f64,
    /// Whole-number operations a second of the card [default: A100]
    #[arg(long, value_name = "OPERATIONS", default_value_t = 9.7e12, value_parser = parse_positive)]
    pub card_operations: f64,
    /// Processors that read, and pick what the card needs
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = RangedU64ValueParser::<u32>::new().range(1..=1024))]
    pub cores: u32,
    /// Microseconds of a read on an idle disk, of which latencies are predicted
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 80.0, value_parser = parse_positive)]
    pub read_us: f64,
    /// Microseconds of a launch and its copies, of which latencies are predicted
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 30.0, value_parser = parse_positive)]
    pub launch_us: f64,
    /// Dollars for server, memory and card (table 1)
    #[arg(long, value_name = "DOLLARS", default_value_t = 30_789.0, value_parser = parse_positive)]
    pub price: f64,
    /// Dollars for each disk (table 1)
    #[arg(long, value_name = "DOLLARS", default_value_t = 1025.0, value_parser = parse_positive)]
    pub price_ssd: f64,
    /// Everything on little data for a moment, to see that it works
    #[arg(long)]
    pub quick: bool,
}

/// What the line about the run says.
#[derive(Debug, Serialize)]
pub(super) struct Details<'a> {
    sets: Vec<SetFacts<'a>>,
    metric: &'static str,
    k: u32,
    predicted: Predicted,
    /// Dimensions beyond which a card scores no codes, and links that a record of a graph has room for.
    most_code_dim: usize,
    max_degree: u32,
}

/// The machine that is predicted, the price of its disks apart.
#[derive(Debug, Serialize)]
struct Predicted {
    #[serde(flatten)]
    machine: Machine,
    price_ssd: f64,
}

impl GustannArguments {
    /// What the line about the run says of these arguments and of the sets that they name.
    pub(super) fn details<'a>(&self, sets: &'a [Set]) -> Details<'a> {
        // Without the disks, whose number is varied.
        let machine = Machine { price: self.price, ..self.machine(self.ssds) };
        Details {
            sets: sets.iter().map(Set::facts).collect(),
            metric: self.metric.name(),
            k: self.k,
            predicted: Predicted { machine, price_ssd: self.price_ssd },
            most_code_dim: Codec::MOST_AXES_DIM,
            max_degree: DEFAULT_MAX_DEGREE,
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
            vectors: self.vectors.or(self.quick.then_some(QUICK.0)),
            queries: self.queries.unwrap_or(if self.quick { QUICK.1 } else { QUERIES }),
            metric: self.metric,
            k: self.k,
        }
    }

    /// The machine that is predicted, with so many disks.
    pub(super) fn machine(&self, ssds: u32) -> Machine {
        Machine {
            ssds,
            ssd_reads: self.ssd_reads,
            link: self.link,
            card_memory: self.card_memory,
            card_operations: self.card_operations,
            cores: self.cores,
            read_us: self.read_us,
            launch_us: self.launch_us,
            price: self.price + f64::from(ssds) * self.price_ssd,
        }
    }
}

fn parse_positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("is a number above 0, for example 24e9".into()),
    }
}
