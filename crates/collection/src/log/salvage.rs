//! What of damaged logs is whole: records before a damaged place, and those behind it.

use super::logs;
use super::record::{Change, End, LogFormat, Whole};
use crate::error::CollectionError;
use crate::place::{LOG, Part, Place};
use crate::version::Version;
use bathyal_store::StoreError;
use std::sync::Arc;

/// What of the logs is whole, of the records beyond those that are in the segments.
#[derive(Debug, Default)]
pub(crate) struct SalvagedLogs {
    /// The changes with their numbers, which rise.
    pub(crate) changes: Vec<(u64, Change)>,
    /// Records that were written and are lost: the first and the last of each range.
    pub(crate) lost: Vec<(u64, u64)>,
    /// What is wrong, in sentences.
    pub(crate) faults: Vec<String>,
    /// What may be lost without a trace.
    pub(crate) note: Option<String>,
    /// Whether the log is lost that was appended to last, so that nobody knows how many records it had.
    pub(crate) lost_log: bool,
    /// The last record that is known of.
    pub(crate) last: u64,
}

/// One log, as far as its records are whole.
struct Scan<'a> {
    format: LogFormat,
    version: &'a Version,
    bytes: Arc<Vec<u8>>,
    path: String,
    /// No record of it has a number from here on.
    before: u64,
    /// Whether another one follows, so that all that it has was written to the end.
    followed: bool,
}

impl SalvagedLogs {
    fn lose_log(&mut self, place: &Place, first: u64) {
        let (path, name) = (place.path().display(), Part::Log(first).name());
        self.faults.push(format!("{path}: {name} is missing, which was begun; what it held is lost"));
        self.lost_log = true;
    }

    fn lose(&mut self, first: u64, last: u64, through: u64) {
        let first = first.max(through + 1);
        if first <= last {
            self.lost.push((first, last));
        }
    }

    /// Reads what is whole of the logs that follow `version`.
    ///
    /// # Errors
    /// [`CollectionError::LaterVersion`]; [`CollectionError::Store`] where a store does not answer.
    pub(crate) fn read(place: &Place, version: &Version) -> Result<SalvagedLogs, CollectionError> {
        let mut logs = logs(place)?;
        logs.extend(place.unmarked()?.iter().filter_map(|name| match Part::of(name) {
            Some(Part::Log(first)) => Some(first),
            _ => None,
        }));
        logs.sort_unstable();
        let mut salvaged = SalvagedLogs { last: version.through, ..SalvagedLogs::default() };
        // A log that follows it says what is lost by its number.
        if let Some(named) = version.log.filter(|named| logs.iter().all(|first| first < named)) {
            salvaged.lose_log(place, named);
        }
        if logs.is_empty() && !version.writer.is_empty() {
            salvaged.note = Some(ended(place, version.through));
        }
        for (at, first) in logs.iter().enumerate() {
            let following = logs.get(at + 1).copied();
            // All that it has is in the segments.
            if following.is_some_and(|following| following <= salvaged.last + 1) {
                continue;
            }
            if *first > salvaged.last + 1 {
                // The record before a log is the seal of the log before, which holds nothing.
                let (from, path) = (salvaged.last + 1, place.path().display());
                let fault = format!("{path}: the log with record {from} is missing, record {first} follows");
                salvaged.faults.push(fault);
                salvaged.lose(from, first.saturating_sub(2), version.through);
            }
            let address = place.path().join(Part::Log(*first).name()).display().to_string();
            let bytes = match bytes_of(place, *first) {
                Ok(bytes) => bytes,
                Err(error) if error.is_loss() => {
                    salvaged.faults.push(error.to_string());
                    Vec::new()
                }
                Err(error) => return Err(error.into()),
            };
            if bytes.is_empty() && following.is_none() {
                salvaged.note = Some(ended(place, salvaged.last));
            }
            let scan = Scan {
                format: LogFormat::new(&version.id, *first),
                version,
                bytes: Arc::new(bytes),
                path: address,
                before: following.unwrap_or(u64::MAX),
                followed: following.is_some(),
            };
            let (sealed, names_next) = scan.run(*first, &mut salvaged)?;
            if names_next && following.is_none() {
                salvaged.lose_log(place, salvaged.last + 1);
            }
            if sealed && following.is_none() {
                salvaged.note = Some(ended(place, salvaged.last));
            }
        }
        Ok(salvaged)
    }
}

