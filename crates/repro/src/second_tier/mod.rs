//! `bathyal-repro second-tier`: graphs and posting lists on slow memory.
//!
//! Each experiment's module defines its indexes and cells; all experiments share building and measuring.

pub mod arguments;
mod cells;
mod cluster;
mod compare;
mod details;
mod devices;
mod effort;
mod graph;
mod records;
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
