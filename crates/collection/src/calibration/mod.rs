//! Calibrations of a collection with queries of its user.
//!
//! A version names each calibration with its queries, which are a generation of their own, and with the
//! segments that were measured with them. What was measured is beside the index of each segment, under the
//! id of the calibration (docs/decisions/calibration.md).

mod choice;
mod measure;
mod sample;

pub(crate) use choice::ChosenCalibrations;
pub(crate) use measure::{MeasuredSegment, measure};
pub(crate) use sample::{read_sample, write_sample};
