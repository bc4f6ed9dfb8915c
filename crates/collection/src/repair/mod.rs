//! Repair: copies all undamaged rows of a damaged collection to a new one elsewhere, and reports the losses.
//! The damaged collection is only read.
//!
//! Segments without a fault are copied byte by byte. The undamaged rows of other segments are written as new
//! segments with new indexes. Then the undamaged records of the logs are applied, and the version is
//! published. Before that, no collection exists at the new location.

mod basis;
mod lost_rows;
mod report;
mod segments;
mod unnamed;

pub use report::{Gap, LostBatches, LostId, RepairOptions, RepairReport, RepairedSegment};

use crate::calibration::read_sample;
use crate::error::CollectionError;
use crate::location::CollectionLocation;
use crate::log::{Change, SalvagedLogs, logs};
use crate::options::CollectionOptions;
use crate::segment::{Faults, SegmentWriter};
use crate::state::{Located, State};
use crate::version::{CalibrationEntry, SegmentEntry, Version, now, numbers, random_digits};
use crate::write::copy_calibrations;
use basis::RepairBasis;
use bathyal_vectors::progress::Progress;
use lost_rows::LostRows;
use segments::SegmentRepair;
use std::sync::Arc;

/// Rows that are passed to a segment's writer at once.
const ROWS_AT_ONCE: usize = 4096;

/// Repairs the collection at `from` into the empty location `to`.
///
/// # Errors
/// [`CollectionError::Exists`]; [`CollectionError::NotACollection`]; [`CollectionError::Damaged`] if no
/// version can be read; [`CollectionError::Cancelled`] by `progress`; [`CollectionError::Store`]. After an
/// error, `to` holds no collection.
pub(crate) fn repair(
    (from, to): (&CollectionLocation, &CollectionLocation),
    options: &CollectionOptions,
    what: &RepairOptions,
    progress: &dyn Progress,
) -> Result<RepairReport, CollectionError> {
    if from.path() == to.path() {
        let reason = "a collection cannot be repaired in place; name an empty location";
        return Err(CollectionError::Parameter(format!("{}: {reason}", to.path().display())));
    }
    if !numbers(to)?.is_empty() || !logs(to)?.is_empty() {
        return Err(CollectionError::Exists { path: to.path().to_path_buf() });
    }
    let mut faults = Faults::default();
    let basis = RepairBasis::find(from, what.keep_uncertain, &mut faults)?;
    let RepairBasis { mut version, number, unreadable, deleted, unnamed, notes } = basis;
    let mut report =
        RepairReport { version: number, unreadable_versions: unreadable, notes, ..RepairReport::default() };
    let salvaged = SalvagedLogs::read(from, &version)?;
    let mut lost = LostRows::default();
    let mut segments = SegmentRepair::new((from, to), &version, options, progress);
    segments.repair_all(
        std::mem::take(&mut version.segments).into_iter().zip(deleted),
        what,
        &mut lost,
        &mut faults,
    )?;
    report.notes.extend(segments.repair_unnamed(unnamed, what, &mut lost, &mut faults)?);
    let mut state = segments.state()?;
    report.uncertain_rows = segments.uncertain;
    report.segments = std::mem::take(&mut segments.outcomes);
    for (sequence, change) in &salvaged.changes {
        state.apply(*sequence, change.clone())?;
        lost.mark_touched(match change {
            Change::Put(rows) => rows.ids(),
            Change::Delete(ids) => ids,
        });
    }
    report.rows = state.live();
    report.batches = salvaged.changes.len() as u64;
    report.notes.extend(salvaged.note);
    report.lost_log = salvaged.lost_log;
    report.lost_batches =
        salvaged.lost.iter().map(|(first, last)| LostBatches { first: *first, last: *last }).collect();
    salvaged.faults.into_iter().for_each(|fault| faults.add(fault));
    lost.report(what.lost_ids.as_deref(), &mut report)?;
    version.calibrations = keep_calibrations((from, to), &version, &state, &mut faults, progress)?;
    publish(to, version, &state, salvaged.last, (options, progress), segments.next)?;
    (report.faults, report.fault_count) = (faults.first, faults.count);
    report.complete = report.lost_rows == 0
        && report.lost_batches.is_empty()
        && !report.lost_log
        && report.unreadable_versions.is_empty()
        && report.uncertain_rows == 0;
    Ok(report)
}

