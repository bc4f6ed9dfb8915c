//! Engines of indexes on a device.

use crate::counted::Counts;
use crate::{options, search, written};
use bathyal_collection::{Collection, CollectionOptions};
use std::sync::Arc;

const SEGMENTS: u64 = 40;

/// Rows of a segment, too many for a flat one.
const ROWS: u64 = 120;
const QUERIES: u64 = 30;

#[test]
fn engines_of_many_segments_are_opened_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c");
    let grouped = CollectionOptions { flat_below_rows: 100, ..options() };
    written(&path, (SEGMENTS, ROWS), &grouped);
    let counts = Arc::new(Counts::default());
    let collection = Collection::open(&path, &counts.counting(grouped)).unwrap();
    // By the calling thread alone.
    search(&collection, 0, 1);
    let (opened, read) = counts.take();
    assert!(opened == SEGMENTS && read >= SEGMENTS, "{opened} are opened for {read} reads");
    for id in 1..QUERIES {
        search(&collection, id, 1);
        let (opened, read) = counts.take();
        assert!(opened == 0 && read >= SEGMENTS, "query {id}: {opened} are opened for {read} reads");
    }
}
