//! `bathyal repro second-tier`: graphs and posting lists on slow memory.
//!
//! A figure's module says which indexes it compares, in which cells, and what its report holds; building, measuring
//! and what reports share is the same for all.

pub mod arguments;
mod cells;
mod cluster;
mod cluster_report;
mod compare;
mod compare_report;
mod devices;
mod effort;
mod findings;
mod graph;
mod graph_report;
mod records;
mod report;
mod subjects;

use bathyal_console::{Console, Failure};

use arguments::SecondTier;

pub(crate) fn run(experiment: &SecondTier, console: &Console) -> Result<(), Failure> {
    match experiment {
        SecondTier::Graph(arguments) => graph::run(arguments, console),
        SecondTier::Cluster(arguments) => cluster::run(arguments, console),
        SecondTier::Compare(arguments) => compare::run(arguments, console),
    }
}
