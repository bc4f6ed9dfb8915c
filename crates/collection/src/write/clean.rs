//! Removes objects that no version needs any more.

use super::shared::Shared;
use crate::error::CollectionError;
use crate::log::{ListedParts, remove};
use std::sync::PoisonError;

impl Shared {
    /// Removes versions that are not kept, and segments and logs that only they need. Objects in use, and
    /// those that could not be removed, are removed after the next version or when the log is next acquired.
    /// Other writes are not blocked.
    pub(super) fn clean(&self) {
        let _cleaning = self.cleaning.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.try_clean();
    }

    fn try_clean(&self) -> Result<(), CollectionError> {
        let listed = ListedParts::list(&self.place)?;
        let unneeded = {
            let mut writing = self.writing();
            let Some(log) = &mut writing.log else { return Ok(()) };
            let keep = 1 + self.options.keep_versions;
            log.unneeded(listed, (&self.state().version, keep), &self.segments.in_use())?
        };
        remove(&self.place, &unneeded)
    }
}
