//! Takes over the right to write.
//!
//! 1. The log of the previous writer is locked and sealed, so that nothing is appended to it any more. Locks
//!    on a local disk reach every writer: a previous writer that is still working keeps the lock, and this
//!    call fails. In a bucket, the previous writer gets an error at its next append.
//! 2. A version is published in the name of the new writer; only then a new log is begun. If the previous
//!    writer then publishes a version, its number is taken already. After that the sealed log is marked to
//!    say that the new log exists. If there is no log yet, the first log is begun before the version, which
//!    names it.
//! 3. Only then old objects are removed.
//!
//! Only one writer can do each step: a seal takes the next offset in a log, and a version or a log takes a
//! name. A writer that loses the race starts again.

use super::record::{Batch, Change, LogFormat};
use super::writer::{LogWriter, begin_log, mark_next_log};
use super::{LogReader, ReadOutcome, logs};
use crate::error::CollectionError;
use crate::location::{CollectionLocation, LOG, MARK, Part};
use crate::version::{self, Version, now, random_digits};
use bathyal_store::{Durability, StoreError};
use roaring::RoaringBitmap;
use std::collections::BTreeSet;

/// Attempts before a writer gives up. Each failed attempt means that another writer has made progress.
const MAX_ATTEMPTS: usize = 64;

/// A new writer, with the content of the collection.
#[derive(Debug)]
pub(crate) struct Acquisition {
    pub(crate) writer: LogWriter,
    /// The version that the writer has published.
    pub(crate) version: Version,
    /// The deleted rows of each segment.
    pub(crate) deleted: Vec<RoaringBitmap>,
    /// The later changes with their sequence numbers, in order.
    pub(crate) changes: Vec<(u64, Change)>,
}

/// Content of a collection after its last log was sealed.
struct SealedCollection {
    version: Version,
    deleted: Vec<RoaringBitmap>,
    changes: Vec<(u64, Change)>,
    /// Sequence number of the next record.
    next: u64,
    /// The log that was sealed; `None` if there is none.
    log: Option<SealedLog>,
    /// Locks of the logs, held until the next log is locked.
    locks: Vec<Box<dyn bathyal_store::LogWriter>>,
}

/// A sealed log.
struct SealedLog {
    first: u64,
    format: LogFormat,
    /// Offset of the first byte behind its seal.
    end: u64,
    /// Sequence number of its seal.
    seal: u64,
}

impl LogWriter {
    /// Becomes the writer of the collection at `place`. Removes old objects except `keep` versions and the
    /// segments `in_use`.
    ///
    /// # Errors
    /// [`CollectionError::Busy`] if another writer holds a lock; [`CollectionError::NotACollection`];
    /// [`CollectionError::Damaged`]; [`CollectionError::Store`].
    pub(crate) fn acquire(
        place: &CollectionLocation,
        keep: usize,
        in_use: &dyn Fn() -> BTreeSet<String>,
    ) -> Result<Acquisition, CollectionError> {
        for _ in 0..MAX_ATTEMPTS {
            let Some(sealed) = seal_last_log(place)? else { continue };
            let Some(mut acquired) = begin_writing(place, sealed)? else { continue };
            let version = acquired.version.clone();
            match acquired.writer.sweep(&version, keep, in_use) {
                Err(CollectionError::Fenced { .. }) => {}
                // Objects that cannot be removed now are removed later.
                _ => return Ok(acquired),
            }
        }
        Err(CollectionError::Busy { path: place.path().to_path_buf() })
    }
}

/// Ignores errors that mean that another writer came first or has moved on. Returns all other errors.
fn ignore_lost_race(error: impl Into<CollectionError>) -> Result<(), CollectionError> {
    match error.into() {
        CollectionError::Store(
            StoreError::Missing { .. } | StoreError::Replaced { .. } | StoreError::Exists { .. },
        )
        | CollectionError::Fenced { .. } => Ok(()),
        error => Err(error),
    }
}

/// Locks a log. Returns `None` if it is gone.
fn lock(
    place: &CollectionLocation,
    first: u64,
) -> Result<Option<Box<dyn bathyal_store::LogWriter>>, CollectionError> {
    let locked = place.store().open(&Part::Log(first).name()).and_then(|log| log.log(LOG)?.write());
    match locked {
        Ok(lock) => Ok(Some(lock)),
        Err(StoreError::Busy { .. }) => Err(CollectionError::Busy { path: place.path().to_path_buf() }),
        Err(error) => ignore_lost_race(error).map(|()| None),
    }
}

/// Locks the last log, so that no process of this machine becomes the writer. Returns `None` if there is no
/// log.
///
/// # Errors
/// [`CollectionError::Busy`] if the collection has a writer; [`CollectionError::Store`].
pub(crate) fn lock_last_log(
    place: &CollectionLocation,
) -> Result<Option<Box<dyn bathyal_store::LogWriter>>, CollectionError> {
    for _ in 0..MAX_ATTEMPTS {
        let Some(newest) = logs(place)?.pop() else { return Ok(None) };
        let locked = lock(place, newest)?;
        // The writer may have begun another log meanwhile, which it locks before it releases this one.
        if locked.is_some() && logs(place)?.pop() == Some(newest) {
            return Ok(locked);
        }
    }
    Err(CollectionError::Busy { path: place.path().to_path_buf() })
}

