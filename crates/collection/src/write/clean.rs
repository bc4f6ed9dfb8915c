//! What no version names any more is removed.

use super::shared::{Shared, Writing};
use crate::error::CollectionError;
use crate::place::Part;
use crate::version::{SegmentEntry, Version, numbers};
use std::collections::BTreeSet;

impl Shared {
    /// Removes versions that are not kept, and segments and logs that only they need. What fails is tried again after the next
    /// version: nothing depends on it.
    pub(super) fn clean(&self, writing: &mut Writing) {
        let state = self.state();
        let Some(log) = &mut writing.log else { return };
        // One that was taken over from must not remove what the other one needs.
        if !log.is_current(state.version.number).unwrap_or(false) {
            return;
        }
        // Logs of a version that is kept are those behind the latest: the older ones are opened without.
        let _ = log.remove_through(state.version.through);
        let _ = self.remove_versions(&state.version);
    }

    fn remove_versions(&self, latest: &Version) -> Result<(), CollectionError> {
        let mut there = numbers(&self.place)?;
        there.retain(|number| *number <= latest.number);
        let kept = there.split_off(there.len().saturating_sub(1 + self.options.keep_versions));
        if there.is_empty() {
            return Ok(());
        }
        let mut needed = BTreeSet::new();
        for number in kept {
            let version = Version::read(&self.place, number)?.0;
            needed.extend(version.segments.into_iter().map(|segment| segment.name));
        }
        for number in there {
            // Only what a version has named: what nobody has named may be on its way.
            if let Ok((version, _)) = Version::read(&self.place, number) {
                let gone = version.segments.iter().filter(|segment| !needed.contains(&segment.name));
                let fields = latest.schema.vectors.len();
                gone.for_each(|segment| self.segments.doom(&segment.name, fields));
            }
            self.place.store().delete(&Part::Version(number).name())?;
        }
        self.segments.bury(&self.place)
    }

    /// Removes a segment that no version names.
    pub(super) fn discard(&self, segment: &SegmentEntry) {
        self.segments.doom(&segment.name, self.state().schema().vectors.len());
        // What of it stays is found when the collection is next opened to write.
        let _ = self.segments.bury(&self.place);
    }
}
