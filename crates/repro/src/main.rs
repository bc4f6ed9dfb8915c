//! `bathyal-repro`: the papers' figures, measured on this machine.
//!
//! A folder a paper: it says which indexes are compared, and how they are measured. Vectors and queries and the writing of
//! records are the same for all. Reports are made of the records by the bench (`bench/bathyal_bench/repro`).

mod arguments;
mod cloud;
mod d_hnsw;
mod doorbells;
mod e2lsh;
mod gustann;
mod numbers;
mod records;
mod second_tier;
mod sets;
mod workload;

use bathyal_console::{Console, Failure, exit_code, report_as_json};
use clap::error::ErrorKind;
use clap::{Error, Parser};

use arguments::{Arguments, Paper};

fn main() {
    let code = match Arguments::try_parse() {
        Ok(arguments) => obey(&arguments),
        Err(error) => refuse(&error),
    };
    std::process::exit(code)
}

/// Runs what was asked for; the exit code.
fn obey(arguments: &Arguments) -> i32 {
    let console = Console::new(&arguments.output);
    if let Err(failure) = arguments.output.check() {
        return console.report(&failure);
    }
    exit_code(run(&arguments.paper, &console), &console)
}

fn run(paper: &Paper, console: &Console) -> Result<(), Failure> {
    match paper {
        Paper::SecondTier { experiment } => second_tier::run(experiment, console),
        Paper::E2lsh(arguments) => e2lsh::run(arguments, console),
        Paper::Cloud(arguments) => cloud::run(arguments, console),
        Paper::DHnsw(arguments) => d_hnsw::run(arguments, console),
        Paper::Gustann(arguments) => gustann::run(arguments, console),
    }
}

/// Says what is wrong with the command line, and what was asked for by `--help` and `--version`: both are errors to the
/// parser. Returns the exit code.
fn refuse(error: &Error) -> i32 {
    // A closed pipe is no reason to complain.
    let _ = error.print();
    let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    // What was typed makes no sense as a whole, so it is only looked for.
    if !asked && std::env::args_os().any(|argument| argument == "--json") {
        let rendered = error.render().to_string();
        let first = rendered.lines().next().unwrap_or_default();
        report_as_json(&Failure::usage(first.strip_prefix("error: ").unwrap_or(first)));
    }
    error.exit_code()
}
