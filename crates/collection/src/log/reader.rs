//! Reads the logs of a collection in their order, and goes on where it was.

use super::logs;
use super::record::{Change, End, LogFormat};
use crate::error::CollectionError;
use crate::place::{LOG, Part, Place};
use crate::schema::Schema;
use crate::version::{self, Version};
use bathyal_store::{Log, StoreError};
use std::sync::Arc;

/// What came of reading.
#[derive(Debug)]
pub(crate) enum Progress {
    /// All that is there was read.
    Now,
    /// The records that come next are not there: they are in the segments of a later version, from which the reader is to start
    /// anew. If there is no later version, this is what is wrong. What was told of changes meanwhile is worth nothing.
    MovedOn(CollectionError),
}

/// Reads the records that follow a version.
#[derive(Debug)]
pub(crate) struct LogReader {
    place: Place,
    id: String,
    schema: Schema,
    /// The last record that was read, or is in the version.
    last: u64,
    /// The log that the version names: it is there for as long as this is the latest one.
    named: Option<u64>,
    current: Option<Current>,
    /// The version that was begun with.
    version: u64,
    /// Whether it has gone from one log to the next since it was seen that this version is the latest.
    turned: bool,
}

/// The log that is read.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) first: u64,
    pub(super) log: Arc<dyn Log>,
    pub(super) format: LogFormat,
    pub(super) end: End,
    /// Whether there was another one after it before it was read.
    followed: bool,
    /// Whether it says behind its seal that the next one was begun.
    names_next: bool,
}

type Each<'a> = dyn FnMut(u64, Change) -> Result<(), CollectionError> + 'a;

impl LogReader {
    /// Of the records beyond those that are in the segments of `version`.
    pub(crate) fn new(place: &Place, version: &Version) -> LogReader {
        let (id, schema) = (version.id.clone(), version.schema.clone());
        let (last, named, version) = (version.through, version.log, version.number);
        LogReader { place: place.clone(), id, schema, last, named, current: None, version, turned: false }
    }

    /// The number of the last record that was read, or is in the version.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn current(&self) -> Option<&Current> {
        self.current.as_ref()
    }

    /// Reads what has been appended since the last time, and tells `each` of the changes in their order. As long as the log goes on
    /// that was read last, one look at it is all that this takes.
    ///
    /// # Errors
    /// Those of `each`; [`CollectionError::Damaged`]; [`CollectionError::Store`].
    pub(crate) fn read(&mut self, each: &mut Each<'_>) -> Result<Progress, CollectionError> {
        loop {
            if let Some(current) = self.current.as_mut().filter(|current| !current.end.sealed) {
                let bytes = match current.log.read(current.end.at) {
                    Ok(bytes) => Arc::new(bytes),
                    Err(error) => return moved_on(error),
                };
                let (path, from) = (current.log.address(), current.end.at);
                current.end =
                    current.format.read(path, &self.schema, current.end, &bytes, self.last, each)?;
                let behind = bytes.get((current.end.at - from) as usize..).unwrap_or_default();
                current.names_next = current.format.names_next(current.end, behind);
                self.last = self.last.max(current.end.next - 1);
                if !current.end.sealed && current.followed {
                    let reason = "it ends without a seal, although another log follows";
                    let place = format!("byte {}", current.end.at);
                    return Ok(Progress::MovedOn(CollectionError::damaged(path, place, reason)));
                }
                if !current.end.sealed {
                    return self.confirmed();
                }
            }
            match self.turn()? {
                Turn::Page => {}
                Turn::End(Progress::Now) => return self.confirmed(),
                Turn::End(progress) => return Ok(progress),
            }
        }
    }

    /// What is in no log may have been written between two logs, as a version. It was published before anything was appended to the
    /// second one, so a look is enough that is made after reading.
    fn confirmed(&mut self) -> Result<Progress, CollectionError> {
        if self.turned {
            let newest = version::numbers(&self.place)?.last().copied();
            if newest.is_some_and(|newest| newest > self.version) {
                let reason = format!("version {} is not the latest any more", self.version);
                return Ok(Progress::MovedOn(CollectionError::damaged(
                    self.place.path(),
                    "its versions",
                    reason,
                )));
            }
            self.turned = false;
        }
        Ok(Progress::Now)
    }

    /// Goes to the log that has the next record.
    fn turn(&mut self) -> Result<Turn, CollectionError> {
        let logs = logs(&self.place)?;
        let next = self.last + 1;
        let missing = |reason: String| {
            let missing = CollectionError::damaged(self.place.path(), "its logs", reason);
            Ok(Turn::End(Progress::MovedOn(missing)))
        };
        let named = self.named.filter(|named| self.current.is_none() && !logs.contains(named));
        if let Some(named) = named {
            let name = Part::Log(named).name();
            return missing(format!(
                "{name} is not there, which the latest version names; what it held is lost"
            ));
        }
        let found = match &self.current {
            // It was sealed, so the next one begins where it ends.
            Some(current) => logs.binary_search(&current.end.next).ok(),
            None => logs.partition_point(|first| *first <= next).checked_sub(1),
        };
        let Some(found) = found else {
            if logs.last().is_some_and(|last| *last > next) {
                return missing(format!("record {next} is in no log, although there are later ones"));
            }
            if let Some(current) = self.current.as_ref().filter(|current| current.names_next) {
                let (name, before) = (Part::Log(current.end.next).name(), Part::Log(current.first).name());
                let reason = format!("{name} is not there, which {before} names; what it held is lost");
                return missing(reason);
            }
            return Ok(Turn::End(Progress::Now));
        };
        let (first, followed) = (logs[found], found + 1 < logs.len());
        let opened = self.place.store().open(&Part::Log(first).name()).and_then(|log| log.log(LOG));
        let log = match opened {
            Ok(log) => log,
            Err(error) => return moved_on(error).map(Turn::End),
        };
        let format = LogFormat::new(&self.id, first);
        let end = format.begin();
        self.turned |= self.current.is_some();
        self.current = Some(Current { first, log, format, end, followed, names_next: false });
        Ok(Turn::Page)
    }
}

enum Turn {
    /// There is another log.
    Page,
    End(Progress),
}

/// What it means that a log cannot be read.
fn moved_on(error: StoreError) -> Result<Progress, CollectionError> {
    match error {
        StoreError::Missing { .. } | StoreError::Replaced { .. } => Ok(Progress::MovedOn(error.into())),
        error => Err(error.into()),
    }
}
