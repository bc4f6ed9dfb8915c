//! `bathyal completions`.

use bathyal_console::{Console, Failure, Kind};
use clap::CommandFactory;
use serde::Serialize;

use crate::arguments::{Arguments, CompletionsArguments};

#[derive(Serialize)]
struct Answer {
    shell: String,
    script: String,
}

pub(super) fn run(arguments: &CompletionsArguments, console: &Console) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "bathyal", &mut script);
    let script = String::from_utf8(script).map_err(|e| Failure::of(Kind::Internal, e.to_string()))?;
    let answer = Answer { shell: arguments.shell.to_string(), script };
    console.answer(&answer, &answer.script)
}
