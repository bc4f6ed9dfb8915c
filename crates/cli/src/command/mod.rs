//! The commands, one file each. Each prints one result through the [`Console`].

mod advise;
mod audit;
mod bench;
mod bench_plot;
mod bench_subject;
mod bench_sweep;
mod bench_table;
mod bench_truth;
mod build;
mod build_plan;
mod calibrate;
mod check_plan;
mod collection;
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
mod layout_note;
mod list;
mod man;
mod many;
mod measurement;
mod memory_node;
mod neighbors;
mod not_counted;
mod probe;
mod probe_memory;
mod prune;
mod range;
mod remove;
mod search;
mod serve;
mod stripes;
mod verify;
mod warm;

use std::path::Path;

use bathyal_console::{Console, Failure, Kind};
use bathyal_index::StoreOptions;

use crate::arguments::{Command, StoreArguments};

/// Runs `command`.
///
/// # Errors
/// The failure of the command, with its exit code.
pub fn run(command: &Command, console: &Console) -> Result<(), Failure> {
    dispatch(command, console).map_err(|failure| name_collection(command, failure))
}

/// Replaces the message of a failure whose path is a collection: names the command to use instead.
fn name_collection(command: &Command, failure: Failure) -> Failure {
    if let Command::Build(arguments) = command
        && let Some(data) = arguments.data.as_ref().filter(|data| data.is_dir())
        && bathyal_collection::is_collection(data, &StoreOptions::default())
    {
        let path = data.display();
        let message = format!(
            "{path}: is a collection; export it first: bathyal collection export {path} vectors.fbin"
        );
        return Failure { message, ..failure };
    }
    if failure.kind != Kind::NotAnIndex {
        return failure;
    }
    let (index, store, instead) = match command {
        Command::Search(arguments) => (&arguments.index, arguments.settings.parts.store.options(), "search"),
        Command::Bench(arguments) => (&arguments.index, arguments.settings.parts.store.options(), "search"),
        Command::Inspect(arguments) => (&arguments.index, arguments.parts.store.options(), "inspect"),
        Command::Verify(arguments) => (&arguments.index, arguments.parts.store.options(), "verify"),
        Command::Get(arguments) => (&arguments.index, arguments.parts.store.options(), "get"),
        Command::Insert(arguments) => (&arguments.index, arguments.store.options(), "add"),
        Command::Delete(arguments) => (&arguments.index, arguments.store.options(), "delete"),
        Command::Compact(arguments) => (&arguments.index, arguments.store.options(), "compact"),
        Command::Copy(arguments) => (&arguments.index, arguments.stores.from(), "copy"),
        _ => return failure,
    };
    if !store.is_ok_and(|store| bathyal_collection::is_collection(index, &store)) {
        return failure;
    }
    let path = index.display();
    let message = format!("{path}: is a collection, not an index; use `bathyal collection {instead} {path}`");
    Failure { message, ..failure }
}

/// Returns true if a collection is at `path`.
fn is_collection(path: &Path, store: &StoreArguments) -> bool {
    store.options().is_ok_and(|store| bathyal_collection::is_collection(path, &store))
}

fn dispatch(command: &Command, console: &Console) -> Result<(), Failure> {
    match command {
        Command::Build(arguments) => build::run(arguments, console),
        Command::Advise(arguments) => advise::run(arguments, console),
        Command::Search(arguments) => search::run(arguments, console),
        Command::Bench(arguments) => bench::run(arguments, console),
        Command::Calibrate(arguments) if is_collection(&arguments.index, &arguments.pass.parts.store) => {
            collection::calibrate(arguments, console)
        }
        Command::Calibrate(arguments) => calibrate::run(arguments, console),
        Command::Audit(arguments) if is_collection(&arguments.index, &arguments.pass.parts.store) => {
            collection::audit(arguments, console)
        }
        Command::Audit(arguments) => audit::run(arguments, console),
        Command::Groundtruth(arguments) => groundtruth::run(arguments, console),
        Command::Convert(arguments) => convert::run(arguments, console),
        Command::ConvertLayout(arguments) => convert_layout::run(arguments, console),
        Command::ConvertStripes(arguments) => convert_stripes::run(arguments, console),
        Command::Copy(arguments) => copy::run(arguments, console),
        Command::Prune(arguments) => prune::run(arguments, console),
        Command::Remove(arguments) => remove::run(arguments, console),
        Command::List(arguments) => list::run(arguments, console),
        Command::Warm(arguments) => warm::run(arguments, console),
        Command::MemoryNode(arguments) => memory_node::run(arguments, console),
        Command::Serve(arguments) => serve::run(arguments, console),
        Command::Insert(arguments) => insert::run(arguments, console),
        Command::Delete(arguments) => delete::run(arguments, console),
        Command::Get(arguments) => get::run(arguments, console),
        Command::Compact(arguments) => compact::run(arguments, console),
        Command::Inspect(arguments) => inspect::run(arguments, console),
        Command::Verify(arguments) => verify::run(arguments, console),
        Command::Collection(arguments) => collection::run(arguments, console),
        Command::Probe(arguments) => probe::run(arguments, console),
        Command::Completions(arguments) => completions::run(arguments, console),
        Command::Man(arguments) => man::run(arguments, console),
    }
}
