//! Work that searches and writes come before.

use crate::error::CollectionError;
use bathyal_tier::TierError;
use bathyal_tier::process::yield_to_others;

/// Does `work` in a thread that leaves the cores to searches and writes where these want them, and so do all that it starts.
pub(super) fn yielding<T: Send>(
    work: impl FnOnce() -> Result<T, CollectionError> + Send,
) -> Result<T, CollectionError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("bathyal-compact".into());
        let spawned = thread.spawn_scoped(scope, || {
            yield_to_others();
            work()
        });
        let started = spawned.map_err(|source| {
            let operation = "start a thread that merges segments";
            CollectionError::Index(TierError::System { operation, source }.into())
        })?;
        let ended = || CollectionError::Internal("the thread that merges segments has ended".into());
        started.join().unwrap_or_else(|_| Err(ended()))
    })
}
