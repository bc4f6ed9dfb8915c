//! Measures the store of an index by reads of the index itself.

use crate::error::IndexError;
use crate::format::manifest::Manifest;
use crate::locate::find;
use bathyal_object::StoreOptions;
use bathyal_tier::backend::file::FileOptions;
use bathyal_tier::probe::{ProbeOptions, ProbeReport, probe_tier};
use std::path::Path;
use std::time::Duration;

/// The bytes of the measured reads of a remote store: a page, the bytes that the network transfers in the
/// time of a request, and enough to saturate it.
const BLOCKS: [u32; 3] = [4 << 10, 64 << 10, 1 << 20];
/// The measured numbers of requests in flight.
const DEPTHS: [u32; 5] = [1, 8, 32, 128, 512];
/// The least time of a cell, several times that of a request to a distant store, and of all cells.
const CELL_TIME: Duration = Duration::from_millis(250);
const READ_TIME: Duration = Duration::from_secs(4);

/// Measures the store of the index at `path` by reads of its file of pages. Nothing is written. The blocks
/// and depths are those of remote stores and replace those in `options`. `progress` is as for
/// [`probe_tier`](bathyal_tier::probe::probe_tier).
///
/// # Errors
/// [`IndexError`]: no index at `path`, a store that does not answer; cancellation.
pub fn probe_store(
    path: impl AsRef<Path>,
    store: &StoreOptions,
    options: &ProbeOptions,
    progress: &dyn Fn(f64) -> bool,
) -> Result<ProbeReport, IndexError> {
    let directory = find(path, &[], store)?;
    let manifest = Manifest::load(directory.as_ref())?;
    let tier = manifest.open_file(directory.as_ref(), manifest.paged_file())?.tier(FileOptions::default())?;
    let options = ProbeOptions {
        blocks: BLOCKS.to_vec(),
        depths: DEPTHS.to_vec(),
        cell_time: options.cell_time.max(CELL_TIME),
        read_time: options.read_time.max(READ_TIME),
        joins_reads: true,
        ..options.clone()
    };
    Ok(probe_tier(&tier, &options, progress)?)
}
