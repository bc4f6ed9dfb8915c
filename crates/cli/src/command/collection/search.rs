//! `bathyal collection search`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use bathyal_collection::exchange::{JsonRow, JsonRows};
use bathyal_collection::{FoundRows, PartPlan, Schema, SearchRequest, VectorField};
use bathyal_console::{Console, Failure, Kind};
use bathyal_index::{Effort, NamedEfforts};
use bathyal_tier::Control;
use bathyal_vectors::{AtomicFile, VectorFile, encode_row};
use serde::Serialize;

use super::open::to_read;
use crate::arguments::CollectionSearchArguments;
use crate::shown::short;

/// Most neighbours per query in the text output; JSON has all.
const SHOWN_NEIGHBORS: usize = 10;
/// Most columns of a table, and most characters of a value, in the text output.
const SHOWN_COLUMNS: usize = 8;
const SHOWN_CHARACTERS: usize = 32;

/// The names of the fields are keys of `--json`: they are stable.
#[derive(Serialize)]
struct SearchOutput<'a> {
    collection: String,
    queries: usize,
    k: usize,
    /// Rows that match the filter; all rows without one.
    matches: u64,
    /// The rows found by the first queries.
    results: Vec<QueryRows<'a>>,
    /// How each part was searched; only with `--explain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    plans: Option<&'a [PartPlan]>,
    reads_per_query: f64,
    seconds: f64,
    notes: &'a [String],
}

/// The rows that one query has found, nearest first.
#[derive(Serialize)]
struct QueryRows<'a> {
    query: usize,
    neighbors: Vec<JsonRow<'a>>,
}

pub(super) fn run(arguments: &CollectionSearchArguments, console: &Console) -> Result<(), Failure> {
    if let Some(output) = arguments.output.as_ref().filter(|output| !is_lines(output)) {
        // Refuse a wrong extension before the work.
        let reason = "the output is written as JSON lines; name a file that ends in .jsonl";
        return Err(Failure::usage(format!("{}: {reason}", output.display())));
    }
    let CollectionSearchArguments { recall, search_list, .. } = *arguments;
    let effort =
        NamedEfforts { recall, search_list, ..NamedEfforts::default() }.effort().map_err(Failure::refused)?;
    let collection = to_read(&arguments.collection, &arguments.open, console)?;
    let schema = collection.schema();
    let queries = queries(arguments, &schema, console)?;
    let question = question(arguments, effort, &schema);
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    let mut found = collection.search(&queries, &question, control)?;
    for note in &found.notes {
        console.note(&format!("note: {note}"));
    }
    let field = schema.field(arguments.field.as_deref())?;
    let vectors = found.vectors.take().map(|vectors| (schema.vectors[field].name.clone(), vectors));
    let rows = JsonRows::new(found.ids.clone(), &found.columns, vectors.into_iter().collect())?;
    let rows = rows.with_distances(std::mem::take(&mut found.distances));
    let of_query = |query: usize| {
        let neighbors = (query * found.k..(query + 1) * found.k).filter_map(|at| rows.row(at)).collect();
        QueryRows { query, neighbors }
    };
    if let Some(output) = &arguments.output {
        write(output, (0..queries.count()).map(of_query))?;
    }
    let answer = SearchOutput {
        collection: arguments.collection.display().to_string(),
        queries: queries.count(),
        k: found.k,
        matches: found.matches,
        results: (0..queries.count().min(arguments.show as usize)).map(of_query).collect(),
        plans: arguments.explain.then_some(&found.plans),
        reads_per_query: found.totals.reads as f64 / queries.count().max(1) as f64,
        seconds: found.seconds,
        notes: &found.notes,
    };
    let text = text(&answer, arguments, &found)?;
    console.answer(&answer, &text)
}

fn is_lines(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "jsonl" || ending == "ndjson")
}

/// Returns the queries: those of a file, or the one of `--vector`.
fn queries(
    arguments: &CollectionSearchArguments,
    schema: &Schema,
    console: &Console,
) -> Result<VectorFile, Failure> {
    let field: &VectorField = &schema.vectors[schema.field(arguments.field.as_deref())?];
    let (path, typed) = (arguments.queries.as_ref(), arguments.vector.as_ref());
    match (path, typed) {
        (Some(path), _) => console.open_vectors(path),
        (None, Some(numbers)) => {
            if numbers.len() != field.dim {
                return Err(Failure::usage(format!(
                    "--vector has {} numbers; vectors of the field {:?} have {}",
                    numbers.len(),
                    field.name,
                    field.dim
                )));
            }
            let mut row = Vec::new();
            encode_row(field.element, numbers, &mut row).map_err(|(at, advice)| {
                let element = field.element;
                Failure::usage(format!(
                    "--vector: {element} cannot hold the component {}: {advice}",
                    numbers[at]
                ))
            })?;
            Ok(VectorFile::from_rows(field.element, field.dim, row)?)
        }
        (None, None) => Err(Failure::usage("there are no queries; give a file of queries, or --vector")),
    }
}