/// That the log with the next record is not there: its writer may have been stopped just before it began it.
fn ended(place: &Place, last: u64) -> String {
    let path = place.path().display();
    format!("{path}: no log has anything beyond record {last}; if more was written, it is lost")
}

fn bytes_of(place: &Place, first: u64) -> Result<Vec<u8>, StoreError> {
    // What marks it is for people.
    place.open_damaged(&Part::Log(first).name(), &[LOG])?.log(LOG)?.read(0)
}

impl Scan<'_> {
    /// Returns whether it has a seal, and whether it says that the next log was begun.
    fn run(&self, first: u64, salvaged: &mut SalvagedLogs) -> Result<(bool, bool), CollectionError> {
        let through = self.version.through;
        match self.format.check_head(self.path.as_ref(), &self.bytes) {
            Err(error @ CollectionError::LaterVersion { .. }) => return Err(error),
            Err(damage) => salvaged.faults.push(damage.to_string()),
            Ok(_) => {}
        }
        let (mut at, mut next, mut sealed) = (self.format.first_record(), first, false);
        while !sealed && at < self.bytes.len() {
            let Some(whole) = self.whole(at, next) else {
                let Some(behind) = self.behind(at, next, salvaged) else { break };
                at = behind;
                continue;
            };
            salvaged.lose(next, whole.sequence - 1, through);
            sealed = whole.is_seal();
            if !sealed && whole.sequence > through {
                match self.format.change(&self.version.schema, &self.bytes, at) {
                    Ok(change) => salvaged.changes.push((whole.sequence, change)),
                    Err(reason) => {
                        salvaged.faults.push(format!("{}: byte {at}: {reason}", self.path));
                        salvaged.lose(whole.sequence, whole.sequence, through);
                    }
                }
            }
            (at, next) = (at + whole.bytes, whole.sequence + 1);
            salvaged.last = salvaged.last.max(whole.sequence);
        }
        if self.followed && !sealed {
            let fault = format!("{}: it ends without a seal, although another log follows", self.path);
            salvaged.faults.push(fault);
            // Its last record is the seal.
            salvaged.lose(next, self.before - 2, through);
            salvaged.last = salvaged.last.max(self.before - 1);
        }
        let behind = self.bytes.get(at..).unwrap_or_default();
        Ok((sealed, self.format.names_next(End { at: at as u64, next, sealed }, behind)))
    }

    /// The record at a byte, if it is whole and one of those that may come next.
    fn whole(&self, at: usize, next: u64) -> Option<Whole> {
        let possible = |whole: &Whole| (next..self.before).contains(&whole.sequence);
        self.format.whole(&self.bytes, at).filter(possible)
    }

    /// The next whole record behind a damaged place; `None` where the log ends there, as far as can be known.
    fn behind(&self, at: usize, next: u64, salvaged: &mut SalvagedLogs) -> Option<usize> {
        // What a writer has not finished is no damage, unless a later record says that all before it was on the disk.
        let settled = self.format.settled_behind(&self.bytes, at);
        if !self.followed && settled.is_none() {
            return None;
        }
        let sectors = self.format.sectors_behind(&self.bytes, at);
        let found = sectors.into_iter().find(|sector| self.whole(*sector, next).is_some());
        let what = match found {
            Some(found) => format!("the next whole record is at byte {found}"),
            None => "no whole record follows".into(),
        };
        salvaged.faults.push(format!("{}: byte {at}: it is not what was written; {what}", self.path));
        if let (None, Some(last)) = (found, settled.filter(|_| !self.followed)) {
            salvaged.lose(next, last, self.version.through);
            salvaged.last = salvaged.last.max(last);
        }
        found
    }
}

/// What is whole of the bytes of the only log of a collection.
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
    };
    let (format, path) = (LogFormat::new(id, 1), "log".to_string());
    let scan = Scan { format, version: &version, bytes, path, before: u64::MAX, followed: false };
    let mut salvaged = SalvagedLogs::default();
    scan.run(1, &mut salvaged)?;
    Ok(salvaged)
}
