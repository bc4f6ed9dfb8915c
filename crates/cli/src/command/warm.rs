//! `bathyal warm`.

use bathyal_collection::{Collection, CollectionOptions, is_collection};
use bathyal_console::{Console, Failure, byte_size};
use bathyal_index::{FillOptions, FillReport, StoreOptions, fill};
use bathyal_vectors::progress::Progress;
use serde::Serialize;

use crate::arguments::WarmArguments;

#[derive(Serialize)]
struct WarmOutput {
    index: String,
    #[serde(flatten)]
    filled: FillReport,
}

pub(super) fn run(arguments: &WarmArguments, console: &Console) -> Result<(), Failure> {
    let WarmArguments { index, all, limit, store } = arguments;
    let options = store.options()?;
    if options.cache().is_some_and(|cache| cache.disk_bytes == 0) {
        return Err(Failure::usage(
            "a cache in memory would be lost when this command ends; name a folder on a disk: --store-option \
             cache=FOLDER",
        ));
    }
    let progress = console.progress();
    let filled = match is_collection(index, &options) {
        true => fill_collection(arguments, &options, &progress)?,
        false => fill(index, &options, &FillOptions { all: *all, limit_bytes: *limit }, &progress)?,
    };
    drop(progress);
    if let Some(trouble) = &filled.cache.trouble {
        return Err(Failure::usage(trouble.clone()));
    }
    let answer = WarmOutput { index: index.display().to_string(), filled };
    let FillReport { files, bytes, received_bytes, limited, cache, .. } = &answer.filled;
    let text = format!(
        "{}: {files} files, {}{}; {} came from the store; the cache on disk holds {} of at most {}",
        answer.index,
        byte_size::format(*bytes),
        if *limited { " (not all: the limit was reached)" } else { "" },
        byte_size::format(*received_bytes),
        byte_size::format(cache.disk_bytes),
        byte_size::format(cache.most_disk_bytes),
    );
    console.answer(&answer, &text)
}

/// Reads the indexes of all segments of a collection, one after the other.
fn fill_collection(
    arguments: &WarmArguments,
    store: &StoreOptions,
    progress: &dyn Progress,
) -> Result<FillReport, Failure> {
    let WarmArguments { index, all, limit, .. } = arguments;
    let options = CollectionOptions { store: store.clone(), ..CollectionOptions::default() };
    let paths = Collection::open(index, &options)?.index_paths();
    let mut sum: Option<FillReport> = None;
    for path in paths {
        let read = sum.as_ref().map_or(0, |sum| sum.bytes);
        let limit_bytes = limit.map(|limit| limit.saturating_sub(read));
        let mut filled = fill(path, store, &FillOptions { all: *all, limit_bytes }, progress)?;
        if let Some(before) = sum {
            filled.files += before.files;
            filled.bytes += before.bytes;
            filled.received_bytes += before.received_bytes;
            filled.limited |= before.limited;
            filled.seconds += before.seconds;
        }
        sum = Some(filled);
    }
    sum.ok_or_else(|| {
        Failure::new(format!("{}: has no segments yet, so there is nothing to read", index.display()))
    })
}
