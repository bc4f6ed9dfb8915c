//! Checks on real data that take minutes, each a subcommand. See `bench/README.md`.

mod blend;
mod calibration;
mod numbers;
mod perturb;
mod relay;
mod sets;
mod soak_store;
mod state;
mod tiers;

use clap::{Parser, Subcommand};
use std::error::Error;
use std::process::ExitCode;

#[global_allocator]
static COUNTING: state::Counting = state::Counting;

/// Checks of Bathyal on real data.
#[derive(Debug, Parser)]
#[command(name = "bathyal-suites", version)]
struct Arguments {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Debug, Subcommand)]
enum Suite {
    /// A larger set made by blending near vectors of a real one
    Blend(blend::BlendArguments),
    /// Asked against measured recall, calibrated with vectors of the data and with real queries
    Calibration(calibration::CalibrationArguments),
    /// A larger set made by perturbing the vectors of a real one
    Perturb(perturb::PerturbArguments),
    /// An object store made as slow as one that is far away, for all systems that are compared
    Relay(relay::RelayArguments),
    /// Many queries of an index in an object store in which reads go wrong: right answers, and nothing that grows
    SoakStore(soak_store::SoakArguments),
    /// What a query that is under way holds, counted at the allocator
    State(state::StateArguments),
    /// The same ids, distances and counters from files, from memory and from a simulated device
    Tiers(tiers::TierArguments),
}

fn run(suite: &Suite) -> Result<bool, Box<dyn Error>> {
    match suite {
        Suite::Blend(arguments) => blend::run(arguments),
        Suite::Calibration(arguments) => calibration::run(arguments),
        Suite::Perturb(arguments) => perturb::run(arguments),
        Suite::Relay(arguments) => relay::run(arguments),
        Suite::SoakStore(arguments) => soak_store::run(arguments),
        Suite::State(arguments) => state::run(arguments),
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
