//! The newest version cannot be read, and what only it names is a segment.

use super::*;
use crate::write::CompactOptions;
use std::fs;

/// The options of a collection that keeps older versions, in which any batch of two rows or more is a large one.
fn keeping() -> CollectionOptions {
    CollectionOptions { keep_versions: 3, direct_bytes: Some(300), ..options() }
}

/// A collection of three versions or more whose rows are all in segments.
fn flushed() -> (Kept, Collection) {
    let kept = Kept::new(IdKind::Number, true);
    let collection = Collection::open(kept.path(), &keeping()).unwrap();
    collection.flush().unwrap();
    (kept, collection)
}

/// Damages the newest version, once nobody has the collection.
fn damage(kept: &Kept, collection: Collection) -> u64 {
    let newest = collection.versions().unwrap().into_iter().max().unwrap();
    drop(collection);
    let file = kept.path().join(format!("v-{newest:020}")).join("manifest.json");
    let mut bytes = fs::read(&file).unwrap();
    bytes[200] ^= 1;
    fs::write(&file, bytes).unwrap();
    newest
}

/// What is repaired into `to`, and what is said.
fn repaired(kept: &Kept, to: &str, keep_uncertain: bool) -> (Held, Repaired) {
    let lost_ids = Some(kept.folder.path().join(format!("{to}.jsonl")));
    let to = kept.folder.path().join(to);
    let report = kept.repair(&to, &RepairOptions { keep_uncertain, lost_ids }).unwrap();
    let held = holds(&to, &kept.schema);
    assert_eq!(report.rows, held.len() as u64);
    assert!(!report.complete, "{report:?}");
    (held, report)
}

#[test]
fn a_large_batch_is_said_to_be_left_out_or_is_taken_as_it_was_written() {
    let (mut kept, collection) = flushed();
    let before = kept.truth.clone();
    let versions = collection.versions().unwrap().len();
    kept.put(&collection, (3000..3400).chain(200..250), 5);
    assert_eq!(collection.versions().unwrap().len(), versions + 1, "it is a version of its own");
    let newest = damage(&kept, collection);

    let (held, report) = repaired(&kept, "without", false);
    assert_eq!(held, before);
    assert_eq!((report.unreadable_versions, report.version), (vec![newest], Some(newest - 1)));
    assert_eq!((report.lost_rows, report.unknown_rows, report.uncertain_rows), (400, 0, 0));
    let left_out = report.segments.iter().filter(|segment| segment.outcome == "left out");
    assert_eq!(left_out.map(|segment| (segment.rows, segment.kept)).collect::<Vec<_>>(), [(450, 0)]);
    let note = report.notes.iter().find(|note| note.contains("left out")).unwrap();
    assert!(note.contains("400 rows that nothing else has, and 50 that may be newer"), "{note}");
    assert!(note.contains("(keep_uncertain)"), "{note}");
    let told = fs::read_to_string(kept.folder.path().join("without.jsonl")).unwrap();
    let ids: Vec<String> = (3000..3400).map(|number| format!("{{\"id\":{}}}", 3 * number)).collect();
    assert_eq!(told.lines().collect::<Vec<_>>(), ids);

    let (held, report) = repaired(&kept, "with", true);
    assert_eq!(held, kept.truth);
    // The version, and the log that it took the place of, in which nothing but its end was.
    assert_eq!((report.lost_rows, report.uncertain_rows, report.fault_count), (0, 450, 2), "{report:?}");
    assert!(report.notes.iter().any(|note| note.contains(" 450 rows are taken")), "{report:?}");
}

#[test]
fn what_later_batches_changed_of_a_large_one_stays_changed() {
    let (mut kept, collection) = flushed();
    kept.put(&collection, 3000..3400, 5);
    // Too small to be large.
    kept.put(&collection, 3001..3002, 6);
    kept.delete(&collection, 3010..3012);
    damage(&kept, collection);
    let (held, report) = repaired(&kept, "without", false);
    // The log is that of the version that is lost, which the older one does not know; what is in it is whole.
    assert_eq!(
        (held.get(&id(IdKind::Number, 3001)), report.batches),
        (kept.truth.get(&id(IdKind::Number, 3001)), 2)
    );
    assert_eq!(report.lost_rows, 397, "{report:?}");
    let (held, report) = repaired(&kept, "with", true);
    assert_eq!((held, report.lost_rows), (kept.truth.clone(), 0));
}

#[test]
fn nothing_is_lost_with_segments_that_were_merged_from_others_that_are_there() {
    let (kept, collection) = flushed();
    collection.compact(&CompactOptions { full: true }, &Silent).unwrap();
    assert_eq!(collection.describe().segments.len(), 1);
    damage(&kept, collection);
    for keep in [false, true] {
        let (held, report) = repaired(&kept, &format!("{keep}"), keep);
        assert_eq!(held, kept.truth);
        assert_eq!((report.lost_rows, report.unknown_rows), (0, 0), "{report:?}");
    }
}

#[test]
fn rows_of_segments_that_were_replaced_long_ago_replace_none() {
    let (mut kept, collection) = flushed();
    let segments = |kept: &Kept| {
        let all = fs::read_dir(kept.path()).unwrap().map(|entry| entry.unwrap().path());
        all.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("s-")).collect::<Vec<_>>()
    };
    let old = segments(&kept);
    let aside = kept.folder.path().join("aside");
    for path in &old {
        let to = aside.join(path.file_name().unwrap());
        fs::create_dir_all(&to).unwrap();
        for file in fs::read_dir(path).unwrap().map(|file| file.unwrap().path()) {
            fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
        }
    }
    // No version names them any more.
    collection.compact(&CompactOptions { full: true }, &Silent).unwrap();
    kept.delete(&collection, 700..710);
    for time in 6..10 {
        kept.put(&collection, 0..100, time);
        kept.put(&collection, 4000..4100, time);
    }
    assert!(old.iter().all(|path| !path.exists()));
    damage(&kept, collection);
    for path in &old {
        fs::rename(aside.join(path.file_name().unwrap()), path).unwrap();
    }
    let (held, _) = repaired(&kept, "with", true);
    assert!(kept.truth.iter().all(|(id, row)| held[id] == *row));
    // Rows that were deleted come back: it is not known when.
    assert!(
        held.contains_key(&id(IdKind::Number, 705)) && !kept.truth.contains_key(&id(IdKind::Number, 705))
    );
}
