//! The ids of an index from which vectors were deleted: runs of consecutive ids, of vectors in the order of
//! their ids.
//!
//! The file has, for each run, the run's first id and the place of that vector (u32 each), then the id of the
//! next insert and the number of vectors.

use super::loading::load;
use super::manifest::Manifest;
use crate::error::IndexError;
use bathyal_store::Generation;
use std::ops::Range;

/// Name of the file within an index; an index without it has the ids 0, 1, 2, ....
pub const IDS_NAME: &str = "ids.bin";

/// The ids of the vectors of an index, in the order of the vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdRuns {
    /// The first id of each run and its place; the last entry is the end of the last run.
    starts: Vec<(u32, u32)>,
}

impl IdRuns {
    /// Returns the ids 0, 1, 2, ... of `vectors` vectors.
    pub fn all(vectors: u32) -> IdRuns {
        IdRuns { starts: vec![(0, 0), (vectors, vectors)] }
    }

    /// Returns no ids; [`IdRuns::push`] adds to them.
    pub fn none() -> IdRuns {
        IdRuns { starts: vec![(0, 0)] }
    }

    /// Adds a vector, whose `id` is above all ids before it.
    pub fn push(&mut self, id: u32) {
        let Some((next, vectors)) = self.starts.last().copied() else { return };
        if next != id || self.starts.len() == 1 {
            self.starts.pop();
            self.starts.extend([(id, vectors), (id, vectors)]);
        }
        if let Some(end) = self.starts.last_mut() {
            *end = (id + 1, vectors + 1);
        }
    }

    /// Sets the id of the next insert.
    pub fn end(&mut self, next: u32) {
        if let Some(end) = self.starts.last_mut() {
            end.0 = next;
        }
    }

    /// Returns the id of the next insert, which is above all others.
    pub fn next(&self) -> u32 {
        self.starts.last().map_or(0, |end| end.0)
    }

    /// Returns the number of vectors.
    pub fn vectors(&self) -> u32 {
        self.starts.last().map_or(0, |end| end.1)
    }

    /// Returns true if each vector's id is its place, and so will be the next one's.
    pub fn are_places(&self) -> bool {
        *self == IdRuns::all(self.vectors())
    }

    /// Returns the id of the vector at `place`.
    pub fn id(&self, place: u32) -> u32 {
        let run = self.starts.partition_point(|start| start.1 <= place).saturating_sub(1);
        let (id, first) = self.starts[run];
        id + (place - first)
    }

    /// Returns the place of the vector `id`; `None` if there is none.
    pub fn place(&self, id: u32) -> Option<u32> {
        let run = self.starts.partition_point(|start| start.0 <= id).checked_sub(1)?;
        let (first, place) = self.starts[run];
        let count = self.starts.get(run + 1)?.1 - place;
        (id - first < count).then(|| place + (id - first))
    }

    /// Appends the ids of the vectors at `places` to `out`.
    pub fn extend(&self, places: Range<u32>, out: &mut Vec<u32>) {
        out.extend(places.map(|place| self.id(place)));
    }

    /// Returns the bytes of the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.starts.iter().flat_map(|(id, place)| [id.to_le_bytes(), place.to_le_bytes()]).flatten().collect()
    }

    /// Parses the bytes from [`IdRuns::to_bytes`] of `vectors` vectors.
    ///
    /// # Errors
    /// A sentence if the bytes are not the ids of as many vectors.
    pub fn from_bytes(bytes: &[u8], vectors: u64) -> Result<IdRuns, String> {
        let (pairs, rest) = bytes.as_chunks::<8>();
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
        let starts: Vec<(u32, u32)> =
            pairs.iter().map(|pair| (number(&pair[..4]), number(&pair[4..]))).collect();
        let sound = |pair: &[(u32, u32)]| {
            // A run has at least one vector, and an id for each vector.
            pair[0].1 < pair[1].1
                && pair[1].0.checked_sub(pair[0].0).is_some_and(|ids| ids >= pair[1].1 - pair[0].1)
        };
        let ends = starts.first().is_some_and(|first| first.1 == 0)
            && starts.last().is_some_and(|last| u64::from(last.1) == vectors);
        if !rest.is_empty() || starts.len() < 2 || !ends || !starts.windows(2).all(sound) {
            return Err(format!("{} bytes are not the ids of {vectors} vectors", bytes.len()));
        }
        Ok(IdRuns { starts })
    }
}

/// Loads the ids of the vectors of an index.
pub(crate) fn load_ids(directory: &dyn Generation, manifest: &Manifest) -> Result<IdRuns, IndexError> {
    let Ok(file) = manifest.file(IDS_NAME) else { return Ok(IdRuns::all(manifest.vectors as u32)) };
    let bytes = load(directory, manifest, file)?;
    IdRuns::from_bytes(&bytes, manifest.vectors)
        .map_err(|reason| IndexError::damaged(directory.address().join(&file.name), "the ids", reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_that_were_pushed() {
        let mut runs = IdRuns::none();
        let ids = [3, 4, 5, 9, 11, 12];
        ids.iter().for_each(|id| runs.push(*id));
        assert_eq!((runs.next(), runs.vectors(), runs.are_places()), (13, 6, false));
        runs.end(20);
        let mut found = Vec::new();
        runs.extend(0..6, &mut found);
        assert_eq!(found, ids);
        for id in 0..25 {
            let place = ids.iter().position(|held| *held == id).map(|place| place as u32);
            assert_eq!(runs.place(id), place, "{id}");
        }
        assert_eq!(IdRuns::from_bytes(&runs.to_bytes(), 6), Ok(runs.clone()));
        assert!(IdRuns::from_bytes(&runs.to_bytes(), 5).is_err());
        let mut all = IdRuns::none();
        (0..5).for_each(|id| all.push(id));
        assert_eq!((all.are_places(), all == IdRuns::all(5)), (true, true));
        all.end(6);
        assert!(!all.are_places(), "the last were deleted");
    }

    #[test]
    fn invalid_ids_are_refused() {
        let bytes = |pairs: &[(u32, u32)]| IdRuns { starts: pairs.to_vec() }.to_bytes();
        for (pairs, sound) in [
            (&[(0, 0), (5, 5)][..], true),
            (&[(7, 0), (12, 5)], true),
            (&[(0, 0)], false),
            (&[(0, 0), (4, 5)], false),
            (&[(0, 1), (5, 5)], false),
            (&[(0, 0), (3, 3), (2, 4), (9, 5)], false),
            (&[(0, 0), (3, 0), (9, 5)], false),
        ] {
            assert_eq!(IdRuns::from_bytes(&bytes(pairs), 5).is_ok(), sound, "{pairs:?}");
        }
        assert!(IdRuns::from_bytes(&bytes(&[(0, 0), (5, 5)])[..15], 5).is_err());
    }
}
