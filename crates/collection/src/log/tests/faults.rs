use super::*;
use bathyal_store::Durability;
use bathyal_store::disk::Disk;
use bathyal_store::faulty::{DiskFault, Faults, SimulatedDisk};
use bathyal_store::local::LocalStore;
use std::collections::BTreeSet;
use std::path::Path;

const EIO: i32 = 5;

/// A collection on a simulated disk with faults.
struct TestDisk {
    platter: SimulatedDisk,
    faults: Faults,
    place: CollectionLocation,
}

/// Records by what the writer knows about them.
#[derive(Debug, Default, Clone)]
struct Expected {
    /// Sequence numbers and labels of records that are on the disk.
    durable: Vec<(u64, u64)>,
    /// Those of records that a power failure may lose, in order.
    soft: Vec<(u64, u64)>,
    /// Labels of records that may or may not be stored.
    doubtful: Vec<u64>,
}

impl TestDisk {
    /// Creates a store on a disk.
    fn with_platter(platter: SimulatedDisk) -> TestDisk {
        let faults = Faults::new(Arc::new(platter.clone()));
        let store = LocalStore::on_disk(Arc::new(faults.clone()), "/folder", CollectionLocation::MARK);
        TestDisk { platter, faults, place: CollectionLocation::in_store(Arc::new(store)) }
    }

    /// Creates a collection to which another writer has written.
    fn new() -> (TestDisk, Expected) {
        let disk = TestDisk::with_platter(SimulatedDisk::default());
        disk.platter.create_folder(Path::new("/folder")).unwrap();
        disk.platter.sync_folder(Path::new("/")).unwrap();
        create(&disk.place);
        let mut expected = Expected::default();
        let mut writer = LogWriter::acquire(&disk.place, 2, &BTreeSet::new).unwrap().writer;
        append(&mut writer, &[100, 101], Durability::Disk, &mut expected).unwrap();
        (disk, expected)
    }

    /// Checks the content of the log after a fault.
    fn check(&self, expected: &Expected, powerless: bool, what: &str) {
        let acquired = LogWriter::acquire(&self.place, 2, &BTreeSet::new)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let through = acquired.version.through;
        let found = labelled(&acquired.changes);
        let beyond = |records: &[(u64, u64)]| -> Vec<(u64, u64)> {
            records.iter().copied().filter(|(sequence, _)| *sequence > through).collect()
        };
        let (durable, soft) = (beyond(&expected.durable), beyond(&expected.soft));
        assert!(found.starts_with(&durable), "{what}: {found:?}, not {durable:?}");
        let rest = &found[durable.len()..];
        let kept = rest.iter().zip(&soft).take_while(|(found, soft)| found == soft).count();
        assert!(powerless || kept == soft.len(), "{what}: {rest:?}, not {soft:?}");
        let new: Vec<u64> = rest[kept..].iter().map(|(_, label)| *label).collect();
        assert!(expected.doubtful.starts_with(&new), "{what}: {new:?} of {:?}", expected.doubtful);
        assert!(new.is_empty() || kept == soft.len(), "{what}: a record follows a missing one");
        let mut writer = acquired.writer;
        writer.append(batch([50]), Durability::Disk).unwrap_or_else(|error| panic!("{what}: {error}"));
        let last = writer.last();
        drop(writer);
        let again = LogWriter::acquire(&self.place, 2, &BTreeSet::new).unwrap();
        assert_eq!(labelled(&again.changes), [&found[..], &[(last, 50)]].concat(), "{what}");
    }
}

fn append(
    writer: &mut LogWriter,
    labels: &[u64],
    durability: Durability,
    expected: &mut Expected,
) -> Result<(), CollectionError> {
    expected.doubtful = labels.to_vec();
    let last = writer.append(batch(labels.iter().copied()), durability)?;
    expected.doubtful.clear();
    let first = last + 1 - labels.len() as u64;
    expected.soft.extend((first..).zip(labels.iter().copied()));
    if durability == Durability::Disk {
        expected.durable.append(&mut expected.soft);
    }
    Ok(())
}

