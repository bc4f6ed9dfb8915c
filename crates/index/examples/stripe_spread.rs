//! How evenly searches of an index would load several disks, by the unit that it is striped by: six simulated
//! devices under the real search loop.
//!
//! `cargo run --release --locked -p bathyal-index --example stripe_spread -- INDEX QUERIES [DEVICES]` prints
//! the table of `docs/stripes.md`. The index must not be striped; the file that searches read is held in
//! memory.

#[path = "../tests/all/stripes/spread.rs"]
mod spread;

use bathyal_index::{Effort, SearchOptions};
use bathyal_vectors::VectorFile;
use std::path::PathBuf;
use std::process::ExitCode;

const DEVICES: usize = 6;
const UNITS: [u32; 5] = [4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(index), Some(queries)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: stripe_spread INDEX QUERIES [DEVICES]");
        return ExitCode::from(2);
    };
    let devices = arguments.next().and_then(|devices| devices.parse().ok()).unwrap_or(DEVICES);
    let queries = match VectorFile::open(&queries) {
        Ok(queries) => queries,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let options =
        SearchOptions { effort: Effort::Recall(0.95), in_flight: Some(16), ..SearchOptions::default() };
    println!(
        "{:>8} {:>10} {:>9} {:>9} {:>14} {:>11}",
        "unit", "reads", "most/mean", "crossing", "p99 us", "queries/s"
    );
    for unit in UNITS {
        let spread = spread::measure(&PathBuf::from(&index), &queries, &options, devices, unit);
        let (least, most) = spread.p99_range_us();
        println!(
            "{:>8} {:>10} {:>9.3} {:>9.4} {:>14} {:>11.0}",
            format!("{} KB", unit >> 10),
            spread.reads.iter().sum::<u64>(),
            spread.imbalance(),
            spread.crossing,
            format!("{least}..{most}"),
            spread.queries_a_second
        );
    }
    ExitCode::SUCCESS
}
