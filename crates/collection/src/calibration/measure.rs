//! The measurement of the index of a segment with the queries of a calibration.

use crate::error::CollectionError;
use crate::version::CalibrationEntry;
use bathyal_index::{CalibrateOptions, CalibrateReport, Index};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;

/// The result of a measurement.
#[derive(Debug)]
pub(crate) enum MeasuredSegment {
    /// The recall of each effort, as it was stored beside the index.
    Efforts(Box<CalibrateReport>),
    /// Every search compares all rows, so there is nothing to measure.
    Exact,
}

/// Measures the efforts of an index with up to `most` queries of a calibration, and stores the result beside
/// the index.
///
/// # Errors
/// As [`Index::calibrate`].
pub(crate) fn measure(
    index: &Index,
    (entry, queries): (&CalibrationEntry, &VectorFile),
    (most, threads): (usize, usize),
    progress: &dyn Progress,
) -> Result<MeasuredSegment, CollectionError> {
    if !index.has_efforts() {
        return Ok(MeasuredSegment::Exact);
    }
    let options = CalibrateOptions { name: entry.id.clone(), queries: most, truth: None, threads };
    Ok(MeasuredSegment::Efforts(Box::new(index.calibrate(queries, &options, progress)?)))
}
