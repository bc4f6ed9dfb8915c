//! The commands, one file each. Each prints one answer through the [`Console`].

mod bench;
mod build;
mod build_plan;
mod compact;
mod completions;
mod convert;
mod convert_layout;
mod convert_stripes;
mod copy;
mod delete;
mod exact;
mod exact_scan;
mod explain;
mod get;
mod groundtruth;
mod insert;
mod inspect;
mod man;
mod many;
mod measurement;
mod memory_node;
mod neighbors;
mod not_counted;
mod plot;
mod probe;
mod probe_memory;
mod prune;
mod range;
mod search;
mod stripes;
mod verify;
mod warm;

use bathyal_console::{Console, Failure};

use crate::arguments::Command;

/// Runs `command`.
///
/// # Errors
/// What went wrong, with the exit code that says so.
pub fn run(command: &Command, console: &Console) -> Result<(), Failure> {
    match command {
        Command::Build(arguments) => build::run(arguments, console),
        Command::Search(arguments) => search::run(arguments, console),
        Command::Bench(arguments) => bench::run(arguments, console),
        Command::Groundtruth(arguments) => groundtruth::run(arguments, console),
        Command::Convert(arguments) => convert::run(arguments, console),
        Command::ConvertLayout(arguments) => convert_layout::run(arguments, console),
        Command::ConvertStripes(arguments) => convert_stripes::run(arguments, console),
        Command::Copy(arguments) => copy::run(arguments, console),
        Command::Prune(arguments) => prune::run(arguments, console),
        Command::Warm(arguments) => warm::run(arguments, console),
        Command::MemoryNode(arguments) => memory_node::run(arguments, console),
        Command::Insert(arguments) => insert::run(arguments, console),
        Command::Delete(arguments) => delete::run(arguments, console),
        Command::Get(arguments) => get::run(arguments, console),
        Command::Compact(arguments) => compact::run(arguments, console),
        Command::Inspect(arguments) => inspect::run(arguments, console),
        Command::Verify(arguments) => verify::run(arguments, console),
        Command::Probe(arguments) => probe::run(arguments, console),
        Command::Repro(arguments) => bathyal_repro::run(arguments, console),
        Command::Completions(arguments) => completions::run(arguments, console),
        Command::Man(arguments) => man::run(arguments, console),
    }
}
