//! Checks on real data that take minutes, each a subcommand. See `bench/README.md`.

mod blend;
mod calibration;
mod load;
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
static ALLOCATOR: state::CountingAllocator = state::CountingAllocator;

/// Checks of Bathyal on real data.
#[derive(Debug, Parser)]
#[command(name = "bathyal-suites", version)]
struct Arguments {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Debug, Subcommand)]
enum Suite {
    /// Make a larger set by blending near vectors of a real one
    Blend(blend::BlendArguments),
    /// Compare requested with measured recall, calibrated with vectors of the data and with real queries
    Calibration(calibration::CalibrationArguments),
    /// Send requests to an HTTP server over several connections, and measure its speed
    Load(load::LoadArguments),
    /// Make a larger set by perturbing the vectors of a real one
    Perturb(perturb::PerturbArguments),
    /// Relay an object store and delay its reads as a remote store would, for all compared systems
    Relay(relay::RelayArguments),
    /// Search an index in an object store with failing reads for a long time: checks answers, memory and open
    /// files
    SoakStore(soak_store::SoakArguments),
    /// Measure the memory of a running query at the allocator
    State(state::StateArguments),
    /// Compare ids, distances and counters from files, memory and a simulated device
    Tiers(tiers::TierArguments),
}

fn run(suite: &Suite) -> Result<bool, Box<dyn Error>> {
    match suite {
        Suite::Blend(arguments) => blend::run(arguments),
        Suite::Calibration(arguments) => calibration::run(arguments),
        Suite::Load(arguments) => load::run(arguments),
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
