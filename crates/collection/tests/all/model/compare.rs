//! Compares the results of a collection with its expected content.

use crate::model::cases::{Case, Row, Value};
use crate::model::columns::{ids, value, vectors};
use crate::model::conditions::Condition;
use crate::model::truth::{Truth, components};
use bathyal_collection::{CollectionError, FetchedRows, Id, Projection, SearchRequest, Snapshot};
use bathyal_index::{Effort, StoredVectors, WithinPlan};
use bathyal_kernels::Metric;
use bathyal_tier::Control;
use std::sync::Arc;

/// Neighbours that approximate searches have found.
#[derive(Debug, Default, Clone, Copy)]
pub struct Recall {
    pub found: u64,
    pub wanted: u64,
    /// Number of searches that compared all rows, and must be exact.
    pub exact: u64,
}

/// A search.
#[derive(Debug)]
pub struct Search<'a> {
    pub field: usize,
    pub k: usize,
    pub recall: f32,
    pub condition: Option<&'a Condition>,
}

fn everything(case: &Case) -> Projection {
    Projection {
        columns: None,
        vectors: case.schema.vectors.iter().map(|field| field.name.clone()).collect(),
    }
}

/// Returns true if a stored vector is equal to the given one; under cosine the length is not kept.
fn same_vector(case: &Case, field: usize, given: &[u8], stored: &[u8]) -> bool {
    let field = &case.schema.vectors[field];
    if field.metric != Metric::Cosine {
        return given == stored;
    }
    let direction = |bytes: &[u8]| {
        let all = components(field.element, bytes);
        let length = all.iter().map(|a| a * a).sum::<f64>().sqrt();
        all.into_iter().map(move |a| a / length).collect::<Vec<_>>()
    };
    direction(given).iter().zip(direction(stored)).all(|(one, other)| (one - other).abs() < 1e-5)
}

/// Compares a fetched row with the expected one.
fn check_row(case: &Case, id: &Id, row: &Row, fetched: &FetchedRows, at: usize) {
    assert_eq!(fetched.ids.get(at), *id);
    let values: Vec<Value> = fetched.columns.columns().iter().map(|column| value(column, at)).collect();
    assert_eq!(values, row.values, "columns of {id}");
    for (field, (given, stored)) in row.vectors.iter().zip(&fetched.vectors).enumerate() {
        let size = case.schema.vectors[field].row_bytes();
        let stored = &stored.bytes[at * size..(at + 1) * size];
        assert!(same_vector(case, field, given, stored), "vector {field} of {id}: {given:?}, {stored:?}");
    }
}

/// Compares all matching rows, in order, and their number.
pub fn check_all(
    case: &Case,
    snapshot: &Snapshot,
    truth: &Truth,
    condition: Option<&Condition>,
    most: usize,
) {
    let filter = condition.map(|condition| condition.filter(case));
    let mut scan = snapshot.scan(filter.as_ref(), &everything(case), None, Control::default()).unwrap();
    let mut rows = truth.matching(condition);
    while let Some(fetched) = scan.next(most, Control::default()).unwrap() {
        assert!(fetched.ids.len() <= most && !fetched.ids.is_empty());
        for at in 0..fetched.ids.len() {
            let (id, row) =
                rows.next().unwrap_or_else(|| panic!("{} should not be there", fetched.ids.get(at)));
            check_row(case, id, row, &fetched, at);
        }
    }
    assert!(rows.next().is_none(), "a row is missing");
    drop(rows);
    check_count(case, snapshot, truth, condition);
}

/// Returns the whole content of a snapshot.
///
/// # Errors
/// If the writer has removed files of the snapshot.
pub fn read(case: &Case, snapshot: &Snapshot) -> Result<Truth, CollectionError> {
    let mut scan = snapshot.scan(None, &everything(case), None, Control::default())?;
    let mut truth = Truth::default();
    while let Some(fetched) = scan.next(1000, Control::default())? {
        for at in 0..fetched.ids.len() {
            let values = fetched.columns.columns().iter().map(|column| value(column, at)).collect();
            let vector = |(field, stored): (usize, &StoredVectors)| {
                let size = case.schema.vectors[field].row_bytes();
                stored.bytes[at * size..(at + 1) * size].to_vec()
            };
            let vectors = fetched.vectors.iter().enumerate().map(vector).collect();
            truth.rows.insert(fetched.ids.get(at), Arc::new(Row { vectors, values }));
        }
    }
    Ok(truth)
}

/// Returns the whole content of a snapshot whose files are not removed.
pub fn holds(case: &Case, snapshot: &Snapshot) -> Truth {
    read(case, snapshot).unwrap()
}

