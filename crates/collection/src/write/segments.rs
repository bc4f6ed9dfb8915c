//! Segments that are in use although no version may name them: open segments, and segments that are being
//! written.

use crate::location::CollectionLocation;
use crate::options::CollectionOptions;
use crate::schema::Schema;
use crate::segment::{Segment, SegmentShare, VectorMemory};
use crate::version::SegmentEntry;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Registry of the segments in use.
#[derive(Debug, Default)]
pub(super) struct OpenSegments {
    /// Memory that all of them share for vectors.
    vectors: Option<VectorMemory>,
    /// Open segments by name.
    open: Mutex<HashMap<String, Weak<Segment>>>,
    /// Segments that are being written, or that no version names yet.
    being_written: Mutex<BTreeSet<String>>,
    /// Segments that stopped merges have left unfinished.
    stopped: Mutex<BTreeSet<String>>,
}

/// Marks a segment as being written, until it is dropped.
pub(super) struct SegmentWriteGuard<'a> {
    segments: &'a OpenSegments,
    name: String,
}

impl Drop for SegmentWriteGuard<'_> {
    fn drop(&mut self) {
        locked(&self.segments.being_written).remove(&self.name);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OpenSegments {
    /// Creates a registry without open segments.
    pub(super) fn new(options: &CollectionOptions) -> OpenSegments {
        OpenSegments { vectors: options.vector_memory(), ..OpenSegments::default() }
    }

    /// Returns the segment of an entry: the open one, or a new one. `part` is its part of the collection.
    pub(super) fn segment(
        &self,
        place: &CollectionLocation,
        (options, share): (&CollectionOptions, SegmentShare),
        schema: &Arc<Schema>,
        entry: &SegmentEntry,
    ) -> Arc<Segment> {
        let mut open = locked(&self.open);
        if let Some(segment) = open.get(&entry.name).and_then(Weak::upgrade) {
            return segment;
        }
        let options = Arc::new(options.for_segment(share, self.vectors.clone()));
        let segment = Arc::new(Segment::new(place, schema.clone(), entry.clone(), options));
        open.retain(|_, segment| segment.strong_count() > 0);
        open.insert(entry.name.clone(), Arc::downgrade(&segment));
        segment
    }

    /// Marks the segment `name` as being written, until the returned guard is dropped.
    pub(super) fn begin(&self, name: String) -> SegmentWriteGuard<'_> {
        locked(&self.being_written).insert(name.clone());
        SegmentWriteGuard { segments: self, name }
    }

    /// Sets the names of unfinished segments of stopped merges.
    pub(super) fn set_stopped(&self, names: BTreeSet<String>) {
        *locked(&self.stopped) = names;
    }

    /// Returns the names of unfinished segments of stopped merges that may still be useful.
    pub(super) fn stopped(&self) -> BTreeSet<String> {
        locked(&self.stopped).clone()
    }

    /// Removes a name from the unfinished segments: it is useless, or is being written again.
    pub(super) fn forget_stopped(&self, name: &str) {
        locked(&self.stopped).remove(name);
    }

    /// Returns the names of the segments that are open, being written, or left by stopped merges.
    pub(super) fn in_use(&self) -> BTreeSet<String> {
        let mut names = locked(&self.being_written).clone();
        names.extend(locked(&self.stopped).iter().cloned());
        let open = locked(&self.open);
        names.extend(
            open.iter().filter(|(_, segment)| segment.strong_count() > 0).map(|(name, _)| name.clone()),
        );
        names
    }
}
