//! How many of the true neighbours were found. Everything that counts recall counts it by this rule.

use super::GroundTruthError;
use crate::{IdFile, NO_ID};
use std::collections::BTreeMap;

/// What a search found of the true neighbours of one query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryRecall {
    /// Found ids that are right.
    pub hits: usize,
    /// What there was to find, at least 1: `k`, or as many neighbours as the query has.
    pub wanted: usize,
}

/// Counts what was found among the first `k` of `found` for one query whose exact neighbours are `truth`, nearest first, at
/// `distances` where these are known. `None` for a query without a neighbour, which no search can answer rightly or wrongly.
///
/// * [`NO_ID`] is a missing id on either side, and counts for nothing. An id that is repeated counts once.
/// * As many ids are wanted as `truth` names, but `k` at most. The first of `truth` are right.
/// * Where there are distances, every id of `truth` as near as the last of these is right, too, since which of them come first is
///   chance. (big-ann-benchmarks counts so.)
/// * Fewer than `k` found ids are misses; what follows the first `k` is not looked at.
pub fn recall_of_query(
    truth: &[u32],
    distances: Option<&[f32]>,
    found: &[u32],
    k: usize,
) -> Option<QueryRecall> {
    // The place of each id of the truth among the different ones.
    let mut places = BTreeMap::new();
    let mut last = None;
    for (at, id) in truth.iter().enumerate().filter(|(_, id)| **id != NO_ID) {
        let place = places.len();
        if let std::collections::btree_map::Entry::Vacant(entry) = places.entry(*id) {
            entry.insert((place, at));
            if place < k {
                last = Some(at);
            }
        }
    }
    let wanted = places.len().min(k);
    let last = last?;
    let near = |at: usize| distances.is_some_and(|distances| distances.get(at) <= distances.get(last));
    let mut right: Vec<u32> = found.iter().take(k).copied().collect();
    right.sort_unstable();
    right.dedup();
    right.retain(|id| places.get(id).is_some_and(|(place, at)| *place < k || near(*at)));
    Some(QueryRecall { hits: right.len(), wanted })
}

/// The mean recall of queries that come block by block: of each query that has neighbours, the share of them that was found.
#[derive(Clone, Debug, Default)]
pub struct MeanRecall {
    /// Hits and queries by what was wanted, so that the mean does not depend on the blocks.
    by_wanted: BTreeMap<usize, (u64, u64)>,
    left_out: usize,
}

impl MeanRecall {
    /// Adds `queries` queries whose exact neighbours are `exact`, and of which a search found `found`, `k` ids each, as
    /// [`recall_of_query`] counts. Ids that `found` does not have are missing.
    ///
    /// # Errors
    /// As [`check_exact`].
    pub fn add(
        &mut self,
        exact: &IdFile,
        found: &[u32],
        k: usize,
        queries: usize,
    ) -> Result<(), GroundTruthError> {
        check_exact(exact, k, queries)?;
        for query in 0..queries {
            let end = found.len().min((query + 1).saturating_mul(k));
            let row = found.get(query.saturating_mul(k)..end).unwrap_or_default();
            match recall_of_query(exact.ids(query), exact.distances(query), row, k) {
                Some(QueryRecall { hits, wanted }) => {
                    let (all_hits, count) = self.by_wanted.entry(wanted).or_default();
                    (*all_hits, *count) = (*all_hits + hits as u64, *count + 1);
                }
                None => self.left_out += 1,
            }
        }
        Ok(())
    }

    /// Mean over the queries that have neighbours, in 0..=1; `None` if none has.
    pub fn mean(&self) -> Option<f64> {
        let count: u64 = self.by_wanted.values().map(|(_, count)| count).sum();
        let shares = self.by_wanted.iter().map(|(wanted, (hits, _))| *hits as f64 / *wanted as f64);
        (count > 0).then(|| shares.sum::<f64>() / count as f64)
    }

    /// Queries without a neighbour, which the mean leaves out.
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

/// [`MeanRecall`] of all queries: of the `k` exact neighbours of each, the share that is among the `k` ids in `found`.
///
/// # Errors
/// As [`check_exact`]; [`GroundTruthError::NoNeighbors`] if no query has a neighbour, or `k` is 0.
pub fn recall(exact: &IdFile, found: &[u32], k: usize, queries: usize) -> Result<f64, GroundTruthError> {
    let mut mean = MeanRecall::default();
    mean.add(exact, found, k, queries)?;
    mean.mean().ok_or_else(|| GroundTruthError::NoNeighbors {
        path: exact.path().display().to_string(),
        k,
        queries,
    })
}

/// Whether recall of a search for `k` neighbours of each of `queries` queries can be counted against `exact`.
///
/// # Errors
/// [`GroundTruthError::OtherQueries`] if `exact` has another number of queries, [`GroundTruthError::FewNeighbors`] if it
/// has fewer than `k` neighbours for each.
pub fn check_exact(exact: &IdFile, k: usize, queries: usize) -> Result<(), GroundTruthError> {
    let path = || exact.path().display().to_string();
    if exact.queries() != queries {
        return Err(GroundTruthError::OtherQueries {
            path: path(),
            held: exact.queries(),
            searched: queries,
        });
    }
    if exact.k() < k {
        return Err(GroundTruthError::FewNeighbors { path: path(), held: exact.k(), searched: k });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ground_truth_of_other_queries_is_refused() {
        let exact = IdFile::from_parts(2, vec![1, 2, 3, 4], None).unwrap();
        assert!(recall(&exact, &[1, 2], 2, 1).is_err());
        assert!(recall(&exact, &[1, 2, 3, 4, 5, 6], 3, 2).is_err());
    }

    #[test]
    fn the_mean_does_not_depend_on_the_blocks() {
        let exact = IdFile::from_parts(3, vec![1, 2, 3, 4, NO_ID, NO_ID, 5, 6, NO_ID], None).unwrap();
        let found = [1, 9, 2, 4, 9, 8, 5, 7, 8];
        let whole = recall(&exact, &found, 3, 3).unwrap();
        let mut parts = MeanRecall::default();
        for query in 0..3 {
            parts.add(&exact.slice(query..query + 1).unwrap(), &found[3 * query..][..3], 3, 1).unwrap();
        }
        assert_eq!((parts.mean(), parts.left_out()), (Some(whole), 0));
        assert!((whole - (2.0 / 3.0 + 1.0 + 0.5) / 3.0).abs() < 1e-12);
    }

    #[test]
    fn nothing_asked_and_nothing_to_find_have_no_recall() {
        let exact = IdFile::from_parts(2, vec![NO_ID; 4], None).unwrap();
        let error = recall(&exact, &[1, 2, 3, 4], 2, 2).unwrap_err().to_string();
        assert!(error.contains("2 queries"), "{error}");
        let exact = IdFile::from_parts(2, vec![1, 2], None).unwrap();
        assert!(recall(&exact, &[], 0, 1).is_err());
        assert_eq!(recall(&exact, &[], 2, 1).unwrap(), 0.0);
    }
}
