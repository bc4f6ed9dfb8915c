//! The subcommands of `bathyal collection`; related ones share a file.

mod audit;
mod calibrate;
mod change;
mod create;
mod ids;
mod inspect;
mod open;
mod repair;
mod rows;
mod search;
mod transfer;

use bathyal_console::{Console, Failure};

pub(super) use audit::run as audit;
pub(super) use calibrate::run as calibrate;

use crate::arguments::CollectionCommand;

pub(super) fn run(command: &CollectionCommand, console: &Console) -> Result<(), Failure> {
    match command {
        CollectionCommand::Create(arguments) => create::run(arguments, console),
        CollectionCommand::Add(arguments) => transfer::add(arguments, console),
        CollectionCommand::Upsert(arguments) => transfer::upsert(arguments, console),
        CollectionCommand::Update(arguments) => transfer::update(arguments, console),
        CollectionCommand::Delete(arguments) => change::delete(arguments, console),
        CollectionCommand::Get(arguments) => rows::get(arguments, console),
        CollectionCommand::Search(arguments) => search::run(arguments, console),
        CollectionCommand::Count(arguments) => rows::count(arguments, console),
        CollectionCommand::Compact(arguments) => change::compact(arguments, console),
        CollectionCommand::Inspect(arguments) => inspect::run(arguments, console),
        CollectionCommand::Verify(arguments) => inspect::verify(arguments, console),
        CollectionCommand::Export(arguments) => transfer::export(arguments, console),
        CollectionCommand::Copy(arguments) => transfer::copy(arguments, console),
        CollectionCommand::Repair(arguments) => repair::run(arguments, console),
    }
}
