//! Recall: the share of the true neighbours that a search found. All counts of recall follow this rule.

use super::GroundTruthError;
use crate::{IdFile, NO_ID};
use std::collections::BTreeMap;

/// Counts of one query: true neighbours that a search found, and true neighbours that it could find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryRecall {
    /// Found ids that are correct.
    pub hits: usize,
    /// Number of ids to find, at least 1: `k`, or the number of neighbours of the query if that is smaller.
    pub wanted: usize,
}

/// Counts the hits among the first `k` ids of `found` for one query with the exact neighbours `truth`,
/// nearest first, at `distances` if these are known. `None` for a query without a neighbour.
///
/// * [`NO_ID`] is a missing id on either side and is not counted. A repeated id counts once.
/// * The number of wanted ids is the number of ids in `truth`, but at most `k`. The first ids of `truth` are
///   correct.
/// * If `distances` are given, every id of `truth` as near as the last wanted one is correct, too, since the
///   order of equal distances is arbitrary. (big-ann-benchmarks counts in the same way.)
/// * Missing found ids are misses. Ids after the first `k` are ignored.
pub fn recall_of_query(
    truth: &[u32],
    distances: Option<&[f32]>,
    found: &[u32],
    k: usize,
) -> Option<QueryRecall> {
    // For each id of the truth: its rank among the distinct ids, and its position.
    let mut ranks = BTreeMap::new();
    let mut last = None;
    for (at, id) in truth.iter().enumerate().filter(|(_, id)| **id != NO_ID) {
        let rank = ranks.len();
        if let std::collections::btree_map::Entry::Vacant(entry) = ranks.entry(*id) {
            entry.insert((rank, at));
            if rank < k {
                last = Some(at);
            }
        }
    }
    let wanted = ranks.len().min(k);
    let last = last?;
    let is_tied = |at: usize| distances.is_some_and(|distances| distances.get(at) <= distances.get(last));
    let mut hits: Vec<u32> = found.iter().take(k).copied().collect();
    hits.sort_unstable();
    hits.dedup();
    hits.retain(|id| ranks.get(id).is_some_and(|(rank, at)| *rank < k || is_tied(*at)));
    Some(QueryRecall { hits: hits.len(), wanted })
}

/// The mean recall of queries, added block by block. The recall of a query is the share of its neighbours
/// that was found.
#[derive(Clone, Debug, Default)]
pub struct MeanRecall {
    /// Hits and queries by the number of wanted ids, so that the mean does not depend on the blocks.
    by_wanted: BTreeMap<usize, (u64, u64)>,
    left_out: usize,
}

impl MeanRecall {
    /// Adds `queries` queries with the exact neighbours `exact`, for which a search found `found` (`queries x
    /// k` ids, row-major). Counts by [`recall_of_query`]. Ids that are not in `found` are missing.
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

    /// Returns the mean over the queries that have neighbours, in 0..=1; `None` if none has.
    pub fn mean(&self) -> Option<f64> {
        let count: u64 = self.by_wanted.values().map(|(_, count)| count).sum();
        let shares = self.by_wanted.iter().map(|(wanted, (hits, _))| *hits as f64 / *wanted as f64);
        (count > 0).then(|| shares.sum::<f64>() / count as f64)
    }

    /// Returns the number of queries without a neighbour. The mean leaves them out.
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

/// Returns the [`MeanRecall`] of all queries: the share of the `k` exact neighbours of each that is among its
/// `k` ids in `found` (`queries x k`, row-major).
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

/// Checks that `exact` is ground truth for a search for `k` neighbours of each of `queries` queries.
///
/// # Errors
/// [`GroundTruthError::OtherQueries`] if `exact` has another number of queries,
/// [`GroundTruthError::FewNeighbors`] if it has fewer than `k` neighbours of each.
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
    fn recall_is_undefined_without_true_neighbours_or_with_k_0() {
        let exact = IdFile::from_parts(2, vec![NO_ID; 4], None).unwrap();
        let error = recall(&exact, &[1, 2, 3, 4], 2, 2).unwrap_err().to_string();
        assert!(error.contains("2 queries"), "{error}");
        let exact = IdFile::from_parts(2, vec![1, 2], None).unwrap();
        assert!(recall(&exact, &[], 0, 1).is_err());
        assert_eq!(recall(&exact, &[], 2, 1).unwrap(), 0.0);
    }
}
