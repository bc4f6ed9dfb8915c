//! Damages the middle of logs.

use super::*;
use std::fs;

/// Creates a collection whose log has ten batches of rows.
fn with_a_log() -> (TestCollection, PathBuf) {
    let (folder, schema) = (tempfile::tempdir().unwrap(), schema(IdKind::Number, true));
    let mut test_collection = TestCollection { folder, schema: schema.clone(), expected: Content::new() };
    let collection = Collection::create(test_collection.path(), schema, &options()).unwrap();
    for batch in 0..10 {
        test_collection.put(&collection, 10 * batch..10 * batch + 10, batch);
    }
    drop(collection);
    let log = test_collection.path().join("l-00000000000000000001").join("rows.log");
    (test_collection, log)
}

/// Returns the offsets of records in a log: headers that contain their own offset.
fn begins(bytes: &[u8]) -> Vec<usize> {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    (512..bytes.len())
        .step_by(512)
        .filter(|at| number(at + 24) == *at as u64 && number(at + 32) > 0)
        .collect()
}

#[test]
fn batches_after_a_damaged_one_are_kept() {
    let (test_collection, log) = with_a_log();
    let bytes = fs::read(&log).unwrap();
    let begins = begins(&bytes);
    assert_eq!(begins.len(), 10);
    let open = |path: &Path| Collection::open(path, &options());
    for (batch, at) in begins.iter().enumerate() {
        // The header, the middle, and the payload with the next header.
        for (from, count) in [(*at, 1), (*at + 300, 40), (*at + 600, 5)] {
            let mut damaged = bytes.clone();
            damaged[from..from + count].iter_mut().for_each(|byte| *byte ^= 0x55);
            fs::write(&log, &damaged).unwrap();
            let to = test_collection.folder.path().join("to");
            let report = test_collection.repair(&to, &RepairOptions::default()).unwrap();
            let found = content(&to, &test_collection.schema);
            let expected: Content = test_collection
                .expected
                .iter()
                .filter(|(id, _)| !matches!(id, Id::Number(number) if number / 30 == batch as u64))
                .map(|(id, row)| (id.clone(), row.clone()))
                .collect();
            assert_eq!(found, expected, "batch {batch}, byte {from}");
            let lost_batches: Vec<(u64, u64)> =
                report.lost_batches.iter().map(|lost| (lost.first, lost.last)).collect();
            if batch < 9 {
                assert!(open(&test_collection.path()).is_err(), "opening reports the damage");
                assert_eq!(lost_batches, [(batch as u64 + 1, batch as u64 + 1)], "{report:?}");
                assert!(!report.complete);
            } else {
                // The last batch may be unfinished rather than damaged.
                assert_eq!(
                    (
                        lost_batches.len(),
                        open(&test_collection.path()).unwrap().count(None, Control::default()).unwrap()
                    ),
                    (0, 90)
                );
            }
            fs::remove_dir_all(&to).unwrap();
        }
    }
}

#[test]
fn a_log_with_a_successor_is_known_to_be_complete() {
    let (mut test_collection, log) = with_a_log();
    // Another handle takes over, and begins the next log.
    let collection = Collection::open(test_collection.path(), &options()).unwrap();
    test_collection.put(&collection, 200..205, 20);
    drop(collection);
    let bytes = fs::read(&log).unwrap();
    let begins = begins(&bytes);
    assert_eq!(begins.len(), 12, "ten batches, and the seal twice");
    for (damaged_from, lost) in
        [(begins[9], vec![(10, 10)]), (begins[10], vec![]), (begins[7], vec![(8, 10)])]
    {
        let mut damaged = bytes.clone();
        match lost.first() {
            Some((8, _)) => damaged.truncate(damaged_from + 100),
            _ => damaged[damaged_from + 5] ^= 1,
        }
        fs::write(&log, &damaged).unwrap();
        let to = test_collection.folder.path().join("to");
        let report = test_collection.repair(&to, &RepairOptions::default()).unwrap();
        let lost_batches: Vec<(u64, u64)> =
            report.lost_batches.iter().map(|lost| (lost.first, lost.last)).collect();
        assert_eq!(lost_batches, lost, "{report:?}");
        let found = content(&to, &test_collection.schema);
        let batches: u64 = lost.iter().map(|(first, last)| last - first + 1).sum();
        assert_eq!(found.len() as u64, 105 - 10 * batches);
        assert!(found.iter().all(|(id, row)| test_collection.expected[id] == *row));
        // The repaired collection can be written to.
        let collection = Collection::open(&to, &options()).unwrap();
        test_collection.put(&collection, 300..301, 1);
        collection.flush().unwrap();
        assert_eq!(collection.count(None, Control::default()).unwrap(), found.len() as u64 + 1);
        test_collection.expected.remove(&Id::Number(900));
        drop(collection);
        fs::remove_dir_all(&to).unwrap();
    }
    // The whole log is lost.
    fs::remove_dir_all(log.parent().unwrap()).unwrap();
    let to = test_collection.folder.path().join("to");
    let report = test_collection.repair(&to, &RepairOptions::default()).unwrap();
    assert_eq!(report.lost_batches.iter().map(|lost| (lost.first, lost.last)).collect::<Vec<_>>(), [(1, 10)]);
    assert_eq!(report.rows, 5);
}

#[test]
fn an_interrupted_repair_leaves_no_collection_and_can_be_repeated() {
    let test_collection = TestCollection::new(IdKind::Number, true);
    let to = test_collection.folder.path().join("to");
    struct After(std::sync::atomic::AtomicUsize);
    impl bathyal_vectors::progress::Progress for After {
        fn stage(&self, _name: &str, _total: u64) {}
        fn advance(&self, _done: u64) {}
        fn cancelled(&self) -> bool {
            let left = self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
            left == 0 || left > usize::MAX / 2
        }
    }
    let mut ended = 0;
    for looks in (0..).step_by(3) {
        let progress = After(looks.into());
        let places = (&at(&test_collection.path()), &at(&to));
        match Collection::repair_in(places, &options(), &RepairOptions::default(), &progress) {
            Ok(report) => {
                assert!(report.complete && content(&to, &test_collection.schema) == test_collection.expected);
                break;
            }
            Err(error) => {
                assert!(matches!(error, CollectionError::Cancelled), "{error}");
                assert!(matches!(
                    Collection::open(&to, &options()),
                    Err(CollectionError::NotACollection { .. })
                ));
                ended += 1;
            }
        }
    }
    assert!(ended > 1, "{ended}");
}