/// Does the first step: seals the last log. Returns `None` if another writer came first.
fn seal_last_log(place: &CollectionLocation) -> Result<Option<SealedCollection>, CollectionError> {
    let Some(number) = version::numbers(place)?.pop() else {
        let reason = format!("it has no version: no folder v-NUMBER with a {MARK}");
        return Err(CollectionError::NotACollection { path: place.path().to_path_buf(), reason });
    };
    let (version, deleted) = match Version::read(place, number) {
        Ok(read) => read,
        Err(error) => return ignore_lost_race(error).map(|()| None),
    };
    let newest = logs(place)?.pop();
    let mut locks = Vec::new();
    if let Some(newest) = newest {
        let Some(lock) = lock(place, newest)? else { return Ok(None) };
        locks.push(lock);
    }
    let mut reader = LogReader::new(place, &version);
    let mut changes = Vec::new();
    for _ in 0..MAX_ATTEMPTS {
        let read = reader.read(&mut |sequence, change| {
            changes.push((sequence, change));
            Ok(())
        })?;
        if let ReadOutcome::Superseded(error) = read {
            // Without a newer version, the log itself is wrong.
            return if version::numbers(place)?.pop() == Some(number) { Err(error) } else { Ok(None) };
        }
        match seal_log(place, &reader, newest, &mut locks)? {
            SealOutcome::Sealed(log) => {
                let next = log.as_ref().map_or(reader.last(), |log| log.seal) + 1;
                return Ok(Some(SealedCollection { version, deleted, changes, next, log, locks }));
            }
            SealOutcome::Appended => {}
            SealOutcome::NewerLog => return Ok(None),
        }
    }
    Err(CollectionError::Busy { path: place.path().to_path_buf() })
}

/// Outcome of sealing a log.
enum SealOutcome {
    /// The log is sealed.
    Sealed(Option<SealedLog>),
    /// Another writer has appended a record in the meantime.
    Appended,
    /// Another log is the newest.
    NewerLog,
}

/// Seals the log that `reader` has read; the last of `locks` is its lock.
fn seal_log(
    place: &CollectionLocation,
    reader: &LogReader,
    newest: Option<u64>,
    locks: &mut Vec<Box<dyn bathyal_store::LogWriter>>,
) -> Result<SealOutcome, CollectionError> {
    let (Some(current), Some(newest)) = (reader.current(), newest) else {
        let none = logs(place)?.is_empty();
        return Ok(if none { SealOutcome::Sealed(None) } else { SealOutcome::NewerLog });
    };
    // A log with a successor was sealed. The writer that sealed it may be working.
    let all = logs(place)?;
    if current.first != newest || all.last() != Some(&newest) {
        return Ok(SealOutcome::NewerLog);
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
        // The writer of an empty log may not have locked it yet, and then holds the lock of the log before
        // it.
        for before in all.iter().rev().skip(1).take(1) {
            locks.insert(
                0,
                match lock(place, *before)? {
                    Some(lock) => lock,
                    None => return Ok(SealOutcome::NewerLog),
                },
            );
        }
    }
    let Some(lock) = locks.last_mut() else { return Ok(SealOutcome::NewerLog) };
    let end = current.end;
    let mut log =
        SealedLog { first: newest, format: current.format.clone(), end: end.at, seal: end.next - 1 };
    let sealed = if end.sealed {
        // The writer that sealed the log may have been killed before the seal reached the disk.
        lock.sync()
    } else {
        let mut batch = Batch::seal();
        // It is not known how much of the log before the seal is durable.
        let parts = batch.encode_at(&current.format, end.at, end.next, 0);
        let bytes = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        (log.end, log.seal) = (end.at + bytes, end.next);
        lock.append(end.at, &parts, Durability::Disk)
    };
    match sealed {
        Ok(()) => Ok(SealOutcome::Sealed(Some(log))),
        Err(StoreError::Busy { .. }) => {
            locks.clear();
            locks.extend(self::lock(place, newest)?);
            Ok(if locks.is_empty() { SealOutcome::NewerLog } else { SealOutcome::Appended })
        }
        Err(error) => ignore_lost_race(error).map(|()| SealOutcome::NewerLog),
    }
}

/// Does the second step: publishes a version and begins a log. Returns `None` if another writer came first.
fn begin_writing(
    place: &CollectionLocation,
    sealed: SealedCollection,
) -> Result<Option<Acquisition>, CollectionError> {
    let SealedCollection { mut version, deleted, changes, next, log: before, mut locks } = sealed;
    (version.number, version.writer) = (version.number + 1, random_digits(32));
    version.published = now();
    // The sealed log is kept, because its seal is in no segment. Otherwise it may be removed and must not be
    // named.
    version.log = before.as_ref().filter(|log| log.seal > version.through).map(|log| log.first);
    let lost_race = |error| match error {
        // Another writer has locked the log first.
        StoreError::Busy { .. } => Ok(None),
        error => ignore_lost_race(error).map(|()| None),
    };
    let mut first_log = None;
    if before.is_none() {
        // Only the version can say that the first log was begun.
        match begin_log(place, &version.id, next) {
            Ok(log) => (first_log, version.log) = (Some(log), Some(next)),
            Err(error) => return lost_race(error),
        }
    }
    if let Err(error) = version.publish(place, &deleted) {
        return ignore_lost_race(error).map(|()| None);
    }
    let log = match first_log.map_or_else(|| begin_log(place, &version.id, next), Ok) {
        Ok(log) => log,
        Err(error) => return lost_race(error),
    };
    if let (Some(before), Some(lock)) = (before, locks.last_mut())
        && let Err(error) = mark_next_log(&mut **lock, &before.format, (before.end, before.seal))
    {
        return lost_race(error);
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
        durable_end: 0,
        next,
        usable: true,
    };
    drop(locks);
    let current = writer.is_current()?;
    Ok(current.then_some(Acquisition { writer, version, deleted, changes }))
}
