//! Command-line arguments of `bathyal-repro gustann`.

use std::path::PathBuf;

use bathyal_index::cost::card::{CardMachine, HostTimes};
use bathyal_index::cost::processor::Processor;
use bathyal_index::families::graph::DEFAULT_MAX_DEGREE;
use bathyal_kernels::Metric;
use bathyal_kernels::quantize::Codec;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde::Serialize;

use super::model::Machine;
use crate::sets::{DataSet, SetArguments, SetFacts};

/// Nanoseconds of a processor for finding the groups of a query and making its tables: 24 of the 39 us of a
/// search with 16 threads beside an H100 (`docs/benchmarks/h100.md`).
const GROUPS_NS: f64 = 24_000.0;
/// Default number of queries.
const QUERIES: u32 = 2000;
/// Vectors and queries of a quick run, which only shows that everything works.
const QUICK: (u32, u32) = (3000, 200);

/// Arguments of `bathyal-repro gustann`.
#[derive(Debug, Args)]
#[command(after_help = "\
Indexes are built once in the work folder and reused. Recall, pages, rounds, bytes and memory are
counted and exact: a card does the same work as the processor, hop for hop. No time is measured. A
model of a machine predicts throughput; options set its numbers. Start points of searches are
varied on a graph whose file and codes are all in memory.

Examples:
  bathyal-repro gustann --base base.u8bin --query queries.u8bin --groundtruth gt.ibin \\
      --work gustann-work --output report
  bathyal-repro gustann --base base.fbin --query queries.fbin --ssds 12 --link 55e9 \\
      --card-memory 3.3e12
  bathyal-repro gustann --base base.fbin --query queries.fbin --quick")]
pub struct GustannArguments {
    /// Vectors; repeat the option for each further set
    #[arg(long, value_name = "FILE", required_unless_present = "recompute")]
    pub base: Vec<PathBuf>,
    /// Queries, with the dim and element of the vectors; one file for each --base
    #[arg(long, value_name = "FILE", required_unless_present = "recompute")]
    pub query: Vec<PathBuf>,
    /// Exact neighbours of the queries, among all vectors; one file for each --base, or none [default:
    /// computed once, kept in the work folder]
    #[arg(long, value_name = "FILE")]
    pub groundtruth: Vec<PathBuf>,
    /// Folder of indexes, created if it does not exist
    #[arg(long, value_name = "FOLDER", default_value = "gustann-work")]
    pub work: PathBuf,
    /// Folder of the records, created if it does not exist
    #[arg(long, value_name = "FOLDER", default_value = "gustann")]
    pub output: PathBuf,
    /// Use only the first N vectors [default: all]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(100..))]
    pub vectors: Option<u32>,
    /// Use only the first N queries [default: 2000]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub queries: Option<u32>,
    /// Metric of the vectors
    #[arg(long, default_value_t = Metric::L2)]
    pub metric: Metric,
    /// Neighbours per query
    #[arg(short, value_name = "K", default_value_t = 10,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=100))]
    pub k: u32,
    /// Disks of the predicted machine
    #[arg(long, value_name = "N", default_value_t = 6,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=64))]
    pub ssds: u32,
    /// Reads per second of each disk [default: 10 GB/s in reads of 4 KiB]
    #[arg(long, value_name = "READS", default_value_t = 2.44e6, value_parser = parse_positive)]
    pub ssd_reads: f64,
    /// Bytes per second into the card [default: PCIe 4.0 x16]
    #[arg(long, value_name = "BYTES", default_value_t = 24e9, value_parser = parse_positive)]
    pub link: f64,
    /// Bytes per second of the card's memory [default: A100, 40 GB]
    #[arg(long, value_name = "BYTES", default_value_t = 1.555e12, value_parser = parse_positive)]
    pub card_memory: f64,
    /// Integer operations per second of the card [default: A100]
    #[arg(long, value_name = "OPERATIONS", default_value_t = 9.7e12, value_parser = parse_positive)]
    pub card_operations: f64,
    /// Processor cores that read, and select what the card needs
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=1024))]
    pub cores: u32,
    /// Processor nanoseconds of a read: to submit and to reap it, and to extract the record [default: the
    /// paper's machine, with SPDK]
    #[arg(long, value_name = "NS", default_value_t = HostTimes::PAPER.read_ns, value_parser = parse_positive)]
    pub read_ns: f64,
    /// The same of a read through the system, for the second prediction [default: measured here]
    #[arg(long, value_name = "NS", value_parser = parse_positive)]
    pub system_read_ns: Option<f64>,
    /// Processor nanoseconds of a query for finding its groups and making its tables, for the second
    /// prediction [default: of 16 threads beside an H100]
    #[arg(long, value_name = "NS", default_value_t = GROUPS_NS, value_parser = parse_positive)]
    pub groups_ns: f64,
    /// The same for making the tables alone, of a graph [default: none, because it was not measured alone]
    #[arg(long, value_name = "NS", value_parser = parse_positive)]
    pub tables_ns: Option<f64>,
    /// Predict again from these records, which are counted already; nothing is searched
    #[arg(long, value_name = "FILE", conflicts_with_all = ["base", "query", "groundtruth", "quick"])]
    pub recompute: Option<PathBuf>,
    /// Microseconds of a read on an idle disk, for predictions of latency
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 80.0, value_parser = parse_positive)]
    pub read_us: f64,
    /// Microseconds of a launch and its copies, for predictions of latency
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 30.0, value_parser = parse_positive)]
    pub launch_us: f64,
    /// Dollars for server, memory and card (table 1)
    #[arg(long, value_name = "DOLLARS", default_value_t = 30_789.0, value_parser = parse_positive)]
    pub price: f64,
    /// Dollars for each disk (table 1)
    #[arg(long, value_name = "DOLLARS", default_value_t = 1025.0, value_parser = parse_positive)]
    pub price_ssd: f64,
    /// Measure everything for a moment on little data, to see that it works
    #[arg(long)]
    pub quick: bool,
}

