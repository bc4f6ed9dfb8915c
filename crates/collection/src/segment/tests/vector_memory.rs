//! Vectors of flat segments in memory, and their eviction.

use super::*;
use crate::segment::VectorMemory;
use crate::segment::open_parts::OpenParts;
use bathyal_index::StoreOptions;
use std::time::Duration;

const ROWS: u32 = 500;

/// Writes segments of these names in a folder.
fn written(
    folder: &std::path::Path,
    names: &[&str],
    options: &WriteOptions,
) -> (CollectionLocation, Arc<Schema>, Vec<SegmentEntry>) {
    let place = CollectionLocation::at(folder, &StoreOptions::default()).unwrap();
    let schema = schema(IdKind::Number, &[16], &[]);
    let entries = names.iter().map(|name| write(&place, &schema, name, ROWS, options).unwrap()).collect();
    (place, schema, entries)
}

/// Opens a segment whose vectors may be in `memory`.
fn open_with(
    memory: &VectorMemory,
    (place, schema): (&CollectionLocation, &Arc<Schema>),
    of: &SegmentEntry,
) -> Segment {
    let options = SegmentOptions { vectors: Some(memory.clone()), ..SegmentOptions::default() };
    Segment::new(place, schema.clone(), of.clone(), Arc::new(options))
}

#[test]
fn vectors_are_loaded_at_the_first_search_while_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let (place, schema, entries) = written(folder.path(), &["s-1-aa", "s-2-bb"], &one_thread());
    let vector_bytes = u64::from(ROWS) * 64;
    let memory = VectorMemory::new(vector_bytes * 3 / 2);
    let [first, second] = [0, 1].map(|at| open_with(&memory, (&place, &schema), &entries[at]));
    assert!(!first.index(0).unwrap().is_in_memory(), "reading rows loads no vectors");
    let (held, known) = (first.held_bytes(), first.index(0).unwrap());
    assert!(first.index_for_search(0).unwrap().is_in_memory() && first.index(0).unwrap().is_in_memory());
    assert!(first.held_bytes() - held >= vector_bytes);
    assert!(!known.is_in_memory(), "a caller keeps the index that it has");
    assert!(!second.index_for_search(0).unwrap().is_in_memory(), "there is room for one");
    // An index in use is not closed; a second search then finds room.
    let used = first.index_for_search(0).unwrap();
    OpenParts::close_unused(u64::MAX, Duration::ZERO);
    assert!(first.is_in_memory(0));
    drop((used, known));
    OpenParts::close_unused(u64::MAX, Duration::ZERO);
    assert!(!first.is_in_memory(0));
    assert!(second.index_for_search(0).unwrap().is_in_memory());
    assert!(!first.index_for_search(0).unwrap().is_in_memory());
    drop(second);
    assert!(first.index_for_search(0).unwrap().is_in_memory(), "a dropped reservation is released");
    assert!(matches!(first.index_for_search(1).map(drop), Err(CollectionError::Parameter(_))));
}

#[test]
fn vectors_of_other_families_stay_on_their_tier() {
    let folder = tempfile::tempdir().unwrap();
    let options = WriteOptions { flat_below_rows: 100, ..one_thread() };
    let (place, schema, entries) = written(folder.path(), &["s-1-aa"], &options);
    let segment = open_with(&VectorMemory::new(u64::MAX), (&place, &schema), &entries[0]);
    let index = segment.index_for_search(0).unwrap();
    assert!(index.placement_is_final() && !index.is_in_memory());
}

#[test]
fn damaged_vectors_give_an_error_when_they_are_read() {
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
    assert!(index.placement_is_final() && !index.is_in_memory(), "a search that does not read them succeeds");
    assert!(memory.reserve(u64::MAX >> 40).is_ok());
}
