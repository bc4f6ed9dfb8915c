//! Every file of a collection in turn, damaged in every way.

use super::*;
use std::collections::BTreeSet;
use std::fs;

/// Ways in which a file is damaged.
const WAYS: [&str; 6] = ["removed", "flipped", "cut", "emptied", "zeros", "other bytes"];

fn damaged(bytes: &[u8], way: &str, turn: usize) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    // A place that is another one of each file.
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

/// Damages each file in each way, and checks that nothing that is repaired is wrong and that what is missing is said.
fn every_file(kind: IdKind, columns: bool) {
    let kept = Kept::new(kind, columns);
    let all: BTreeSet<&Id> = kept.truth.keys().collect();
    let numbers = (0..2020)
        .map(|number| (id(kind, number), (0..4).map(|time| row(&kept.schema, number, time)).collect()));
    let written: BTreeMap<Id, Vec<Row>> = numbers.collect();
    let (mut complete, mut saved) = (0, 0);
    for (turn, file) in kept.files().into_iter().enumerate() {
        let bytes = fs::read(&file).unwrap();
        // One way each time, and more of them in `make soak`: what a file is comes again, in other generations.
        let whole = std::env::var_os("BATHYAL_WHOLE").is_some();
        let ways =
            if whole { vec![WAYS[0], WAYS[1], WAYS[2 + turn % 4]] } else { vec![WAYS[turn % WAYS.len()]] };
        for way in ways {
            let what = format!("{} {way}", file.strip_prefix(kept.path()).unwrap().display());
            match damaged(&bytes, way, turn) {
                Some(bytes) => fs::write(&file, bytes).unwrap(),
                None => fs::remove_file(&file).unwrap(),
            }
            let to = kept.folder.path().join("repaired");
            let lost = kept.folder.path().join("lost.jsonl");
            let options = RepairOptions { lost_ids: Some(lost.clone()), ..RepairOptions::default() };
            let name = file.parent().unwrap().file_name().unwrap().to_str().unwrap().to_string();
            match kept.repair(&to, &options) {
                // The only version is damaged: it is not known what was deleted.
                Err(error) => {
                    let version = name.starts_with("v-") && file.ends_with("manifest.json");
                    assert!(version && error.is_loss(), "{what}: {error}");
                    assert!(!to.exists(), "{what}");
                }
                Ok(report) => {
                    let held = holds(&to, &kept.schema);
                    assert_eq!(report.rows, held.len() as u64, "{what}");
                    let there = held.keys().collect::<BTreeSet<_>>();
                    let missing: Vec<&Id> = all.difference(&there).copied().collect();
                    let of_log = name.starts_with("l-") && file.ends_with("rows.log");
                    // Batches that are lost leave rows as they were before; nothing else does.
                    let wrong = |(id, row): &(&Id, &Row)| match of_log {
                        true => !written.get(id).is_some_and(|rows| rows.contains(row)),
                        false => kept.truth.get(id) != Some(row),
                    };
                    assert_eq!(held.iter().filter(wrong).count(), 0, "{what}");
                    assert!(of_log || missing.len() as u64 <= report.lost_rows, "{what}: {report:?}");
                    assert_eq!(report.complete, report.lost_rows == 0 && report.lost_batches.is_empty());
                    assert!(report.fault_count > 0 || report.complete, "{what}: {report:?}");
                    assert!(
                        report.fault_count > 0 || report.notes.is_empty() || of_log,
                        "{what}: {report:?}"
                    );
                    if !of_log {
                        let exact = missing.len() as u64 == report.lost_rows;
                        assert!(exact || report.unknown_rows > 0, "{what}: {} of {report:?}", missing.len());
                        let told = fs::read_to_string(&lost).unwrap();
                        let known = report.lost_rows - report.unknown_rows;
                        assert_eq!(told.lines().count() as u64, known, "{what}");
                        for id in &missing[..] {
                            let id_entry = crate::version::IdEntry::from((*id).clone());
                            let line = serde_json::json!({ "id": id_entry }).to_string();
                            let said = told.lines().any(|told| told == line);
                            assert!(said || report.unknown_rows > 0, "{what}: {id} is lost without a word");
                        }
                    }
                    complete += usize::from(report.complete);
                    saved += held.len();
                    fs::remove_dir_all(&to).unwrap();
                }
            }
            fs::write(&file, &bytes).unwrap();
        }
    }
    println!("{complete} were saved without a loss, {saved} rows in all");
    assert!(complete > 5, "{complete}");
    let report = kept.repair(&kept.folder.path().join("whole"), &RepairOptions::default()).unwrap();
    assert!(report.complete && report.fault_count == 0 && report.notes.is_empty(), "{report:?}");
    assert!(report.segments.iter().all(|segment| segment.outcome == "copied"));
    assert_eq!(holds(&kept.folder.path().join("whole"), &kept.schema), kept.truth);
}

