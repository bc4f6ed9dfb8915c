//! The exact neighbours of queries among the current vectors of an open index: ground truth without the file
//! of the vectors.

use super::Index;
use super::control::{check_control, with_control};
use super::pool::RawQueries;
use super::scan::SetScan;
use crate::error::IndexError;
use crate::query::changes::Changes;
use crate::query::{NO_ID, RowSet};
use bathyal_kernels::{Neighbor, TopK};
use bathyal_tier::Control;
use bathyal_vectors::progress::Progress;
use bathyal_vectors::{IdFile, VectorFile};

impl Index {
    /// Finds the exact `k` nearest of the current vectors for all queries, or all of them if there are fewer,
    /// by one pass over the index. Of equal distances the smaller id comes first.
    ///
    /// Vectors are compared as they are stored, as answers are; a stored form that is smaller than the data
    /// (`store_as`) differs from these a little. If the memory budget has no space for the neighbours of all
    /// queries, there are several passes.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for queries that do not fit the index, and if there is nothing to find;
    /// damage and device errors; [`IndexError::Memory`]; [`IndexError::Cancelled`].
    pub fn exact_neighbors(
        &self,
        queries: &VectorFile,
        k: usize,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<IdFile, IndexError> {
        self.check_process()?;
        self.check_queries(queries, 0..queries.count())?;
        if let Some(in_place) = self.loaded.opened().in_place() {
            // Others may have inserted vectors since the counts were read.
            in_place.refresh()?;
        }
        let k = k.min(self.len());
        if k == 0 {
            return Err(self.stored.refusal("no exact neighbours: k is 0, or the index holds no vectors"));
        }
        let queries = RawQueries::from_range(&self.in_own_element(queries), 0..queries.count());
        with_control(progress, |control| {
            self.wait(control)?;
            self.true_neighbors(&queries, k, threads, control, progress)
        })
    }

    /// Finds the `k` nearest vectors of each query. An index that others change in place may hold fewer;
    /// [`NO_ID`] then stands for the others.
    pub(super) fn true_neighbors(
        &self,
        queries: &RawQueries,
        k: usize,
        threads: usize,
        control: Control<'_>,
        progress: &dyn Progress,
    ) -> Result<IdFile, IndexError> {
        progress.stage("exact neighbours", queries.count as u64);
        let changes = self.changing.as_ref().map(|changing| changing.now());
        let (set, threads) = (self.current_ids(changes.as_deref()), super::thread_count(threads));
        let scan = SetScan { k, set: &set, whole: true, threads, control, pace: None, progress };
        let (mut ids, mut distances) = (Vec::new(), Vec::new());
        self.scan_set(queries, &scan, |_, pass| {
            for near in pass.nearest {
                let missing = k - near.len();
                ids.extend(near.iter().map(|near| near.id).chain(std::iter::repeat_n(NO_ID, missing)));
                let far = std::iter::repeat_n(f32::INFINITY, missing);
                distances.extend(near.iter().map(|near| near.distance).chain(far));
            }
        })?;
        if let Some(changes) = changes.filter(|changes| changes.counts().0 > 0) {
            self.add_inserted(queries, k, &changes, (&mut ids, &mut distances), control)?;
        }
        progress.advance(queries.count as u64);
        Ok(IdFile::from_parts(k, ids, Some(distances))?)
    }

    /// Returns the ids of the vectors in the files of the index that are not deleted. If others change these
    /// files, returns all ids that there may be.
    fn current_ids(&self, changes: Option<&Changes>) -> RowSet {
        match changes {
            Some(changes) => RowSet::from_ids(self.next_id(), changes.built_ids()),
            None => RowSet::all(self.next_id()),
        }
    }

    /// Merges the vectors that were inserted since the build into the neighbours.
    fn add_inserted(
        &self,
        queries: &RawQueries,
        k: usize,
        changes: &Changes,
        (ids, distances): (&mut [u32], &mut [f32]),
        control: Control<'_>,
    ) -> Result<(), IndexError> {
        let rows = self.loaded.opened().rows();
        let set = rows.set();
        let (mut floats, mut prepared) = (vec![0.0; set.dim], Vec::new());
        for (number, (ids, distances)) in ids.chunks_mut(k).zip(distances.chunks_mut(k)).enumerate() {
            check_control(control)?;
            let query = queries.row(number);
            set.form.floats(query, &mut floats);
            set.form.query(query, &floats, &mut prepared);
            let mut nearest = TopK::new(k);
            let built = ids.iter().zip(distances.iter()).filter(|(id, _)| **id != NO_ID);
            built.for_each(|(id, distance)| {
                nearest.push(*id, *distance);
            });
            for (id, row) in changes.inserted() {
                nearest.push(id, set.exact_inserted.between(&prepared, row.0));
            }
            for (at, Neighbor { id, distance }) in nearest.into_sorted().into_iter().enumerate() {
                (ids[at], distances[at]) = (id, distance);
            }
        }
        Ok(())
    }
}