fn question(arguments: &CollectionSearchArguments, effort: Effort, schema: &Schema) -> SearchRequest {
    let all = || schema.columns.iter().map(|column| column.name.clone()).collect();
    SearchRequest {
        field: arguments.field.clone(),
        k: arguments.k as usize,
        effort,
        calibration: arguments.calibration.clone(),
        filter: arguments.filter.clone(),
        columns: arguments.columns.clone().unwrap_or_else(all),
        vectors: arguments.vectors,
        threads: arguments.threads,
    }
}

/// Writes the rows found by all queries, a line per query.
fn write<'a>(output: &Path, found: impl Iterator<Item = QueryRows<'a>>) -> Result<(), Failure> {
    let mut file = AtomicFile::create(output)?;
    for found in found {
        let line = serde_json::to_string(&found).map_err(|error| {
            Failure::of(Kind::Internal, format!("cannot convert the rows found to JSON: {error}"))
        })?;
        writeln!(file, "{line}").map_err(|error| {
            Failure::system(&error, format!("{}: cannot write the file: {error}", output.display()))
        })?;
    }
    file.finish(&[])?;
    Ok(())
}

fn text(
    answer: &SearchOutput<'_>,
    arguments: &CollectionSearchArguments,
    found: &FoundRows,
) -> Result<String, Failure> {
    let rows = if arguments.filter.is_some() { "rows match the filter" } else { "rows" };
    let mut text = format!(
        "{} queries, k {}: {} {rows}, {:.1} ms, {:.1} reads a query",
        answer.queries,
        answer.k,
        answer.matches,
        answer.seconds * 1e3,
        answer.reads_per_query
    );
    if arguments.explain {
        plans(&mut text, &found.plans);
    }
    for found in &answer.results {
        let _ = write!(text, "\nquery {}", found.query);
        table(&mut text, &found.neighbors)?;
    }
    let others = answer.queries - answer.results.len();
    match (others, arguments.output.is_some()) {
        (0, _) => {}
        (_, true) => {
            let _ = write!(text, "\nand {others} more queries, which the output file has");
        }
        (_, false) => {
            let _ = write!(text, "\nand {others} more queries; --output FILE.jsonl writes all");
        }
    }
    Ok(text)
}

/// Appends how each part was searched.
fn plans(text: &mut String, plans: &[PartPlan]) {
    for plan in plans {
        let name = serde_json::to_value(plan.plan).ok();
        let name = name.as_ref().and_then(|name| name.as_str()).unwrap_or_default();
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\npart          {}: {}, {} of {} rows match",
            plan.part, plan.family, plan.matches, plan.rows
        );
        let list =
            if plan.search_list > 0 { format!(", search_list {}", plan.search_list) } else { String::new() };
        let reason = if plan.reason.is_empty() { String::new() } else { format!(": {}", plan.reason) };
        let _ = write!(text, "\n              {name}{list}{reason}");
    }
}

/// Appends a table of neighbours: their ids, distances and columns.
fn table(text: &mut String, neighbors: &[JsonRow<'_>]) -> Result<(), Failure> {
    let mut lines: Vec<Vec<String>> = Vec::new();
    for row in neighbors.iter().take(SHOWN_NEIGHBORS) {
        let object = serde_json::to_value(row)
            .map_err(|error| Failure::of(Kind::Internal, format!("a row as JSON: {error}")))?;
        if lines.is_empty() {
            let columns = row.columns().take(SHOWN_COLUMNS).map(|(name, _)| name.to_owned());
            lines.push(["id".to_owned(), "distance".to_owned()].into_iter().chain(columns).collect());
        }
        let names = &lines[0];
        let mut line: Vec<String> = names.iter().map(|name| cell(&object[name.as_str()])).collect();
        line[1] = row.distance().map_or_else(String::new, short);
        lines.push(line);
    }
    if lines.is_empty() {
        text.push_str("\n  none");
        return Ok(());
    }
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|at| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0))
        .collect();
    for line in &lines {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = write!(text, "\n  {}", cells.join("  ").trim_end());
    }
    let more = neighbors.len().saturating_sub(SHOWN_NEIGHBORS);
    if more > 0 {
        let _ = write!(text, "\n  and {more} more");
    }
    Ok(())
}

/// Formats a value in few characters, on one line.
fn cell(value: &serde_json::Value) -> String {
    let text = match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let clean: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    match clean.char_indices().nth(SHOWN_CHARACTERS) {
        None => clean,
        Some((end, _)) => format!("{}...", &clean[..end]),
    }
}
