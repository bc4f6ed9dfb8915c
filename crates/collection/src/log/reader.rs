//! Reads the logs of a collection in order, and continues later from where it stopped.

use super::logs;
use super::record::{Change, LogEnd, LogFormat};
use crate::error::CollectionError;
use crate::location::{CollectionLocation, LOG, Part};
use crate::schema::Schema;
use crate::version::{self, Version};
use bathyal_store::{Log, StoreError};
use std::sync::Arc;

/// Outcome of reading.
#[derive(Debug)]
pub(crate) enum ReadOutcome {
    /// All existing records were read.
    UpToDate,
    /// The next records are in the segments of a later version. The caller must start again from that version
    /// and discard the changes of this call. If there is no later version, the collection is damaged, as this
    /// error says.
    Superseded(CollectionError),
}

/// Reads the log records that follow a version.
#[derive(Debug)]
pub(crate) struct LogReader {
    place: CollectionLocation,
    id: String,
    schema: Schema,
    /// Sequence number of the last record that was read, or that the version holds.
    last: u64,
    /// First record of the log that the version names. This log exists for as long as the version is the
    /// latest.
    named_log: Option<u64>,
    current: Option<CurrentLog>,
    /// Number of the version.
    version: u64,
    /// True if the reader has moved to another log since it last checked that the version is the latest.
    changed_log: bool,
}

/// The log that is being read.
#[derive(Debug)]
pub(super) struct CurrentLog {
    pub(super) first: u64,
    pub(super) log: Arc<dyn Log>,
    pub(super) format: LogFormat,
    pub(super) end: LogEnd,
    /// True if another log existed after this one when it was opened.
    has_successor: bool,
    /// True if the log says, behind its seal, that the next log was begun.
    next_log_marked: bool,
}

type OnChange<'a> = dyn FnMut(u64, Change) -> Result<(), CollectionError> + 'a;

impl LogReader {
    /// Creates a reader of the records that are not in the segments of `version`.
    pub(crate) fn new(place: &CollectionLocation, version: &Version) -> LogReader {
        let (id, schema) = (version.id.clone(), version.schema.clone());
        let (last, named_log, version) = (version.through, version.log, version.number);
        LogReader {
            place: place.clone(),
            id,
            schema,
            last,
            named_log,
            current: None,
            version,
            changed_log: false,
        }
    }

    /// Returns the sequence number of the last record that was read, or that the version holds.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn current(&self) -> Option<&CurrentLog> {
        self.current.as_ref()
    }

    /// Reads the records that were appended since the last call, and passes the changes to `on_change` in
    /// order. While the current log is not sealed, this takes one read.
    ///
    /// # Errors
    /// Errors of `on_change`; [`CollectionError::Damaged`]; [`CollectionError::Store`].
    pub(crate) fn read(&mut self, on_change: &mut OnChange<'_>) -> Result<ReadOutcome, CollectionError> {
        loop {
            if let Some(current) = self.current.as_mut().filter(|current| !current.end.sealed) {
                let bytes = match current.log.read(current.end.at) {
                    Ok(bytes) => Arc::new(bytes),
                    Err(error) => return superseded_if_gone(error),
                };
                let (path, from) = (current.log.address(), current.end.at);
                current.end =
                    current.format.read(path, &self.schema, current.end, &bytes, self.last, on_change)?;
                let rest = bytes.get((current.end.at - from) as usize..).unwrap_or_default();
                current.next_log_marked = current.format.next_log_marked(current.end, rest);
                self.last = self.last.max(current.end.next - 1);
                if !current.end.sealed && current.has_successor {
                    let reason = "it ends without a seal, although another log follows";
                    let place = format!("byte {}", current.end.at);
                    return Ok(ReadOutcome::Superseded(CollectionError::damaged(path, place, reason)));
                }
                if !current.end.sealed {
                    return self.check_version();
                }
            }
            match self.open_next()? {
                NextLog::Opened => {}
                NextLog::End(ReadOutcome::UpToDate) => return self.check_version(),
                NextLog::End(progress) => return Ok(progress),
            }
        }
    }

    /// Checks that the version is still the latest, if the reader has moved to another log. Between two logs,
    /// changes may have been written as a version alone. That version was published before anything was
    /// appended to the second log, so checking after reading is enough.
    fn check_version(&mut self) -> Result<ReadOutcome, CollectionError> {
        if self.changed_log {
            let newest = version::numbers(&self.place)?.last().copied();
            if newest.is_some_and(|newest| newest > self.version) {
                let reason = format!("version {} is not the latest any more", self.version);
                return Ok(ReadOutcome::Superseded(CollectionError::damaged(
                    self.place.path(),
                    "its versions",
                    reason,
                )));
            }
            self.changed_log = false;
        }
        Ok(ReadOutcome::UpToDate)
    }

    /// Opens the log with the next record.
    fn open_next(&mut self) -> Result<NextLog, CollectionError> {
        let logs = logs(&self.place)?;
        let next = self.last + 1;
        let missing = |reason: String| {
            let missing = CollectionError::damaged(self.place.path(), "its logs", reason);
            Ok(NextLog::End(ReadOutcome::Superseded(missing)))
        };
        let named_log =
            self.named_log.filter(|named_log| self.current.is_none() && !logs.contains(named_log));
        if let Some(named_log) = named_log {
            let name = Part::Log(named_log).name();
            return missing(format!(
                "{name} is not there, which the latest version names; what it held is lost"
            ));
        }
        let found = match &self.current {
            // The current log was sealed, so the next log begins where it ends.
            Some(current) => logs.binary_search(&current.end.next).ok(),
            None => logs.partition_point(|first| *first <= next).checked_sub(1),
        };
        let Some(found) = found else {
            if logs.last().is_some_and(|last| *last > next) {
                return missing(format!("record {next} is in no log, although there are later ones"));
            }
            if let Some(current) = self.current.as_ref().filter(|current| current.next_log_marked) {
                let (name, before) = (Part::Log(current.end.next).name(), Part::Log(current.first).name());
                let reason = format!("{name} is not there, which {before} names; what it held is lost");
                return missing(reason);
            }
            return Ok(NextLog::End(ReadOutcome::UpToDate));
        };
        let (first, has_successor) = (logs[found], found + 1 < logs.len());
        let opened = self.place.store().open(&Part::Log(first).name()).and_then(|log| log.log(LOG));
        let log = match opened {
            Ok(log) => log,
            Err(error) => return superseded_if_gone(error).map(NextLog::End),
        };
        let format = LogFormat::new(&self.id, first);
        let end = format.empty_end();
        self.changed_log |= self.current.is_some();
        self.current = Some(CurrentLog { first, log, format, end, has_successor, next_log_marked: false });
        Ok(NextLog::Opened)
    }
}

/// Outcome of opening the next log.
enum NextLog {
    /// A log was opened.
    Opened,
    /// No log was opened: reading ends.
    End(ReadOutcome),
}

/// Returns [`ReadOutcome::Superseded`] for a log that is gone, and other errors as they are.
fn superseded_if_gone(error: StoreError) -> Result<ReadOutcome, CollectionError> {
    match error {
        StoreError::Missing { .. } | StoreError::Replaced { .. } => Ok(ReadOutcome::Superseded(error.into())),
        error => Err(error.into()),
    }
}
