//! Salvages the complete records of damaged logs, before and behind the damage.

use super::logs;
use super::record::{Change, CompleteRecord, LogEnd, LogFormat};
use crate::error::CollectionError;
use crate::location::{CollectionLocation, LOG, Part};
use crate::version::Version;
use bathyal_store::StoreError;
use std::sync::Arc;

/// Records of damaged logs that are not in the segments.
#[derive(Debug, Default)]
pub(crate) struct SalvagedLogs {
    /// The changes with their sequence numbers, in ascending order.
    pub(crate) changes: Vec<(u64, Change)>,
    /// Lost records: the first and the last sequence number of each range.
    pub(crate) lost: Vec<(u64, u64)>,
    /// The damage, in sentences.
    pub(crate) faults: Vec<String>,
    /// A sentence about records that may be lost without a trace.
    pub(crate) note: Option<String>,
    /// True if the last log is lost; then the number of its records is unknown.
    pub(crate) lost_log: bool,
    /// The largest sequence number that is known to have been used.
    pub(crate) last: u64,
}

/// A scan of one log for complete records.
struct LogScan<'a> {
    format: LogFormat,
    version: &'a Version,
    bytes: Arc<Vec<u8>>,
    path: String,
    /// Upper bound (exclusive) of the sequence numbers in this log.
    end_sequence: u64,
    /// True if another log follows, so that this log was written to its end.
    has_successor: bool,
}

impl SalvagedLogs {
    fn add_lost_log(&mut self, place: &CollectionLocation, first: u64) {
        let (path, name) = (place.path().display(), Part::Log(first).name());
        self.faults.push(format!("{path}: the log {name} is missing; the records in it are lost"));
        self.lost_log = true;
    }

    fn add_lost(&mut self, first: u64, last: u64, through: u64) {
        let first = first.max(through + 1);
        if first <= last {
            self.lost.push((first, last));
        }
    }

    /// Salvages the records that follow `version`.
    ///
    /// # Errors
    /// [`CollectionError::LaterVersion`]; [`CollectionError::Store`] if the store does not answer.
    pub(crate) fn read(
        place: &CollectionLocation,
        version: &Version,
    ) -> Result<SalvagedLogs, CollectionError> {
        let mut logs = logs(place)?;
        logs.extend(place.unmarked()?.iter().filter_map(|name| match Part::parse(name) {
            Some(Part::Log(first)) => Some(first),
            _ => None,
        }));
        logs.sort_unstable();
        let mut salvaged = SalvagedLogs { last: version.through, ..SalvagedLogs::default() };
        // If a log follows the named one, its number tells which records are lost.
        if let Some(named) = version.log.filter(|named| logs.iter().all(|first| first < named)) {
            salvaged.add_lost_log(place, named);
        }
        if logs.is_empty() && !version.writer.is_empty() {
            salvaged.note = Some(end_note(place, version.through));
        }
        for (at, first) in logs.iter().enumerate() {
            let following = logs.get(at + 1).copied();
            // All records of this log are in the segments.
            if following.is_some_and(|following| following <= salvaged.last + 1) {
                continue;
            }
            if *first > salvaged.last + 1 {
                // The last record before a log is the seal of the previous log, which holds no change.
                let (from, path) = (salvaged.last + 1, place.path().display());
                let fault = format!(
                    "{path}: the log with record {from} is missing; the next log begins with record {first}"
                );
                salvaged.faults.push(fault);
                salvaged.add_lost(from, first.saturating_sub(2), version.through);
            }
            let address = place.path().join(Part::Log(*first).name()).display().to_string();
            let bytes = match read_log(place, *first) {
                Ok(bytes) => bytes,
                Err(error) if error.is_loss() => {
                    salvaged.faults.push(error.to_string());
                    Vec::new()
                }
                Err(error) => return Err(error.into()),
            };
            if bytes.is_empty() && following.is_none() {
                salvaged.note = Some(end_note(place, salvaged.last));
            }
            let scan = LogScan {
                format: LogFormat::new(&version.id, *first),
                version,
                bytes: Arc::new(bytes),
                path: address,
                end_sequence: following.unwrap_or(u64::MAX),
                has_successor: following.is_some(),
            };
            let (sealed, next_log_marked) = scan.run(*first, &mut salvaged)?;
            if next_log_marked && following.is_none() {
                salvaged.add_lost_log(place, salvaged.last + 1);
            }
            if sealed && following.is_none() {
                salvaged.note = Some(end_note(place, salvaged.last));
            }
        }
        Ok(salvaged)
    }
}

