//! Bodies of requests to a server, and its answers: rows that arrive in memory.

use super::rows::schema;
use crate::Ids;
use crate::exchange::{ArrowRows, RowTables};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use bathyal_index::StoredVectors;
use bathyal_kernels::Element;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The most bytes that compressed buffers of a body may take.
const MOST_BYTES: u64 = 1 << 20;

fn tables() -> RowTables {
    RowTables::new(schema(), "the body")
}

fn vectors(count: usize) -> StoredVectors {
    let bytes = (0..2 * count).flat_map(|at| (at as f32).to_le_bytes()).collect();
    StoredVectors { element: Element::F32, dim: 2, bytes }
}

/// Returns a body of three rows, one of two queries, and the answers of a search and of a read.
pub(super) fn streams() -> Vec<Vec<u8>> {
    let write = || {
        let ids = Ids::Texts(vec!["a", "b", "c"].into());
        let years: ArrayRef = Arc::new(Int64Array::from(vec![Some(2020), None, Some(-1)]));
        let columns = RecordBatch::try_from_iter([("year", years)])?;
        let rows = ArrowRows::new(&ids, &columns, vec![("v".into(), vectors(3))])?;
        let found = rows.clone().with_distances(vec![0.5, 1.5, 2.5], 3);
        let queries = ArrowRows::of_queries("v", vectors(2))?;
        [rows, found, queries].into_iter().map(ArrowRows::into_stream).collect::<Result<Vec<_>, _>>()
    };
    write().unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn objects() -> Vec<Vec<u8>> {
    vec![
        br#"[{"id": "a", "v": [1, 2.5e3], "year": 12, "tags": ["x", null]}, {"id": "b", "vector": [0, -1]}]"#
            .to_vec(),
    ]
}

/// Reads a body of Arrow as rows, as changed columns and as queries, and as an answer.
pub(super) fn arrow(bytes: &[u8]) {
    let tables = tables();
    if let Ok(table) = tables.table_of_arrow(bytes, MOST_BYTES) {
        if let Ok(rows) = tables.rows(&table) {
            assert_eq!(rows.len(), table.num_rows());
        }
        if let Ok(metadata) = tables.metadata(&table) {
            assert_eq!(metadata.num_rows(), table.num_rows());
        }
        if let Ok(queries) = tables.queries(&table, None) {
            assert_eq!((queries.count(), queries.dim()), (table.num_rows(), 2));
        }
    }
    for searched in [false, true] {
        let Ok(answer) = tables.answer(bytes, MOST_BYTES, (&["v".into()], searched)) else { continue };
        let distances = if searched { answer.ids.len() } else { 0 };
        assert_eq!(answer.distances.len(), distances);
        assert_eq!(answer.vectors[0].bytes.len(), 8 * answer.ids.len());
    }
}

/// Reads a body of JSON as rows.
pub(super) fn json(bytes: &[u8]) {
    let Ok(objects) = serde_json::from_slice::<Vec<Map<String, Value>>>(bytes) else { return };
    let tables = tables();
    if let Ok(table) = tables.table_of_json(&objects) {
        assert_eq!(table.num_rows(), objects.len());
        drop(tables.rows(&table));
    }
}
