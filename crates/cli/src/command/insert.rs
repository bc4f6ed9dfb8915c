//! `bathyal insert`.

use bathyal_console::{Console, Failure};
use bathyal_index::{Index, IndexError, OpenOptions, compact_in, holding};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;
use serde::Serialize;
use std::time::{Duration, Instant};

use super::measurement::print_opened;
use crate::arguments::InsertArguments;

/// Bytes of vectors in the first call of an insert, and in a call at most. A call waits for the disk or for a
/// node, and Ctrl-C is checked between calls.
const FIRST_BYTES: usize = 64 << 10;
const BATCH_BYTES: usize = 2 << 20;
/// Calls that take less than this are followed by larger ones.
const BATCH_TIME: Duration = Duration::from_millis(40);

#[derive(Serialize)]
struct InsertOutput {
    index: String,
    inserted: usize,
    /// The id of the first vector. The others follow, unless another process inserts at the same time.
    first_id: u32,
    /// The ids of all vectors, in the order of the file: ranges of the first id and one past the last.
    ids: Vec<(u32, u32)>,
    /// Vectors in the index now.
    vectors: usize,
    /// Number of compactions during the insert.
    compactions: usize,
}

pub(super) fn run(arguments: &InsertArguments, console: &Console) -> Result<(), Failure> {
    let data = console.open_vectors(&arguments.vectors)?;
    // Find bad rows before any row is inserted.
    data.check_finite()?;
    let progress = console.progress();
    let options = OpenOptions { store: arguments.store.options()?, ..OpenOptions::default() };
    let open = || -> Result<Index, IndexError> {
        let began = Instant::now();
        let index = Index::open(&arguments.index, &options)?;
        print_opened(&arguments.index, &index, began, console);
        Ok(index)
    };
    let mut index = open()?;
    let most = (BATCH_BYTES / data.row_bytes()).max(1);
    let mut at_once = (FIRST_BYTES / data.row_bytes()).max(1);
    let (mut done, mut ids, mut compactions) = (0, Vec::<(u32, u32)>::new(), 0);
    progress.stage("inserting", data.count() as u64);
    while done < data.count() {
        if progress.cancelled() {
            return Err(IndexError::Cancelled.into());
        }
        let rows = done..data.count().min(done + at_once);
        let mut bytes = Vec::with_capacity(rows.len() * data.row_bytes());
        rows.clone().for_each(|row| bytes.extend_from_slice(data.row(row)));
        let some = VectorFile::from_rows(data.element(), data.dim(), bytes)?;
        let started = Instant::now();
        match index.insert(&some) {
            Ok(new_ids) => {
                match ids.last_mut() {
                    Some(last) if last.1 == new_ids.start => last.1 = new_ids.end,
                    _ => ids.push((new_ids.start, new_ids.end)),
                }
                done = rows.end;
                progress.advance(done as u64);
                let quick = started.elapsed() < BATCH_TIME;
                at_once = if quick { most.min(2 * at_once) } else { (at_once / 2).max(1) };
            }
            // The memory for inserts is full: a compaction merges them into the index and frees it.
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
    let answer = InsertOutput {
        index: arguments.index.display().to_string(),
        inserted: done,
        first_id: ids.first().map_or(0, |(first, _)| *first),
        ids,
        vectors: index.len(),
        compactions,
    };
    let InsertOutput { ids, vectors, .. } = &answer;
    let named: Vec<String> = ids.iter().map(|(first, end)| format!("{first} to {}", end - 1)).collect();
    let compacted = if compactions > 0 { format!(", compacted {compactions} times") } else { String::new() };
    let text = format!(
        "{}: {done} vectors inserted with the ids {}; {vectors} in the index{compacted}",
        answer.index,
        named.join(", ")
    );
    console.answer(&answer, &text)
}
