//! Moving rows between a collection and files: `add`, `upsert`, `update`, `export`, `copy`.

use std::path::Path;

use bathyal_collection::exchange::{
    ExportOptions, ExportReport, ImportMode, ImportOptions, ImportReport, export as write, import,
};
use bathyal_collection::{Collection, CollectionOptions, CopiedCollection};
use bathyal_console::{Console, Failure, byte_size};
use bathyal_tier::Control;
use serde::Serialize;

use super::open::{to_read, to_write, writing};
use crate::arguments::{
    CollectionCopyArguments, ExportArguments, RowsArguments, UpdateArguments, WriteArguments,
};

#[derive(Serialize)]
struct ImportOutput {
    collection: String,
    #[serde(flatten)]
    imported: ImportReport,
    /// Rows in the collection now.
    total: u64,
}

pub(super) fn add(arguments: &RowsArguments, console: &Console) -> Result<(), Failure> {
    rows(arguments, ImportMode::Add, console)
}

pub(super) fn upsert(arguments: &RowsArguments, console: &Console) -> Result<(), Failure> {
    rows(arguments, ImportMode::Upsert, console)
}

fn rows(arguments: &RowsArguments, how: ImportMode, console: &Console) -> Result<(), Failure> {
    let options = ImportOptions {
        how,
        batch_rows: arguments.batch_rows,
        id_column: arguments.id_column.clone(),
        columns: arguments.columns.clone(),
        ids: arguments.ids.clone(),
        first_id: arguments.first_id,
    };
    import_rows(&arguments.collection, &arguments.rows, &options, &arguments.write, console)
}

pub(super) fn update(arguments: &UpdateArguments, console: &Console) -> Result<(), Failure> {
    let options = ImportOptions {
        how: ImportMode::Update,
        batch_rows: arguments.batch_rows,
        id_column: arguments.id_column.clone(),
        columns: arguments.columns.clone(),
        ..ImportOptions::default()
    };
    import_rows(&arguments.collection, &arguments.rows, &options, &arguments.write, console)
}

fn import_rows(
    path: &Path,
    rows: &Path,
    options: &ImportOptions,
    write: &WriteArguments,
    console: &Console,
) -> Result<(), Failure> {
    let collection = to_write(path, write, console)?;
    let progress = console.progress();
    let imported = writing(&collection, console, || import(&collection, rows, options, &progress))?;
    drop(progress);
    let total = collection.count(None, Control::default())?;
    let answer = ImportOutput { collection: path.display().to_string(), imported, total };
    console.answer(&answer, &text(&answer))
}

fn text(answer: &ImportOutput) -> String {
    let ImportOutput { collection, imported, total } = answer;
    let written = imported.written;
    let parts = [
        ("added", written.added),
        ("replaced", written.replaced),
        ("without a row to update", written.missing),
    ];
    let parts: Vec<String> =
        parts.iter().filter(|(_, count)| *count > 0).map(|(what, count)| format!("{count} {what}")).collect();
    let parts = if parts.is_empty() { "none".into() } else { parts.join(", ") };
    format!(
        "{collection}: {} rows: {parts}, in {:.1} s; the collection has {total} rows",
        imported.rows, imported.seconds
    )
}

pub(super) fn export(arguments: &ExportArguments, console: &Console) -> Result<(), Failure> {
    let collection = to_read(&arguments.collection, &arguments.open, console)?;
    let vectors = if arguments.no_vectors { Some(Vec::new()) } else { arguments.fields.clone() };
    let options = ExportOptions {
        filter: arguments.filter.clone(),
        columns: arguments.columns.clone(),
        vectors,
        ids: arguments.ids.clone(),
    };
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    let progress = console.progress();
    let exported = write(&collection, &arguments.output, &options, control, &progress)?;
    drop(progress);
    let ExportReport { rows, output, ids, seconds } = &exported;
    let beside = ids.as_ref().map_or(String::new(), |ids| format!(", ids in {}", ids.display()));
    let text = format!(
        "{}: {rows} rows from {}{beside}, in {seconds:.1} s",
        output.display(),
        arguments.collection.display()
    );
    console.answer(&exported, &text)
}

#[derive(Serialize)]
struct CopyOutput {
    collection: String,
    output: String,
    #[serde(flatten)]
    copied: CopiedCollection,
}

pub(super) fn copy(arguments: &CollectionCopyArguments, console: &Console) -> Result<(), Failure> {
    let options = CollectionOptions { store: arguments.stores.from()?, ..CollectionOptions::default() };
    let collection = Collection::open(&arguments.collection, &options)?;
    let progress = console.progress();
    let copied = collection.copy_to(&arguments.output, &arguments.stores.to.options()?, &progress)?;
    drop(progress);
    let collection = arguments.collection.display().to_string();
    let answer = CopyOutput { collection, output: arguments.output.display().to_string(), copied };
    let CopiedCollection { rows, segments, bytes } = answer.copied;
    let size = byte_size::format(bytes);
    let text = format!(
        "{}: {rows} rows in {segments} segments, {size} copied from {}",
        answer.output, answer.collection
    );
    console.answer(&answer, &text)
}
