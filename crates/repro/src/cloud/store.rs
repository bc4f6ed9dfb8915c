//! The object store in this process's memory: an index copied into it, opened through an emulated network or as fast as it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bathyal_console::{Console, Failure};
use bathyal_index::cost::processor::Processor;
use bathyal_index::locate::holding;
use bathyal_index::open::WrapTier;
use bathyal_index::{CopyOptions, Index, IndexError, OpenOptions, PruneOptions, StoreOptions, copy};
use bathyal_object::{Shaper, Shaping};
use bathyal_tier::TierProfile;

use super::arguments::CloudArguments;
use super::sets::Set;
use super::subjects::Subject;

/// The folder in the store.
const FOLDER: &str = "memory://repro";
/// Requests in flight at most: more than the paper's store answers within its first byte, so that its limit is what binds.
const MOST_REQUESTS: &str = "max_requests=2048";
/// Processor nanoseconds of a request, as the tier of object stores has it.
const ISSUE_NS: u64 = 45_000;

/// The store that is emulated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Emulation {
    pub name: &'static str,
    pub shaping: Shaping,
    pub hedge: bool,
    pub seed: u64,
}

impl Emulation {
    /// The one that was asked for.
    pub(super) fn of(arguments: &CloudArguments) -> Emulation {
        let store = arguments.store_name();
        let (hedge, seed) = (arguments.hedge, arguments.seed);
        Emulation { name: store.name(), shaping: store.shaping(), hedge, seed }
    }

    /// What searches are told of it, so that what they ask for does not depend on what was measured a moment before.
    fn profile(&self) -> TierProfile {
        TierProfile {
            kind: "object".into(),
            method: "memory, ranges, emulated delays".into(),
            granularity: 1,
            alignment: 1,
            addressable: false,
            latency_ns: (self.shaping.first_byte_ms * 1e6) as u64,
            iops: self.shaping.requests_per_s,
            bandwidth_bytes_per_s: self.shaping.bytes_per_s,
            depth: 0,
            issue_ns: ISSUE_NS,
        }
    }
}

/// An index in the store; gone with this.
pub(super) struct Stored {
    address: PathBuf,
    emulation: Emulation,
}

impl Stored {
    /// Copies the index at `path` into the store.
    pub(super) fn copy(
        path: &Path,
        (set, subject): (&Set, Subject),
        emulation: Emulation,
        console: &Console,
    ) -> Result<Stored, Failure> {
        let address = PathBuf::from(format!("{FOLDER}/{}-{}", set.name, subject.name()));
        let options = CopyOptions { overwrite: true, ..CopyOptions::default() };
        copy(path, &address, &options, &console.progress())?;
        Ok(Stored { address, emulation })
    }

    /// Opens it as fast as memory is, for recall and counters; `wrap` may look at its reads.
    pub(super) fn open_fast(&self, wrap: Option<WrapTier>) -> Result<Index, Failure> {
        self.open(None, wrap)
    }

    /// Opens it behind the emulated network.
    pub(super) fn open_emulated(&self) -> Result<Index, Failure> {
        let Emulation { shaping, seed, .. } = self.emulation;
        self.open(Some(Arc::new(Shaper::new(shaping, seed))), None)
    }

    fn open(&self, shaper: Option<Arc<Shaper>>, wrap: Option<WrapTier>) -> Result<Index, Failure> {
        let hedge = if self.emulation.hedge && shaper.is_some() { "hedge=on" } else { "hedge=off" };
        let mut store = StoreOptions::parse(&[MOST_REQUESTS, hedge]).map_err(IndexError::from)?;
        store.shaper = shaper;
        let options = OpenOptions {
            store,
            wait: true,
            wrap,
            profile: Some(self.emulation.profile()),
            processor: Some(Processor::REFERENCE),
            ..OpenOptions::default()
        };
        Ok(Index::open(&self.address, &options)?)
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        // What stays behind takes memory until the process ends, and nothing else.
        if let Ok(held) = holding(&self.address, &StoreOptions::default())
            && held.store().delete(&held.name).is_ok()
        {
            let _ = held.prune(&PruneOptions { kept: Duration::ZERO, dry_run: false });
        }
    }
}
