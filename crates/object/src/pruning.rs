//! Options and result of pruning a bucket: removing the leftovers of an index.

use serde::Serialize;
use std::time::Duration;

/// The default time for which replaced generations are kept: longer than a reader keeps an index open without
/// reopening it.
const DEFAULT_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Options of a prune.
#[derive(Debug, Clone, Copy)]
pub struct PruneOptions {
    /// Generations and uploads that were replaced, deleted or abandoned within this time are kept.
    pub kept: Duration,
    /// True to report what would be removed without removing it.
    pub dry_run: bool,
}

impl Default for PruneOptions {
    fn default() -> Self {
        PruneOptions { kept: DEFAULT_KEPT, dry_run: false }
    }
}

/// Counts of what a prune removed, or would remove.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PruneReport {
    /// Removed generations, which were replaced or deleted.
    pub generations: u64,
    /// Removed uploads, which were never published.
    pub unfinished: u64,
    /// Objects of both kinds.
    pub objects: u64,
    /// Bytes of these objects.
    pub bytes: u64,
    /// Generations and uploads that were kept because they are not old enough.
    pub kept: u64,
}

impl PruneReport {
    #[cfg(feature = "client")]
    pub(crate) fn add(&mut self, more: PruneReport) {
        self.generations += more.generations;
        self.unfinished += more.unfinished;
        self.objects += more.objects;
        self.bytes += more.bytes;
        self.kept += more.kept;
    }
}
