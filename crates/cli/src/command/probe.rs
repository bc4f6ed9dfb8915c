//! `bathyal probe`.

use std::fmt::Write;
use std::path::Path;

use bathyal_console::{Console, Failure, Kind, byte_size};
use bathyal_index::{TierChoice, probe_store};
use bathyal_tier::TierProfile;
use bathyal_tier::probe::{self, Mode, ProbeOptions, ProbeReport};
use bathyal_vectors::progress::Progress;

use crate::arguments::ProbeArguments;

/// Steps of the progress of a probe, which reports its progress as a share.
pub(super) const PROGRESS_STEPS: u64 = 1000;

pub(super) fn run(arguments: &ProbeArguments, console: &Console) -> Result<(), Failure> {
    if arguments.tier.is_some() && !arguments.store.options()?.is_empty() {
        return Err(Failure::usage("--tier measures memory, which takes no store options; leave them out"));
    }
    let folder = match (&arguments.tier, &arguments.folder) {
        (Some(TierChoice::Mapped(place)), _) => return super::probe_memory::run(arguments, place, console),
        (None, Some(folder)) => folder,
        (tier, _) => {
            let tier = tier.as_ref().map_or(String::new(), |tier| format!(" {tier}"));
            let what =
                format!("--tier{tier}: --tier probes mapped memory only; give a folder to probe a device");
            return Err(Failure::usage(what));
        }
    };
    let mode = if arguments.thorough { Mode::Thorough } else { Mode::Quick };
    let mut options = ProbeOptions::from(mode);
    options.file_bytes = arguments.size.unwrap_or(options.file_bytes);
    let progress = console.progress();
    progress.stage("measuring the device", PROGRESS_STEPS);
    let go_on = |share: f64| {
        progress.advance((share * PROGRESS_STEPS as f64) as u64);
        !progress.cancelled()
    };
    let store = arguments.store.options()?;
    let report = match folder.to_str().is_some_and(|text| text.contains("://")) {
        true => probe_store(folder, &store, &options, &go_on)?,
        false if !store.is_empty() => {
            return Err(Failure::usage(format!(
                "{}: is a folder, which takes no store options; leave them out",
                folder.display()
            )));
        }
        false => probe::probe_directory_with(folder, &options, &go_on)?,
    };
    drop(progress);
    if let Some(output) = &arguments.output {
        save(output, &report.profile)?;
    }
    console.answer(&report, &text(folder, &report))
}

/// Writes only the profile, which cost models read.
pub(super) fn save(path: &Path, profile: &TierProfile) -> Result<(), Failure> {
    let message = |e: &dyn std::fmt::Display| format!("{}: cannot write the profile: {e}", path.display());
    let json = serde_json::to_string_pretty(profile).map_err(|e| Failure::of(Kind::Internal, message(&e)))?;
    std::fs::write(path, json + "\n").map_err(|e| Failure::system(&e, message(&e)))
}

/// Returns the summary, and a table of IOPS with a row per block size and a column per depth.
fn text(folder: &Path, report: &ProbeReport) -> String {
    let profile = &report.profile;
    let mut text = format!(
        "{}: {}, measured in {:.1} s\n\
         latency {:.1} us for {} B, {:.0} reads/s, {}/s, useful depth {}\n\
         reads a second:\n    block",
        folder.display(),
        profile.method,
        report.seconds,
        profile.latency_ns as f64 / 1e3,
        profile.granularity,
        profile.iops,
        byte_size::format(profile.bandwidth_bytes_per_s as u64),
        profile.depth,
    );
    let (mut depths, mut blocks) = (Vec::new(), Vec::new());
    for cell in &report.cells {
        depths.push(cell.depth);
        blocks.push(cell.block_bytes);
    }
    for list in [&mut depths, &mut blocks] {
        list.sort_unstable();
        list.dedup();
    }
    // Writing to a string does not fail.
    for depth in &depths {
        let _ = write!(text, " {:>9}", format!("depth {depth}"));
    }
    for block in blocks {
        let _ = write!(text, "\n{block:>9}");
        for &depth in &depths {
            let cell = report.cells.iter().find(|cell| (cell.block_bytes, cell.depth) == (block, depth));
            let iops = cell.map_or("-".to_owned(), |cell| format!("{:.0}", cell.iops));
            let _ = write!(text, " {iops:>9}");
        }
    }
    if !report.past_page_cache {
        text += "\nnote: the file system does not allow reads without the page cache, so these are reads of \
                 memory";
    }
    text
}
