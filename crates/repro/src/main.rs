//! `bathyal-repro`: the papers' figures, measured on this machine.
//!
//! Each paper has a folder, which defines the compared indexes and the measurements. All papers share the
//! reading of vectors and queries and the writing of records. The bench (`bench/bathyal_bench/repro`) makes
//! reports from the records.

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

use arguments::{Paper, ReproArguments};

fn main() {
    let code = match ReproArguments::try_parse() {
        Ok(arguments) => run_and_report(&arguments),
        Err(error) => report_parse_error(&error),
    };
    std::process::exit(code)
}

/// Runs the measurements of one paper, prints a failure, and returns the exit code.
fn run_and_report(arguments: &ReproArguments) -> i32 {
    let console = Console::new("bathyal-repro", &arguments.output);
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

/// Prints what the parser returns as an error: a mistake on the command line, or the text of `--help` or
/// `--version`. Returns the exit code.
fn report_parse_error(error: &Error) -> i32 {
    // Ignore a closed pipe.
    let _ = error.print();
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    // The command line did not parse, so search its words for `--json`.
    if !is_help && std::env::args_os().any(|argument| argument == "--json") {
        let rendered = error.render().to_string();
        let first = rendered.lines().next().unwrap_or_default();
        report_as_json(&Failure::usage(first.strip_prefix("error: ").unwrap_or(first)));
    }
    error.exit_code()
}