/// Does everything that a writer can do.
fn work(place: &CollectionLocation, expected: &mut Expected) -> Result<(), CollectionError> {
    let Acquisition { mut writer, mut version, changes, .. } = LogWriter::acquire(place, 2, &BTreeSet::new)?;
    assert_eq!(labelled(&changes), [(1, 100), (2, 101)]);
    append(&mut writer, &[3], Durability::Disk, expected)?;
    append(&mut writer, &[4, 5], Durability::System, expected)?;
    append(&mut writer, &[6], Durability::System, expected)?;
    append(&mut writer, &[7, 8, 9], Durability::Disk, expected)?;
    append(&mut writer, &[10], Durability::System, expected)?;
    writer.rotate()?;
    expected.durable.append(&mut expected.soft);
    append(&mut writer, &[11, LARGE, 12], Durability::Disk, expected)?;
    version.through = expected.durable[6].0;
    writer.publish(&mut version, &[])?;
    writer.sweep(&version, 2, &BTreeSet::new)?;
    append(&mut writer, &[13], Durability::System, expected)?;
    writer.sync()?;
    expected.durable.append(&mut expected.soft);
    writer.rotate()?;
    version.through = writer.last();
    writer.publish(&mut version, &[])?;
    writer.sweep(&version, 2, &BTreeSet::new)?;
    append(&mut writer, &[LARGE], Durability::System, expected)
}

/// Runs `work` once for each operation, with a fault at that operation, and calls `after`. Returns the number
/// of runs.
fn sweep(fault: DiskFault, mut after: impl FnMut(&TestDisk, &Expected, &str)) -> usize {
    let (origin, begun) = TestDisk::new();
    for number in 0.. {
        let disk = TestDisk::with_platter(origin.platter.copy());
        let mut expected = begun.clone();
        disk.faults.inject(number, fault);
        let done = work(&disk.place, &mut expected);
        let Some(struck) = disk.faults.injected() else {
            done.unwrap();
            return number;
        };
        disk.faults.clear();
        after(&disk, &expected, &struck);
    }
    0
}

#[test]
fn a_killed_writer_loses_no_record() {
    let struck = sweep(DiskFault::Kill, |disk, expected, what| disk.check(expected, false, what));
    assert!(struck > 150, "{struck}");
}

#[test]
fn a_power_failure_keeps_records_acknowledged_with_disk_durability() {
    sweep(DiskFault::Kill, |disk, expected, what| {
        for seed in 0..6 {
            let disk = TestDisk::with_platter(disk.platter.copy());
            disk.platter.lose_power(seed);
            disk.check(expected, true, &format!("{what}, power lost by seed {seed}"));
        }
    });
}

#[test]
fn a_disk_that_fails_once_or_is_full_loses_no_record() {
    for fault in [DiskFault::Once(EIO), DiskFault::Twice(EIO), DiskFault::Full] {
        sweep(fault, |disk, expected, what| disk.check(expected, false, what));
    }
}

#[test]
fn a_writer_refuses_appends_after_a_failed_one() {
    let (disk, mut expected) = TestDisk::new();
    let mut writer = LogWriter::acquire(&disk.place, 2, &BTreeSet::new).unwrap().writer;
    append(&mut writer, &[3], Durability::Disk, &mut expected).unwrap();
    disk.faults.inject(0, DiskFault::Once(EIO));
    append(&mut writer, &[4], Durability::Disk, &mut expected).unwrap_err();
    disk.faults.clear();
    for _ in 0..2 {
        let error = writer.append(batch([6]), Durability::Disk).unwrap_err();
        assert!(error.to_string().contains("open the collection again"), "{error}");
        assert!(writer.rotate().is_err() && writer.sync().is_err());
    }
    drop(writer);
    disk.check(&expected, false, "after that");
}
