//! `bathyal insert`.

use bathyal_console::{Console, Failure};
use bathyal_index::{Index, IndexError, OpenOptions, compact_in, holding};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;
use serde::Serialize;

use crate::arguments::InsertArguments;

/// Bytes of vectors that are inserted at once: each time waits for the disk, and between two Ctrl-C is looked at.
const BATCH_BYTES: usize = 2 << 20;

#[derive(Serialize)]
struct Answer {
    index: String,
    inserted: usize,
    /// The id of the first; the others follow.
    first_id: u32,
    /// Vectors that the index holds now.
    vectors: usize,
    /// Times that it was compacted on the way.
    compactions: usize,
}

pub(super) fn run(arguments: &InsertArguments, console: &Console) -> Result<(), Failure> {
    let data = VectorFile::open(&arguments.vectors)?;
    // What is wrong with a row is found before any is inserted.
    data.check_finite()?;
    let progress = console.progress();
    let options = OpenOptions { store: arguments.store.options()?, ..OpenOptions::default() };
    let open = || Index::open(&arguments.index, &options);
    let mut index = open()?;
    let at_once = (BATCH_BYTES / data.row_bytes()).max(1);
    let (mut done, mut first_id, mut compactions) = (0, None, 0);
    progress.stage("inserting", data.count() as u64);
    while done < data.count() {
        if progress.cancelled() {
            return Err(IndexError::Cancelled.into());
        }
        let rows = done..data.count().min(done + at_once);
        let mut bytes = Vec::with_capacity(rows.len() * data.row_bytes());
        rows.clone().for_each(|row| bytes.extend_from_slice(data.row(row)));
        let some = VectorFile::from_rows(data.element(), data.dim(), bytes)?;
        match index.insert(&some) {
            Ok(ids) => {
                first_id.get_or_insert(ids.start);
                done = rows.end;
                progress.advance(done as u64);
            }
            // Full: what is there becomes part of the index, and there is room again.
            Err(IndexError::Memory { .. }) if index.changed().inserted > 0 => {
                drop(index);
                let holding = holding(&arguments.index, &options.store)?;
                let (store, name, folder) = (holding.store(), &holding.name, Some(holding.folder()));
                compact_in(store, name, folder, &arguments.compaction.options(), &progress)?;
                compactions += 1;
                index = open()?;
                progress.stage("inserting", data.count() as u64);
            }
            Err(other) => return Err(other.into()),
        }
    }
    drop(progress);
    let answer = Answer {
        index: arguments.index.display().to_string(),
        inserted: done,
        first_id: first_id.unwrap_or(0),
        vectors: index.len(),
        compactions,
    };
    let Answer { first_id, vectors, .. } = answer;
    let compacted = if compactions > 0 { format!(", compacted {compactions} times") } else { String::new() };
    let text = format!(
        "{}: {done} vectors inserted as {first_id} to {}, {vectors} are there{compacted}",
        answer.index,
        first_id as usize + done - 1
    );
    console.answer(&answer, &text)
}
