//! The log of a collection: what was changed since the segments were written, and who may change it.
//!
//! Changes are *records* (`record`) with the sequence numbers 1, 2, and so on. They lie in logs, each a generation that is named
//! after its first record. A log ends with a *seal*, a record after which nothing follows; whoever takes over the writing seals the
//! log of whoever wrote before, and can be sure from then on that nothing is appended to it (`acquire`). So the log after one that
//! ends with record `n` begins with record `n + 1`, and a reader (`reader`) sees where something is missing.

mod acquire;
#[cfg(any(test, feature = "fuzzing"))]
mod bytes;
mod reader;
mod record;
mod salvage;
mod sweep;
mod writer;

pub(crate) use acquire::Acquired;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use bytes::LogBytes;
pub(crate) use reader::{LogReader, Progress};
pub(crate) use record::{Batch, Change};
pub(crate) use salvage::SalvagedLogs;
pub(crate) use sweep::{Listed, remove};
pub(crate) use writer::LogWriter;

use crate::error::CollectionError;
use crate::place::{Part, Place};

/// The logs of a place by their first records, rising.
pub(crate) fn logs(place: &Place) -> Result<Vec<u64>, CollectionError> {
    let first = |name: String| match Part::of(&name) {
        Some(Part::Log(first)) => Some(first),
        _ => None,
    };
    let mut logs: Vec<u64> = place.store().list()?.into_iter().filter_map(first).collect();
    logs.sort_unstable();
    Ok(logs)
}

#[cfg(test)]
mod tests;
