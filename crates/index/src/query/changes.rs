//! The changes of an index since its build, as searches see them: inserted vectors, in memory, and deleted
//! ids. A search uses the state with which it began.
//!
//! If the index has a smaller stored form (`store_as`), inserted vectors are kept as floats: the scale of the
//! stored form fits the vectors of the build, and inserted ones may be longer. A compaction rounds them with
//! a scale that fits all.

use super::visited::VisitedSet;
use crate::form::Form;
use crate::form::inserted::InsertedRow;
use crate::format::changes::Change;
use crate::format::ids::IdRuns;
use std::sync::Arc;

/// A set of ids or places, with one bit each.
#[derive(Debug, Clone, Default)]
struct BitSet {
    words: Vec<u64>,
}

impl BitSet {
    #[inline]
    fn has(&self, number: u32) -> bool {
        self.words.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Adds a number; returns false if the set has it already.
    fn add(&mut self, number: u32) -> bool {
        let (word, bit) = (number as usize / 64, 1_u64 << (number % 64));
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        new
    }
}

/// A bucket of an index, and the number of a vector in it within its batch of inserts.
pub(crate) type Placed = (u32, u32);

/// A batch of inserted vectors with consecutive ids, in the order of these.
#[derive(Debug)]
struct InsertedBatch {
    /// The first id.
    first: u32,
    /// The vectors in the form of [`InsertedRow`].
    rows: Vec<u8>,
    /// The buckets of the vectors, sorted by bucket.
    placed: Vec<Placed>,
}

impl InsertedBatch {
    fn count(&self, row_bytes: usize) -> u32 {
        (self.rows.len() / row_bytes.max(1)) as u32
    }

    fn bytes(&self) -> u64 {
        (self.rows.len() + self.placed.len() * size_of::<Placed>()) as u64
    }
}

/// All changes up to a moment. Clones share the batches and sets that do not differ.
#[derive(Debug, Clone)]
pub(crate) struct Changes {
    form: Form,
    row_bytes: usize,
    /// The ids of the build.
    built: Arc<IdRuns>,
    /// The id of the next inserted vector.
    next: u32,
    /// Number of vectors that are not deleted.
    vectors: u64,
    inserted: Vec<Arc<InsertedBatch>>,
    deleted: u64,
    deleted_ids: Arc<BitSet>,
    /// The places of deleted vectors of the build; `None` if these are their ids.
    deleted_places: Option<Arc<BitSet>>,
}

impl Changes {
    /// Returns no changes, for an index that was built with these ids and has vectors of `dim` components.
    pub(crate) fn none(built: IdRuns, form: Form, dim: usize) -> Changes {
        let (next, vectors) = (built.next(), u64::from(built.vectors()));
        let deleted_places = (!built.are_places()).then(Arc::default);
        Changes {
            form,
            row_bytes: form.inserted().row_bytes(dim),
            built: Arc::new(built),
            next,
            vectors,
            inserted: Vec::new(),
            deleted: 0,
            deleted_ids: Arc::default(),
            deleted_places,
        }
    }

    /// Adds a change. `place` returns the buckets of vectors, which have the element of [`Form::inserted`].
    ///
    /// # Errors
    /// A sentence if the change is impossible for this index.
    pub(crate) fn apply(
        &mut self,
        change: &Change<'_>,
        place: impl Fn(&[u8]) -> Vec<Placed>,
    ) -> Result<(), String> {
        match change {
            Change::Insert { first, rows } => self.insert(*first, rows, place),
            Change::Delete(ids) => ids.iter().try_for_each(|id| match self.delete(u32::from_le_bytes(*id)) {
                true => Ok(()),
                false => {
                    Err(format!("vector {} is deleted, but there is no such vector", u32::from_le_bytes(*id)))
                }
            }),
        }
    }

    fn insert(
        &mut self,
        first: u32,
        given: &[u8],
        place: impl Fn(&[u8]) -> Vec<Placed>,
    ) -> Result<(), String> {
        let given_bytes = self.form.given().row_bytes(self.form.inserted().components_in(self.row_bytes));
        let count = given.len() / given_bytes.max(1);
        let next = u32::try_from(count).ok().and_then(|count| first.checked_add(count));
        let Some(next) = next.filter(|_| first == self.next) else {
            return Err(format!(
                "{count} vectors are inserted from id {first} on, but the next id is {}",
                self.next
            ));
        };
        let mut rows = vec![0; count * self.row_bytes];
        for (row, out) in given.chunks_exact(given_bytes).zip(rows.chunks_exact_mut(self.row_bytes)) {
            self.form.take_inserted(row, out);
        }
        let mut placed = place(&rows);
        placed.sort_unstable();
        let mut new = InsertedBatch { first, rows, placed };
        // Each batch is at least twice as long as the next, so that there are few batches and each vector is
        // rarely moved.
        while let Some(before) = self.inserted.pop_if(|last| last.rows.len() < 2 * new.rows.len()) {
            new = before.joined(new, self.row_bytes);
        }
        self.inserted.push(Arc::new(new));
        self.next = next;
        self.vectors += count as u64;
        Ok(())
    }