/// Copies the undamaged calibrations, for the segments of `state` that were copied. Later segments are
/// measured with their queries.
fn keep_calibrations(
    places: (&CollectionLocation, &CollectionLocation),
    version: &Version,
    state: &State,
    faults: &mut Faults,
    progress: &dyn Progress,
) -> Result<Vec<CalibrationEntry>, CollectionError> {
    let is_kept = |name: &String| state.segments.iter().any(|segment| segment.segment.entry().name == *name);
    let mut kept = Vec::new();
    for mut entry in version.calibrations.clone() {
        entry.segments.retain(is_kept);
        let one = Version { calibrations: vec![entry.clone()], ..version.clone() };
        let field = version.schema.field(Some(&entry.field))?;
        let copied = read_sample(places.0, &entry, &version.schema.vectors[field])
            .and_then(|_| copy_calibrations(places, &one, progress));
        match copied {
            Ok(_) => kept.push(entry),
            Err(error) if error.is_loss() => {
                faults.add(format!("the calibration {:?} is left out: {error}", entry.name));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(kept)
}

/// Writes the rows in memory as a segment, and publishes the version.
fn publish(
    to: &CollectionLocation,
    version: Version,
    state: &State,
    through: u64,
    (options, progress): (&CollectionOptions, &dyn Progress),
    next: u64,
) -> Result<(), CollectionError> {
    let mut entries: Vec<SegmentEntry> =
        state.segments.iter().map(|segment| segment.segment.entry().clone()).collect();
    let mut deleted: Vec<_> = state.segments.iter().map(|segment| segment.deleted.to_bitmap()).collect();
    let name = format!("s-{next}-{}", random_digits(8));
    if let Some(entry) = write_memory(to, name, state, options, progress)? {
        entries.push(entry);
        deleted.push(Default::default());
    }
    let (writer, published, next_segment) = (String::new(), now(), next + 1);
    let mut version =
        Version { through, next_segment, writer, published, segments: entries, log: None, ..version };
    version.publish(to, &deleted).map_err(|error| match error {
        CollectionError::Fenced { path } => CollectionError::Exists { path },
        error => error,
    })
}

/// Writes the rows in memory as a segment; `None` if there are none.
fn write_memory(
    to: &CollectionLocation,
    name: String,
    state: &State,
    options: &CollectionOptions,
    progress: &dyn Progress,
) -> Result<Option<SegmentEntry>, CollectionError> {
    let mut rows: Vec<Located> = Vec::new();
    for (part, memtable) in (state.segments.len() as u32..).zip(&state.memtables) {
        rows.extend(memtable.sorted()?.into_iter().map(|row| Located { part, row }));
    }
    if rows.is_empty() {
        return Ok(None);
    }
    let (schema, id) = (Arc::new(state.schema().clone()), &state.version.id);
    let columns: Vec<usize> = (0..schema.columns.len()).collect();
    let fields: Vec<usize> = (0..schema.vectors.len()).collect();
    let mut writer = SegmentWriter::begin(to, schema, id, name, &options.for_writing())?;
    for batch in rows.chunks(ROWS_AT_ONCE) {
        if progress.cancelled() {
            return Err(CollectionError::Cancelled);
        }
        let fetched = state.fetch(batch, &columns, &fields, Default::default())?;
        let vectors: Vec<&[u8]> = fetched.vectors.iter().map(|vectors| &vectors.bytes[..]).collect();
        writer.push(&fetched.ids, &vectors, &fetched.columns)?;
    }
    writer.finish(progress).map(Some)
}

#[cfg(test)]
mod tests;
