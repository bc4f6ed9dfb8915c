//! Stopped merges: a merge that was killed, or cancelled because the collection was closed. The next merge
//! continues it.

use super::content::Content;
use crate::error::CollectionError;
use crate::location::Part;
use crate::segment::UnfinishedSegment;
use crate::state::State;
use bathyal_vectors::progress::Progress;
use std::collections::BTreeSet;

impl Content {
    /// Finds the unfinished segments of stopped merges. They are kept until they prove useless.
    ///
    /// # Errors
    /// [`CollectionError::Store`].
    pub(super) fn find_stopped_merges(&self) -> Result<(), CollectionError> {
        let id = self.state().version.id.clone();
        let mut found = BTreeSet::new();
        for name in self.place.store().leftovers()? {
            let Some(Part::Segment(name, None)) = Part::parse(&name) else { continue };
            if let Some(unfinished) = UnfinishedSegment::take_over(&self.place, &id, &name)? {
                unfinished.keep_for_later()?;
                found.insert(name);
            }
        }
        self.segments.set_stopped(found);
        Ok(())
    }

    /// Returns the segments that a stopped merge was merging, if they all still exist. Useless leftovers are
    /// forgotten.
    pub(super) fn segments_of_stopped_merge(&self) -> Option<Vec<String>> {
        let state = self.state();
        let mut found = None;
        for name in self.segments.stopped() {
            match self.stopped_merge_into(&state, &name) {
                Ok(Some(unfinished)) => {
                    let names = unfinished.merged().left_out.keys().cloned().collect();
                    if unfinished.keep_for_later().is_ok() {
                        found.get_or_insert(names);
                    }
                }
                Ok(None) => {}
                // They are found again when the log is next acquired.
                Err(_) => self.segments.forget_stopped(&name),
            }
        }
        found
    }

    /// Returns the unfinished segment of a merge of these segments, if its files are intact.
    ///
    /// # Errors
    /// [`CollectionError::Store`], [`CollectionError::Cancelled`].
    pub(super) fn take_stopped_merge(
        &self,
        state: &State,
        names: &[String],
        progress: &dyn Progress,
    ) -> Result<Option<UnfinishedSegment>, CollectionError> {
        for name in self.segments.stopped() {
            let Some(unfinished) = self.stopped_merge_into(state, &name)? else { continue };
            let left_out = &unfinished.merged().left_out;
            let common = names.iter().filter(|name| left_out.contains_key(*name)).count();
            if common == 0 {
                unfinished.keep_for_later()?;
                continue;
            }
            if common != names.len() || common != left_out.len() {
                // The segments of that merge will be gone: its space can be freed.
                self.segments.forget_stopped(&name);
                continue;
            }
            match unfinished.is_intact(progress) {
                Ok(true) => return Ok(Some(unfinished)),
                Ok(false) => self.segments.forget_stopped(&name),
                Err(error) => {
                    unfinished.keep_for_later()?;
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Returns the unfinished segment `name`, if the segments of its merge are in `state` and the rows that
    /// it left out are still deleted.
    fn stopped_merge_into(
        &self,
        state: &State,
        name: &str,
    ) -> Result<Option<UnfinishedSegment>, CollectionError> {
        let unfinished = UnfinishedSegment::take_over(&self.place, &state.version.id, name)?;
        let unfinished = unfinished.filter(|unfinished| {
            unfinished.merged().left_out.iter().all(|(name, rows)| {
                let mut segments = state.segments.iter();
                let segment = segments.find(|segment| segment.segment.entry().name == *name);
                segment.is_some_and(|segment| rows.iter().all(|row| segment.published.has(row)))
            })
        });
        if unfinished.is_none() {
            self.segments.forget_stopped(name);
        }
        Ok(unfinished)
    }
}
