//! `bathyal collection delete` and `compact`.

use bathyal_collection::{CompactOptions, CompactionReport, Written};
use bathyal_console::process_memory::peak_rss_bytes;
use bathyal_console::{Console, Failure, byte_size};
use bathyal_tier::Control;
use serde::Serialize;

use super::ids::ids;
use super::open::{to_write, writing};
use crate::arguments::{CollectionCompactArguments, CollectionDeleteArguments};

#[derive(Serialize)]
struct DeleteOutput {
    collection: String,
    #[serde(flatten)]
    written: Written,
    /// Rows that remain.
    total: u64,
}

pub(super) fn delete(arguments: &CollectionDeleteArguments, console: &Console) -> Result<(), Failure> {
    let collection = to_write(&arguments.collection, &arguments.write, console)?;
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    let written = match &arguments.filter {
        Some(filter) => writing(&collection, console, || collection.delete_matching(filter, control))?,
        None => {
            let ids = ids(collection.schema().id_kind, &arguments.ids, arguments.file.as_ref())?;
            writing(&collection, console, || collection.delete(ids))?
        }
    };
    let total = collection.count(None, Control::default())?;
    let answer = DeleteOutput { collection: arguments.collection.display().to_string(), written, total };
    let missing = match written.missing {
        0 => String::new(),
        missing => format!(", {missing} ids had no row"),
    };
    let text = format!("{}: {} rows deleted{missing}, {total} remain", answer.collection, written.deleted);
    console.answer(&answer, &text)
}

#[derive(Serialize)]
struct CompactOutput {
    collection: String,
    #[serde(flatten)]
    compacted: CompactionReport,
    peak_rss_bytes: Option<u64>,
}

pub(super) fn compact(arguments: &CollectionCompactArguments, console: &Console) -> Result<(), Failure> {
    let collection = to_write(&arguments.collection, &arguments.write, console)?;
    let progress = console.progress();
    let options = CompactOptions { full: !arguments.light };
    let compacted = writing(&collection, console, || collection.compact(&options, &progress))?;
    drop(progress);
    let collection = arguments.collection.display().to_string();
    let answer = CompactOutput { collection, compacted, peak_rss_bytes: peak_rss_bytes() };
    let resumed = match compacted.rows_resumed {
        0 => String::new(),
        rows => format!(", of which an earlier merge had written {rows}"),
    };
    let text = format!(
        "{}: {} segments became {}, {} became {}, {} rows written again in {:.1} s{resumed}",
        answer.collection,
        compacted.segments_before,
        compacted.segments_after,
        byte_size::format(compacted.bytes_before),
        byte_size::format(compacted.bytes_after),
        compacted.rows_written,
        compacted.seconds,
    );
    console.answer(&answer, &text)
}
