use super::*;
use bathyal_store::Durability;
use bathyal_store::disk::Disk;
use bathyal_store::faulty::{Fault, Faults, SimulatedDisk};
use bathyal_store::local::LocalStore;
use std::collections::BTreeSet;
use std::path::Path;

const EIO: i32 = 5;

/// A disk under faults, with a collection on it.
struct Bench {
    platter: SimulatedDisk,
    faults: Faults,
    place: Place,
}

/// What a writer was told.
#[derive(Debug, Default, Clone)]
struct Told {
    /// Numbers and labels of records that are on the disk.
    durable: Vec<(u64, u64)>,
    /// Of those that may go with the power, in their order.
    soft: Vec<(u64, u64)>,
    /// Labels that may be there or not.
    doubtful: Vec<u64>,
}

impl Bench {
    /// On a disk that holds what another one does.
    fn on(platter: SimulatedDisk) -> Bench {
        let faults = Faults::new(Arc::new(platter.clone()));
        let store = LocalStore::on_disk(Arc::new(faults.clone()), "/folder", Place::MARK);
        Bench { platter, faults, place: Place::in_store(Arc::new(store)) }
    }

    /// With a collection that another writer has written to.
    fn new() -> (Bench, Told) {
        let bench = Bench::on(SimulatedDisk::default());
        bench.platter.create_folder(Path::new("/folder")).unwrap();
        bench.platter.sync_folder(Path::new("/")).unwrap();
        create(&bench.place);
        let mut told = Told::default();
        let mut writer = LogWriter::acquire(&bench.place, 2, &BTreeSet::new).unwrap().writer;
        append(&mut writer, &[100, 101], Durability::Disk, &mut told).unwrap();
        (bench, told)
    }

    /// What is there, after whatever happened.
    fn examine(&self, told: &Told, powerless: bool, what: &str) {
        let acquired = LogWriter::acquire(&self.place, 2, &BTreeSet::new)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let through = acquired.version.through;
        let found = labelled(&acquired.changes);
        let beyond = |records: &[(u64, u64)]| -> Vec<(u64, u64)> {
            records.iter().copied().filter(|(sequence, _)| *sequence > through).collect()
        };
        let (durable, soft) = (beyond(&told.durable), beyond(&told.soft));
        assert!(found.starts_with(&durable), "{what}: {found:?}, not {durable:?}");
        let rest = &found[durable.len()..];
        let kept = rest.iter().zip(&soft).take_while(|(found, soft)| found == soft).count();
        assert!(powerless || kept == soft.len(), "{what}: {rest:?}, not {soft:?}");
        let new: Vec<u64> = rest[kept..].iter().map(|(_, label)| *label).collect();
        assert!(told.doubtful.starts_with(&new), "{what}: {new:?} of {:?}", told.doubtful);
        assert!(new.is_empty() || kept == soft.len(), "{what}: nothing comes after what is missing");
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
    told: &mut Told,
) -> Result<(), CollectionError> {
    told.doubtful = labels.to_vec();
    let last = writer.append(batch(labels.iter().copied()), durability)?;
    told.doubtful.clear();
    let first = last + 1 - labels.len() as u64;
    told.soft.extend((first..).zip(labels.iter().copied()));
    if durability == Durability::Disk {
        told.durable.append(&mut told.soft);
    }
    Ok(())
}

/// All that a writer does.
fn work(place: &Place, told: &mut Told) -> Result<(), CollectionError> {
    let Acquired { mut writer, mut version, changes, .. } = LogWriter::acquire(place, 2, &BTreeSet::new)?;
    assert_eq!(labelled(&changes), [(1, 100), (2, 101)]);
    append(&mut writer, &[3], Durability::Disk, told)?;
    append(&mut writer, &[4, 5], Durability::System, told)?;
    append(&mut writer, &[6], Durability::System, told)?;
    append(&mut writer, &[7, 8, 9], Durability::Disk, told)?;
    append(&mut writer, &[10], Durability::System, told)?;
    writer.rotate()?;
    told.durable.append(&mut told.soft);
    append(&mut writer, &[11, LARGE, 12], Durability::Disk, told)?;
    version.through = told.durable[6].0;
    writer.publish(&mut version, &[])?;
    writer.sweep(&version, 2, &BTreeSet::new)?;
    append(&mut writer, &[13], Durability::System, told)?;
    writer.sync()?;
    told.durable.append(&mut told.soft);
    writer.rotate()?;
    version.through = writer.last();
    writer.publish(&mut version, &[])?;
    writer.sweep(&version, 2, &BTreeSet::new)?;
    append(&mut writer, &[LARGE], Durability::System, told)
}

/// Does the work with a fault at every operation, and tells `after` of each, until none strikes any more. Returns how many did.
fn sweep(fault: Fault, mut after: impl FnMut(&Bench, &Told, &str)) -> usize {
    let (origin, begun) = Bench::new();
    for number in 0.. {
        let bench = Bench::on(origin.platter.copy());
        let mut told = begun.clone();
        bench.faults.inject(number, fault);
        let done = work(&bench.place, &mut told);
        let Some(struck) = bench.faults.injected() else {
            done.unwrap();
            return number;
        };
        bench.faults.clear();
        after(&bench, &told, &struck);
    }
    0
}

#[test]
fn a_writer_that_is_killed_anywhere_loses_nothing() {
    let struck = sweep(Fault::Kill, |bench, told, what| bench.examine(told, false, what));
    assert!(struck > 150, "{struck}");
}

#[test]
fn a_machine_that_loses_power_anywhere_keeps_what_was_acknowledged_as_on_the_disk() {
    sweep(Fault::Kill, |bench, told, what| {
        for seed in 0..6 {
            let bench = Bench::on(bench.platter.copy());
            bench.platter.lose_power(seed);
            bench.examine(told, true, &format!("{what}, power lost by seed {seed}"));
        }
    });
}

#[test]
fn a_disk_that_fails_once_or_is_full_loses_nothing() {
    for fault in [Fault::Once(EIO), Fault::Twice(EIO), Fault::Full] {
        sweep(fault, |bench, told, what| bench.examine(told, false, what));
    }
}

#[test]
fn a_writer_that_failed_writes_no_more() {
    let (bench, mut told) = Bench::new();
    let mut writer = LogWriter::acquire(&bench.place, 2, &BTreeSet::new).unwrap().writer;
    append(&mut writer, &[3], Durability::Disk, &mut told).unwrap();
    bench.faults.inject(0, Fault::Once(EIO));
    append(&mut writer, &[4], Durability::Disk, &mut told).unwrap_err();
    bench.faults.clear();
    for _ in 0..2 {
        let error = writer.append(batch([6]), Durability::Disk).unwrap_err();
        assert!(error.to_string().contains("open the collection again"), "{error}");
        assert!(writer.rotate().is_err() && writer.sync().is_err());
    }
    drop(writer);
    bench.examine(&told, false, "after that");
}
