//! `bathyal repro`: the papers' figures, measured on this machine.

mod draw;
mod graph;
mod graph_cells;
mod graph_indexes;
mod graph_report;
mod workload;

use crate::arguments::{Paper, ReproArguments, SecondTier};
use crate::console::Console;
use crate::failure::Failure;

pub(super) fn run(arguments: &ReproArguments, console: &Console) -> Result<(), Failure> {
    match &arguments.paper {
        Paper::SecondTier { experiment: SecondTier::Graph(arguments) } => graph::run(arguments, console),
    }
}
