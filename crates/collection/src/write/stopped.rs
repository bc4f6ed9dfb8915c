//! Merges that were stopped in the middle, by a kill or because the collection was closed: whoever merges next goes on with them.

use super::shared::Shared;
use crate::error::CollectionError;
use crate::place::Part;
use crate::segment::Unfinished;
use crate::state::State;
use bathyal_vectors::progress::Progress;
use std::collections::BTreeSet;

impl Shared {
    /// Looks for segments that a merge has left, which stay until it is known that they are of no use.
    ///
    /// # Errors
    /// [`CollectionError::Store`].
    pub(super) fn look_for_stopped(&self) -> Result<(), CollectionError> {
        let id = self.state().version.id.clone();
        let mut found = BTreeSet::new();
        for name in self.place.store().leftovers()? {
            let Some(Part::Segment(name, None)) = Part::of(&name) else { continue };
            if let Some(unfinished) = Unfinished::take(&self.place, &id, &name)? {
                unfinished.leave()?;
                found.insert(name);
            }
        }
        self.segments.set_stopped(found);
        Ok(())
    }

    /// The segments of which a merge was stopped, if they are all there. Of others nothing stays.
    pub(super) fn stopped_merge(&self) -> Option<Vec<String>> {
        let state = self.state();
        let mut found = None;
        for name in self.segments.stopped() {
            match self.stopped_as(&state, &name) {
                Ok(Some(unfinished)) => {
                    let names = unfinished.merged().left_out.keys().cloned().collect();
                    if unfinished.leave().is_ok() {
                        found.get_or_insert(names);
                    }
                }
                Ok(None) => {}
                // It is looked for again when the writing is next acquired.
                Err(_) => self.segments.forget(&name),
            }
        }
        found
    }

    /// What a merge of these segments has left, if all of it is as it was written.
    ///
    /// # Errors
    /// [`CollectionError::Store`], [`CollectionError::Cancelled`].
    pub(super) fn take_stopped(
        &self,
        state: &State,
        names: &[String],
        progress: &dyn Progress,
    ) -> Result<Option<Unfinished>, CollectionError> {
        for name in self.segments.stopped() {
            let Some(unfinished) = self.stopped_as(state, &name)? else { continue };
            let of = &unfinished.merged().left_out;
            let common = names.iter().filter(|name| of.contains_key(*name)).count();
            if common == 0 {
                unfinished.leave()?;
                continue;
            }
            if common != names.len() || common != of.len() {
                // What it is of will be gone: its space is free for what comes now.
                self.segments.forget(&name);
                continue;
            }
            match unfinished.is_whole(progress) {
                Ok(true) => return Ok(Some(unfinished)),
                Ok(false) => self.segments.forget(&name),
                Err(error) => {
                    unfinished.leave()?;
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// What a merge has left as the segment `name`, if what it is of is in `state`: what it has left out is deleted in all later
    /// versions, too.
    fn stopped_as(&self, state: &State, name: &str) -> Result<Option<Unfinished>, CollectionError> {
        let unfinished = Unfinished::take(&self.place, &state.version.id, name)?;
        let unfinished = unfinished.filter(|unfinished| {
            unfinished.merged().left_out.iter().all(|(name, rows)| {
                let mut segments = state.segments.iter();
                let segment = segments.find(|one| one.segment.entry().name == *name);
                segment.is_some_and(|one| rows.iter().all(|row| one.published.has(row)))
            })
        });
        if unfinished.is_none() {
            self.segments.forget(name);
        }
        Ok(unfinished)
    }
}
