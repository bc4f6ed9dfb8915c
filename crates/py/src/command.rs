//! The command `bathyal`, for the entry point of the package.

use pyo3::prelude::*;
use std::ffi::OsString;
use std::io::Write;

/// Runs the command line `arguments` (the program's name first); returns its exit code.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, arguments: Vec<OsString>) -> i32 {
    py.detach(|| {
        let code = bathyal_cli::main(arguments.into_iter());
        // A Rust program flushes stdout at its end, but this process ends as Python does. A closed pipe is
        // not an error.
        let _ = std::io::stdout().flush();
        code
    })
}
