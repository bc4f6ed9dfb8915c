//! Lost logs: the rest of the logs is never mistaken for the complete content.

use super::*;
use bathyal_store::Durability;
use bathyal_store::memory::MemoryStore;
use std::collections::BTreeSet;

fn acquire(place: &CollectionLocation) -> Result<Acquisition, CollectionError> {
    LogWriter::acquire(place, 1, &BTreeSet::new)
}

/// Reads from the latest version on. Returns the number of changes.
fn read(place: &CollectionLocation) -> Result<usize, CollectionError> {
    let newest = crate::version::numbers(place)?.pop().unwrap();
    let (version, _) = Version::read(place, newest)?;
    let mut changes = 0;
    match LogReader::new(place, &version).read(&mut |_, _| {
        changes += 1;
        Ok(())
    })? {
        ReadOutcome::UpToDate => Ok(changes),
        ReadOutcome::Superseded(error) => Err(error),
    }
}

/// Returns a collection whose writer stopped after `step` steps. Its last action was to append one
/// acknowledged record.
fn stopped_after(step: usize) -> CollectionLocation {
    let place = CollectionLocation::in_store(Arc::new(MemoryStore::new("memory")));
    create(&place);
    let append = |writer: &mut LogWriter, label| writer.append(batch([label]), Durability::Disk).unwrap();
    let mut acquired = acquire(&place).unwrap();
    append(&mut acquired.writer, 3);
    if step > 0 {
        drop(acquired);
        acquired = acquire(&place).unwrap();
        append(&mut acquired.writer, 4);
    }
    let Acquisition { mut writer, mut version, .. } = acquired;
    if step > 1 {
        writer.rotate().unwrap();
        append(&mut writer, 6);
    }
    if step > 2 {
        version.through = writer.last() - 1;
        writer.publish(&mut version, &[]).unwrap();
        append(&mut writer, 7);
    }
    if step > 3 {
        writer.sweep(&version, 1, &BTreeSet::new).unwrap();
        append(&mut writer, 9);
    }
    if step > 4 {
        drop(writer);
        append(&mut acquire(&place).unwrap().writer, 10);
    }
    place
}

#[test]
fn a_lost_log_is_noticed_whatever_its_writer_did_last() {
    for step in 0..6 {
        let place = stopped_after(step);
        let (all, through) = (logs(&place).unwrap(), {
            let newest = crate::version::numbers(&place).unwrap().pop().unwrap();
            Version::read(&place, newest).unwrap().0.through
        });
        read(&place).unwrap_or_else(|error| panic!("{step}: {error}"));
        // Each log alone, and all logs from one on.
        for at in 0..all.len() {
            for until in [at + 1, all.len()] {
                let what = format!("step {step}, {:?} of {all:?} are lost", &all[at..until]);
                if all.get(at + 1).is_some_and(|next| *next <= through + 1) && until == at + 1 {
                    continue;
                }
                let place = stopped_after(step);
                for first in &all[at..until] {
                    place.store().erase(&Part::Log(*first).name()).unwrap();
                }
                let version =
                    Version::read(&place, *crate::version::numbers(&place).unwrap().last().unwrap());
                let salvaged = SalvagedLogs::read(&place, &version.unwrap().0).unwrap();
                assert!(salvaged.lost_log || until < all.len() && !salvaged.lost.is_empty(), "{what}");
                assert!(!salvaged.faults.is_empty(), "{what}");
                for outcome in [read(&place), acquire(&place).map(|acquired| acquired.changes.len())] {
                    let error = outcome.expect_err(&what);
                    assert!(matches!(error, CollectionError::Damaged { .. }), "{what}: {error}");
                }
            }
        }
    }
}

#[test]
fn a_log_that_was_never_begun_is_not_reported_as_lost() {
    // The writer stopped after the seal, and after the version of a takeover.
    let place = stopped_after(0);
    let mut acquired = acquire(&place).unwrap();
    acquired.writer.append(Batch::seal(), Durability::Disk).unwrap();
    drop(acquired);
    assert_eq!(read(&place).unwrap(), 1);
    let mut writer = acquire(&place).unwrap().writer;
    writer.append(batch([4]), Durability::Disk).unwrap();
    drop(writer);
    assert_eq!(read(&place).unwrap(), 2);
    // Versions of earlier programs name no log.
    let place = CollectionLocation::in_store(Arc::new(MemoryStore::new("memory")));
    create(&place);
    assert_eq!(read(&place).unwrap(), 0);
}