/// Compares the number of matching rows.
pub fn check_count(case: &Case, snapshot: &Snapshot, truth: &Truth, condition: Option<&Condition>) {
    let filter = condition.map(|condition| condition.filter(case));
    let counted = snapshot.count(filter.as_ref(), Control::default()).unwrap();
    assert_eq!(counted, truth.matching(condition).count() as u64, "the count of {condition:?}");
}

/// Compares the ids after a given one.
pub fn check_after(case: &Case, snapshot: &Snapshot, truth: &Truth, after: &Id) {
    let what = Projection { columns: Some(Vec::new()), vectors: Vec::new() };
    let mut scan = snapshot.scan(None, &what, Some(after), Control::default()).unwrap();
    let above = (std::ops::Bound::Excluded(after.clone()), std::ops::Bound::Unbounded);
    let next: Vec<&Id> = truth.rows.range(above).map(|(id, _)| id).take(20).collect();
    let found = scan.next(20, Control::default()).unwrap().map(|fetched| fetched.ids);
    let found: Vec<Id> = found.iter().flat_map(|ids| (0..ids.len()).map(|at| ids.get(at))).collect();
    assert_eq!(found.iter().collect::<Vec<_>>(), next, "{}: from {after} on", case.name);
}

/// Compares the rows with these ids.
pub fn check_get(case: &Case, snapshot: &Snapshot, truth: &Truth, asked: &[Id]) {
    let gotten = snapshot.get(&ids(case, asked), &everything(case), Control::default()).unwrap();
    let existing: Vec<(u32, &Id, &Arc<Row>)> =
        (0..).zip(asked).filter_map(|(at, id)| truth.rows.get(id).map(|row| (at, id, row))).collect();
    assert_eq!(gotten.places, existing.iter().map(|(at, _, _)| *at).collect::<Vec<_>>());
    let fetched = FetchedRows { ids: gotten.ids, columns: gotten.columns, vectors: gotten.vectors };
    existing.iter().enumerate().for_each(|(at, (_, id, row))| check_row(case, id, row, &fetched, at));
}

/// Compares the result of a search: each found row matches and has the reported distance. If all rows were
/// compared, no other row is nearer.
pub fn check_search(
    case: &Case,
    snapshot: &Snapshot,
    truth: &Truth,
    search: &Search<'_>,
    queries: &[&[u8]],
    recall: &mut Recall,
) {
    let request = SearchRequest {
        calibration: None,
        field: Some(case.schema.vectors[search.field].name.clone()),
        k: search.k,
        effort: Effort::Recall(search.recall),
        filter: search.condition.map(|condition| condition.filter(case)),
        columns: case.schema.columns.iter().map(|column| column.name.clone()).collect(),
        vectors: true,
        threads: 1,
    };
    let found = snapshot.search(&vectors(case, search.field, queries), &request, Control::default()).unwrap();
    let exact = found.plans.iter().all(|plan| {
        ["memory", "flat"].contains(&plan.family.as_str()) || matches!(plan.plan, WithinPlan::Scan)
    });
    for (number, query) in queries.iter().enumerate() {
        let distances = truth.distances(case, search.field, query, search.condition);
        assert_eq!(found.matches, distances.len() as u64);
        assert_eq!(found.k, search.k.min(distances.len()), "{search:?}");
        let mut nearest: Vec<f64> = distances.values().copied().collect();
        nearest.sort_by(f64::total_cmp);
        let mut seen = Vec::new();
        let mut last = f32::NEG_INFINITY;
        for at in number * found.k..(number + 1) * found.k {
            let (id, told) = (found.ids.get(at), found.distances[at]);
            let meant = *distances.get(&id).unwrap_or_else(|| panic!("{id} does not match: {search:?}"));
            let slack = 1e-4 * (1.0 + meant.abs());
            assert!((f64::from(told) - meant).abs() <= slack, "{id} is {meant} away, not {told}");
            assert!(told >= last && !seen.contains(&id), "{id} at {told} after {last}");
            last = told;
            let row = &truth.rows[&id];
            let values: Vec<Value> = found.columns.columns().iter().map(|column| value(column, at)).collect();
            assert_eq!(values, row.values, "columns of {id}");
            let size = case.schema.vectors[search.field].row_bytes();
            let stored = &found.vectors.as_ref().unwrap().bytes[at * size..(at + 1) * size];
            assert!(same_vector(case, search.field, &row.vectors[search.field], stored), "vector of {id}");
            if exact {
                let rank = nearest[seen.len()];
                assert!((meant - rank).abs() <= slack, "{id} is {meant} away; one at {rank} is nearer");
            }
            seen.push(id);
            recall.found += u64::from(!exact && meant <= nearest[found.k - 1] + slack);
            recall.wanted += u64::from(!exact);
        }
        recall.exact += u64::from(exact);
    }
}
