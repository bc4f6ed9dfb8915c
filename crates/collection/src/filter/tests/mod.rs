//! Filters are compared with a row-by-row interpreter that uses no normal form.

mod interpreter;
mod json_keys;
mod making;
mod matching;
mod page;
mod random;
mod reading;

use super::{BoundFilter, Filter};
use crate::ids::IdKind;
use crate::schema::{Column, Schema, VectorField};
use arrow_array::RecordBatch;
use bathyal_kernels::{Element, Metric};

/// The types of single values.
const KINDS: [&str; 14] = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "string",
    "date",
    "timestamp",
];

/// Returns a schema with these columns, given as names and types.
fn schema(id_kind: IdKind, columns: &[(&str, &str)]) -> Schema {
    let column = |(name, kind): &(&str, &str)| Column { name: name.to_string(), kind: kind.parse().unwrap() };
    let columns = columns.iter().map(column).collect();
    let vectors = vec![VectorField::new("vector", 4, Element::F32, Metric::L2)];
    let schema = Schema { id_kind, vectors, columns };
    schema.check().unwrap();
    schema
}

/// Returns a schema with a column of every type, named after it, and a column of its lists (such as `int8s`).
fn every_type(id_kind: IdKind) -> Schema {
    let names: Vec<(String, String)> = KINDS
        .iter()
        .flat_map(|kind| {
            [(kind.to_string(), kind.to_string()), (format!("{kind}s"), format!("list<{kind}>"))]
        })
        .collect();
    let columns: Vec<(&str, &str)> =
        names.iter().map(|(name, kind)| (name.as_str(), kind.as_str())).collect();
    schema(id_kind, &columns)
}

fn bound(text: &str, schema: &Schema) -> BoundFilter {
    Filter::parse(text).unwrap().bind(schema).unwrap()
}

/// Returns whether each row matches.
fn matches(filter: &BoundFilter, batch: &RecordBatch) -> Vec<bool> {
    filter.evaluate(batch).unwrap().iter().collect()
}
