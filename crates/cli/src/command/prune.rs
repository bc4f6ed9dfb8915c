//! `bathyal prune`.

use std::time::Duration;

use bathyal_console::{Console, Failure, byte_size};
use bathyal_index::{PruneOptions, PruneReport, holding};
use serde::Serialize;

use crate::arguments::PruneArguments;

#[derive(Serialize)]
struct PruneOutput {
    index: String,
    dry_run: bool,
    #[serde(flatten)]
    pruned: PruneReport,
}

pub(super) fn run(arguments: &PruneArguments, console: &Console) -> Result<(), Failure> {
    let PruneArguments { index, kept_hours, dry_run, store } = arguments;
    let holding = holding(index, &store.options()?)?;
    let kept = Duration::from_secs(u64::from(*kept_hours) * 3600);
    let pruned = holding.prune(&PruneOptions { kept, dry_run: *dry_run })?;
    let answer = PruneOutput { index: index.display().to_string(), dry_run: *dry_run, pruned };
    let PruneReport { generations, unfinished, objects, bytes, kept } = pruned;
    let done = if *dry_run { "would be removed" } else { "removed" };
    let text = format!(
        "{}: {generations} replaced generations and {unfinished} unfinished uploads {done}, {objects} \
         objects of {}; {kept} are younger than {kept_hours} hours and stay",
        answer.index,
        byte_size::format(bytes)
    );
    console.answer(&answer, &text)
}
