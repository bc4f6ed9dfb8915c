//! Copies a collection to another location while it is used: segments byte by byte, and the rows in memory as
//! one more segment.

use super::content::Content;
use super::measured::{MeasureLimits, NewMeasurements};
use super::target_segment::{Origin, ROWS_AT_ONCE, TargetSegment};
use crate::error::CollectionError;
use crate::location::{CollectionLocation, Part};
use crate::schema::Schema;
use crate::state::{Located, State};
use crate::version::{CalibrationEntry, SegmentEntry, Version, now};
use bathyal_store::{GenerationExt, Replace, StoreError};
use bathyal_vectors::progress::Progress;
use roaring::RoaringBitmap;
use serde::Serialize;
use std::collections::BTreeSet;

/// Result of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CopiedCollection {
    /// Rows of the copy.
    pub rows: u64,
    /// Segments of the copy.
    pub segments: usize,
    /// Bytes that were copied by this call.
    pub bytes: u64,
}

impl Content {
    /// Copies the current content to another location. It must be empty, or hold the files of an interrupted
    /// copy, which this call continues.
    pub(crate) fn copy(
        &self,
        to: &CollectionLocation,
        progress: &dyn Progress,
    ) -> Result<CopiedCollection, CollectionError> {
        let state = self.state();
        if !crate::version::numbers(to)?.is_empty() {
            return Err(CollectionError::Exists { path: to.path().to_path_buf() });
        }
        let total: u64 = state.segments.iter().map(|segment| segment.segment.entry().bytes).sum();
        progress.stage("copying segments", total);
        let mut copied = CopiedCollection { rows: state.live(), ..CopiedCollection::default() };
        for segment in &state.segments {
            let (name, before) = (&segment.segment.entry().name, copied.bytes);
            copied.bytes += copy_segment((&self.place, to), name, state.schema(), (before, progress))?;
        }
        let mut entries: Vec<SegmentEntry> = state.version.segments.clone();
        let mut deleted: Vec<RoaringBitmap> =
            state.segments.iter().map(|segment| segment.deleted.to_bitmap()).collect();
        let calibrations = copy_calibrations((&self.place, to), &state.version, progress)?;
        let (mut name_in_memory, mut found) = (None, NewMeasurements::default());
        if let Some(entry) = self.copy_memory(&state, to, progress)? {
            copied.bytes += entry.bytes;
            let limits = MeasureLimits::of_flush(&self.options.for_writing());
            self.measure_in(to, (&state, &entry), &mut found, limits, progress)?;
            name_in_memory = Some(entry.name.clone());
            entries.push(entry);
            deleted.push(RoaringBitmap::new());
        }
        copied.segments = entries.len();
        let mut version = Version {
            through: state.sequence,
            log: None,
            next_segment: state.version.next_segment + 1,
            writer: String::new(),
            published: now(),
            segments: entries,
            calibrations,
            ..(*state.version).clone()
        };
        if let Some(name) = name_in_memory {
            version.note_measured(&name, found.ids());
        }
        version.publish(to, &deleted).map_err(|error| match error {
            CollectionError::Fenced { path } => CollectionError::Exists { path },
            error => error,
        })?;
        Ok(copied)
    }

    /// Writes the rows in memory as a segment of the copy; `None` if there are none.
    fn copy_memory(
        &self,
        state: &State,
        to: &CollectionLocation,
        progress: &dyn Progress,
    ) -> Result<Option<SegmentEntry>, CollectionError> {
        let mut memtable_state = State::from_version(state.version.clone(), Vec::new());
        memtable_state.memtables = state.memtables.clone();
        let mut rows: Vec<Located> = Vec::new();
        for (part, memtable) in (0..).zip(&memtable_state.memtables) {
            rows.extend(memtable.sorted()?.into_iter().map(|row| Located { part, row }));
        }
        if rows.is_empty() {
            return Ok(None);
        }
        let order = memtable_state.ids_of(&rows)?.order();
        let mut sorted = order.chunks(ROWS_AT_ONCE);
        let next = || Ok(sorted.next().unwrap_or_default().iter().map(|at| rows[*at as usize]).collect());
        let (name, options) = (self.segment_name(), self.options.for_writing());
        let origin = Origin::Rows(self.largest_segment_scales(state));
        let segment = TargetSegment { place: to, name, options: &options, origin };
        segment.write(&memtable_state, next, progress).map(Some)
    }
}

/// Copies a segment, except the parts that exist already. Returns the bytes copied. `before` are the bytes
/// that count as progress already.
pub(crate) fn copy_segment(
    places: (&CollectionLocation, &CollectionLocation),
    segment: &str,
    schema: &Schema,
    (before, progress): (u64, &dyn Progress),
) -> Result<u64, CollectionError> {
    let mut copied = 0;
    // The rows come last: a segment is complete once they exist.
    let fields = (0..schema.vectors.len()).map(Some);
    for field in fields.chain(std::iter::once(None)) {
        let name = Part::Segment(segment.into(), field).name();
        copied += copy_part(places, &name, (before + copied, progress))?;
    }
    Ok(copied)
}

/// Copies the queries of the calibrations of a version, and beside the copied segments what was measured with
/// them. Returns the calibrations of the copy.
pub(crate) fn copy_calibrations(
    (from, to): (&CollectionLocation, &CollectionLocation),
    version: &Version,
    progress: &dyn Progress,
) -> Result<Vec<CalibrationEntry>, CollectionError> {
    for calibration in &version.calibrations {
        copy_part((from, to), &calibration.id, (0, progress))?;
    }
    for (field, shape) in version.schema.vectors.iter().enumerate() {
        let calibrations: Vec<&CalibrationEntry> = version.calibrations_of(&shape.name).collect();
        let segments: BTreeSet<&String> = calibrations.iter().flat_map(|one| &one.segments).collect();
        for segment in segments {
            let measured = calibrations.iter().filter(|one| one.segments.contains(segment));
            let ids: Vec<&str> = measured.map(|one| one.id.as_str()).collect();
            let name = Part::Segment(segment.clone(), Some(field)).name();
            let (source, target) = (from.store().open(&name)?, to.store().open(&name)?);
            bathyal_index::copy_calibrations_named(&*source, &*target, &ids)?;
        }
    }
    Ok(version.calibrations.clone())
}

/// Copies a generation unless it exists already. Returns the bytes copied.
fn copy_part(
    (from, to): (&CollectionLocation, &CollectionLocation),
    name: &str,
    (before, progress): (u64, &dyn Progress),
) -> Result<u64, CollectionError> {
    match to.store().open(name) {
        Ok(_) => return Ok(0),
        Err(StoreError::Missing { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let from = from.store().open(name)?;
    let names = from.list()?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let bytes = names.iter().filter_map(|name| from.len_of(name)).sum();
    let attend = |done: u64, _: u64| {
        progress.advance(before + done);
        !progress.cancelled()
    };
    let draft = match to.store().abandoned(name, Replace::Never)?.pop() {
        Some(draft) => draft,
        None => to.store().begin(name, Replace::Never)?,
    };
    draft.adopt(&*from, &names, &attend)?;
    draft.upload(&names, "", &|_, _| !progress.cancelled())?;
    draft.publish(&names, "")?;
    Ok(bytes)
}
