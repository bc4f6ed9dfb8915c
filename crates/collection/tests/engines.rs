//! Single queries over many segments: the engines that they read with are opened once. This is a separate
//! program, because engines belong to search threads, which all tests of a process share.

#[path = "all/lone/counted.rs"]
mod counted;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use bathyal_collection::{
    Collection, CollectionOptions, Column, Durability, Filter, IdKind, Ids, Rows, Schema, SearchRequest,
    VectorField,
};
use bathyal_index::WithinPlan;
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use counted::Counts;
use std::sync::Arc;

const DIM: usize = 16;
const ROWS: u64 = 6_000;
/// One in this many rows is rare.
const RARE: u64 = 600;
/// More than the lanes of most machines.
const SEGMENTS: u64 = 9;

fn vectors(ids: std::ops::Range<u64>) -> VectorFile {
    let bytes =
        ids.flat_map(|id| (0..DIM as u64).map(move |at| ((id * (at + 3) * 131) >> 3) as u8)).collect();
    VectorFile::from_rows(Element::U8, DIM, bytes).unwrap()
}

#[test]
fn a_single_query_over_many_segments_reuses_open_engines() {
    let folder = tempfile::tempdir().unwrap();
    let schema = Schema {
        id_kind: IdKind::Number,
        vectors: vec![VectorField::new("v", DIM, Element::U8, Metric::L2)],
        columns: vec![Column { name: "rare".into(), kind: "int64".parse().unwrap() }],
    };
    let counts = Arc::new(Counts::default());
    // No segment is flat, since vectors of flat segments stay in memory.
    let options = CollectionOptions {
        durability: Durability::System,
        background: false,
        compact: false,
        flat_below_rows: 0,
        ..CollectionOptions::default()
    };
    let collection =
        Collection::create(folder.path().join("c"), schema.clone(), &counts.counting(options)).unwrap();
    for first in (0..SEGMENTS).map(|segment| segment * ROWS) {
        let ids = Ids::Numbers((first..first + ROWS).collect::<Vec<_>>().into());
        let rare: ArrayRef =
            Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| i64::from(row % RARE == 0))));
        let columns = RecordBatch::try_from_iter([("rare", rare)]).unwrap();
        let rows = Rows::new(&schema, ids, vec![vectors(first..first + ROWS)], Some(&columns)).unwrap();
        collection.add(rows).unwrap();
        collection.flush().unwrap();
    }
    let all = SearchRequest { k: 5, threads: 1, ..SearchRequest::default() };
    let few = SearchRequest { filter: Some(Filter::parse("rare = 1").unwrap()), ..all.clone() };
    let ask = |id: u64, request: &SearchRequest, plan: WithinPlan| {
        let found = collection.search(&vectors(id..id + 1), request, Control::default()).unwrap();
        assert_eq!(found.distances[0], 0.0);
        assert!(found.plans.iter().all(|part| part.family == "cluster" && part.plan == plan), "{found:?}");
    };
    let search = |id: u64| ask(id, &all, WithinPlan::All);
    search(7);
    let first = counts.take_opened();
    counts.take();
    assert!(first >= SEGMENTS, "{first}");
    (0..50).for_each(|query| search(query * 97 % (SEGMENTS * ROWS)));
    assert!(counts.take() > 0, "vectors are on the device");
    assert_eq!(counts.take_opened(), 0);

    // The first query finds the positions of vectors in all segments.
    let scan = |id: u64| ask(id * RARE, &few, WithinPlan::Scan);
    scan(3);
    counts.take();
    counts.take_opened();
    (0..50).for_each(|query| scan(query * 7 % (SEGMENTS * ROWS / RARE)));
    assert!(counts.take() > 0, "vectors are on the device");
    assert_eq!(counts.take_opened(), 0);
}
