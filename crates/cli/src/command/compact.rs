//! `bathyal compact`.

use bathyal_console::process_memory::peak_rss_bytes;
use bathyal_console::{Console, Failure};
use bathyal_index::{Compaction, compact_in, holding};
use serde::Serialize;

use super::build::sizes;
use crate::arguments::CompactArguments;

#[derive(Serialize)]
struct CompactOutput {
    index: String,
    #[serde(flatten)]
    done: Compaction,
    peak_rss_bytes: Option<u64>,
}

pub(super) fn run(arguments: &CompactArguments, console: &Console) -> Result<(), Failure> {
    let progress = console.progress();
    let holding = holding(&arguments.index, &arguments.store.options()?)?;
    let (store, name, folder) = (holding.store(), &holding.name, Some(holding.folder()));
    let done = compact_in(store, name, folder, &arguments.compaction.options(), &progress)?;
    drop(progress);
    let answer = CompactOutput {
        index: arguments.index.display().to_string(),
        done,
        peak_rss_bytes: peak_rss_bytes(),
    };
    let Compaction { changed, build } = &answer.done;
    let text = match build {
        None => format!("{}: has no changes; nothing was done", answer.index),
        Some(built) => format!(
            "{}: {} vectors, with {} that were inserted and without {} that were deleted, in {:.1} s\n\
             {}",
            answer.index,
            built.vectors,
            changed.inserted,
            changed.deleted,
            built.build_seconds,
            sizes(built, answer.peak_rss_bytes),
        ),
    };
    console.answer(&answer, &text)
}
