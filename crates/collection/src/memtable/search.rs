//! Search in memory: compares queries with each row. All queries of a thread are compared with the same block
//! of rows before the next block.

use super::MemTable;
use crate::error::CollectionError;
use crate::parallel::run_parallel;
use crate::schema::VectorField;
use bathyal_index::RowSet;
use bathyal_kernels::{Distance, Neighbor, Rows, TopK};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Bytes of vectors in a block, so that it stays in the cache of the thread that compares all its queries
/// with it.
const BLOCK_BYTES: usize = 256 << 10;
/// Bytes of vectors, times queries, below which starting a second thread does not pay.
const MIN_PARALLEL_BYTES: u64 = 2 << 20;
/// Parts of the work for each thread; several, so that all threads end at about the same time.
const PARTS_PER_THREAD: usize = 4;
/// The most queries of a part.
const MAX_PART_QUERIES: usize = 64;

/// A search in a memtable.
pub(crate) struct MemTableQuery<'a> {
    /// Number of the vector field.
    pub(crate) field: usize,
    /// The vector field.
    pub(crate) shape: &'a VectorField,
    /// The queries, in the field's element and dimension.
    pub(crate) queries: &'a VectorFile,
    /// Neighbours of each query.
    pub(crate) k: usize,
    /// Number of threads; at least 1.
    pub(crate) threads: usize,
    /// Cancellation and deadline.
    pub(crate) control: Control<'a>,
}

/// Consecutive rows of a chunk. Their vectors are contiguous and fit into a thread's cache.
struct Block<'a> {
    /// Number of its first row.
    first: u32,
    rows: usize,
    bytes: &'a [u8],
}

