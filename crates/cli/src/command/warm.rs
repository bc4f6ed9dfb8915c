//! `bathyal warm`.

use bathyal_console::{Console, Failure, byte_size};
use bathyal_index::{FillOptions, FillReport, fill};
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
    let filled = fill(index, &options, &FillOptions { all: *all, limit_bytes: *limit }, &progress)?;
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
