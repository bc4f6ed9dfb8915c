//! Vectors of flat segments that are in memory, and go when others need the room.

use super::*;
use crate::segment::VectorMemory;
use crate::segment::open_parts::OpenParts;
use bathyal_index::StoreOptions;
use std::time::Duration;

const ROWS: u32 = 500;

/// A place in a folder, with the segments of these names.
fn written(
    folder: &std::path::Path,
    names: &[&str],
    options: &WriteOptions,
) -> (Place, Arc<Schema>, Vec<SegmentEntry>) {
    let place = Place::at(folder, &StoreOptions::default()).unwrap();
    let schema = schema(IdKind::Number, &[16], &[]);
    let entries = names.iter().map(|name| write(&place, &schema, name, ROWS, options).unwrap()).collect();
    (place, schema, entries)
}

/// A segment whose vectors may be in `memory`.
fn open_with(memory: &VectorMemory, (place, schema): (&Place, &Arc<Schema>), of: &SegmentEntry) -> Segment {
    let options = SegmentOptions { vectors: Some(memory.clone()), ..SegmentOptions::default() };
    Segment::new(place, schema.clone(), of.clone(), Arc::new(options))
}

#[test]
fn vectors_are_in_memory_from_the_first_search_on_while_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let (place, schema, entries) = written(folder.path(), &["s-1-aa", "s-2-bb"], &one_thread());
    let vector_bytes = u64::from(ROWS) * 64;
    let memory = VectorMemory::new(vector_bytes * 3 / 2);
    let [first, second] = [0, 1].map(|at| open_with(&memory, (&place, &schema), &entries[at]));
    assert!(!first.index(0).unwrap().is_in_memory(), "who does not search reads a row or two");
    let (held, known) = (first.held_bytes(), first.index(0).unwrap());
    assert!(first.index_for_search(0).unwrap().is_in_memory() && first.index(0).unwrap().is_in_memory());
    assert!(first.held_bytes() - held >= vector_bytes);
    assert!(!known.is_in_memory(), "who has the other one keeps it");
    assert!(!second.index_for_search(0).unwrap().is_in_memory(), "there is room for one");
    // What somebody uses is not closed; a second search then finds room.
    let used = first.index_for_search(0).unwrap();
    OpenParts::close_unused(u64::MAX, Duration::ZERO);
    assert!(first.is_in_memory(0));
    drop((used, known));
    OpenParts::close_unused(u64::MAX, Duration::ZERO);
    assert!(!first.is_in_memory(0));
    assert!(second.index_for_search(0).unwrap().is_in_memory());
    assert!(!first.index_for_search(0).unwrap().is_in_memory());
    drop(second);
    assert!(first.index_for_search(0).unwrap().is_in_memory(), "what is dropped gives its room back");
    assert!(matches!(first.index_for_search(1).map(drop), Err(CollectionError::Parameter(_))));
}

#[test]
fn of_other_families_vectors_stay_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let options = WriteOptions { flat_below_rows: 100, ..one_thread() };
    let (place, schema, entries) = written(folder.path(), &["s-1-aa"], &options);
    let segment = open_with(&VectorMemory::new(u64::MAX), (&place, &schema), &entries[0]);
    let index = segment.index_for_search(0).unwrap();
    assert!(index.placement_is_final() && !index.is_in_memory());
}

#[test]
fn vectors_that_are_damaged_are_found_so_where_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let (place, schema, entries) = written(folder.path(), &["s-1-aa"], &one_thread());
    let paths = std::fs::read_dir(folder.path().join("s-1-aa-v0")).unwrap();
    let largest = paths.map(|path| path.unwrap().path()).max_by_key(|path| path.metadata().unwrap().len());
    let path = largest.unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let memory = VectorMemory::new(u64::MAX);
    let segment = open_with(&memory, (&place, &schema), &entries[0]);
    let index = segment.index_for_search(0).unwrap();
    assert!(
        index.placement_is_final() && !index.is_in_memory(),
        "a search that does not read them is answered"
    );
    assert!(memory.reserve(u64::MAX >> 40).is_ok());
}