/// Returns the note that no log holds the next record. The last writer may have stopped just before it began
/// that log.
fn end_note(place: &CollectionLocation, last: u64) -> String {
    let path = place.path().display();
    format!("{path}: no log has records beyond {last}; if more were written, they are lost")
}

fn read_log(place: &CollectionLocation, first: u64) -> Result<Vec<u8>, StoreError> {
    // The mark of a log is only for people, so it may be missing.
    place.open_damaged(&Part::Log(first).name(), &[LOG])?.log(LOG)?.read(0)
}

impl LogScan<'_> {
    /// Scans the log. Returns whether it has a seal, and whether the next log was begun.
    fn run(&self, first: u64, salvaged: &mut SalvagedLogs) -> Result<(bool, bool), CollectionError> {
        let through = self.version.through;
        match self.format.check_header(self.path.as_ref(), &self.bytes) {
            Err(error @ CollectionError::LaterVersion { .. }) => return Err(error),
            Err(damage) => salvaged.faults.push(damage.to_string()),
            Ok(_) => {}
        }
        let (mut at, mut next, mut sealed) = (self.format.first_record(), first, false);
        while !sealed && at < self.bytes.len() {
            let Some(record) = self.record(at, next) else {
                let Some(behind) = self.find_behind(at, next, salvaged) else { break };
                at = behind;
                continue;
            };
            salvaged.add_lost(next, record.sequence - 1, through);
            sealed = record.is_seal();
            if !sealed && record.sequence > through {
                match self.format.change(&self.version.schema, &self.bytes, at) {
                    Ok(change) => salvaged.changes.push((record.sequence, change)),
                    Err(reason) => {
                        salvaged.faults.push(format!("{}: byte {at}: {reason}", self.path));
                        salvaged.add_lost(record.sequence, record.sequence, through);
                    }
                }
            }
            (at, next) = (at + record.bytes, record.sequence + 1);
            salvaged.last = salvaged.last.max(record.sequence);
        }
        if self.has_successor && !sealed {
            let fault = format!("{}: it ends without a seal, although another log follows", self.path);
            salvaged.faults.push(fault);
            // The last record of the log is its seal.
            salvaged.add_lost(next, self.end_sequence - 2, through);
            salvaged.last = salvaged.last.max(self.end_sequence - 1);
        }
        let behind = self.bytes.get(at..).unwrap_or_default();
        Ok((sealed, self.format.next_log_marked(LogEnd { at: at as u64, next, sealed }, behind)))
    }

    /// Returns the complete record at byte `at`, if its number is possible in this log.
    fn record(&self, at: usize, next: u64) -> Option<CompleteRecord> {
        let possible = |record: &CompleteRecord| (next..self.end_sequence).contains(&record.sequence);
        self.format.complete_record(&self.bytes, at).filter(possible)
    }

    /// Finds the next complete record behind damage. Returns `None` if the log seems to end there.
    fn find_behind(&self, at: usize, next: u64, salvaged: &mut SalvagedLogs) -> Option<usize> {
        // An unfinished append is no damage, unless a later record proves that these bytes were on the disk.
        let durable = self.format.durable_behind(&self.bytes, at);
        if !self.has_successor && durable.is_none() {
            return None;
        }
        let sectors = self.format.sectors_behind(&self.bytes, at);
        let found = sectors.into_iter().find(|sector| self.record(*sector, next).is_some());
        let what = match found {
            Some(found) => format!("the next complete record is at byte {found}"),
            None => "no complete record follows".into(),
        };
        salvaged.faults.push(format!("{}: byte {at}: the record is damaged; {what}", self.path));
        if let (None, Some(last)) = (found, durable.filter(|_| !self.has_successor)) {
            salvaged.add_lost(next, last, self.version.through);
            salvaged.last = salvaged.last.max(last);
        }
        found
    }
}

/// Salvages the only log of a collection from its bytes.
///
/// # Errors
/// [`CollectionError::LaterVersion`].
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn scan(
    id: &str,
    schema: &crate::schema::Schema,
    bytes: Arc<Vec<u8>>,
) -> Result<SalvagedLogs, CollectionError> {
    let version = Version {
        bathyal_collection: crate::version::FORMAT,
        id: id.into(),
        number: 1,
        schema: schema.clone(),
        through: 0,
        log: None,
        next_segment: 1,
        writer: String::new(),
        published: 0,
        segments: Vec::new(),
        calibrations: Vec::new(),
    };
    let (format, path) = (LogFormat::new(id, 1), "log".to_string());
    let scan =
        LogScan { format, version: &version, bytes, path, end_sequence: u64::MAX, has_successor: false };
    let mut salvaged = SalvagedLogs::default();
    scan.run(1, &mut salvaged)?;
    Ok(salvaged)
}
