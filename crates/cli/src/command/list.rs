//! `bathyal list`.

use bathyal_collection::{EntryKind, ListingEntry, listing};
use bathyal_console::{Console, Failure, byte_size};
use serde::Serialize;

use crate::arguments::ListArguments;

#[derive(Serialize)]
struct ListOutput {
    place: String,
    found: Vec<ListingEntry>,
}

pub(super) fn run(arguments: &ListArguments, console: &Console) -> Result<(), Failure> {
    let ListArguments { place, store } = arguments;
    let found = listing(place, &store.options()?)?;
    let answer = ListOutput { place: place.display().to_string(), found };
    console.answer(&answer, &text(&answer))
}

fn text(answer: &ListOutput) -> String {
    let ListOutput { place, found } = answer;
    if found.is_empty() {
        return format!("{place}: holds no index and no collection");
    }
    let width = found.iter().map(|one| one.name.chars().count()).max().unwrap_or(0);
    let lines =
        found.iter().map(|ListingEntry { name, what, .. }| format!("{name:<width$}  {}", description(what)));
    lines.collect::<Vec<_>>().join("\n")
}

fn description(what: &EntryKind) -> String {
    match what {
        EntryKind::Index { family, vectors, dim, element, metric, index_bytes } => {
            format!(
                "{family}, {vectors} vectors of {dim} {element}, {metric}, {}",
                byte_size::format(*index_bytes)
            )
        }
        EntryKind::Collection => "a collection".to_owned(),
        EntryKind::Unreadable { reason } => format!("cannot be read: {reason}"),
    }
}
