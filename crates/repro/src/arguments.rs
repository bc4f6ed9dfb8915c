//! What can be typed after `bathyal-repro`.

use bathyal_console::OutputOptions;
use clap::{Parser, Subcommand};

use crate::cloud::arguments::CloudArguments;
use crate::d_hnsw::arguments::DhnswArguments;
use crate::e2lsh::arguments::E2lshArguments;
use crate::gustann::arguments::GustannArguments;
use crate::second_tier::arguments::SecondTier;

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed, for example a missing file, bad data or a full disk; stderr has the reason
  2    the command line is wrong
  3    an index is damaged, or the path holds none
  130  stopped by Ctrl-C; the records of what was measured are kept";

/// The figures of papers, measured on this machine: records, of which `make repro-report RECORDS=FOLDER` makes a report.
#[derive(Debug, Parser)]
#[command(name = "bathyal-repro", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Arguments {
    /// Whose figures.
    #[command(subcommand)]
    pub paper: Paper,
    /// How to say it.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// The papers.
#[derive(Debug, Subcommand)]
pub enum Paper {
    /// Breaking the dilemma of performance and index size with second-tier memory
    SecondTier {
        /// Which of its experiments
        #[command(subcommand)]
        experiment: SecondTier,
    },
    /// Implementing and evaluating E2LSH on storage: its tables and figures, and the family `lsh` beside
    E2lsh(Box<E2lshArguments>),
    /// Cloud-native vector search: its figures on an emulated object store, and the families `cluster` and lists of codes beside
    Cloud(Box<CloudArguments>),
    /// Vector search on disaggregated memory with d-HNSW: its figure and tables, and other families on the same network
    #[command(name = "d-hnsw")]
    DHnsw(Box<DhnswArguments>),
    /// Billion-scale vector search with a single GPU (GustANN): pages, bytes and memory counted, throughput predicted
    Gustann(Box<GustannArguments>),
}
