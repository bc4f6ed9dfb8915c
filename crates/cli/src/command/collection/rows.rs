//! `bathyal collection get` and `count`.

use bathyal_collection::exchange::{JsonRow, JsonRows};
use bathyal_collection::{Ids, Projection, RowsById, Schema};
use bathyal_console::{Console, Failure, Kind};
use bathyal_index::StoredVectors;
use bathyal_tier::Control;
use serde::Serialize;

use super::ids::ids;
use super::open::to_read;
use crate::arguments::{CollectionGetArguments, CountArguments};

/// Most ids in a message.
const NAMED: usize = 5;

#[derive(Serialize)]
struct RowsOutput<'a> {
    collection: String,
    rows: Vec<JsonRow<'a>>,
    /// The ids that have no row.
    missing: Vec<String>,
}

pub(super) fn get(arguments: &CollectionGetArguments, console: &Console) -> Result<(), Failure> {
    let collection = to_read(&arguments.collection, &arguments.open, console)?;
    let schema = collection.schema();
    let wanted = ids(schema.id_kind, &arguments.ids, arguments.file.as_ref())?;
    let vectors = if arguments.vectors { field_names(&schema) } else { Vec::new() };
    let what = Projection { columns: arguments.columns.clone(), vectors: vectors.clone() };
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    let RowsById { places, ids, columns, vectors: found } = collection.get(&wanted, &what, control)?;
    let rows = JsonRows::new(ids, &columns, named(vectors, found))?;
    let missing = missing(&wanted, &places);
    let path = arguments.collection.display().to_string();
    let text = lines(rows.iter())?;
    let answer = RowsOutput { collection: path, rows: rows.iter().collect(), missing };
    if answer.missing.is_empty() {
        return console.answer(&answer, &text);
    }
    let more = answer.missing.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let first: Vec<String> = answer.missing.iter().take(NAMED).map(|id| format!("{id:?}")).collect();
    let message = format!("{}: there is no row with the id {}{more}", answer.collection, first.join(", "));
    console.answer_and_fail(&answer, &text, Failure::of(Kind::NotFound, message))
}

/// Returns the names of all vector fields.
pub(super) fn field_names(schema: &Schema) -> Vec<String> {
    schema.vectors.iter().map(|field| field.name.clone()).collect()
}

/// Pairs vectors with the names of their fields.
pub(super) fn named(names: Vec<String>, vectors: Vec<StoredVectors>) -> Vec<(String, StoredVectors)> {
    names.into_iter().zip(vectors).collect()
}

/// Returns the rows as JSON objects, a line each.
pub(super) fn lines(rows: impl Iterator<Item = impl Serialize>) -> Result<String, Failure> {
    let line = |row| serde_json::to_string(&row);
    let lines = rows.map(line).collect::<Result<Vec<_>, _>>();
    lines
        .map(|lines| lines.join("\n"))
        .map_err(|error| Failure::of(Kind::Internal, format!("rows as JSON: {error}")))
}

/// Returns the wanted ids whose positions are not in `places`, which are in ascending order.
fn missing(wanted: &Ids, places: &[u32]) -> Vec<String> {
    let absent = (0..wanted.len()).filter(|at| places.binary_search(&(*at as u32)).is_err());
    absent.map(|at| wanted.get(at).to_string()).collect()
}

#[derive(Serialize)]
struct CountOutput {
    collection: String,
    rows: u64,
}

pub(super) fn count(arguments: &CountArguments, console: &Console) -> Result<(), Failure> {
    let collection = to_read(&arguments.collection, &arguments.open, console)?;
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    let rows = collection.snapshot().count(arguments.filter.as_ref(), control)?;
    let answer = CountOutput { collection: arguments.collection.display().to_string(), rows };
    console.answer(&answer, &rows.to_string())
}
