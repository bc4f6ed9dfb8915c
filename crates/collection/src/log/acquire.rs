//! Taking over the writing.
//!
//! 1. The log of whoever wrote before is locked, and sealed: nothing is appended to it any more. Where locks reach every writer, as
//!    on a disk of this machine, one that is at work is not disturbed; in a bucket it is told when it appends.
//! 2. A version is published in the name of the new writer, and only then a new log is begun. A version of one that was taken over
//!    from has a number that is taken. Then the sealed log says that the new one is there. Where there is no log yet, the first one
//!    is begun before the version, which names it.
//! 3. Only then anything is removed.
//!
//! Each step is one that only one writer can do: a seal has a place in a log, a version and a log have a name. Whoever comes second
//! begins again.

use super::record::{Batch, Change, LogFormat};
use super::writer::{LogWriter, begin_log, name_next};
use super::{LogReader, Progress, logs};
use crate::error::CollectionError;
use crate::place::{LOG, MARK, Part, Place};
use crate::version::{self, Version, now, random_digits};
use bathyal_store::{Durability, StoreError};
use roaring::RoaringBitmap;
use std::collections::BTreeSet;

/// Times that another one comes first before it is told: each time it has come a step further.
const TRIES: usize = 64;

/// What the new writer begins with.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) writer: LogWriter,
    /// The version that it has published.
    pub(crate) version: Version,
    /// The rows of each segment that are deleted.
    pub(crate) deleted: Vec<RoaringBitmap>,
    /// The changes since, with their numbers, in their order.
    pub(crate) changes: Vec<(u64, Change)>,
}

/// What is known once nobody else appends any more.
struct Sealed {
    version: Version,
    deleted: Vec<RoaringBitmap>,
    changes: Vec<(u64, Change)>,
    /// The number of the next record.
    next: u64,
    /// The log that was sealed; `None` if there is none.
    log: Option<SealedLog>,
    /// Held until the next log is locked.
    locks: Vec<Box<dyn bathyal_store::LogWriter>>,
}

/// A log to which no record is appended any more.
struct SealedLog {
    first: u64,
    format: LogFormat,
    /// The byte behind its seal.
    end: u64,
    /// The number of its seal.
    seal: u64,
}

impl LogWriter {
    /// Becomes the writer of the collection that is in `place`, of which `keep` versions and the segments `in_use` stay.
    ///
    /// # Errors
    /// [`CollectionError::Busy`] if another one writes, as far as locks can tell; [`CollectionError::NotACollection`];
    /// [`CollectionError::Damaged`]; [`CollectionError::Store`].
    pub(crate) fn acquire(
        place: &Place,
        keep: usize,
        in_use: &dyn Fn() -> BTreeSet<String>,
    ) -> Result<Acquired, CollectionError> {
        for _ in 0..TRIES {
            let Some(sealed) = seal(place)? else { continue };
            let Some(mut acquired) = begin(place, sealed)? else { continue };
            let version = acquired.version.clone();
            match acquired.writer.sweep(&version, keep, in_use) {
                Err(CollectionError::Fenced { .. }) => {}
                // What cannot be removed now is removed later.
                _ => return Ok(acquired),
            }
        }
        Err(CollectionError::Busy { path: place.path().to_path_buf() })
    }
}

/// The error if it means more than that another one came first, or has moved on.
fn unless_second(error: impl Into<CollectionError>) -> Result<(), CollectionError> {
    match error.into() {
        CollectionError::Store(
            StoreError::Missing { .. } | StoreError::Replaced { .. } | StoreError::Exists { .. },
        )
        | CollectionError::Fenced { .. } => Ok(()),
        error => Err(error),
    }
}

/// Locks a log; `None` if it is gone.
fn lock(place: &Place, first: u64) -> Result<Option<Box<dyn bathyal_store::LogWriter>>, CollectionError> {
    let locked = place.store().open(&Part::Log(first).name()).and_then(|log| log.log(LOG)?.write());
    match locked {
        Ok(lock) => Ok(Some(lock)),
        Err(StoreError::Busy { .. }) => Err(CollectionError::Busy { path: place.path().to_path_buf() }),
        Err(error) => unless_second(error).map(|()| None),
    }
}

/// The first step; `None` if another one came first.
fn seal(place: &Place) -> Result<Option<Sealed>, CollectionError> {
    let Some(number) = version::numbers(place)?.pop() else {
        let reason = format!("it has no version: no folder v-NUMBER with a {MARK}");
        return Err(CollectionError::NotACollection { path: place.path().to_path_buf(), reason });
    };
    let (version, deleted) = match Version::read(place, number) {
        Ok(read) => read,
        Err(error) => return unless_second(error).map(|()| None),
    };
    let newest = logs(place)?.pop();
    let mut locks = Vec::new();
    if let Some(newest) = newest {
        let Some(lock) = lock(place, newest)? else { return Ok(None) };
        locks.push(lock);
    }
    let mut reader = LogReader::new(place, &version);
    let mut changes = Vec::new();
    for _ in 0..TRIES {
        let read = reader.read(&mut |sequence, change| {
            changes.push((sequence, change));
            Ok(())
        })?;
        if let Progress::MovedOn(error) = read {
            // Where nothing is newer, something is wrong.
            return if version::numbers(place)?.pop() == Some(number) { Err(error) } else { Ok(None) };
        }
        match end(place, &reader, newest, &mut locks)? {
            Ended::Sealed(log) => {
                let next = log.as_ref().map_or(reader.last(), |log| log.seal) + 1;
                return Ok(Some(Sealed { version, deleted, changes, next, log, locks }));
            }
            Ended::Appended => {}
            Ended::Elsewhere => return Ok(None),
        }
    }
    Err(CollectionError::Busy { path: place.path().to_path_buf() })
}

