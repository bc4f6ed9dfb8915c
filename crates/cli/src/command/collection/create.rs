//! `bathyal collection create`.

use std::path::Path;

use bathyal_collection::exchange::{GuessOptions, schema_of_file};
use bathyal_collection::{Collection, CollectionOptions, IdKind, Schema, VectorField};
use bathyal_console::{Console, Failure, Kind};
use bathyal_kernels::{Metric, MetricName};
use serde::Serialize;

use crate::arguments::CreateArguments;

#[derive(Serialize)]
struct CreateOutput {
    collection: String,
    schema: Schema,
}

pub(super) fn run(arguments: &CreateArguments, console: &Console) -> Result<(), Failure> {
    let schema = schema(arguments)?;
    let options = CollectionOptions { store: arguments.store.options()?, ..CollectionOptions::default() };
    let collection = Collection::create(&arguments.collection, schema, &options)?;
    let answer =
        CreateOutput { collection: arguments.collection.display().to_string(), schema: collection.schema() };
    let text = format!("{}: an empty collection\n{}", answer.collection, lines(&answer.schema));
    console.answer(&answer, &text)
}

/// Returns the id kind, the fields and the columns of a schema, a line each.
pub(super) fn lines(schema: &Schema) -> String {
    let field = |field: &VectorField| {
        let stored = field.store_as.map_or(String::new(), |form| format!(", stored as {form}"));
        let VectorField { name, dim, element, metric, family, .. } = field;
        format!("vector        {name}: {dim} {element}, {metric}, {family}{stored}")
    };
    let id = if schema.id_kind == IdKind::Number { "u64" } else { "string" };
    let mut lines = vec![format!("id            {id}")];
    lines.extend(schema.vectors.iter().map(field));
    lines.extend(
        schema.columns.iter().map(|column| format!("column        {}: {}", column.name, column.kind)),
    );
    lines.join("\n")
}

fn schema(arguments: &CreateArguments) -> Result<Schema, Failure> {
    if arguments.like.is_none() && (arguments.id_column.is_some() || arguments.taken.is_some()) {
        // The parser does not check `requires` of an option that conflicts with another one.
        return Err(Failure::usage(
            "--id-column and --columns apply to the file of --like; leave them out, or give --like",
        ));
    }
    let metric = match arguments.metric.as_ref().map(|metric| metric.name) {
        None => Metric::L2,
        Some(MetricName::Metric(metric)) => metric,
        Some(MetricName::Hamming) => {
            return Err(Failure::usage(
                "--metric hamming compares bits; name it in a field of bits: --vector NAME:DIM:b1:hamming",
            ));
        }
    };
    let mut schema = match (&arguments.like, &arguments.schema) {
        (Some(file), _) => {
            let (id_column, columns) = (arguments.id_column.clone(), arguments.taken.clone());
            schema_of_file(file, &GuessOptions { metric, id_column, columns })?
        }
        (None, Some(file)) => read(file)?,
        (None, None) => typed(arguments, metric),
    };
    if arguments.metric.is_some() && schema.vectors.iter().all(|field| field.metric != metric) {
        let metrics: Vec<String> =
            schema.vectors.iter().map(|field| format!("{} {}", field.name, field.metric)).collect();
        let from = arguments.like.as_ref().map_or("--vector".into(), |file| file.display().to_string());
        let metrics = metrics.join(", ");
        return Err(Failure::usage(format!(
            "--metric {metric}: {from} names the metric of each field ({metrics}); leave --metric out"
        )));
    }
    // An exported schema names the families of its collection; options on the command line replace them.
    let family = &arguments.family;
    for field in &mut schema.vectors {
        if field.options.is_empty() || !family.given.is_empty() {
            field.family = family.options.family().into();
            field.options = family.given.clone();
        }
        field.store_as = arguments.store_as.or(field.store_as);
    }
    Ok(schema)
}

fn typed(arguments: &CreateArguments, metric: Metric) -> Schema {
    Schema {
        id_kind: arguments.id.unwrap_or(IdKind::Text),
        vectors: arguments.vectors.iter().map(|field| field.field(metric)).collect(),
        columns: arguments.columns.clone(),
    }
}

/// Reads a schema from a JSON file: the schema itself, or the output of a command, which has it under the key
/// `schema`.
fn read(path: &Path) -> Result<Schema, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::system(&error, format!("{}: cannot read the schema: {error}", path.display()))
    })?;
    let wrong =
        |error| Failure::of(Kind::InvalidData, format!("{}: is not a schema: {error}", path.display()));
    let mut value: serde_json::Value = serde_json::from_str(&text).map_err(wrong)?;
    let within = value.get_mut("schema").map(serde_json::Value::take);
    serde_json::from_value(within.unwrap_or(value)).map_err(wrong)
}
