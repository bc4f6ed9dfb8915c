//! What of a bucket is removed because nobody needs it any more, and what was.

use serde::Serialize;
use std::time::Duration;

/// How long what was replaced stays by default: longer than anybody keeps an index open without a look.
const DEFAULT_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// What to remove.
#[derive(Debug, Clone, Copy)]
pub struct PruneOptions {
    /// What was replaced, deleted or left within this time stays.
    pub kept: Duration,
    /// Whether to say what would be removed, and to remove nothing.
    pub dry_run: bool,
}

impl Default for PruneOptions {
    fn default() -> Self {
        PruneOptions { kept: DEFAULT_KEPT, dry_run: false }
    }
}

/// What was removed, or would be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// Generations that were replaced or deleted.
    pub generations: u64,
    /// Uploads that were never published.
    pub unfinished: u64,
    /// Objects of both.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Generations and uploads that are not old enough.
    pub kept: u64,
}

impl Pruned {
    #[cfg(feature = "client")]
    pub(crate) fn add(&mut self, more: Pruned) {
        self.generations += more.generations;
        self.unfinished += more.unfinished;
        self.objects += more.objects;
        self.bytes += more.bytes;
        self.kept += more.kept;
    }
}
