//! Vectors of flat segments that are loaded into memory at the first search.

use crate::lone::counted::Counts;
use crate::lone::{ROWS, options, rows, search, written};
use bathyal_collection::{Collection, CollectionError, CollectionOptions, Ids, Projection, SearchRequest};
use bathyal_index::TierChoice;
use bathyal_tier::Control;
use std::sync::Arc;

const SEGMENTS: u64 = 8;
/// The vectors of a segment take less than a megabyte.
const DIM: usize = 512;

fn opened(change: impl FnOnce(&mut CollectionOptions)) -> (tempfile::TempDir, Collection, Arc<Counts>) {
    opened_of(SEGMENTS, change)
}

fn opened_of(
    segments: u64,
    change: impl FnOnce(&mut CollectionOptions),
) -> (tempfile::TempDir, Collection, Arc<Counts>) {
    let folder = tempfile::tempdir().unwrap();
    written(&folder.path().join("c"), segments, DIM, &options());
    let counts = Arc::new(Counts::default());
    let mut options = options();
    change(&mut options);
    let collection = Collection::open(folder.path().join("c"), &counts.counting(options)).unwrap();
    (folder, collection, counts)
}

/// Returns the bytes of the vectors of all segments.
fn vector_bytes() -> u64 {
    SEGMENTS * ROWS * DIM as u64 * 4
}

#[test]
fn a_single_query_reads_nothing_and_held_bytes_are_reported() {
    let (_folder, collection, counts) = opened(|_| ());
    let before = collection.describe().held_bytes;
    for id in [0, 5, 3 * ROWS + 1] {
        let found = search(&collection, id, 0);
        assert_eq!((counts.take(), counts.take_opened()), (0, 0));
        assert_eq!(found.matches, SEGMENTS * ROWS);
    }
    let held = collection.describe().held_bytes - before;
    assert!(held >= vector_bytes(), "{held} bytes are held");
    assert!(held < 2 * vector_bytes(), "{held} bytes are held");
}

#[test]
fn fetched_vectors_are_read_until_the_first_search_loads_them() {
    let (_folder, collection, counts) = opened(|_| ());
    let get = || {
        let what = Projection { columns: Some(Vec::new()), vectors: vec!["v".into()] };
        let ids = Ids::Numbers(vec![1, ROWS + 1].into());
        let gotten = collection.get(&ids, &what, Control::default()).unwrap();
        let expected = [rows(DIM, 1..2), rows(DIM, ROWS + 1..ROWS + 2)];
        let expected: Vec<u8> = expected.iter().flat_map(|row| row.row(0).to_vec()).collect();
        assert_eq!(gotten.vectors[0].bytes, expected);
    };
    get();
    let read = counts.take();
    assert!(read > 0, "a row or two do not bring all vectors into memory");
    let held = collection.describe().held_bytes;
    search(&collection, 7, 0);
    assert!(collection.describe().held_bytes - held >= vector_bytes());
    counts.take();
    get();
    search(&collection, 7, 0);
    assert_eq!(counts.take(), 0);
}

/// Returns the reads of a device of each of three single queries.
fn reads(collection: &Collection, counts: &Counts) -> [u64; 3] {
    [7, 8, 9].map(|id| {
        search(collection, id, 0);
        counts.take()
    })
}

#[test]
fn vectors_without_room_are_read_from_the_device() {
    // Half of the memory for writes is less than the vectors of a segment.
    let (_folder, collection, counts) = opened(|options| options.write_memory_bytes = 1 << 20);
    let [before, second, third] = reads(&collection, &counts);
    assert!(before >= SEGMENTS && [second, third] == [before; 2]);
    // And here less than those of two segments.
    let (_folder, collection, counts) = opened(|options| options.write_memory_bytes = 4 << 20);
    assert_eq!(reads(&collection, &counts), [before / SEGMENTS * (SEGMENTS - 2); 3]);
    // An explicit tier is respected.
    let (_folder, collection, counts) = opened(|options| options.index.tier = TierChoice::Dram);
    assert_eq!(reads(&collection, &counts), [0; 3]);
}

/// Number of segments whose least sufficient budget has no room for their vectors.
const MANY: u64 = 24;

#[test]
fn a_memory_budget_is_respected() {
    let given = |bytes| move |options: &mut CollectionOptions| options.index.memory_bytes = Some(bytes);
    let (_folder, collection, _) = opened_of(MANY, given(1));
    let request = SearchRequest { k: 5, ..SearchRequest::default() };
    let error = collection.search(&rows(DIM, 1..2), &request, Control::default()).unwrap_err();
    let CollectionError::Memory { needed, .. } = error else { panic!("{error}") };
    let (_folder, collection, counts) = opened_of(MANY, given(needed));
    let [before, second, third] = reads(&collection, &counts);
    let reads_of = [before, second, third];
    assert!(before >= MANY && [second, third] == [before; 2], "{reads_of:?} of {needed} bytes");
    assert!(collection.describe().held_bytes < needed);
    let (_folder, collection, counts) = opened_of(MANY, given(needed + 4 * MANY / SEGMENTS * vector_bytes()));
    assert_eq!(reads(&collection, &counts), [0; 3]);
}
