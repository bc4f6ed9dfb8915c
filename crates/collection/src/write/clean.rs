//! What no version names any more is removed.

use super::shared::{Shared, Writing};

impl Shared {
    /// Removes versions that are not kept, and segments and logs that only they need. What fails, or is still being looked at, is
    /// removed after the next version, or when the collection is next opened to write: nothing depends on it.
    pub(super) fn clean(&self, writing: &mut Writing) {
        let state = self.state();
        if let Some(log) = &mut writing.log {
            let _ = log.sweep(&state.version, 1 + self.options.keep_versions, &|| self.segments.in_use());
        }
    }
}
