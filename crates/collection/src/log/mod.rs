//! The log of a collection: the changes since the segments were written. It also decides who may write.
//!
//! A change is a *record* (`record`); records are numbered 1, 2, and so on. They are stored in several logs;
//! each log is a generation that is named after its first record. A log ends with a *seal*, a record after
//! which no other follows. A writer that takes over seals the log of the previous writer, so that nothing can
//! be appended to it any more (`acquire`). Therefore, if a log ends with record `n`, the next log begins with
//! record `n + 1`, and a reader (`reader`) notices missing records.

mod acquire;
#[cfg(any(test, feature = "fuzzing"))]
mod bytes;
mod reader;
mod record;
mod salvage;
mod sweep;
mod writer;

pub(crate) use acquire::{Acquisition, lock_last_log};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use bytes::LogBytes;
pub(crate) use reader::{LogReader, ReadOutcome};
pub(crate) use record::{Batch, Change};
pub(crate) use salvage::SalvagedLogs;
pub(crate) use sweep::{ListedParts, remove};
pub(crate) use writer::LogWriter;

use crate::error::CollectionError;
use crate::location::{CollectionLocation, Part};

/// Returns the numbers of the first records of the logs, in ascending order.
pub(crate) fn logs(place: &CollectionLocation) -> Result<Vec<u64>, CollectionError> {
    let first = |name: String| match Part::parse(&name) {
        Some(Part::Log(first)) => Some(first),
        _ => None,
    };
    let mut logs: Vec<u64> = place.store().list()?.into_iter().filter_map(first).collect();
    logs.sort_unstable();
    Ok(logs)
}

#[cfg(test)]
mod tests;