    /// Deletes a vector; returns false if there is none with this id.
    pub(crate) fn delete(&mut self, id: u32) -> bool {
        let place = self.built.place(id);
        if place.is_none() && !(self.built.next()..self.next).contains(&id) || self.is_deleted(id) {
            return false;
        }
        Arc::make_mut(&mut self.deleted_ids).add(id);
        if let (Some(places), Some(place)) = (&mut self.deleted_places, place) {
            Arc::make_mut(places).add(place);
        }
        (self.deleted, self.vectors) = (self.deleted + 1, self.vectors - 1);
        true
    }

    /// Returns the number of vectors that are not deleted.
    pub(crate) fn vectors(&self) -> u64 {
        self.vectors
    }

    /// Returns the id of the next inserted vector.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Returns the numbers of inserted and of deleted vectors since the build.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (u64::from(self.next - self.built.next()), self.deleted)
    }

    /// Returns true if the ids of the build are the rows of the index.
    pub(crate) fn are_rows(&self) -> bool {
        self.built.are_places()
    }

    /// Returns true if there are no changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts() == (0, 0)
    }

    /// Returns the bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        let bits =
            self.deleted_ids.words.len() + self.deleted_places.as_ref().map_or(0, |bits| bits.words.len());
        self.inserted.iter().map(|batch| batch.bytes()).sum::<u64>() + 8 * bits as u64
    }

    /// Returns the place of the vector `id` in the build; `None` if it was inserted, is deleted, or does not
    /// exist.
    pub(crate) fn place(&self, id: u32) -> Option<u32> {
        self.built.place(id).filter(|_| !self.is_deleted(id))
    }

    /// Returns the vector `id` if it was inserted and is not deleted.
    pub(crate) fn inserted_row(&self, id: u32) -> Option<InsertedRow<'_>> {
        let batch = self.inserted.iter().rfind(|batch| batch.first <= id).filter(|_| !self.is_deleted(id))?;
        let rows = batch.rows.get((id - batch.first) as usize * self.row_bytes..)?;
        rows.get(..self.row_bytes).map(InsertedRow)
    }

    /// Returns the ids of the vectors of the build that are not deleted.
    pub(crate) fn built_ids(&self) -> impl Iterator<Item = u32> {
        let built = (0..self.built.vectors()).map(|place| self.built.id(place));
        built.filter(|id| !self.is_deleted(*id))
    }

    /// Returns true if the index has a vector `id` that is not deleted.
    pub(crate) fn has(&self, id: u32) -> bool {
        let existed = self.built.place(id).is_some() || (self.built.next()..self.next).contains(&id);
        existed && !self.is_deleted(id)
    }

    /// Returns true if the vector `id` is deleted.
    #[inline]
    pub(crate) fn is_deleted(&self, id: u32) -> bool {
        self.deleted > 0 && self.deleted_ids.has(id)
    }

    /// Returns true if the vector at `place` in the build is deleted.
    #[inline]
    pub(crate) fn is_place_deleted(&self, place: u32) -> bool {
        self.deleted > 0 && self.deleted_places.as_ref().unwrap_or(&self.deleted_ids).has(place)
    }

    /// Calls `each` with the inserted vectors in the `count` buckets from `first` on that are neither deleted
    /// nor in `seen`.
    pub(crate) fn in_buckets(
        &self,
        (first, count): (u32, u32),
        seen: &mut VisitedSet,
        mut each: impl FnMut(u32, InsertedRow<'_>),
    ) {
        for batch in &self.inserted {
            let begin = batch.placed.partition_point(|placed| placed.0 < first);
            let within = batch.placed[begin..].iter().take_while(|placed| placed.0 - first < count);
            for (_, number) in within {
                let id = batch.first + number;
                if !self.is_deleted(id) && seen.insert(id) {
                    let row = &batch.rows[*number as usize * self.row_bytes..][..self.row_bytes];
                    each(id, InsertedRow(row));
                }
            }
        }
    }

    /// Returns the inserted vectors that are not deleted, in the order of their ids.
    pub(crate) fn inserted(&self) -> impl Iterator<Item = (u32, InsertedRow<'_>)> {
        let rows = self
            .inserted
            .iter()
            .flat_map(|batch| (batch.first..).zip(batch.rows.chunks_exact(self.row_bytes)));
        rows.filter(|(id, _)| !self.is_deleted(*id)).map(|(id, row)| (id, InsertedRow(row)))
    }
}

