//! `bathyal repro`: the papers' figures, measured on this machine.
//!
//! A folder a paper: it says which indexes are compared, how they are measured, and what its reports hold. Vectors and queries,
//! plots and the writing of reports are the same for all.

pub mod arguments;
mod cloud;
mod d_hnsw;
mod document;
mod doorbells;
mod draw;
mod e2lsh;
mod gustann;
mod numbers;
mod records;
mod second_tier;
mod sets;
mod workload;

pub use arguments::ReproArguments;

use bathyal_console::{Console, Failure};

use arguments::Paper;

/// Runs the reproduction that was asked for.
///
/// # Errors
/// What went wrong, with the exit code that says so.
pub fn run(arguments: &ReproArguments, console: &Console) -> Result<(), Failure> {
    match &arguments.paper {
        Paper::SecondTier { experiment } => second_tier::run(experiment, console),
        Paper::E2lsh(arguments) => e2lsh::run(arguments, console),
        Paper::Cloud(arguments) => cloud::run(arguments, console),
        Paper::DHnsw(arguments) => d_hnsw::run(arguments, console),
        Paper::Gustann(arguments) => gustann::run(arguments, console),
    }
}
