//! `bathyal delete`.

use bathyal_console::{Console, Failure};
use bathyal_index::{Index, OpenOptions};
use bathyal_vectors::IdFile;
use serde::Serialize;
use std::time::Instant;

use super::measurement::tell_opened;
use crate::arguments::DeleteArguments;

#[derive(Serialize)]
struct Answer {
    index: String,
    deleted: u64,
    /// Vectors that are left.
    vectors: usize,
}

pub(super) fn run(arguments: &DeleteArguments, console: &Console) -> Result<(), Failure> {
    let mut ids = arguments.ids.clone();
    if let Some(file) = &arguments.file {
        ids.extend_from_slice(IdFile::open(file)?.all_ids());
    }
    let options = OpenOptions { store: arguments.store.options()?, ..OpenOptions::default() };
    let began = Instant::now();
    let index = Index::open(&arguments.index, &options)?;
    tell_opened(&arguments.index, &index, began, console);
    let deleted = index.delete(&ids)?;
    let answer = Answer { index: arguments.index.display().to_string(), deleted, vectors: index.len() };
    let text = format!("{}: {deleted} vectors deleted, {} are left", answer.index, answer.vectors);
    console.answer(&answer, &text)
}
