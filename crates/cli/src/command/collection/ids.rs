//! Ids from the command line and from a file.

use std::path::PathBuf;

use bathyal_collection::exchange::read_ids;
use bathyal_collection::{Id, IdKind, Ids};
use bathyal_console::Failure;

/// Returns the ids in `typed`, followed by those in `file`.
pub(super) fn ids(kind: IdKind, typed: &[String], file: Option<&PathBuf>) -> Result<Ids, Failure> {
    let id = |text: &String| match kind {
        IdKind::Text => Ok(Id::Text(text.clone())),
        IdKind::Number => text.parse().map(Id::Number).map_err(|_| {
            Failure::usage(format!(
                "the id {text:?} is not a whole number from 0 to 2^64 - 1; the ids of this collection are \
                 such numbers"
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
