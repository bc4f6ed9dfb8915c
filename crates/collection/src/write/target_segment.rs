//! Writes rows of a state as a new segment.

use crate::error::CollectionError;
use crate::location::CollectionLocation;
use crate::segment::{MergeSources, SegmentWriter, WriteOptions};
use crate::state::{Located, State};
use crate::version::SegmentEntry;
use bathyal_index::StoredBefore;
use bathyal_vectors::progress::Progress;
use std::sync::Arc;

/// Rows that are passed to a segment's writer at once.
pub(super) const ROWS_AT_ONCE: usize = 4096;

/// A segment to write.
pub(super) struct TargetSegment<'a> {
    pub(super) place: &'a CollectionLocation,
    pub(super) name: String,
    pub(super) options: &'a WriteOptions,
    pub(super) origin: Origin<'a>,
}

/// Origin of the rows of a segment.
pub(super) enum Origin<'a> {
    /// Merged segments. Their description is stored, so that a later merge can continue this one.
    Merge(&'a MergeSources),
    /// Rows that are in no segment yet, with the scales of the largest segment for each field.
    Rows(Vec<Option<StoredBefore>>),
}

impl TargetSegment<'_> {
    /// Writes rows of `state`. `next` returns rows in the order of their ids, and none at the end.
    ///
    /// # Errors
    /// [`CollectionError::Cancelled`] by `progress`; [`CollectionError`].
    pub(super) fn write(
        self,
        state: &State,
        mut next: impl FnMut() -> Result<Vec<Located>, CollectionError>,
        progress: &dyn Progress,
    ) -> Result<SegmentEntry, CollectionError> {
        let version = &state.version;
        let schema = Arc::new(version.schema.clone());
        let writer = SegmentWriter::begin(self.place, schema, &version.id, self.name, self.options)?;
        let mut writer = match self.origin {
            Origin::Merge(sources) => writer.with_merge_sources(sources.clone()),
            Origin::Rows(scales) => writer.with_largest_scales(scales),
        };
        let columns: Vec<usize> = (0..version.schema.columns.len()).collect();
        let fields: Vec<usize> = (0..version.schema.vectors.len()).collect();
        loop {
            let rows = next()?;
            if rows.is_empty() {
                return writer.finish(progress);
            }
            if progress.cancelled() {
                return Err(CollectionError::Cancelled);
            }
            let fetched = state.fetch(&rows, &columns, &fields, Default::default())?;
            let vectors: Vec<&[u8]> = fetched.vectors.iter().map(|vectors| &vectors.bytes[..]).collect();
            writer.push(&fetched.ids, &vectors, &fetched.columns)?;
        }
    }
}
