//! The command `bathyal`, as a library: the binary and the Python package both call [`main`].
//!
//! * [`arguments`]: what can be typed, with its help.
//! * [`command`]: one file a command.
//!
//! Answers go to stdout (text, or with `--json` one object), everything else to stderr, by [`bathyal_console`].

pub mod arguments;
pub mod command;

use std::ffi::OsString;

use bathyal_console::{Code, Console};
use bathyal_store::Cancelling;
use clap::Parser;

use arguments::Arguments;

/// Runs the command that `arguments` (the program's name first) spell and returns its exit code, one of
/// [`Code`]. Answers go to stdout, messages and progress to stderr. SIGINT and SIGTERM are caught
/// while it runs: the first ends the work within 100 ms, a second SIGINT ends the process.
pub fn main(arguments: impl Iterator<Item = OsString>) -> i32 {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are errors to clap, with exit code 0. A closed pipe is no reason to complain.
            let _ = error.print();
            return error.exit_code();
        }
    };
    let console = Console::new(&arguments.output);
    // What waits in a store that is elsewhere ends, too.
    let _cancelling = Cancelling::by(Some(console.interrupt().shared()));
    match command::run(&arguments.command, &console) {
        Ok(()) => Code::Success as i32,
        Err(failure) => {
            console.complain(&failure);
            failure.code as i32
        }
    }
}
