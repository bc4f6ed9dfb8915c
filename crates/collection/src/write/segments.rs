//! The segments that somebody has open, and those that are being written: what no version names, and is needed all the same.

use crate::options::CollectionOptions;
use crate::place::Place;
use crate::schema::Schema;
use crate::segment::{Segment, SegmentPart, VectorMemory};
use crate::version::SegmentEntry;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Segments {
    /// What they take for vectors together.
    vectors: Option<VectorMemory>,
    open: Mutex<HashMap<String, Weak<Segment>>>,
    written: Mutex<BTreeSet<String>>,
    /// Those that a merge has left when it was stopped.
    stopped: Mutex<BTreeSet<String>>,
}

/// A segment that is being written, or is not yet in a version.
pub(super) struct BeingWritten<'a> {
    segments: &'a Segments,
    name: String,
}

impl Drop for BeingWritten<'_> {
    fn drop(&mut self) {
        locked(&self.segments.written).remove(&self.name);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Segments {
    /// Those of a collection that is opened so; none is open yet.
    pub(super) fn new(options: &CollectionOptions) -> Segments {
        Segments { vectors: options.vector_memory(), ..Segments::default() }
    }

    /// The segment of an entry, which is such a part of the collection: the one that others have, or one that nothing was read
    /// of.
    pub(super) fn segment(
        &self,
        place: &Place,
        (options, part): (&CollectionOptions, SegmentPart),
        schema: &Arc<Schema>,
        entry: &SegmentEntry,
    ) -> Arc<Segment> {
        let mut open = locked(&self.open);
        if let Some(segment) = open.get(&entry.name).and_then(Weak::upgrade) {
            return segment;
        }
        let options = Arc::new(options.of_segment(part, self.vectors.clone()));
        let segment = Arc::new(Segment::new(place, schema.clone(), entry.clone(), options));
        open.retain(|_, segment| segment.strong_count() > 0);
        open.insert(entry.name.clone(), Arc::downgrade(&segment));
        segment
    }

    /// Says that the segment `name` is being written, until what is returned is dropped.
    pub(super) fn begin(&self, name: String) -> BeingWritten<'_> {
        locked(&self.written).insert(name.clone());
        BeingWritten { segments: self, name }
    }

    /// Says which merges have left when they were stopped.
    pub(super) fn set_stopped(&self, names: BTreeSet<String>) {
        *locked(&self.stopped) = names;
    }

    /// Those that were left, unless nobody has a use for them.
    pub(super) fn stopped(&self) -> BTreeSet<String> {
        locked(&self.stopped).clone()
    }

    /// Says that nobody has a use for one that was left, or that it is none any more.
    pub(super) fn forget(&self, name: &str) {
        locked(&self.stopped).remove(name);
    }

    /// The names of the segments that a search, a snapshot or a walk has open, of those that are being written, and of those that can
    /// be gone on with.
    pub(super) fn in_use(&self) -> BTreeSet<String> {
        let mut names = locked(&self.written).clone();
        names.extend(locked(&self.stopped).iter().cloned());
        let open = locked(&self.open);
        names.extend(open.iter().filter(|(_, one)| one.strong_count() > 0).map(|(name, _)| name.clone()));
        names
    }
}
