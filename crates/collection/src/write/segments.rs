//! The segments that somebody has open, and those that are gone as soon as nobody has.

use crate::error::CollectionError;
use crate::options::CollectionOptions;
use crate::place::{Part, Place};
use crate::schema::Schema;
use crate::segment::Segment;
use crate::version::SegmentEntry;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Segments {
    open: Mutex<HashMap<String, Weak<Segment>>>,
    /// Named by no version that is kept; fields of vectors of each.
    doomed: Mutex<HashMap<String, usize>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Segments {
    /// The segment of an entry: the one that others have, or one that nothing was read of.
    pub(super) fn segment(
        &self,
        place: &Place,
        options: &CollectionOptions,
        schema: &Schema,
        entry: &SegmentEntry,
    ) -> Arc<Segment> {
        let mut open = locked(&self.open);
        if let Some(segment) = open.get(&entry.name).and_then(Weak::upgrade) {
            return segment;
        }
        let segment = Arc::new(Segment::new(place, schema, entry.clone(), &options.index));
        open.retain(|_, segment| segment.strong_count() > 0);
        open.insert(entry.name.clone(), Arc::downgrade(&segment));
        segment
    }

    /// Removes a segment that no version names as soon as no search, no snapshot and no walk needs it.
    pub(super) fn doom(&self, name: &str, fields: usize) {
        locked(&self.doomed).insert(name.to_string(), fields);
    }

    /// Removes the segments that are doomed and that nobody has open. What cannot be removed is found when the collection is next
    /// opened to write.
    pub(super) fn bury(&self, place: &Place) -> Result<(), CollectionError> {
        let open = locked(&self.open);
        let mut doomed = locked(&self.doomed);
        let free = |name: &String| open.get(name).is_none_or(|segment| segment.strong_count() == 0);
        let gone: Vec<(String, usize)> = doomed
            .iter()
            .filter(|(name, _)| free(name))
            .map(|(name, fields)| (name.clone(), *fields))
            .collect();
        gone.iter().for_each(|(name, _)| {
            doomed.remove(name);
        });
        drop((open, doomed));
        for (name, fields) in gone {
            for field in std::iter::once(None).chain((0..fields).map(Some)) {
                place.store().delete(&Part::Segment(name.clone(), field).name())?;
            }
        }
        Ok(())
    }
}
