//! The command `bathyal`, for the entry point of the package.

use pyo3::prelude::*;
use std::ffi::OsString;
use std::io::Write;

/// Runs the command that `arguments` (the program's name first) spell; returns its exit code.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, arguments: Vec<OsString>) -> i32 {
    py.detach(|| {
        let code = bathyal_cli::main(arguments.into_iter());
        // Only a Rust program does this at its end, and this one ends as Python does. A closed pipe is no
        // reason to complain.
        let _ = std::io::stdout().flush();
        code
    })
}
