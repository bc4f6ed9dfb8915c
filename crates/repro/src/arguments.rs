//! What can be typed after `bathyal repro`.

use clap::{Args, Subcommand};

use crate::cloud::arguments::CloudArguments;
use crate::d_hnsw::arguments::DhnswArguments;
use crate::e2lsh::arguments::E2lshArguments;
use crate::gustann::arguments::GustannArguments;
use crate::second_tier::arguments::SecondTier;

/// `bathyal repro`.
#[derive(Debug, Args)]
pub struct ReproArguments {
    /// Whose figures
    #[command(subcommand)]
    pub paper: Paper,
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
