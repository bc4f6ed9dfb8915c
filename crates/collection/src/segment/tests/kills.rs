//! Writers that are killed or get an error at every single operation, and power failures there.

use super::super::manifest::{IDS_NAME, ROWS_NAME, SUMS_NAME};
use super::*;
use crate::location::{MARK, Part};
use crate::seal::unseal;
use bathyal_store::disk::Disk;
use bathyal_store::faulty::{DiskFault, Faults, SimulatedDisk};
use bathyal_store::local::LocalStore;
use bathyal_store::{GenerationExt, Replace};
use bathyal_vectors::progress::Progress;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

const NAME: &str = "s-1-aa";
const ROWS: u32 = 300;
/// The error number of a device error.
const EIO: i32 = 5;

/// A simulated disk with faults, and a collection's folder on it.
struct TestDisk {
    platter: SimulatedDisk,
    faults: Faults,
    place: CollectionLocation,
    schema: Arc<Schema>,
}

impl TestDisk {
    fn new() -> TestDisk {
        let platter = SimulatedDisk::default();
        let faults = Faults::new(Arc::new(platter.clone()));
        platter.create_folder(Path::new("/folder")).unwrap();
        platter.sync_folder(Path::new("/")).unwrap();
        let place = CollectionLocation::in_store(Arc::new(LocalStore::on_disk(
            Arc::new(faults.clone()),
            "/folder",
            MARK,
        )));
        TestDisk { platter, faults, place, schema: schema(IdKind::Text, &[2, 3], &["int64", "list<string>"]) }
    }

    /// Writes the segment; its vectors are spilled to the disk.
    fn write(&self) -> Result<SegmentEntry, CollectionError> {
        write(&self.place, &self.schema, NAME, ROWS, &WriteOptions { held_bytes: 64, ..one_thread() })
    }

    fn parts(&self) -> Vec<String> {
        [None, Some(0), Some(1)].map(|field| Part::Segment(NAME.into(), field).name()).into()
    }

    /// Removes objects that no version names, as a later writer does.
    fn sweep(&self) {
        for name in self.parts() {
            drop(self.place.store().abandoned(&name, Replace::Generation).unwrap());
            if self.place.store().list().unwrap().contains(&name) {
                self.place.store().delete(&name).unwrap();
            }
        }
        assert_eq!(self.platter.paths(), ["/folder"], "nothing is left over");
    }

    /// Checks that everything published is complete: the whole segment, or parts that no version can name.
    fn check_published(&self, entry: &SegmentEntry, what: &str) -> bool {
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

/// Returns the segment's entry, if its rows are published. Only the checksum of the manifest varies.
fn entry_of(disk: &TestDisk, usual: &SegmentEntry) -> Option<SegmentEntry> {
    let generation = disk.place.store().open(&disk.parts()[0]).ok()?;
    let text = generation.read(MARK).unwrap();
    Some(SegmentEntry { manifest_crc32c: unseal(&text).unwrap().0, ..usual.clone() })
}

/// Writes the segment once for each operation, with a fault at that operation.
fn sweep(fault: DiskFault, power: Option<u64>) -> (usize, usize) {
    let usual = TestDisk::new().write().unwrap();
    let (mut whole, mut nothing) = (0, 0);
    for number in 0.. {
        let disk = TestDisk::new();
        disk.faults.inject(number, fault);
        let written = disk.write();
        let struck = disk.faults.injected();
        disk.faults.clear();
        let Some(what) = struck else {
            let entry = written.unwrap();
            assert!(disk.check_published(&entry, "no fault") && whole <= nothing);
            disk.sweep();
            return (whole, nothing);
        };
        if let Some(seed) = power {
            disk.platter.lose_power(seed + number as u64);
        }
        match entry_of(&disk, &usual) {
            Some(entry) => {
                assert!(disk.check_published(&entry, &what), "{what}");
                whole += 1;
            }
            None => {
                assert!(written.is_err(), "{what}: it was acknowledged");
                // A surviving writer removes what it has begun. Published parts may stay if a full disk does
                // not allow to remove them.
                let drafts = disk.platter.paths().iter().filter(|path| path.contains(".building")).count();
                assert!(fault != DiskFault::Full || drafts == 0, "{what}: {drafts} paths of drafts");
                nothing += 1;
            }
        }
        disk.sweep();
    }
    unreachable!()
}

#[test]
fn a_segment_is_published_completely_or_not_at_all() {
    for fault in [DiskFault::Kill, DiskFault::Full, DiskFault::Once(EIO)] {
        let (_, nothing) = sweep(fault, None);
        assert!(nothing > 30, "{fault:?}: {nothing} operations");
    }
}

#[test]
fn a_published_segment_survives_a_power_failure() {
    for seed in 0..3 {
        sweep(DiskFault::Kill, Some(seed << 20));
    }
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let disk = TestDisk::new();
    let options = WriteOptions { held_bytes: 64, ..one_thread() };
    let mut writer =
        SegmentWriter::begin(&disk.place, disk.schema.clone(), COLLECTION, NAME.into(), &options).unwrap();
    push(&mut writer, &disk.schema, &(0..ROWS).collect::<Vec<_>>(), 70).unwrap();
    let files = |name: &str| disk.platter.paths().iter().any(|path| path.ends_with(name));
    assert!([IDS_NAME, ROWS_NAME, "v0.rows", "v1.rows"].iter().all(|name| files(name)));
    assert!(!files(SUMS_NAME));
    drop(writer);
    assert_eq!(disk.platter.paths(), ["/folder"]);
    // A segment without rows is refused.
    let empty =
        SegmentWriter::begin(&disk.place, disk.schema.clone(), COLLECTION, NAME.into(), &options).unwrap();
    assert!(matches!(empty.finish(&Silent), Err(CollectionError::Parameter(_))));
    assert_eq!(disk.platter.paths(), ["/folder"]);
}

/// Cancels work when a stage begins.
struct CancelAtStage(AtomicUsize);

impl Progress for CancelAtStage {
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
        let disk = TestDisk::new();
        let options = WriteOptions { held_bytes: 64, ..one_thread() };
        let mut writer =
            SegmentWriter::begin(&disk.place, disk.schema.clone(), COLLECTION, NAME.into(), &options)
                .unwrap();
        push(&mut writer, &disk.schema, &(0..ROWS).collect::<Vec<_>>(), 70).unwrap();
        match writer.finish(&CancelAtStage(AtomicUsize::new(stages))) {
            Ok(entry) => {
                assert!(disk.check_published(&entry, "not cancelled") && cancelled > 2);
                return;
            }
            Err(error) => assert!(matches!(error, CollectionError::Cancelled), "{error}"),
        }
        assert_eq!(disk.platter.paths(), ["/folder"], "in stage {stages}");
    }
}
