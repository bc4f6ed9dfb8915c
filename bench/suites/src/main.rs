//! Checks on real data that take minutes, each a subcommand. See `bench/README.md`.

mod calibration;
mod perturb;
mod sets;
mod tiers;

use clap::{Parser, Subcommand};
use std::error::Error;
use std::process::ExitCode;

/// Checks of Bathyal on real data.
#[derive(Debug, Parser)]
#[command(name = "bathyal-suites", version)]
struct Arguments {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Debug, Subcommand)]
enum Suite {
    /// Asked against measured recall, calibrated with vectors of the data and with real queries
    Calibration(calibration::CalibrationArguments),
    /// A larger set made by perturbing the vectors of a real one
    Perturb(perturb::PerturbArguments),
    /// The same ids, distances and counters from files, from memory and from a simulated device
    Tiers(tiers::TierArguments),
}

fn run(suite: &Suite) -> Result<bool, Box<dyn Error>> {
    match suite {
        Suite::Calibration(arguments) => calibration::run(arguments),
        Suite::Perturb(arguments) => perturb::run(arguments),
        Suite::Tiers(arguments) => tiers::run(arguments),
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse().suite) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
