//! Ids that are typed or in a file.

use std::path::PathBuf;

use bathyal_collection::exchange::read_ids;
use bathyal_collection::{Id, IdKind, Ids};
use bathyal_console::Failure;

/// The ids that are `typed`, and then those of a `file`.
pub(super) fn ids(kind: IdKind, typed: &[String], file: Option<&PathBuf>) -> Result<Ids, Failure> {
    let id = |text: &String| match kind {
        IdKind::Text => Ok(Id::Text(text.clone())),
        IdKind::Number => text.parse().map(Id::Number).map_err(|_| {
            Failure::usage(format!(
                "the id {text:?} is no number from 0 to 2^64 - 1, as those of the collection are"
            ))
        }),
    };
    let typed = typed.iter().map(id).collect::<Result<Vec<Id>, Failure>>()?;
    let typed = Ids::from_ids(kind, &typed)?;
    match file {
        None => Ok(typed),
        Some(file) => Ok(Ids::concat(kind, &[typed, read_ids(file, kind)?])?),
    }
}
