//! Search in memory: rows are compared one by one, those that came together by all queries at once.

use super::Memory;
use crate::error::CollectionError;
use crate::schema::VectorField;
use bathyal_index::RowSet;
use bathyal_kernels::{Distance, Neighbor, Rows, TopK};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Bytes of vectors that all queries of a thread are compared with before the next: they stay in its cache meanwhile.
const BLOCK_BYTES: usize = 256 << 10;
/// Distances below which a second thread is not worth its start.
const LEAST_DISTANCES: u64 = 1 << 16;

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

impl Memory {
    /// The nearest of the rows `within` to each query, the nearest first: as many as there are, up to k.
    pub(crate) fn search(
        &self,
        query: &MemoryQuery<'_>,
        within: &RowSet,
    ) -> Result<Vec<Vec<Neighbor>>, CollectionError> {
        let count = query.queries.count();
        let distances = u64::from(self.rows) * count as u64;
        let threads = if distances < LEAST_DISTANCES { 1 } else { query.threads.clamp(1, count) };
        let next = AtomicUsize::new(0);
        let step = count.div_ceil(4 * threads).clamp(1, 64);
        let worker = || {
            let mut found = Vec::new();
            loop {
                let first = next.fetch_add(step, Ordering::Relaxed);
                if first >= count {
                    return Ok(found);
                }
                let some = first..(first + step).min(count);
                found.push((first, self.search_some(query, some, within)?));
            }
        };
        let parts: Vec<Result<Vec<_>, CollectionError>> = if threads == 1 {
            vec![worker()]
        } else {
            std::thread::scope(|scope| {
                let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
                let lost =
                    || Err(CollectionError::Internal("a thread of a search in memory has ended".into()));
                workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| lost())).collect()
            })
        };
        let mut found = vec![Vec::new(); count];
        for part in parts {
            for (first, lists) in part? {
                lists.into_iter().enumerate().for_each(|(at, list)| found[first + at] = list);
            }
        }
        Ok(found)
    }

    fn search_some(
        &self,
        query: &MemoryQuery<'_>,
        some: std::ops::Range<usize>,
        within: &RowSet,
    ) -> Result<Vec<Vec<Neighbor>>, CollectionError> {
        let MemoryQuery { field, shape, queries, k, control, .. } = query;
        let distance = Distance::new(shape.element, shape.metric, shape.dim);
        let block = (BLOCK_BYTES / shape.row_bytes().max(1)).max(1);
        let mut lists: Vec<TopK> = some.clone().map(|_| TopK::new(*k)).collect();
        let (mut scores, mut chosen) = (Vec::new(), Vec::new());
        for chunk in &self.chunks {
            let vectors = &chunk.rows().vectors()[*field];
            for begin in (0..vectors.count()).step_by(block) {
                check(control)?;
                let rows = begin..(begin + block).min(vectors.count());
                let first = chunk.first() + begin as u32;
                chosen.clear();
                chosen.extend((0..rows.len() as u32).filter(|row| within.has(first + row)));
                let bytes = vectors.rows(rows.clone()).ok_or_else(|| {
                    CollectionError::Internal("vectors in memory that do not lie one after the other".into())
                })?;
                let all = chosen.len() == rows.len();
                scores.resize(chosen.len(), 0.0);
                for (number, list) in some.clone().zip(&mut lists) {
                    let row = queries.row(number);
                    match all {
                        true => distance.score_block(row, bytes, &mut scores),
                        false => {
                            let stride = distance.row_bytes();
                            distance.score(row, Rows { bytes, stride }, &chosen, &mut scores);
                        }
                    }
                    for (row, score) in chosen.iter().zip(&scores) {
                        list.push(first + row, *score);
                    }
                }
            }
        }
        Ok(lists.into_iter().map(TopK::into_sorted).collect())
    }
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
