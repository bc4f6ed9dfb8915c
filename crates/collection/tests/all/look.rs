//! Looking at a collection: samples, one search in detail, and recall against effort.

use crate::foreground::without_background;
use bathyal_collection::{
    Collection, CollectionCalibration, CollectionError, CollectionOptions, Filter, Id, IdKind, Ids,
    Projection, Rows, Schema, SearchRequest, SegmentExplanation, VectorField,
};
use bathyal_index::{Effort, WithinPlan};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::ops::Range;

const DIM: usize = 8;
const SEGMENT: u64 = 600;

fn schema(family: &str) -> Schema {
    let field = VectorField::new("v", DIM, Element::F32, Metric::L2);
    let vectors = vec![VectorField { family: family.into(), ..field }];
    Schema { id_kind: IdKind::Number, vectors, columns: Vec::new() }
}

fn vectors(count: u64, seed: u64) -> VectorFile {
    let mut random = StdRng::seed_from_u64(seed);
    let values = (0..count as usize * DIM).map(|_| random.random_range(-1.0_f32..1.0));
    VectorFile::from_rows(Element::F32, DIM, values.flat_map(f32::to_le_bytes).collect()).unwrap()
}

fn rows(family: &str, ids: Range<u64>) -> Rows {
    let data = vectors(ids.end - ids.start, ids.start);
    Rows::new(&schema(family), Ids::Numbers(ids.collect::<Vec<_>>().into()), vec![data], None).unwrap()
}

/// Returns two segments, and 100 rows in memory. Each fourth row is deleted.
fn filled(folder: &std::path::Path, family: &str) -> Collection {
    let options = CollectionOptions { flat_below_rows: 100, ..without_background() };
    let collection = Collection::create(folder.join(family), schema(family), &options).unwrap();
    for segment in 0..2 {
        collection.add(rows(family, segment * SEGMENT..(segment + 1) * SEGMENT)).unwrap();
        collection.flush().unwrap();
    }
    collection.add(rows(family, 2 * SEGMENT..2 * SEGMENT + 100)).unwrap();
    let deleted: Vec<u64> = (0..2 * SEGMENT + 100).step_by(4).collect();
    collection.delete(Ids::Numbers(deleted.into())).unwrap();
    collection
}

#[test]
fn each_live_row_is_drawn_as_often_as_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let collection = filled(folder.path(), "cluster");
    let live = (2 * SEGMENT + 100) * 3 / 4;
    let what = Projection { columns: None, vectors: vec!["v".into()] };
    let drawn = |filter: Option<&Filter>, count: usize, seed: u64| -> Vec<u64> {
        let sampled = collection.sample(filter, &what, (count, seed), Control::default()).unwrap();
        assert_eq!(sampled.rows.vectors[0].bytes.len(), sampled.rows.ids.len() * DIM * 4);
        let number = |at| match sampled.rows.ids.get(at) {
            Id::Number(number) => number,
            Id::Text(text) => panic!("{text}"),
        };
        (0..sampled.rows.ids.len()).map(number).collect()
    };
    let mut all = drawn(None, usize::MAX, 0);
    all.sort_unstable();
    assert_eq!(all, (0..2 * SEGMENT + 100).filter(|id| id % 4 != 0).collect::<Vec<u64>>());
    assert_eq!((drawn(None, 10, 3), drawn(None, 0, 3).len()), (drawn(None, 10, 3), 0));
    // 400 draws of 39 rows each: every row is expected 16 times, with a deviation of 4.
    let mut times: BTreeMap<u64, u32> = BTreeMap::new();
    for seed in 0..400 {
        drawn(None, 39, seed).into_iter().for_each(|id| *times.entry(id).or_default() += 1);
    }
    assert!(times.len() as u64 > live - 2 && times.values().all(|times| *times < 16 + 7 * 4), "{times:?}");
    let of_part = |range: Range<u64>| times.range(range).map(|(_, times)| f64::from(*times)).sum::<f64>();
    let share = of_part(2 * SEGMENT..u64::MAX) / of_part(0..u64::MAX);
    assert!((share - 75.0 / live as f64).abs() < 0.02, "{share}");
    let few = Filter::parse("id between 599 and 602").unwrap();
    let mut found = drawn(Some(&few), 100, 1);
    found.sort_unstable();
    assert_eq!(found, [599, 601, 602]);
}

#[test]
fn every_family_has_curves_and_explains_a_query_in_each_segment() {
    let folder = tempfile::tempdir().unwrap();
    for family in ["cluster", "graph", "spann", "flat"] {
        let collection = filled(folder.path(), family);
        let (name, options) = ("mine".into(), CollectionCalibration::default());
        if family != "flat" {
            let options = CollectionCalibration { name, ..options };
            collection.calibrate(&vectors(200, 9), &options, &Silent).unwrap();
        }
        let segments = collection.recall_curves(None, 10).unwrap();
        assert_eq!(segments.len(), 2, "{family}");
        for segment in segments {
            assert_eq!((&*segment.family, segment.rows), (family, SEGMENT as u32));
            assert_eq!(segment.curves[0].calibration, "build");
            assert_eq!(segment.curves.len(), if family == "flat" { 1 } else { 2 }, "{family}");
            for curve in &segment.curves {
                let rises = curve.points.is_sorted_by(|a, b| a.recall < b.recall);
                assert!(rises && (family == "flat" || curve.points.len() > 1), "{family}: {curve:?}");
                assert!(curve.points.iter().all(|point| point.predicted_ns > 0.0), "{family}: {curve:?}");
            }
        }
        for effort in [Effort::Recall(0.9), Effort::Recall(1.0)] {
            let request = SearchRequest { k: 5, effort, ..SearchRequest::default() };
            let explained = collection.explain(&vectors(1, 3), &request, Control::default()).unwrap();
            assert_eq!((explained.segments.len(), explained.memory_rows), (2, 75));
            for segment in explained.segments {
                let SegmentExplanation::Explanation(explanation) = segment.how else { panic!("{segment:?}") };
                assert_eq!((&*explanation.family, explanation.k), (family, 5));
                assert!(explanation.total_ns > 0 && explanation.ids.is_empty());
            }
        }
        // The second segment has all rows that match, so that only it is searched.
        let explained = |filter: &str| {
            let filter = Filter::parse(filter).ok();
            let request = SearchRequest { filter, ..SearchRequest::default() };
            collection.explain(&vectors(1, 3), &request, Control::default())
        };
        let found = explained(&format!("id >= {SEGMENT} and id < {}", 2 * SEGMENT)).unwrap();
        assert_eq!((found.segments.len(), found.memory_rows), (1, 0), "{found:?}");
        let SegmentExplanation::Filtered(one) = &found.segments[0].how else { panic!("{found:?}") };
        assert_eq!((&*one.plan.family, one.plan.matches), (family, SEGMENT as u32 * 3 / 4), "{one:?}");
        assert!(one.total_ns > 0 && one.full_distances > 0, "{one:?}");
        let few = explained("id in (1, 2, 3)").unwrap();
        let SegmentExplanation::Filtered(one) = &few.segments[0].how else { panic!("{few:?}") };
        assert_eq!((one.plan.matches, one.plan.plan, one.full_distances), (3, WithinPlan::Scan, 3));
        assert!(matches!(explained("color = 1"), Err(CollectionError::Filter(_))));
        assert!(collection.recall_curves(Some("w"), 10).is_err());
    }
}
