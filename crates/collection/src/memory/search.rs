//! Search in memory: rows are compared one by one, those that came together by all queries at once.

use super::Memory;
use crate::error::CollectionError;
use crate::schema::VectorField;
use crate::together::together;
use bathyal_index::RowSet;
use bathyal_kernels::{Distance, Neighbor, Rows, TopK};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Bytes of vectors that all queries of a thread are compared with before the next: they stay in its cache meanwhile.
const BLOCK_BYTES: usize = 256 << 10;
/// Bytes of vectors, compared with a query, below which a second thread is not worth its start.
const LEAST_BYTES: u64 = 2 << 20;
/// Parts for each thread, so that all threads end together.
const PARTS_A_THREAD: usize = 4;
/// Queries that are compared at the same time, at most.
const MOST_QUERIES: usize = 64;

/// What is searched for in memory.
pub(crate) struct MemoryQuery<'a> {
    /// The vectors of which field.
    pub(crate) field: usize,
    /// That field.
    pub(crate) shape: &'a VectorField,
    /// As vectors of the field are given.
    pub(crate) queries: &'a VectorFile,
    /// Neighbours of each.
    pub(crate) k: usize,
    /// Threads; at least 1.
    pub(crate) threads: usize,
    /// What ends it.
    pub(crate) control: Control<'a>,
}

/// Rows of a chunk whose vectors lie one after the other and fit into a thread's cache.
struct Block<'a> {
    /// The number of the first in memory.
    first: u32,
    rows: usize,
    bytes: &'a [u8],
}

impl Memory {
    /// The nearest of the rows `within` to each query, the nearest first: as many as there are, up to k.
    pub(crate) fn search(
        &self,
        query: &MemoryQuery<'_>,
        within: &RowSet,
    ) -> Result<Vec<Vec<Neighbor>>, CollectionError> {
        let blocks = self.blocks(query)?;
        let count = query.queries.count();
        let bytes = blocks.iter().map(|block| block.bytes.len() as u64).sum::<u64>() * count as u64;
        let threads = if bytes < LEAST_BYTES { 1 } else { query.threads };
        let parts = if threads == 1 { 1 } else { PARTS_A_THREAD * threads };
        // Few queries are answered together, over rows that are dealt out.
        let step = count.div_ceil(parts).clamp(1, MOST_QUERIES);
        let spans = if count < threads { parts.min(blocks.len()) } else { 1 };
        let span = blocks.len().div_ceil(spans.max(1)).max(1);
        let some: Vec<Range<usize>> =
            (0..count).step_by(step).map(|first| first..(first + step).min(count)).collect();
        let spans: Vec<&[Block<'_>]> = blocks.chunks(span).collect();
        let found = together(some.len() * spans.len(), threads, |number| {
            let (part, span) = (number / spans.len(), number % spans.len());
            search_some(query, some[part].clone(), spans[span], within)
        })?;
        let mut lists = vec![Vec::new(); count];
        for (number, part) in found.into_iter().enumerate() {
            let own = &mut lists[some[number / spans.len()].clone()];
            own.iter_mut().zip(part).for_each(|(list, more)| list.extend(more));
        }
        if spans.len() > 1 {
            for list in &mut lists {
                list.sort_unstable();
                list.truncate(query.k);
            }
        }
        Ok(lists)
    }

    fn blocks(&self, query: &MemoryQuery<'_>) -> Result<Vec<Block<'_>>, CollectionError> {
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

/// The nearest to some of the queries in some blocks.
fn search_some(
    query: &MemoryQuery<'_>,
    some: Range<usize>,
    blocks: &[Block<'_>],
    within: &RowSet,
) -> Result<Vec<Vec<Neighbor>>, CollectionError> {
    let MemoryQuery { shape, queries, k, control, .. } = query;
    let distance = Distance::new(shape.element, shape.metric, shape.dim);
    let mut lists: Vec<TopK> = some.clone().map(|_| TopK::new(*k)).collect();
    let (mut scores, mut chosen) = (Vec::new(), Vec::new());
    let everywhere = within.count() == within.rows();
    for block in blocks {
        check(control)?;
        chosen.clear();
        let there = (0..block.rows as u32).filter(|row| everywhere || within.has(block.first + row));
        chosen.extend(there);
        let all = chosen.len() == block.rows;
        scores.resize(chosen.len(), 0.0);
        for (number, list) in some.clone().zip(&mut lists) {
            let row = queries.row(number);
            match all {
                true => distance.score_block(row, block.bytes, &mut scores),
                false => {
                    let stride = distance.row_bytes();
                    distance.score(row, Rows { bytes: block.bytes, stride }, &chosen, &mut scores);
                }
            }
            let mut worst = list.threshold();
            for (row, score) in chosen.iter().zip(&scores) {
                // Most are farther than all that were found.
                if *score <= worst && list.push(block.first + row, *score) {
                    worst = list.threshold();
                }
            }
        }
    }
    Ok(lists.into_iter().map(TopK::into_sorted).collect())
}

/// Ends what its caller does not want any more.
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

    /// Vectors of few values, so that many are equally far.
    fn vectors(rows: Range<u64>) -> VectorFile {
        let value = |row: u64, at: u64| (row.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (8 + at % 40)) as u8 & 3;
        let bytes = rows.flat_map(|row| (0..DIM as u64).map(move |at| value(row, at))).collect();
        VectorFile::from_rows(Element::U8, DIM, bytes).unwrap()
    }

    #[test]
    fn few_and_many_queries_find_on_any_number_of_threads_what_comparing_all_finds() {
        let shape = VectorField::new("v", DIM, Element::U8, Metric::L2);
        let schema = Schema { id_kind: IdKind::Number, vectors: vec![shape.clone()], columns: Vec::new() };
        let mut memory = Memory::default();
        // More than a thread is worth its start for, in chunks of several sizes.
        let sizes = [30_000_u64, 11_000, 3_000, 1];
        let mut first = 0;
        for size in sizes {
            let ids = Ids::Numbers((first..first + size).collect::<Vec<_>>().into());
            let rows =
                crate::rows::Rows::new(&schema, ids, vec![vectors(first..first + size)], None).unwrap();
            memory.push(&rows).unwrap();
            first += size;
        }
        let all = vectors(0..first);
        assert!(all.rows(0..first as usize).unwrap().len() as u64 > LEAST_BYTES);
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
                        MemoryQuery { field: 0, shape: &shape, queries: &queries, k, threads, control };
                    assert_eq!(memory.search(&query, &within).unwrap(), expected, "{count} {k} {threads}");
                }
            }
        }
        let none = Memory::default();
        let (queries, control) = (vectors(0..2), Control::default());
        let query = MemoryQuery { field: 0, shape: &shape, queries: &queries, k: 3, threads: 4, control };
        assert_eq!(none.search(&query, &RowSet::all(0)).unwrap(), vec![Vec::new(), Vec::new()]);
    }
}
