//! Writers that are killed, refused or out of space at every single operation, and machines that lose power
//! there.

use super::super::manifest::{IDS_NAME, ROWS_NAME, SUMS_NAME};
use super::*;
use crate::place::{MARK, Part};
use crate::seal::unseal;
use bathyal_store::disk::Disk;
use bathyal_store::faulty::{Fault, Faults, Platter};
use bathyal_store::local::LocalStore;
use bathyal_store::{GenerationExt, Replace};
use bathyal_vectors::progress::Progress;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

const NAME: &str = "s-1-aa";
const ROWS: u32 = 300;
/// The system's number of an error of a device.
const EIO: i32 = 5;

/// A disk, its faults, and a collection's folder on it.
struct Bench {
    platter: Platter,
    faults: Faults,
    place: Place,
    schema: Arc<Schema>,
}

impl Bench {
    fn new() -> Bench {
        let platter = Platter::default();
        let faults = Faults::new(Arc::new(platter.clone()));
        platter.create_folder(Path::new("/folder")).unwrap();
        platter.sync_folder(Path::new("/")).unwrap();
        let place = Place::in_store(Arc::new(LocalStore::on(Arc::new(faults.clone()), "/folder", MARK)));
        Bench { platter, faults, place, schema: schema(IdKind::Text, &[2, 3], &["int64", "list<string>"]) }
    }

    /// Writes the segment, its vectors by way of the disk.
    fn write(&self) -> Result<SegmentEntry, CollectionError> {
        write(&self.place, &self.schema, NAME, ROWS, &WriteOptions { held_bytes: 64, ..one_thread() })
    }

    fn parts(&self) -> Vec<String> {
        [None, Some(0), Some(1)].map(|field| Part::Segment(NAME.into(), field).name()).into()
    }

    /// Removes what a version does not name, as a writer does that comes later.
    fn sweep(&self) {
        for name in self.parts() {
            drop(self.place.store().abandoned(&name, Replace::Generation).unwrap());
            if self.place.store().list().unwrap().contains(&name) {
                self.place.store().delete(&name).unwrap();
            }
        }
        assert_eq!(self.platter.paths(), ["/folder"], "something is left over");
    }

    /// Whatever is published is whole: all of the segment, or nothing of it that a version could name.
    fn examine(&self, entry: &SegmentEntry, what: &str) -> bool {
        let published = self.place.store().list().unwrap();
        assert!(published.iter().all(|name| self.parts().contains(name)), "{what}: {published:?}");
        if !published.contains(&self.parts()[0]) {
            return false;
        }
        assert_eq!(published.len(), 3, "{what}: the rows are published last");
        let segment = open(&self.place, &self.schema, entry);
        assert_eq!(segment.verify(&Silent).unwrap(), Vec::<String>::new(), "{what}");
        let ids = ids_of(IdKind::Text, 0..ROWS);
        assert_eq!(segment.find(&ids).unwrap(), (0..ROWS).map(Some).collect::<Vec<_>>(), "{what}");
        let rows: Vec<u32> = (0..ROWS).collect();
        assert_eq!(segment.columns_of(&rows, &[0, 1]).unwrap(), columns_of(&self.schema, &rows), "{what}");
        true
    }
}

/// What a version would say of what is published, if the rows are: all but the manifest's checksum is always
/// the same.
fn entry_of(bench: &Bench, usual: &SegmentEntry) -> Option<SegmentEntry> {
    let generation = bench.place.store().open(&bench.parts()[0]).ok()?;
    let text = generation.read(MARK).unwrap();
    Some(SegmentEntry { manifest_crc32c: unseal(&text).unwrap().0, ..usual.clone() })
}

/// Lets `fault` strike at one operation after the other.
fn sweep(fault: Fault, power: Option<u64>) -> (usize, usize) {
    let usual = Bench::new().write().unwrap();
    let (mut whole, mut nothing) = (0, 0);
    for number in 0.. {
        let bench = Bench::new();
        bench.faults.strike(number, fault);
        let written = bench.write();
        let struck = bench.faults.struck();
        bench.faults.heal();
        let Some(what) = struck else {
            let entry = written.unwrap();
            assert!(bench.examine(&entry, "no fault") && whole <= nothing);
            bench.sweep();
            return (whole, nothing);
        };
        if let Some(seed) = power {
            bench.platter.lose_power(seed + number as u64);
        }
        match entry_of(&bench, &usual) {
            Some(entry) => {
                assert!(bench.examine(&entry, &what), "{what}");
                whole += 1;
            }
            None => {
                assert!(written.is_err(), "{what}: it was acknowledged");
                // Who goes on living takes back what it has begun. What is published may stay, where a full
                // disk lets nothing be removed under its name.
                let drafts = bench.platter.paths().iter().filter(|path| path.contains(".building")).count();
                assert!(fault != Fault::Full || drafts == 0, "{what}: {drafts} paths of drafts");
                nothing += 1;
            }
        }
        bench.sweep();
    }
    unreachable!()
}

#[test]
fn a_segment_is_whole_or_not_there() {
    for fault in [Fault::Kill, Fault::Full, Fault::Once(EIO)] {
        let (_, nothing) = sweep(fault, None);
        assert!(nothing > 30, "{fault:?}: {nothing} operations");
    }
}

#[test]
fn nothing_that_was_published_is_lost_with_the_power() {
    for seed in 0..3 {
        sweep(Fault::Kill, Some(seed << 20));
    }
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let bench = Bench::new();
    let options = WriteOptions { held_bytes: 64, ..one_thread() };
    let mut writer =
        SegmentWriter::begin(&bench.place, bench.schema.clone(), COLLECTION, NAME.into(), &options).unwrap();
    push(&mut writer, &bench.schema, &(0..ROWS).collect::<Vec<_>>(), 70).unwrap();
    let files = |name: &str| bench.platter.paths().iter().any(|path| path.ends_with(name));
    assert!([IDS_NAME, ROWS_NAME, "v0.rows", "v1.rows"].iter().all(|name| files(name)));
    assert!(!files(SUMS_NAME));
    drop(writer);
    assert_eq!(bench.platter.paths(), ["/folder"]);
    // One without rows is none.
    let empty =
        SegmentWriter::begin(&bench.place, bench.schema.clone(), COLLECTION, NAME.into(), &options).unwrap();
    assert!(matches!(empty.finish(&Silent), Err(CollectionError::Parameter(_))));
    assert_eq!(bench.platter.paths(), ["/folder"]);
}

/// Ends work when a stage begins.
struct Ending(AtomicUsize);

impl Progress for Ending {
    fn stage(&self, _name: &str, _total: u64) {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).ok();
    }

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

#[test]
fn a_writer_that_is_cancelled_leaves_nothing() {
    for (cancelled, stages) in (1..).enumerate() {
        let bench = Bench::new();
        let options = WriteOptions { held_bytes: 64, ..one_thread() };
        let mut writer =
            SegmentWriter::begin(&bench.place, bench.schema.clone(), COLLECTION, NAME.into(), &options)
                .unwrap();
        push(&mut writer, &bench.schema, &(0..ROWS).collect::<Vec<_>>(), 70).unwrap();
        match writer.finish(&Ending(AtomicUsize::new(stages))) {
            Ok(entry) => {
                assert!(bench.examine(&entry, "not cancelled") && cancelled > 2);
                return;
            }
            Err(error) => assert!(matches!(error, CollectionError::Cancelled), "{error}"),
        }
        assert_eq!(bench.platter.paths(), ["/folder"], "in stage {stages}");
    }
}
