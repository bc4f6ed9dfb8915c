//! The newest version cannot be read, and only it names a segment.

use super::*;
use crate::write::CompactOptions;
use std::fs;

/// Options of a collection that keeps older versions, and in which a batch of two rows is already large.
fn keep_versions() -> CollectionOptions {
    CollectionOptions { keep_versions: 3, direct_bytes: Some(300), ..options() }
}

/// Creates a collection with at least three versions and all rows in segments.
fn flushed() -> (TestCollection, Collection) {
    let test_collection = TestCollection::new(IdKind::Number, true);
    let collection = Collection::open(test_collection.path(), &keep_versions()).unwrap();
    collection.flush().unwrap();
    (test_collection, collection)
}

/// Damages the newest version of a closed collection.
fn damage(test_collection: &TestCollection, collection: Collection) -> u64 {
    let newest = collection.versions().unwrap().into_iter().max().unwrap();
    drop(collection);
    let file = test_collection.path().join(format!("v-{newest:020}")).join("manifest.json");
    let mut bytes = fs::read(&file).unwrap();
    bytes[200] ^= 1;
    fs::write(&file, bytes).unwrap();
    newest
}

/// Repairs a collection into `to`. Returns its content and the report.
fn repaired(test_collection: &TestCollection, to: &str, keep_uncertain: bool) -> (Content, RepairReport) {
    let lost_ids = Some(test_collection.folder.path().join(format!("{to}.jsonl")));
    let to = test_collection.folder.path().join(to);
    let report = test_collection.repair(&to, &RepairOptions { keep_uncertain, lost_ids }).unwrap();
    let found = content(&to, &test_collection.schema);
    assert_eq!(report.rows, found.len() as u64);
    assert!(!report.complete, "{report:?}");
    (found, report)
}

#[test]
fn a_large_batch_is_reported_as_left_out_or_kept() {
    let (mut test_collection, collection) = flushed();
    let before = test_collection.expected.clone();
    let versions = collection.versions().unwrap().len();
    test_collection.put(&collection, (3000..3400).chain(200..250), 5);
    assert_eq!(collection.versions().unwrap().len(), versions + 1, "it has its own version");
    let newest = damage(&test_collection, collection);

    let (found, report) = repaired(&test_collection, "without", false);
    assert_eq!(found, before);
    assert_eq!((report.unreadable_versions, report.version), (vec![newest], Some(newest - 1)));
    assert_eq!((report.lost_rows, report.unknown_rows, report.uncertain_rows), (400, 0, 0));
    let left_out = report.segments.iter().filter(|segment| segment.outcome == "left out");
    assert_eq!(left_out.map(|segment| (segment.rows, segment.kept)).collect::<Vec<_>>(), [(450, 0)]);
    let note = report.notes.iter().find(|note| note.contains("left out")).unwrap();
    assert!(note.contains("400 rows that nothing else has, and 50 that may be newer"), "{note}");
    assert!(note.contains("(keep_uncertain)"), "{note}");
    let listed_ids = fs::read_to_string(test_collection.folder.path().join("without.jsonl")).unwrap();
    let ids: Vec<String> = (3000..3400).map(|number| format!("{{\"id\":{}}}", 3 * number)).collect();
    assert_eq!(listed_ids.lines().collect::<Vec<_>>(), ids);

    let (found, report) = repaired(&test_collection, "with", true);
    assert_eq!(found, test_collection.expected);
    // The version, and the log before it, which held only a seal.
    assert_eq!((report.lost_rows, report.uncertain_rows, report.fault_count), (0, 450, 2), "{report:?}");
    assert!(report.notes.iter().any(|note| note.contains(" 450 rows are kept")), "{report:?}");
}

#[test]
fn later_changes_of_a_large_batch_are_kept() {
    let (mut test_collection, collection) = flushed();
    test_collection.put(&collection, 3000..3400, 5);
    // Too small to be large.
    test_collection.put(&collection, 3001..3002, 6);
    test_collection.delete(&collection, 3010..3012);
    damage(&test_collection, collection);
    let (found, report) = repaired(&test_collection, "without", false);
    // The log belongs to the lost version, which the older one does not know; its records are undamaged.
    assert_eq!(
        (found.get(&id(IdKind::Number, 3001)), report.batches),
        (test_collection.expected.get(&id(IdKind::Number, 3001)), 2)
    );
    assert_eq!(report.lost_rows, 397, "{report:?}");
    let (found, report) = repaired(&test_collection, "with", true);
    assert_eq!((found, report.lost_rows), (test_collection.expected.clone(), 0));
}

#[test]
fn nothing_is_lost_with_a_merged_segment_whose_sources_exist() {
    let (test_collection, collection) = flushed();
    collection.compact(&CompactOptions { full: true }, &Silent).unwrap();
    assert_eq!(collection.describe().segments.len(), 1);
    damage(&test_collection, collection);
    for keep in [false, true] {
        let (found, report) = repaired(&test_collection, &format!("{keep}"), keep);
        assert_eq!(found, test_collection.expected);
        assert_eq!((report.lost_rows, report.unknown_rows), (0, 0), "{report:?}");
    }
}

#[test]
fn rows_of_segments_that_were_replaced_long_ago_replace_no_rows() {
    let (mut test_collection, collection) = flushed();
    let segments = |test_collection: &TestCollection| {
        let all = fs::read_dir(test_collection.path()).unwrap().map(|entry| entry.unwrap().path());
        all.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("s-")).collect::<Vec<_>>()
    };
    let old = segments(&test_collection);
    let aside = test_collection.folder.path().join("aside");
    for path in &old {
        let to = aside.join(path.file_name().unwrap());
        fs::create_dir_all(&to).unwrap();
        for file in fs::read_dir(path).unwrap().map(|file| file.unwrap().path()) {
            fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
        }
    }
    // No version names them any more.
    collection.compact(&CompactOptions { full: true }, &Silent).unwrap();
    test_collection.delete(&collection, 700..710);
    for time in 6..10 {
        test_collection.put(&collection, 0..100, time);
        test_collection.put(&collection, 4000..4100, time);
    }
    assert!(old.iter().all(|path| !path.exists()));
    damage(&test_collection, collection);
    for path in &old {
        fs::rename(aside.join(path.file_name().unwrap()), path).unwrap();
    }
    let (found, _) = repaired(&test_collection, "with", true);
    assert!(test_collection.expected.iter().all(|(id, row)| found[id] == *row));
    // Deleted rows come back, because it is unknown when they were deleted.
    assert!(
        found.contains_key(&id(IdKind::Number, 705))
            && !test_collection.expected.contains_key(&id(IdKind::Number, 705))
    );
}
