//! Exact answers: all rows are compared, in segments and in memory.

use super::LocatedNeighbor;
use crate::error::CollectionError;
use crate::memtable::MemTableQuery;
use crate::parallel::thread_count;
use crate::state::{Located, State};
use bathyal_index::RowSet;
use bathyal_index::audit::Pace;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use std::sync::Arc;

/// How exact answers are computed.
#[derive(Clone, Copy)]
pub(super) enum ExactWork<'a> {
    /// In the background, on this thread alone, with pauses.
    Paced(&'a Pace<'a>),
    /// With this number of threads; 0 means one per core.
    Threads(usize, Control<'a>),
}

impl<'a> ExactWork<'a> {
    fn control(self) -> Control<'a> {
        match self {
            ExactWork::Paced(pace) => pace.control(),
            ExactWork::Threads(_, control) => control,
        }
    }
}

/// Queries of one vector field, to be answered exactly.
pub(super) struct ExactQuery<'a> {
    pub(super) field: usize,
    pub(super) queries: &'a VectorFile,
    pub(super) k: usize,
    pub(super) work: ExactWork<'a>,
}

/// The nearest rows of each query, nearest first.
pub(super) type ExactRows = Vec<Vec<(Located, f32)>>;

impl State {
    /// Finds the nearest rows of each query by comparing all rows of `sets`, one for each part. Also returns
    /// the bytes read.
    pub(super) fn exact_rows(
        &self,
        query: &ExactQuery<'_>,
        sets: &[Arc<RowSet>],
    ) -> Result<(ExactRows, u64), CollectionError> {
        let ExactQuery { field, queries, k, work } = *query;
        let (mut lists, mut bytes) = (vec![Vec::<LocatedNeighbor>::new(); queries.count()], 0);
        for (part, set) in (0_u32..).zip(sets).filter(|(_, set)| set.count() > 0) {
            let near = |row: u32, distance: f32| (distance, Located { part, row });
            if let Some(memtable) = self.memtable_of(part) {
                let (shape, control) = (&self.schema().vectors[field], work.control());
                let threads = match work {
                    ExactWork::Paced(_) => 1,
                    ExactWork::Threads(threads, _) => thread_count(threads),
                };
                let query = MemTableQuery { field, shape, queries, k, threads, control };
                for (list, found) in lists.iter_mut().zip(memtable.search(&query, set)?) {
                    list.extend(found.into_iter().map(|one| near(one.id, one.distance)));
                }
                if let ExactWork::Paced(pace) = work {
                    pace.step();
                }
                continue;
            }
            let index = self.segments[part as usize].segment.index_for_search(field)?;
            let exact = match work {
                ExactWork::Paced(pace) => index.exact_within(queries, k, set, pace)?,
                ExactWork::Threads(threads, control) => {
                    index.exact_among(queries, k, (set, threads), control)?
                }
            };
            bytes += exact.bytes;
            for (list, found) in lists.iter_mut().zip(exact.nearest) {
                list.extend(found.into_iter().map(|(row, distance)| near(row, distance)));
            }
        }
        let nearest = lists.into_iter().map(|mut list| {
            list.sort_unstable_by(|(one, a), (other, b)| one.total_cmp(other).then(a.cmp(b)));
            list.truncate(k);
            list.into_iter().map(|(distance, row)| (row, distance)).collect()
        });
        Ok((nearest.collect(), bytes))
    }
}
