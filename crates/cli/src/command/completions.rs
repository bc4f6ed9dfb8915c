//! `bathyal completions`.

use bathyal_console::{Console, Failure, Kind};
use clap::{ArgGroup, Command, CommandFactory};
use serde::Serialize;

use crate::arguments::{CommandLine, CompletionsArguments};

#[derive(Serialize)]
struct CompletionsOutput {
    shell: String,
    script: String,
}

pub(super) fn run(arguments: &CompletionsArguments, console: &Console) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut visible(&CommandLine::command()), "bathyal", &mut script);
    let script = String::from_utf8(script).map_err(|e| Failure::of(Kind::Internal, e.to_string()))?;
    let answer = CompletionsOutput { shell: arguments.shell.to_string(), script };
    console.answer(&answer, &answer.script)
}

/// Returns a command without its hidden options, which the generators would offer, too. Its groups are empty:
/// options name them as conflicts, and generators do not use their members.
fn visible(command: &Command) -> Command {
    let made = Command::new(command.get_name().to_owned())
        .args(command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned())
        .groups(command.get_groups().map(|group| ArgGroup::new(group.get_id().clone())))
        .subcommands(command.get_subcommands().map(visible));
    match command.get_about() {
        Some(about) => made.about(about.clone()),
        None => made,
    }
}
