//! `bathyal probe --tier mapped`: the report on memory.

use std::fmt::Write;

use bathyal_console::{Console, Failure, byte_size};
use bathyal_tier::backend::mapped::MappedOptions;
use bathyal_tier::probe::{self, MemoryProbeOptions, MemoryReport, Mode};
use bathyal_vectors::progress::Progress;

use super::probe::{PROGRESS_STEPS, save};
use crate::arguments::ProbeArguments;

/// A measured size below this many times the last-level cache measures the cache, too.
const TIMES_THE_CACHE: u64 = 4;

pub(super) fn run(
    arguments: &ProbeArguments,
    place: &MappedOptions,
    console: &Console,
) -> Result<(), Failure> {
    let mode = if arguments.thorough { Mode::Thorough } else { Mode::Quick };
    let mut options = MemoryProbeOptions::from(mode);
    options.bytes = arguments.size.unwrap_or(options.bytes);
    let progress = console.progress();
    progress.stage("measuring the memory", PROGRESS_STEPS);
    let go_on = |share: f64| {
        progress.advance((share * PROGRESS_STEPS as f64) as u64);
        !progress.cancelled()
    };
    let report = probe::probe_memory(place, &options, &go_on)?;
    drop(progress);
    if let Some(output) = &arguments.output {
        save(output, &report.profile)?;
    }
    console.answer(&report, &text(&report))
}

/// Returns the summary, the bandwidth tables (one per number of threads) and the slow-down by small reads.
/// Writing to a string does not fail.
fn text(report: &MemoryReport) -> String {
    let profile = &report.profile;
    let mut text = format!(
        "{}, {} measured in {:.1} s\n\
         dependent load {:.0} ns ({:.1} ns within the first-level cache)\n\
         {:.1} M reads/s of a cache line, {}/s, useful depth {} a thread\n",
        profile.method,
        byte_size::format(report.bytes),
        report.seconds,
        report.dependent_load_ns,
        report.cached_load_ns,
        profile.iops / 1e6,
        byte_size::format(profile.bandwidth_bytes_per_s as u64),
        profile.depth,
    );
    let sorted = |mut list: Vec<u64>| {
        list.sort_unstable();
        list.dedup();
        list
    };
    let cells = &report.cells;
    let depths = sorted(cells.iter().map(|cell| u64::from(cell.in_flight)).collect());
    let payloads = sorted(cells.iter().map(|cell| u64::from(cell.payload_bytes)).collect());
    for threads in sorted(cells.iter().map(|cell| cell.threads as u64).collect()) {
        let _ = write!(
            text,
            "random reads in GB/s, {threads} thread(s), by payload and reads in flight a thread:\n  payload"
        );
        depths.iter().for_each(|depth| {
            let _ = write!(text, " {depth:>8}");
        });
        for payload in &payloads {
            let _ = write!(text, "\n{payload:>9}");
            for depth in &depths {
                let shape = (threads, *payload, *depth);
                let at = |cell: &&probe::MemoryCell| {
                    (cell.threads as u64, u64::from(cell.payload_bytes), u64::from(cell.in_flight)) == shape
                };
                let rate = cells.iter().find(at).map(|cell| cell.bandwidth_bytes_per_s / 1e9);
                let rate = rate.map_or("-".to_owned(), |rate| format!("{rate:.2}"));
                let _ = write!(text, " {rate:>8}");
            }
        }
        text.push('\n');
        let mixed = || report.mixed.iter().filter(|cell| cell.threads as u64 == threads);
        text += "slow-down by reads of 128 B among those of 4096 B:\n    share";
        mixed().for_each(|cell| {
            let _ = write!(text, " {:>6.0}%", 100.0 * cell.small_share);
        });
        text += "\nslow-down";
        mixed().for_each(|cell| {
            let _ = write!(text, " {:>6.1}%", 100.0 * cell.slowdown);
        });
        text.push('\n');
    }
    if let Some(cache) = report.cache_bytes.filter(|cache| report.bytes < TIMES_THE_CACHE * cache) {
        let _ = write!(
            text,
            "note: the last-level cache has {}; measure more memory (--size) to exclude its effect",
            byte_size::format(cache)
        );
    }
    text
}
