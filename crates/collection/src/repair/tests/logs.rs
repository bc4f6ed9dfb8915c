//! Logs that are damaged in the middle.

use super::*;
use std::fs;

/// A collection whose log has ten batches of rows, and what it holds.
fn with_a_log() -> (Kept, PathBuf) {
    let (folder, schema) = (tempfile::tempdir().unwrap(), schema(IdKind::Number, true));
    let mut kept = Kept { folder, schema: schema.clone(), truth: Held::new() };
    let collection = Collection::create(kept.path(), schema, &options()).unwrap();
    for batch in 0..10 {
        kept.put(&collection, 10 * batch..10 * batch + 10, batch);
    }
    drop(collection);
    let log = kept.path().join("l-00000000000000000001").join("rows.log");
    (kept, log)
}

/// Where the records of a log begin: those that are heads by their own account.
fn begins(bytes: &[u8]) -> Vec<usize> {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    (512..bytes.len())
        .step_by(512)
        .filter(|at| number(at + 24) == *at as u64 && number(at + 32) > 0)
        .collect()
}

#[test]
fn batches_behind_a_damaged_one_are_kept() {
    let (kept, log) = with_a_log();
    let bytes = fs::read(&log).unwrap();
    let begins = begins(&bytes);
    assert_eq!(begins.len(), 10);
    let open = |path: &Path| Collection::open(path, &options());
    for (batch, at) in begins.iter().enumerate() {
        // Its head, its middle, and its payload with the next head.
        for (from, count) in [(*at, 1), (*at + 300, 40), (*at + 600, 5)] {
            let mut damaged = bytes.clone();
            damaged[from..from + count].iter_mut().for_each(|byte| *byte ^= 0x55);
            fs::write(&log, &damaged).unwrap();
            let to = kept.folder.path().join("to");
            let report = kept.repair(&to, &RepairOptions::default()).unwrap();
            let held = holds(&to, &kept.schema);
            let expected: Held = kept
                .truth
                .iter()
                .filter(|(id, _)| !matches!(id, Id::Number(number) if number / 30 == batch as u64))
                .map(|(id, row)| (id.clone(), row.clone()))
                .collect();
            assert_eq!(held, expected, "batch {batch}, byte {from}");
            let told: Vec<(u64, u64)> =
                report.lost_batches.iter().map(|lost| (lost.first, lost.last)).collect();
            if batch < 9 {
                assert!(open(&kept.path()).is_err(), "it is damage to everyone");
                assert_eq!(told, [(batch as u64 + 1, batch as u64 + 1)], "{report:?}");
                assert!(!report.complete);
            } else {
                // The last one may not have been finished: nobody can tell.
                assert_eq!(
                    (told.len(), open(&kept.path()).unwrap().count(None, Control::default()).unwrap()),
                    (0, 90)
                );
            }
            fs::remove_dir_all(&to).unwrap();
        }
    }
}

#[test]
fn a_log_that_is_followed_by_another_has_all_that_it_had() {
    let (mut kept, log) = with_a_log();
    // Another handle takes over, and begins the next log.
    let collection = Collection::open(kept.path(), &options()).unwrap();
    kept.put(&collection, 200..205, 20);
    drop(collection);
    let bytes = fs::read(&log).unwrap();
    let begins = begins(&bytes);
    assert_eq!(begins.len(), 12, "and the seal, twice");
    for (damaged_from, lost) in
        [(begins[9], vec![(10, 10)]), (begins[10], vec![]), (begins[7], vec![(8, 10)])]
    {
        let mut damaged = bytes.clone();
        match lost.first() {
            Some((8, _)) => damaged.truncate(damaged_from + 100),
            _ => damaged[damaged_from + 5] ^= 1,
        }
        fs::write(&log, &damaged).unwrap();
        let to = kept.folder.path().join("to");
        let report = kept.repair(&to, &RepairOptions::default()).unwrap();
        let told: Vec<(u64, u64)> = report.lost_batches.iter().map(|lost| (lost.first, lost.last)).collect();
        assert_eq!(told, lost, "{report:?}");
        let held = holds(&to, &kept.schema);
        let batches: u64 = lost.iter().map(|(first, last)| last - first + 1).sum();
        assert_eq!(held.len() as u64, 105 - 10 * batches);
        assert!(held.iter().all(|(id, row)| kept.truth[id] == *row));
        // What was repaired goes on.
        let collection = Collection::open(&to, &options()).unwrap();
        kept.put(&collection, 300..301, 1);
        collection.flush().unwrap();
        assert_eq!(collection.count(None, Control::default()).unwrap(), held.len() as u64 + 1);
        kept.truth.remove(&Id::Number(900));
        drop(collection);
        fs::remove_dir_all(&to).unwrap();
    }
    // The whole log is lost.
    fs::remove_dir_all(log.parent().unwrap()).unwrap();
    let to = kept.folder.path().join("to");
    let report = kept.repair(&to, &RepairOptions::default()).unwrap();
    assert_eq!(report.lost_batches.iter().map(|lost| (lost.first, lost.last)).collect::<Vec<_>>(), [(1, 10)]);
    assert_eq!(report.rows, 5);
}

#[test]
fn an_interrupted_repair_leaves_no_collection_and_is_done_again() {
    let kept = Kept::new(IdKind::Number, true);
    let to = kept.folder.path().join("to");
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
        let places = (&at(&kept.path()), &at(&to));
        match Collection::repair_in(places, &options(), &RepairOptions::default(), &progress) {
            Ok(report) => {
                assert!(report.complete && holds(&to, &kept.schema) == kept.truth);
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
