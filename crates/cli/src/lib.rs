//! The command `bathyal`, as a library: the binary and the Python package both call [`main`].
//!
//! * [`arguments`]: what can be typed, with its help.
//! * [`command`]: one file a command.
//!
//! Answers go to stdout (text, or with `--json` one object), everything else to stderr, by [`bathyal_console`].

pub mod arguments;
pub mod command;
mod shown;
mod typed;

use std::ffi::OsString;

use bathyal_console::{Console, Failure, complain_in_json, exit_code};
use bathyal_store::CancelScope;
use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, Error, FromArgMatches};

use arguments::Arguments;

/// Runs the command that `arguments` (the program's name first) spell and returns its exit code, one of
/// [`Code`](bathyal_console::Code). Answers go to stdout, messages and progress to stderr. SIGINT and SIGTERM are caught
/// while it runs: the first ends the work within 100 ms, a second SIGINT ends the process.
pub fn main(arguments: impl Iterator<Item = OsString>) -> i32 {
    let line: Vec<OsString> = arguments.collect();
    let (arguments, matches) = match parse(&line) {
        Ok(parsed) => parsed,
        Err(error) => return refuse(&error, &line),
    };
    let console = Console::new(&arguments.output);
    if let Err(failure) = arguments.output.check() {
        return console.complain(&failure);
    }
    if arguments.output.verbose {
        typed::parameters(&matches).iter().for_each(|line| console.detail(line));
    }
    arguments.command.notes().iter().for_each(|note| console.remark(&format!("note: {note}")));
    // What waits in a store that is elsewhere ends, too.
    let _cancelling = CancelScope::new(Some(console.interrupt().shared()));
    exit_code(command::run(&arguments.command, &console), &console)
}

fn parse(line: &[OsString]) -> Result<(Arguments, ArgMatches), Error> {
    let mut grammar = Arguments::command();
    let matches = grammar.try_get_matches_from_mut(line)?;
    let arguments = Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut grammar))?;
    Ok((arguments, matches))
}

/// Says what is wrong with the command line, and what was asked for by `--help` and `--version`: both are errors to the parser.
/// Returns the exit code.
fn refuse(error: &Error, line: &[OsString]) -> i32 {
    // A closed pipe is no reason to complain.
    let _ = error.print();
    let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    // What was typed makes no sense as a whole, so it is only looked for.
    let options = line.iter().take_while(|argument| *argument != "--");
    if !asked && options.into_iter().any(|argument| argument == "--json") {
        complain_in_json(&Failure::usage(typed::sentence(error)));
    }
    error.exit_code()
}
