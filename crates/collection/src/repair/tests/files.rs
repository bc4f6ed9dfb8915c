//! Damages every file of a collection in every way.

use super::*;
use std::collections::BTreeSet;
use std::fs;

/// Ways to damage a file.
const WAYS: [&str; 6] = ["removed", "flipped", "cut", "emptied", "zeros", "other bytes"];

fn damaged(bytes: &[u8], way: &str, turn: usize) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    // An offset that differs between files.
    let at = (bytes.len() / 3 + 977 * turn) % bytes.len();
    match way {
        "removed" => return None,
        "cut" => bytes.truncate(at),
        "emptied" => bytes.clear(),
        "flipped" => bytes[at] ^= 4,
        "zeros" => bytes[at..].iter_mut().take(4096).for_each(|byte| *byte = 0),
        _ => bytes[at..].iter_mut().take(700).for_each(|byte| *byte = byte.wrapping_mul(31).wrapping_add(7)),
    }
    Some(bytes)
}

/// Checks the number of `missing` ids against the report of a repair, and that `lost`, its file of lost ids,
/// lists them.
fn check_lost_ids(report: &RepairReport, missing: &[&Id], lost: &Path, what: &str) {
    let exact = missing.len() as u64 == report.lost_rows;
    assert!(exact || report.unknown_rows > 0, "{what}: {} of {report:?}", missing.len());
    let listed_ids = fs::read_to_string(lost).unwrap();
    let known = report.lost_rows - report.unknown_rows;
    assert_eq!(listed_ids.lines().count() as u64, known, "{what}");
    for id in missing {
        let id_entry = crate::version::IdEntry::from((*id).clone());
        let line = serde_json::json!({ "id": id_entry }).to_string();
        let listed = listed_ids.lines().any(|listed_ids| listed_ids == line);
        assert!(listed || report.unknown_rows > 0, "{what}: the lost id {id} is not reported");
    }
}

/// Damages each file, and checks that repaired rows are correct and that missing ones are reported.
fn damage_every_file(kind: IdKind, columns: bool) {
    let test_collection = TestCollection::new(kind, columns);
    let all: BTreeSet<&Id> = test_collection.expected.keys().collect();
    let numbers = (0..2020).map(|number| {
        (id(kind, number), (0..4).map(|time| row(&test_collection.schema, number, time)).collect())
    });
    let written: BTreeMap<Id, Vec<Row>> = numbers.collect();
    let (mut complete, mut saved) = (0, 0);
    for (turn, file) in test_collection.files().into_iter().enumerate() {
        let bytes = fs::read(&file).unwrap();
        // One way for each file, and more in `make soak`; similar files occur in other generations.
        let whole = std::env::var_os("BATHYAL_WHOLE").is_some();
        let ways =
            if whole { vec![WAYS[0], WAYS[1], WAYS[2 + turn % 4]] } else { vec![WAYS[turn % WAYS.len()]] };
        for way in ways {
            let what = format!("{} {way}", file.strip_prefix(test_collection.path()).unwrap().display());
            match damaged(&bytes, way, turn) {
                Some(bytes) => fs::write(&file, bytes).unwrap(),
                None => fs::remove_file(&file).unwrap(),
            }
            let to = test_collection.folder.path().join("repaired");
            let lost = test_collection.folder.path().join("lost.jsonl");
            let options = RepairOptions { lost_ids: Some(lost.clone()), ..RepairOptions::default() };
            let name = file.parent().unwrap().file_name().unwrap().to_str().unwrap().to_string();
            match test_collection.repair(&to, &options) {
                // The only version is damaged, so deleted rows are unknown.
                Err(error) => {
                    let version = name.starts_with("v-") && file.ends_with("manifest.json");
                    assert!(version && error.is_loss(), "{what}: {error}");
                    assert!(!to.exists(), "{what}");
                }
                Ok(report) => {
                    let found = content(&to, &test_collection.schema);
                    assert_eq!(report.rows, found.len() as u64, "{what}");
                    let found_ids = found.keys().collect::<BTreeSet<_>>();
                    let missing: Vec<&Id> = all.difference(&found_ids).copied().collect();
                    let is_log = name.starts_with("l-") && file.ends_with("rows.log");
                    // Lost batches leave rows in their earlier state; nothing else does.
                    let is_wrong = |(id, row): &(&Id, &Row)| match is_log {
                        true => !written.get(id).is_some_and(|rows| rows.contains(row)),
                        false => test_collection.expected.get(id) != Some(row),
                    };
                    assert_eq!(found.iter().filter(is_wrong).count(), 0, "{what}");
                    assert!(is_log || missing.len() as u64 <= report.lost_rows, "{what}: {report:?}");
                    assert_eq!(report.complete, report.lost_rows == 0 && report.lost_batches.is_empty());
                    assert!(report.fault_count > 0 || report.complete, "{what}: {report:?}");
                    assert!(
                        report.fault_count > 0 || report.notes.is_empty() || is_log,
                        "{what}: {report:?}"
                    );
                    if !is_log {
                        check_lost_ids(&report, &missing, &lost, &what);
                    }
                    complete += usize::from(report.complete);
                    saved += found.len();
                    fs::remove_dir_all(&to).unwrap();
                }
            }
            fs::write(&file, &bytes).unwrap();
        }
    }
    println!("{complete} repairs were complete, {saved} rows were saved in all");
    assert!(complete > 5, "{complete}");
    check_undamaged(&test_collection);
}

