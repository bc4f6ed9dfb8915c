//! Measuring the store that an index lies in, with reads of the index itself.

use crate::error::IndexError;
use crate::format::manifest::Manifest;
use crate::locate::find;
use bathyal_object::StoreOptions;
use bathyal_tier::backend::file::FileOptions;
use bathyal_tier::probe::{ProbeOptions, ProbeReport, probe_tier};
use std::path::Path;

/// Bytes of the reads that measure a store far away: a page, what a link carries in the time of a request, and what fills it.
const BLOCKS: [u32; 3] = [4 << 10, 64 << 10, 1 << 20];
/// Requests in flight that are measured.
const DEPTHS: [u32; 5] = [1, 8, 32, 128, 512];

/// Measures the store in which the index at `path` lies by reads of its largest file; nothing is written. Blocks and depths are
/// those of stores far away, whatever `options` say of them. `progress` as for
/// [`probe_tier`](bathyal_tier::probe::probe_tier).
///
/// # Errors
/// [`IndexError`]: no index there, a store that does not answer; cancellation.
pub fn probe_store(
    path: impl AsRef<Path>,
    store: &StoreOptions,
    options: &ProbeOptions,
    progress: &dyn Fn(f64) -> bool,
) -> Result<ProbeReport, IndexError> {
    let directory = find(path, &[], store)?;
    let manifest = Manifest::load(directory.as_ref())?;
    let tier = manifest.open_file(directory.as_ref(), manifest.paged_file())?.tier(FileOptions::default())?;
    let options = ProbeOptions { blocks: BLOCKS.to_vec(), depths: DEPTHS.to_vec(), ..options.clone() };
    Ok(probe_tier(&tier, &options, progress)?)
}