impl InsertedBatch {
    /// Joins this batch and the `next` one.
    fn joined(self: Arc<InsertedBatch>, next: InsertedBatch, row_bytes: usize) -> InsertedBatch {
        let before = self.count(row_bytes);
        let mut joined = Arc::try_unwrap(self).unwrap_or_else(|shared| InsertedBatch {
            first: shared.first,
            rows: shared.rows.clone(),
            placed: shared.placed.clone(),
        });
        joined.rows.extend_from_slice(&next.rows);
        joined.placed.extend(next.placed.iter().map(|(bucket, number)| (*bucket, number + before)));
        // The list consists of two sorted runs, which the sort merges.
        joined.placed.sort();
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_kernels::{Element, Metric};

    fn changes(built: IdRuns) -> Changes {
        Changes::none(built, Form::as_given(Element::U8, Metric::L2), 2)
    }

    /// Each vector goes into the buckets of its two values.
    fn place(rows: &[u8]) -> Vec<Placed> {
        let rows = (0..).zip(rows.chunks_exact(2));
        rows.flat_map(|(number, row)| [(u32::from(row[0]), number), (u32::from(row[1]), number)]).collect()
    }

    fn found(changes: &Changes, first: u32, count: u32) -> Vec<(u32, Vec<u8>)> {
        let (mut seen, mut found) = (VisitedSet::new(8), Vec::new());
        changes.in_buckets((first, count), &mut seen, |id, row| found.push((id, row.0.to_vec())));
        found.sort();
        found
    }

    #[test]
    fn inserted_vectors_are_in_their_buckets_until_they_are_deleted() {
        let mut changes = changes(IdRuns::all(10));
        let before = changes.clone();
        for (first, row) in (10..).zip([[1, 5], [5, 5], [9, 1], [5, 1], [2, 7], [5, 3]]) {
            changes.apply(&Change::Insert { first, rows: &row }, place).unwrap();
        }
        changes.apply(&Change::Insert { first: 16, rows: &[5, 8, 4, 5] }, place).unwrap();
        let ids = |first, count| found(&changes, first, count).iter().map(|(id, _)| *id).collect::<Vec<_>>();
        assert_eq!(ids(5, 1), [10, 11, 13, 15, 16, 17]);
        assert_eq!(ids(6, 4), [12, 14, 16]);
        assert_eq!(found(&changes, 7, 1), [(14, vec![2, 7])]);
        assert!(changes.inserted.len() <= 3, "few lists");
        assert_eq!((changes.vectors(), changes.counts(), changes.next()), (18, (8, 0), 18));
        assert!(before.is_empty() && found(&before, 0, 256).is_empty(), "an earlier state stays");

        changes.apply(&Change::Delete(&[[3, 0, 0, 0], [13, 0, 0, 0]]), place).unwrap();
        assert_eq!((changes.vectors(), changes.counts()), (16, (8, 2)));
        assert!(changes.is_deleted(3) && changes.is_place_deleted(3) && !changes.is_deleted(4));
        assert_eq!(found(&changes, 5, 1).len(), 5);
        assert_eq!(changes.inserted().map(|(id, _)| id).collect::<Vec<_>>(), [10, 11, 12, 14, 15, 16, 17]);
        for id in [3, 13, 18, 99] {
            assert!(changes.apply(&Change::Delete(&[u32::to_le_bytes(id)]), place).is_err(), "{id}");
        }
        for first in [0, 17, 19] {
            assert!(changes.apply(&Change::Insert { first, rows: &[0, 0] }, place).is_err(), "{first}");
        }
    }

    #[test]
    fn deleted_places_and_deleted_ids_are_distinguished() {
        let mut built = IdRuns::none();
        [2, 3, 7].iter().for_each(|id| built.push(*id));
        built.end(9);
        let mut changes = changes(built);
        assert_eq!((changes.vectors(), changes.next()), (3, 9));
        assert!(!changes.delete(0) && !changes.delete(8), "no vectors have these ids");
        assert!(changes.delete(3) && changes.delete(7) && !changes.delete(7));
        let places =
            |deleted: fn(&Changes, u32) -> bool| (0..9).filter(|n| deleted(&changes, *n)).collect::<Vec<_>>();
        assert_eq!(
            (places(Changes::is_place_deleted), places(Changes::is_deleted)),
            (vec![1, 2], vec![3, 7])
        );
    }
}
