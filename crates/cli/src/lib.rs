//! The command `bathyal`, as a library: the binary and the Python package both call [`main`].
//!
//! * [`arguments`]: the subcommands and options, with their help.
//! * [`command`]: one file per command.
//!
//! [`bathyal_console`] prints answers on stdout (text, or with `--json` one object) and everything else on
//! stderr.

pub mod arguments;
pub mod command;
mod configured;
mod measured;
mod shown;
mod typed;

use std::ffi::OsString;

use bathyal_console::{Console, Failure, exit_code, report_as_json};
use bathyal_store::CancelScope;
use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, Error, FromArgMatches};

use arguments::CommandLine;

/// Runs the command line `arguments` (the program's name first) and returns the exit code, one of
/// [`Code`](bathyal_console::Code). Answers go to stdout, messages and progress to stderr. SIGINT and SIGTERM
/// are caught meanwhile: the first one ends the work within 100 ms, and a second SIGINT ends the process.
pub fn main(arguments: impl Iterator<Item = OsString>) -> i32 {
    let mut line: Vec<OsString> = arguments.collect();
    let (mut arguments, mut matches) = match parse(&line) {
        Ok(parsed) => parsed,
        Err(error) => return refuse(&error, &line),
    };
    match configured::configured(&line, &matches) {
        Ok(None) => {}
        Ok(Some(whole)) => {
            line = whole;
            (arguments, matches) = match parse(&line) {
                Ok(parsed) => parsed,
                Err(error) => return refuse(&error, &line),
            };
        }
        Err(failure) => return Console::new("bathyal", &arguments.output).report(&failure),
    }
    let console = Console::new("bathyal", &arguments.output);
    if let Err(failure) = arguments.output.check() {
        return console.report(&failure);
    }
    if arguments.output.verbose {
        typed::parameters(&matches).iter().for_each(|line| console.detail(line));
    }
    arguments.command.notes().iter().for_each(|note| console.note(&format!("note: {note}")));
    // Ctrl-C also ends waits for requests to object stores and memory nodes.
    let _cancelling = CancelScope::new(Some(console.interrupt().shared()));
    exit_code(command::run(&arguments.command, &console), &console)
}

fn parse(line: &[OsString]) -> Result<(CommandLine, ArgMatches), Error> {
    let mut grammar = CommandLine::command();
    let matches = grammar.try_get_matches_from_mut(line)?;
    let arguments = CommandLine::from_arg_matches(&matches).map_err(|error| error.format(&mut grammar))?;
    Ok((arguments, matches))
}

/// Prints the parser's error, which is also how the texts of `--help` and `--version` arrive. Returns the
/// exit code.
fn refuse(error: &Error, line: &[OsString]) -> i32 {
    // A closed pipe is not an error.
    let _ = error.print();
    let is_text = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    // The command line cannot be parsed, so `--json` is searched among its words.
    let options = line.iter().take_while(|argument| *argument != "--");
    if !is_text && options.into_iter().any(|argument| argument == "--json") {
        report_as_json(&Failure::usage(typed::sentence(error)));
    }
    error.exit_code()
}