/// What came of sealing.
enum Ended {
    /// Nothing is appended any more.
    Sealed(Option<SealedLog>),
    /// Something was appended meanwhile.
    Appended,
    /// Another log is the newest one.
    Elsewhere,
}

/// Seals the log that was read, of which the last of `locks` is.
fn end(
    place: &Place,
    reader: &LogReader,
    newest: Option<u64>,
    locks: &mut Vec<Box<dyn bathyal_store::LogWriter>>,
) -> Result<Ended, CollectionError> {
    let (Some(current), Some(newest)) = (reader.current(), newest) else {
        let none = logs(place)?.is_empty();
        return Ok(if none { Ended::Sealed(None) } else { Ended::Elsewhere });
    };
    // One that is followed by another was sealed, and whoever sealed it may be at work.
    let all = logs(place)?;
    if current.first != newest || all.last() != Some(&newest) {
        return Ok(Ended::Elsewhere);
    }
    if current.end.next != reader.last() + 1 {
        let reason = format!("record {} is in the segments, and not in the logs", reader.last());
        return Err(CollectionError::damaged(
            current.log.address(),
            format!("byte {}", current.end.at),
            reason,
        ));
    }
    if current.end.at == 0 {
        // Its writer may not have locked it yet, and holds the one before.
        for before in all.iter().rev().skip(1).take(1) {
            locks.insert(
                0,
                match lock(place, *before)? {
                    Some(lock) => lock,
                    None => return Ok(Ended::Elsewhere),
                },
            );
        }
    }
    let Some(lock) = locks.last_mut() else { return Ok(Ended::Elsewhere) };
    let end = current.end;
    let mut log =
        SealedLog { first: newest, format: current.format.clone(), end: end.at, seal: end.next - 1 };
    let sealed = if end.sealed {
        // Whoever sealed it may have been killed before it was on the disk.
        lock.sync()
    } else {
        let mut batch = Batch::seal();
        // Of what is before it nothing is known but that it is there.
        let parts = batch.place(&current.format, end.at, end.next, 0);
        let bytes = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        (log.end, log.seal) = (end.at + bytes, end.next);
        lock.append(end.at, &parts, Durability::Disk)
    };
    match sealed {
        Ok(()) => Ok(Ended::Sealed(Some(log))),
        Err(StoreError::Busy { .. }) => {
            locks.clear();
            locks.extend(self::lock(place, newest)?);
            Ok(if locks.is_empty() { Ended::Elsewhere } else { Ended::Appended })
        }
        Err(error) => unless_second(error).map(|()| Ended::Elsewhere),
    }
}

/// The second step; `None` if another one came first.
fn begin(place: &Place, sealed: Sealed) -> Result<Option<Acquired>, CollectionError> {
    let Sealed { mut version, deleted, changes, next, log: before, mut locks } = sealed;
    (version.number, version.writer) = (version.number + 1, random_digits(32));
    version.published = now();
    // It stays, because its seal is in no segment. Where it may not, the log that it names is missing.
    version.log = before.as_ref().filter(|log| log.seal > version.through).map(|log| log.first);
    let second = |error| match error {
        // Another one has locked it before this one could.
        StoreError::Busy { .. } => Ok(None),
        error => unless_second(error).map(|()| None),
    };
    let mut begun = None;
    if before.is_none() {
        // Nothing but the version could say that it was begun.
        match begin_log(place, &version.id, next) {
            Ok(log) => (begun, version.log) = (Some(log), Some(next)),
            Err(error) => return second(error),
        }
    }
    if let Err(error) = version.publish(place, &deleted) {
        return unless_second(error).map(|()| None);
    }
    let log = match begun.map_or_else(|| begin_log(place, &version.id, next), Ok) {
        Ok(log) => log,
        Err(error) => return second(error),
    };
    if let (Some(before), Some(lock)) = (before, locks.last_mut())
        && let Err(error) = name_next(&mut **lock, &before.format, (before.end, before.seal))
    {
        return second(error);
    }
    let mut writer = LogWriter {
        place: place.clone(),
        id: version.id.clone(),
        writer: version.writer.clone(),
        version: version.number,
        first: next,
        log,
        end: 0,
        appended: 0,
        settled: 0,
        next,
        usable: true,
    };
    drop(locks);
    let current = writer.is_current()?;
    Ok(current.then_some(Acquired { writer, version, deleted, changes }))
}