/// Details in the line about the run.
#[derive(Debug, Serialize)]
pub(super) struct GustannDetails<'a> {
    sets: Vec<SetFacts<'a>>,
    metric: &'static str,
    k: u32,
    predicted: PredictedMachine,
    /// Most dimensions for which a card scores codes.
    most_code_dim: usize,
    /// Links that a graph record has room for.
    max_degree: u32,
}

/// The predicted machine. Its price is that without disks, because their number varies.
#[derive(Debug, Serialize)]
pub(super) struct PredictedMachine {
    ssds: u32,
    ssd_reads: f64,
    link: f64,
    card_memory: f64,
    card_operations: f64,
    cores: u32,
    price: f64,
    price_ssd: f64,
    read_us: f64,
    launch_us: f64,
    /// Processor nanoseconds of a read, as the paper reads.
    read_ns: f64,
    /// The processor's times if reads go through the system.
    through_system: SystemTimes,
}

impl GustannArguments {
    /// Returns these arguments and the sets for the line about the run.
    pub(super) fn details<'a>(&self, sets: &'a [DataSet]) -> GustannDetails<'a> {
        GustannDetails {
            sets: sets.iter().map(DataSet::facts).collect(),
            metric: self.metric.name(),
            k: self.k,
            predicted: self.predicted(),
            most_code_dim: Codec::MOST_AXES_DIM,
            max_degree: DEFAULT_MAX_DEGREE,
        }
    }

    /// Returns the processor times of searches that read through the system.
    pub(super) fn system_times(&self) -> SystemTimes {
        SystemTimes {
            read_ns: self.system_read_ns.unwrap_or_else(|| Processor::of_this_machine().submit_ns),
            groups_ns: self.groups_ns,
            tables_ns: self.tables_ns.unwrap_or(0.0),
        }
    }

    /// Returns the predicted machine for the line about the run.
    pub(super) fn predicted(&self) -> PredictedMachine {
        let CardMachine { ssds, ssd_reads, link, card_memory, card_operations, cores, host } =
            self.machine(self.ssds).card;
        PredictedMachine {
            ssds,
            ssd_reads,
            link,
            card_memory,
            card_operations,
            cores,
            price: self.price,
            price_ssd: self.price_ssd,
            read_us: self.read_us,
            launch_us: self.launch_us,
            read_ns: host.read_ns,
            through_system: self.system_times(),
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
            vectors: self.vectors.or(self.quick.then_some(QUICK.0)),
            queries: self.queries.unwrap_or(if self.quick { QUICK.1 } else { QUERIES }),
            metric: self.metric,
            k: self.k,
        }
    }

    /// Returns the predicted machine with `ssds` disks, which are read as the paper does.
    pub(super) fn machine(&self, ssds: u32) -> Machine {
        Machine {
            card: CardMachine {
                ssds,
                ssd_reads: self.ssd_reads,
                link: self.link,
                card_memory: self.card_memory,
                card_operations: self.card_operations,
                cores: self.cores,
                host: HostTimes { read_ns: self.read_ns, ..HostTimes::PAPER },
            },
            read_us: self.read_us,
            launch_us: self.launch_us,
            price: self.price + f64::from(ssds) * self.price_ssd,
        }
    }
}

/// Processor times of searches that read through the system.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct SystemTimes {
    /// Of a read.
    pub(super) read_ns: f64,
    /// Of a query of groups: finding them, and making tables.
    pub(super) groups_ns: f64,
    /// Of a query of a graph: making tables.
    pub(super) tables_ns: f64,
}

impl SystemTimes {
    /// Returns `machine` with these times, for an index of `groups` or a graph.
    pub(super) fn on(&self, machine: Machine, groups: bool) -> Machine {
        let query_ns = if groups { self.groups_ns } else { self.tables_ns };
        let host = HostTimes { read_ns: self.read_ns, query_ns, ..machine.card.host };
        Machine { card: CardMachine { host, ..machine.card }, ..machine }
    }
}

fn parse_positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("expected a number above 0, for example 24e9".into()),
    }
}
