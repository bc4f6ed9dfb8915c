//! Calibrates a collection with given queries: measures its segments, and publishes a version that names the
//! queries and the segments that were measured.
//!
//! A new segment is measured before it is published (`measured`). Both publications check under the lock of
//! the writer that nothing was added since, so no segment is without the calibration.

use super::segments::SegmentWriteGuard;
use super::shared::Shared;
use super::writer::Writer;
use crate::calibration::{MeasuredSegment, measure, write_sample};
use crate::error::CollectionError;
use crate::location::QUERIES_DIGITS;
use crate::schema::VectorField;
use crate::version::{CalibrationEntry, now, random_digits};
use bathyal_index::{
    CalibrateReport, DEFAULT_CALIBRATION, MOST_CHOSEN, MOST_QUERIES, RecallBefore, check_calibration_name,
    few_measured, sample_of,
};
use bathyal_kernels::Element;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::{CancelOnly, Progress};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

/// How to calibrate a collection.
#[derive(Debug, Clone)]
pub struct CollectionCalibration {
    /// Name of the vector field; `None` means the only one.
    pub field: Option<String>,
    /// The name of the calibration: letters, digits, `-`, `_` and `.`. One of the same name is replaced.
    pub name: String,
    /// The most queries to measure and to keep, up to 1,000. Of more, a sample is taken.
    pub queries: usize,
    /// Threads; 0 means all cores.
    pub threads: usize,
}

impl Default for CollectionCalibration {
    fn default() -> CollectionCalibration {
        let name = DEFAULT_CALIBRATION.into();
        CollectionCalibration { field: None, name, queries: MOST_QUERIES, threads: 0 }
    }
}

/// The recalls that searches for `k` rows may ask for after a calibration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CalibratedRecalls {
    /// Neighbours asked for.
    pub k: u32,
    /// The recall of the smallest effort, as a mean over the segments weighted by their rows.
    pub least: f32,
    /// The recall of the largest effort.
    pub most: f32,
}

/// The result of a calibration of a collection.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CalibrationReport {
    /// Its name.
    pub name: String,
    /// The vector field.
    pub field: String,
    /// Queries that were measured and kept.
    pub queries: u32,
    /// Seconds since 1970 (UTC) when it was measured.
    pub measured_at: u64,
    /// Segments that were measured.
    pub segments: usize,
    /// Segments whose searches compare all rows, so that there is nothing to measure.
    pub exact_segments: usize,
    /// The recall that searches of the segments with these queries found before, by the calibrations of the
    /// builds: a mean over the segments, weighted by their rows.
    pub before: Vec<RecallBefore>,
    /// The recalls that may be asked for now.
    pub recalls: Vec<CalibratedRecalls>,
    /// Notes for the user, such as too few queries.
    pub notes: Vec<String>,
    /// Duration in seconds.
    pub seconds: f64,
}

/// The segments that were measured so far.
#[derive(Default)]
struct MeasuredSegments {
    /// Reports with the rows of their segments, by the names of the segments.
    reports: BTreeMap<String, (u32, Box<CalibrateReport>)>,
    /// Names of the segments that have nothing to measure.
    exact: BTreeSet<String>,
}

/// Keeps the log open, and other calibrations waiting, until it is dropped.
struct CalibratingGuard<'a> {
    shared: &'a Shared,
    _calibrating: MutexGuard<'a, ()>,
}

impl<'a> CalibratingGuard<'a> {
    fn begin(shared: &'a Shared) -> Result<(CalibratingGuard<'a>, u64), CollectionError> {
        let calibrating = shared.calibrating.lock().unwrap_or_else(PoisonError::into_inner);
        let epoch = shared.writer().begin_large()?;
        Ok((CalibratingGuard { shared, _calibrating: calibrating }, epoch))
    }
}

impl Drop for CalibratingGuard<'_> {
    fn drop(&mut self) {
        self.shared.writer().end_large();
    }
}

