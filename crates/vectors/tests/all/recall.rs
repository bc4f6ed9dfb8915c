//! Recall, tested with the table of edge cases that every implementation of recall is tested with.

use bathyal_vectors::groundtruth::{MeanRecall, recall};
use bathyal_vectors::{IdFile, NO_ID};
use serde::Deserialize;
use std::path::Path;

#[derive(Deserialize)]
struct Table {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    k: usize,
    found: Vec<Vec<i64>>,
    truth: Vec<Vec<i64>>,
    distances: Option<Vec<Vec<f32>>>,
    recall: Option<f64>,
    left_out: Option<usize>,
    #[serde(default)]
    error: bool,
}

/// Concatenates `rows`, each padded with [`NO_ID`] or cut to `width` ids.
fn ids(rows: &[Vec<i64>], width: usize) -> Vec<u32> {
    let id = |id: &i64| u32::try_from(*id).unwrap_or(NO_ID);
    let row = |row: &Vec<i64>| -> Vec<u32> {
        row.iter().map(id).chain(std::iter::repeat(NO_ID)).take(width).collect()
    };
    rows.iter().flat_map(row).collect()
}

#[test]
fn recall_agrees_with_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/recall.json");
    let table: Table = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(table.cases.len() > 20);
    for case in table.cases {
        let Case { name, k, .. } = &case;
        let width = case.truth[0].len();
        let distances = case.distances.as_ref().map(|rows| rows.concat());
        let exact = IdFile::from_parts(width, ids(&case.truth, width), distances).unwrap();
        let (found, queries) = (ids(&case.found, *k), case.found.len());
        let mut mean = MeanRecall::default();
        let added = mean.add(&exact, &found, *k, queries);
        assert_eq!(added.is_err(), case.error, "{name}");
        assert_eq!(recall(&exact, &found, *k, queries).ok(), case.recall, "{name}");
        assert_eq!(mean.mean(), case.recall, "{name}");
        assert_eq!(mean.left_out(), case.left_out.unwrap_or(0), "{name}");
    }
}
