//! What no version names any more is removed.

use super::shared::Shared;
use crate::error::CollectionError;
use crate::log::{Listed, remove};
use std::sync::PoisonError;

impl Shared {
    /// Removes versions that are not kept, and segments and logs that only they need. What fails, or is still being looked at, is
    /// removed after the next version, or when the collection is next opened to write: nothing depends on it. Others write meanwhile.
    pub(super) fn clean(&self) {
        let _cleaning = self.cleaning.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.try_clean();
    }

    fn try_clean(&self) -> Result<(), CollectionError> {
        let listed = Listed::of(&self.place)?;
        let unneeded = {
            let mut writing = self.writing();
            let Some(log) = &mut writing.log else { return Ok(()) };
            let keep = 1 + self.options.keep_versions;
            log.unneeded(listed, (&self.state().version, keep), &self.segments.in_use())?
        };
        remove(&self.place, &unneeded)
    }
}