impl Shared {
    /// Measures all segments with `queries`, and keeps the queries for segments to come.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for queries or options that do not fit; [`CollectionError::Busy`] and
    /// [`CollectionError::Fenced`] if another writer exists; [`CollectionError::Cancelled`] by `progress`;
    /// damage and device errors.
    pub(crate) fn calibrate(
        self: &Arc<Self>,
        queries: &VectorFile,
        options: &CollectionCalibration,
        progress: &dyn Progress,
    ) -> Result<CalibrationReport, CollectionError> {
        let started = Instant::now();
        check_calibration_name(&options.name).map_err(CollectionError::Parameter)?;
        let schema = self.content.state().schema().clone();
        let field = schema.field(options.field.as_deref())?;
        let sample = checked_sample(queries, &schema.vectors[field], options.queries)?;
        let (guard, epoch) = CalibratingGuard::begin(self)?;
        self.note_writing();
        self.check_number(&schema.vectors[field].name, &options.name)?;
        let id = format!("q-{}", random_digits(QUERIES_DIGITS));
        let content = &self.content;
        let writing: SegmentWriteGuard<'_> = content.segments.begin(id.clone());
        let collection = content.state().version.id.clone();
        let field_name = schema.vectors[field].name.clone();
        let crc32c = write_sample(&content.place, (&collection, &id, &field_name), &sample)?;
        let mut entry = CalibrationEntry {
            id,
            name: options.name.clone(),
            field: field_name,
            queries: sample.count() as u32,
            measured_at: now(),
            crc32c,
            segments: Vec::new(),
        };
        let measured = self.measure_and_publish(&mut entry, (&sample, field), epoch, options, progress);
        drop((writing, guard));
        // Removes the queries of a replaced calibration, or those of one that failed.
        self.clean();
        let measured = measured.map_err(|error| self.writer().fenced_if_superseded(error))?;
        Ok(report(entry, &measured, started))
    }

    /// Removes the calibration `name` of a vector field. Returns false if there is none.
    ///
    /// # Errors
    /// As [`Shared::calibrate`].
    pub(crate) fn remove_calibration(
        self: &Arc<Self>,
        name: &str,
        field: Option<&str>,
    ) -> Result<bool, CollectionError> {
        let state = self.content.state();
        let field = state.schema().vectors[state.schema().field(field)?].name.clone();
        drop(state);
        let mut writer = self.writer();
        writer.acquire()?;
        self.note_writing();
        let mut calibrations = self.content.state().version.calibrations.clone();
        let before = calibrations.len();
        calibrations.retain(|known| known.field != field || known.name != name);
        if calibrations.len() == before {
            return Ok(false);
        }
        writer.publish_calibrations(calibrations)?;
        drop(writer);
        self.clean();
        Ok(true)
    }

    /// Refuses one calibration of a field too many: every new segment is measured with each of them.
    fn check_number(&self, field: &str, name: &str) -> Result<(), CollectionError> {
        let state = self.content.state();
        let names: Vec<&str> =
            state.version.calibrations_of(field).map(|known| known.name.as_str()).collect();
        if names.len() < MOST_CHOSEN || names.contains(&name) {
            return Ok(());
        }
        Err(CollectionError::Parameter(format!(
            "{}: the field {field:?} has {} calibrations, which is the most: {}; remove one first",
            self.content.place.path().display(),
            names.len(),
            names.join(", ")
        )))
    }

    /// Measures all segments, and then publishes the calibration.
    fn measure_and_publish(
        &self,
        entry: &mut CalibrationEntry,
        sample: (&VectorFile, usize),
        epoch: u64,
        options: &CollectionCalibration,
        progress: &dyn Progress,
    ) -> Result<MeasuredSegments, CollectionError> {
        let mut measured = MeasuredSegments::default();
        loop {
            self.measure_segments(entry, sample, &mut measured, options, progress)?;
            let mut writer = self.writer();
            if !writer.is_in(epoch) {
                // Another writer may have removed the queries.
                let path = self.content.place.path().to_path_buf();
                let reason = "another write to the log has failed in the meantime".into();
                return Err(CollectionError::NotWritten { path, reason });
            }
            if self.is_measured(&measured) {
                self.publish_measured(&mut writer, entry, &measured)?;
                return Ok(measured);
            }
        }
    }

    fn is_measured(&self, measured: &MeasuredSegments) -> bool {
        let state = self.content.state();
        state.segments.iter().map(|one| &one.segment.entry().name).all(|name| measured.has(name))
    }

    fn publish_measured(
        &self,
        writer: &mut Writer,
        entry: &mut CalibrationEntry,
        measured: &MeasuredSegments,
    ) -> Result<(), CollectionError> {
        entry.segments = measured.reports.keys().cloned().collect();
        let mut calibrations = self.content.state().version.calibrations.clone();
        calibrations.retain(|known| known.field != entry.field || known.name != entry.name);
        calibrations.push(entry.clone());
        calibrations.sort_by(|a, b| (&a.field, &a.name).cmp(&(&b.field, &b.name)));
        writer.publish_calibrations(calibrations)
    }