/// Checks that the repair of the undamaged collection copies everything.
fn check_undamaged(test_collection: &TestCollection) {
    let report = test_collection
        .repair(&test_collection.folder.path().join("whole"), &RepairOptions::default())
        .unwrap();
    assert!(report.complete && report.fault_count == 0 && report.notes.is_empty(), "{report:?}");
    assert!(report.segments.iter().all(|segment| segment.outcome == "copied"));
    assert_eq!(
        content(&test_collection.folder.path().join("whole"), &test_collection.schema),
        test_collection.expected
    );
}

#[test]
fn repair_of_any_damaged_file_with_numeric_ids_and_columns() {
    damage_every_file(IdKind::Number, true);
}

#[test]
fn repair_of_any_damaged_file_with_string_ids_and_no_columns() {
    damage_every_file(IdKind::Text, false);
}

/// Returns the folder of the generation whose name begins and ends like this.
fn generation(test_collection: &TestCollection, begin: &str, end: &str) -> PathBuf {
    let all = fs::read_dir(test_collection.path()).unwrap().map(|entry| entry.unwrap().path());
    let matches = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(begin) && name.ends_with(end)
    };
    all.filter(matches).min().unwrap()
}

#[test]
fn rows_without_a_list_of_deleted_rows_are_kept_only_on_request() {
    let test_collection = TestCollection::new(IdKind::Number, true);
    let version = generation(&test_collection, "v-", "");
    let mut list = fs::read_dir(&version).unwrap().map(|entry| entry.unwrap().path());
    let list = list.find(|path| path.extension().is_some_and(|end| end == "deleted")).unwrap();
    fs::write(&list, b"nothing").unwrap();
    let to = test_collection.folder.path().join("to");
    let report = test_collection.repair(&to, &RepairOptions::default()).unwrap();
    assert!(!report.complete && report.uncertain_rows == 0, "{report:?}");
    assert!(
        content(&to, &test_collection.schema).iter().all(|(id, row)| test_collection.expected[id] == *row)
    );
    let to = test_collection.folder.path().join("all");
    let what = RepairOptions { keep_uncertain: true, ..RepairOptions::default() };
    let report = test_collection.repair(&to, &what).unwrap();
    let found = content(&to, &test_collection.schema);
    // The expected rows are there, and the thirty deleted rows.
    assert!(test_collection.expected.iter().all(|(id, row)| found[id] == *row));
    assert_eq!(found.len(), test_collection.expected.len() + 30);
    assert!(!report.complete && report.uncertain_rows > 0 && report.lost_rows == 0, "{report:?}");
}

#[test]
fn segments_without_a_version_are_repaired_only_on_request() {
    let test_collection = TestCollection::new(IdKind::Text, true);
    fs::remove_file(generation(&test_collection, "v-", "").join("manifest.json")).unwrap();
    let what = RepairOptions { keep_uncertain: true, ..RepairOptions::default() };
    let to = test_collection.folder.path().join("all");
    let report = test_collection.repair(&to, &what).unwrap();
    let found = content(&to, &test_collection.schema);
    let schema = Collection::open(&to, &options()).unwrap().schema();
    assert_eq!((schema.id_kind, schema.columns.len()), (IdKind::Text, 2));
    assert!(test_collection.expected.iter().all(|(id, row)| found[id] == *row), "{report:?}");
    assert_eq!(found.len(), test_collection.expected.len() + 30);
    assert_eq!((report.version, report.complete), (None, false));
}

#[test]
fn an_older_version_is_used_if_the_newest_cannot_be_read() {
    let mut test_collection = TestCollection::new(IdKind::Number, true);
    let keeping = CollectionOptions { keep_versions: 3, ..options() };
    let collection = Collection::open(test_collection.path(), &keeping).unwrap();
    test_collection.put(&collection, 3000..3010, 4);
    collection.flush().unwrap();
    let newest = collection.versions().unwrap().into_iter().max().unwrap();
    drop(collection);
    let file = test_collection.path().join(format!("v-{newest:020}")).join("manifest.json");
    let mut bytes = fs::read(&file).unwrap();
    bytes[200] ^= 1;
    fs::write(&file, bytes).unwrap();
    let to = test_collection.folder.path().join("to");
    let report = test_collection.repair(&to, &RepairOptions::default()).unwrap();
    assert_eq!(report.unreadable_versions, [newest]);
    assert!(report.version < Some(newest) && !report.complete);
    // Changes that the logs do not have any more are reported.
    let found = content(&to, &test_collection.schema);
    let missing = test_collection.expected.iter().filter(|(id, row)| found.get(id) != Some(row)).count();
    assert!(missing == 0 || !report.lost_batches.is_empty(), "{missing}: {report:?}");
}

#[test]
fn a_repair_onto_a_collection_is_refused() {
    let test_collection = TestCollection::new(IdKind::Number, true);
    let error = test_collection.repair(&test_collection.path(), &RepairOptions::default()).unwrap_err();
    assert!(matches!(error, CollectionError::Parameter(_)), "{error}");
    let other = test_collection.folder.path().join("other");
    Collection::create(&other, test_collection.schema.clone(), &options()).unwrap();
    let error = test_collection.repair(&other, &RepairOptions::default()).unwrap_err();
    assert!(matches!(error, CollectionError::Exists { .. }), "{error}");
    let nothing = test_collection.folder.path().join("nothing");
    let to = (test_collection.folder.path().join("to"), &Default::default());
    let error = Collection::repair(&nothing, &options(), to, &RepairOptions::default(), &Silent).unwrap_err();
    assert!(matches!(error, CollectionError::NotACollection { .. }), "{error}");
}