#[test]
fn numbers_and_columns() {
    every_file(IdKind::Number, true);
}

#[test]
fn strings_alone() {
    every_file(IdKind::Text, false);
}

/// The folder of a generation whose name begins and ends so.
fn generation(kept: &Kept, begin: &str, end: &str) -> PathBuf {
    let all = fs::read_dir(kept.path()).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(begin) && name.ends_with(end)
    };
    all.filter(of).min().unwrap()
}

#[test]
fn rows_whose_list_of_deleted_ones_is_lost_are_kept_if_they_are_wanted() {
    let kept = Kept::new(IdKind::Number, true);
    let version = generation(&kept, "v-", "");
    let mut list = fs::read_dir(&version).unwrap().map(|entry| entry.unwrap().path());
    let list = list.find(|path| path.extension().is_some_and(|end| end == "deleted")).unwrap();
    fs::write(&list, b"nothing").unwrap();
    let to = kept.folder.path().join("to");
    let report = kept.repair(&to, &RepairOptions::default()).unwrap();
    assert!(!report.complete && report.uncertain_rows == 0, "{report:?}");
    assert!(holds(&to, &kept.schema).iter().all(|(id, row)| kept.truth[id] == *row));
    let to = kept.folder.path().join("all");
    let what = RepairOptions { keep_uncertain: true, ..RepairOptions::default() };
    let report = kept.repair(&to, &what).unwrap();
    let held = holds(&to, &kept.schema);
    // All is there that should be, as it should be, and the thirty rows that were deleted.
    assert!(kept.truth.iter().all(|(id, row)| held[id] == *row));
    assert_eq!(held.len(), kept.truth.len() + 30);
    assert!(!report.complete && report.uncertain_rows > 0 && report.lost_rows == 0, "{report:?}");
}

#[test]
fn segments_without_a_version_are_put_together_if_that_is_wanted() {
    let kept = Kept::new(IdKind::Text, true);
    fs::remove_file(generation(&kept, "v-", "").join("manifest.json")).unwrap();
    let what = RepairOptions { keep_uncertain: true, ..RepairOptions::default() };
    let to = kept.folder.path().join("all");
    let report = kept.repair(&to, &what).unwrap();
    let held = holds(&to, &kept.schema);
    let schema = Collection::open(&to, &options()).unwrap().schema();
    assert_eq!((schema.id_kind, schema.columns.len()), (IdKind::Text, 2));
    assert!(kept.truth.iter().all(|(id, row)| held[id] == *row), "{report:?}");
    assert_eq!(held.len(), kept.truth.len() + 30);
    assert_eq!((report.version, report.complete), (None, false));
}

#[test]
fn an_older_version_is_read_where_the_newest_cannot_be() {
    let mut kept = Kept::new(IdKind::Number, true);
    let keeping = CollectionOptions { keep_versions: 3, ..options() };
    let collection = Collection::open(kept.path(), &keeping).unwrap();
    kept.put(&collection, 3000..3010, 4);
    collection.flush().unwrap();
    let newest = collection.versions().unwrap().into_iter().max().unwrap();
    drop(collection);
    let file = kept.path().join(format!("v-{newest:020}")).join("manifest.json");
    let mut bytes = fs::read(&file).unwrap();
    bytes[200] ^= 1;
    fs::write(&file, bytes).unwrap();
    let to = kept.folder.path().join("to");
    let report = kept.repair(&to, &RepairOptions::default()).unwrap();
    assert_eq!(report.unreadable_versions, [newest]);
    assert!(report.version < Some(newest) && !report.complete);
    // What the logs do not have any more is said.
    let held = holds(&to, &kept.schema);
    let missing = kept.truth.iter().filter(|(id, row)| held.get(id) != Some(row)).count();
    assert!(missing == 0 || !report.lost_batches.is_empty(), "{missing}: {report:?}");
}

#[test]
fn nothing_is_repaired_onto_a_collection() {
    let kept = Kept::new(IdKind::Number, true);
    let error = kept.repair(&kept.path(), &RepairOptions::default()).unwrap_err();
    assert!(matches!(error, CollectionError::Parameter(_)), "{error}");
    let other = kept.folder.path().join("other");
    Collection::create(&other, kept.schema.clone(), &options()).unwrap();
    let error = kept.repair(&other, &RepairOptions::default()).unwrap_err();
    assert!(matches!(error, CollectionError::Exists { .. }), "{error}");
    let nothing = kept.folder.path().join("nothing");
    let to = (kept.folder.path().join("to"), &Default::default());
    let error = Collection::repair(&nothing, &options(), to, &RepairOptions::default(), &Silent).unwrap_err();
    assert!(matches!(error, CollectionError::NotACollection { .. }), "{error}");
}