    /// Measures the segments of the current state that were not measured yet.
    fn measure_segments(
        &self,
        entry: &CalibrationEntry,
        (sample, field): (&VectorFile, usize),
        measured: &mut MeasuredSegments,
        options: &CollectionCalibration,
        progress: &dyn Progress,
    ) -> Result<(), CollectionError> {
        let state = self.content.state();
        progress.stage("calibrating segments", state.segments.len() as u64);
        for (at, segment) in state.segments.iter().enumerate() {
            let (name, rows) = (&segment.segment.entry().name, segment.segment.rows());
            if !measured.has(name) {
                let index = segment.segment.index(field)?;
                let limits = (sample.count(), options.threads);
                match measure(&index, (entry, sample), limits, &CancelOnly(progress))? {
                    MeasuredSegment::Efforts(report) => {
                        measured.reports.insert(name.clone(), (rows, report));
                    }
                    MeasuredSegment::Exact => {
                        measured.exact.insert(name.clone());
                    }
                }
            }
            progress.advance(at as u64 + 1);
        }
        Ok(())
    }
}

impl MeasuredSegments {
    fn has(&self, name: &String) -> bool {
        self.reports.contains_key(name) || self.exact.contains(name)
    }

    /// Returns the mean of what `value` returns, weighted by the rows of the segments.
    fn mean(&self, value: impl Fn(&CalibrateReport) -> Option<f32>) -> Option<f32> {
        let known =
            self.reports.values().filter_map(|(rows, report)| Some((f64::from(*rows), value(report)?)));
        let (sum, rows) =
            known.fold((0.0, 0.0), |(sum, all), (rows, value)| (sum + rows * f64::from(value), all + rows));
        (rows > 0.0).then(|| (sum / rows) as f32)
    }
}

/// Returns up to `most` of the queries, in the element of the field.
fn checked_sample(
    queries: &VectorFile,
    field: &VectorField,
    most: usize,
) -> Result<VectorFile, CollectionError> {
    let bits = if field.element == Element::B1 { queries.as_bits() } else { None };
    let queries = bits.as_ref().unwrap_or(queries);
    field.check_queries(queries)?;
    if queries.count() == 0 || most == 0 {
        return Err(CollectionError::Parameter("a calibration requires at least one query".into()));
    }
    Ok(sample_of(queries, most.min(MOST_QUERIES))?)
}

fn report(entry: CalibrationEntry, measured: &MeasuredSegments, started: Instant) -> CalibrationReport {
    let (mut before, mut recalls) = (Vec::new(), Vec::new());
    let all = || measured.reports.values().map(|(_, report)| report);
    let asked: BTreeSet<(u32, u32)> =
        all().flat_map(|one| one.before.iter().map(|before| (before.k, before.asked.to_bits()))).collect();
    for (k, bits) in asked {
        let asked = f32::from_bits(bits);
        let of = |report: &CalibrateReport| {
            report.before.iter().find(|one| (one.k, one.asked) == (k, asked)).map(|one| one.found)
        };
        before.extend(measured.mean(of).map(|found| RecallBefore { k, asked, found }));
    }
    let curves: BTreeSet<u32> =
        all().flat_map(|one| one.measured.calibration.curves.iter().map(|curve| curve.k)).collect();
    for k in curves {
        let end = |most: bool| {
            measured.mean(|report| {
                let curves = &report.measured.calibration.curves;
                let recalls = curves.iter().find(|curve| curve.k == k)?.points.iter().map(|one| one.recall);
                if most { recalls.reduce(f32::max) } else { recalls.reduce(f32::min) }
            })
        };
        recalls.extend(end(false).zip(end(true)).map(|(least, most)| CalibratedRecalls { k, least, most }));
    }
    CalibrationReport {
        name: entry.name,
        field: entry.field,
        queries: entry.queries,
        measured_at: entry.measured_at,
        segments: measured.reports.len(),
        exact_segments: measured.exact.len(),
        before,
        recalls,
        notes: few_measured(entry.queries).into_iter().collect(),
        seconds: started.elapsed().as_secs_f64(),
    }
}
