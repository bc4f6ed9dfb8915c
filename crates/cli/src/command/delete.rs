//! `bathyal delete`.

use bathyal_console::{Console, Failure};
use bathyal_index::{Index, OpenOptions};
use bathyal_vectors::IdFile;
use serde::Serialize;
use std::time::Instant;

use super::measurement::print_opened;
use crate::arguments::DeleteArguments;

#[derive(Serialize)]
struct DeleteOutput {
    index: String,
    deleted: u64,
    /// Vectors that remain.
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
    print_opened(&arguments.index, &index, began, console);
    let deleted = index.delete(&ids)?;
    let answer = DeleteOutput { index: arguments.index.display().to_string(), deleted, vectors: index.len() };
    let text = format!("{}: {deleted} vectors deleted, {} remain", answer.index, answer.vectors);
    console.answer(&answer, &text)
}
