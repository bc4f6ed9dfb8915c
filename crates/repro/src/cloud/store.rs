//! The object store in this process's memory. An index is copied into it and opened through an emulated
//! network or at full speed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bathyal_console::{Console, Failure};
use bathyal_index::cost::processor::Processor;
use bathyal_index::cost::store::StoreTimes;
use bathyal_index::locate::holding;
use bathyal_index::open::WrapTier;
use bathyal_index::{CopyOptions, Index, IndexError, OpenOptions, PruneOptions, StoreOptions, copy};
use bathyal_object::tier::REQUEST_NS;
use bathyal_object::{Shaper, Shaping};
use bathyal_tier::TierProfile;

use super::arguments::CloudArguments;
use super::sets::CloudSet;
use super::subjects::CloudSubject;

/// The folder in the store.
const FOLDER: &str = "memory://repro";
/// Limit of requests in flight: more than the paper's store starts within its first byte, so the store's own
/// limit binds.
const MOST_REQUESTS: &str = "max_requests=2048";

/// The emulated store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Emulation {
    pub name: &'static str,
    pub shaping: Shaping,
    pub hedge: bool,
    pub seed: u64,
}

impl Emulation {
    /// Returns the emulation that the options select.
    pub(super) fn of(arguments: &CloudArguments) -> Emulation {
        let store = arguments.store_name();
        let (hedge, seed) = (arguments.hedge, arguments.seed);
        Emulation { name: store.name(), shaping: store.shaping(), hedge, seed }
    }

    /// Returns the times of the store for predictions.
    pub(super) fn times(&self) -> StoreTimes {
        StoreTimes {
            first_byte_ns: self.shaping.first_byte_ms * 1e6,
            spread: self.shaping.spread,
            requests_per_s: self.shaping.requests_per_s,
            bytes_per_s: self.shaping.bytes_per_s,
            request_ns: REQUEST_NS as f64,
        }
    }

    /// Returns a fixed profile of the store for searches, so that their requests do not depend on earlier
    /// measurements.
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
            issue_ns: REQUEST_NS,
            rates: Vec::new(),
        }
    }
}

/// An index in the store; dropping this deletes the index.
pub(super) struct StoredIndex {
    address: PathBuf,
    emulation: Emulation,
}

impl StoredIndex {
    /// Copies the index at `path` into the store.
    pub(super) fn copy(
        path: &Path,
        (set, subject): (&CloudSet, CloudSubject),
        emulation: Emulation,
        console: &Console,
    ) -> Result<StoredIndex, Failure> {
        let address = PathBuf::from(format!("{FOLDER}/{}-{}", set.name, subject.name()));
        let options = CopyOptions { overwrite: true, ..CopyOptions::default() };
        copy(path, &address, &options, &console.progress())?;
        Ok(StoredIndex { address, emulation })
    }

    /// Opens the index at the speed of memory, for recall and counters; `wrap` can observe its reads.
    pub(super) fn open_fast(&self, wrap: Option<WrapTier>) -> Result<Index, Failure> {
        self.open(None, wrap)
    }

    /// Opens the index behind the emulated network.
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

impl Drop for StoredIndex {
    fn drop(&mut self) {
        // A remainder only occupies memory until the process ends, so ignore errors.
        if let Ok(held) = holding(&self.address, &StoreOptions::default())
            && held.store().delete(&held.name).is_ok()
        {
            let _ = held.prune(&PruneOptions { kept: Duration::ZERO, dry_run: false });
        }
    }
}
