//! `bathyal remove`.

use bathyal_collection::{Removal, RemovedKind, removable, remove};
use bathyal_console::{Console, Failure, byte_size};
use serde::Serialize;

use crate::arguments::RemoveArguments;

#[derive(Serialize)]
struct RemoveOutput {
    removed: bool,
    #[serde(flatten)]
    removal: Removal,
}

pub(super) fn run(arguments: &RemoveArguments, console: &Console) -> Result<(), Failure> {
    let (target, store) = (&arguments.target, arguments.store.options()?);
    if !arguments.yes {
        let removal = removable(target, &store)?;
        let text = description(&removal);
        let refusal = match console.ask(&format!("{text}. Remove it?"))? {
            Some(true) => None,
            Some(false) => Some(Failure { message: "nothing was removed".into(), ..Failure::cancelled() }),
            None => Some(Failure::usage(format!(
                "{text}: nothing was removed; give --yes to remove it without a question, which only a \
                 terminal can answer"
            ))),
        };
        if let Some(refusal) = refusal {
            return console.fail_with(&RemoveOutput { removed: false, removal }, refusal);
        }
    }
    let removal = remove(target, &store)?;
    let mut text = format!("{}, removed", description(&removal));
    if !removal.others.is_empty() {
        text += &format!("; its folder stays with other files: {}", some(&removal.others));
    }
    console.answer(&RemoveOutput { removed: true, removal }, &text)
}

/// Describes what is at the path.
fn description(removal: &Removal) -> String {
    let what = match &removal.what {
        RemovedKind::Index(index) => {
            let bytes = byte_size::format(index.index_bytes);
            format!("an index ({}) of {} vectors, {bytes}", index.family, index.vectors)
        }
        RemovedKind::Collection(collection) => match (collection.rows, collection.bytes) {
            (Some(rows), Some(bytes)) => {
                format!("a collection of {rows} rows, {} in segments", byte_size::format(bytes))
            }
            _ => "a damaged collection".to_owned(),
        },
        RemovedKind::Leftovers => "what an interrupted build, copy or removal has left".to_owned(),
    };
    format!("{}: {what}", removal.path.display())
}

/// Lists the first names.
fn some(names: &[String]) -> String {
    /// The most names that are listed.
    const SHOWN: usize = 5;
    let more = if names.len() > SHOWN { format!(" and {} more", names.len() - SHOWN) } else { String::new() };
    format!("{}{more}", names[..names.len().min(SHOWN)].join(", "))
}