impl MemTable {
    /// Returns up to k nearest rows of `within` for each query, nearest first.
    pub(crate) fn search(
        &self,
        query: &MemTableQuery<'_>,
        within: &RowSet,
    ) -> Result<Vec<Vec<Neighbor>>, CollectionError> {
        let blocks = self.blocks(query)?;
        let count = query.queries.count();
        let bytes = blocks.iter().map(|block| block.bytes.len() as u64).sum::<u64>() * count as u64;
        let threads = if bytes < MIN_PARALLEL_BYTES { 1 } else { query.threads };
        let parts = if threads == 1 { 1 } else { PARTS_PER_THREAD * threads };
        // With fewer queries than threads, the rows are divided among the threads.
        let step = count.div_ceil(parts).clamp(1, MAX_PART_QUERIES);
        let spans = if count < threads { parts.min(blocks.len()) } else { 1 };
        let span = blocks.len().div_ceil(spans.max(1)).max(1);
        let query_ranges: Vec<Range<usize>> =
            (0..count).step_by(step).map(|first| first..(first + step).min(count)).collect();
        let spans: Vec<&[Block<'_>]> = blocks.chunks(span).collect();
        let found = run_parallel(query_ranges.len() * spans.len(), threads, |number| {
            let (part, span) = (number / spans.len(), number % spans.len());
            search_part(query, query_ranges[part].clone(), spans[span], within)
        })?;
        let mut lists = vec![Vec::new(); count];
        for (number, part) in found.into_iter().enumerate() {
            let part_lists = &mut lists[query_ranges[number / spans.len()].clone()];
            part_lists.iter_mut().zip(part).for_each(|(list, more)| list.extend(more));
        }
        if spans.len() > 1 {
            for list in &mut lists {
                list.sort_unstable();
                list.truncate(query.k);
            }
        }
        Ok(lists)
    }

    fn blocks(&self, query: &MemTableQuery<'_>) -> Result<Vec<Block<'_>>, CollectionError> {
        let most = (BLOCK_BYTES / query.shape.row_bytes().max(1)).max(1);
        let mut blocks = Vec::new();
        for chunk in &self.chunks {
            let vectors = &chunk.rows().vectors()[query.field];
            for begin in (0..vectors.count()).step_by(most) {
                let rows = begin..(begin + most).min(vectors.count());
                let bytes = vectors.rows(rows.clone()).ok_or_else(|| {
                    CollectionError::Internal("vectors in memory that do not lie one after the other".into())
                })?;
                blocks.push(Block { first: chunk.first() + begin as u32, rows: rows.len(), bytes });
            }
        }
        Ok(blocks)
    }
}

/// Returns the nearest rows in `blocks` to the queries `some`.
fn search_part(
    query: &MemTableQuery<'_>,
    query_range: Range<usize>,
    blocks: &[Block<'_>],
    within: &RowSet,
) -> Result<Vec<Vec<Neighbor>>, CollectionError> {
    let MemTableQuery { shape, queries, k, control, .. } = query;
    let distance = Distance::new(shape.element, shape.metric, shape.dim);
    let mut lists: Vec<TopK> = query_range.clone().map(|_| TopK::new(*k)).collect();
    let (mut scores, mut selected) = (Vec::new(), Vec::new());
    let all_rows = within.count() == within.rows();
    for block in blocks {
        check(control)?;
        selected.clear();
        let rows = (0..block.rows as u32).filter(|row| all_rows || within.has(block.first + row));
        selected.extend(rows);
        let all = selected.len() == block.rows;
        scores.resize(selected.len(), 0.0);
        for (number, list) in query_range.clone().zip(&mut lists) {
            let row = queries.row(number);
            match all {
                true => distance.score_block(row, block.bytes, &mut scores),
                false => {
                    let stride = distance.row_bytes();
                    distance.score(row, Rows { bytes: block.bytes, stride }, &selected, &mut scores);
                }
            }
            let mut worst = list.threshold();
            for (row, score) in selected.iter().zip(&scores) {
                // Most rows are farther than the current neighbours.
                if *score <= worst && list.push(block.first + row, *score) {
                    worst = list.threshold();
                }
            }
        }
    }
    Ok(lists.into_iter().map(TopK::into_sorted).collect())
}

/// Returns an error if the caller has cancelled, or if the deadline has passed.
pub(crate) fn check(control: &Control<'_>) -> Result<(), CollectionError> {
    if control.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
        return Err(CollectionError::Cancelled);
    }
    match control.deadline {
        Some(deadline) if Instant::now() >= deadline => Err(CollectionError::Deadline),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{IdKind, Ids};
    use crate::schema::Schema;
    use bathyal_kernels::{Element, Metric};

    const DIM: usize = 64;

    /// Vectors with few different values, so that many distances are equal.
    fn vectors(rows: Range<u64>) -> VectorFile {
        let value = |row: u64, at: u64| (row.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (8 + at % 40)) as u8 & 3;
        let bytes = rows.flat_map(|row| (0..DIM as u64).map(move |at| value(row, at))).collect();
        VectorFile::from_rows(Element::U8, DIM, bytes).unwrap()
    }

    #[test]
    fn any_number_of_queries_and_threads_finds_the_true_neighbours() {
        let shape = VectorField::new("v", DIM, Element::U8, Metric::L2);
        let schema = Schema { id_kind: IdKind::Number, vectors: vec![shape.clone()], columns: Vec::new() };
        let mut memtable = MemTable::default();
        // More rows than one thread handles, in chunks of several sizes.
        let sizes = [30_000_u64, 11_000, 3_000, 1];
        let mut first = 0;
        for size in sizes {
            let ids = Ids::Numbers((first..first + size).collect::<Vec<_>>().into());
            let rows =
                crate::rows::Rows::new(&schema, ids, vec![vectors(first..first + size)], None).unwrap();
            memtable.push(&rows).unwrap();
            first += size;
        }
        let all = vectors(0..first);
        assert!(all.rows(0..first as usize).unwrap().len() as u64 > MIN_PARALLEL_BYTES);
        let deleted = RowSet::from_ids(first as u32, (0..first as u32).filter(|row| row % 7 != 3));
        let distance = Distance::new(Element::U8, Metric::L2, DIM);
        for within in
            [RowSet::all(first as u32), deleted, RowSet::from_ids(first as u32, [5, 44_000].into_iter())]
        {
            for (count, k) in [(1, 10), (3, 1), (130, 4)] {
                let queries = vectors(1 << 40..(1 << 40) + count);
                let expected: Vec<Vec<Neighbor>> = (0..count as usize)
                    .map(|query| {
                        let mut list: Vec<Neighbor> = within
                            .iter()
                            .map(|id| {
                                let mut score = [0.0];
                                distance.score_block(queries.row(query), all.row(id as usize), &mut score);
                                Neighbor { distance: score[0], id }
                            })
                            .collect();
                        list.sort_unstable();
                        list.truncate(k);
                        list
                    })
                    .collect();
                for threads in [1, 2, 5] {
                    let control = Control::default();
                    let query =
                        MemTableQuery { field: 0, shape: &shape, queries: &queries, k, threads, control };
                    assert_eq!(memtable.search(&query, &within).unwrap(), expected, "{count} {k} {threads}");
                }
            }
        }
        let empty = MemTable::default();
        let (queries, control) = (vectors(0..2), Control::default());
        let query = MemTableQuery { field: 0, shape: &shape, queries: &queries, k: 3, threads: 4, control };
        assert_eq!(empty.search(&query, &RowSet::all(0)).unwrap(), vec![Vec::new(), Vec::new()]);
    }
}
