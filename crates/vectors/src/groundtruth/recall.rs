//! How many of the true neighbours were found.

use super::GroundTruthError;
use crate::IdFile;

/// Mean share of the `k` exact neighbours of each query that are among the `k` found, in 0..=1; `found` holds `k` ids a
/// query, and what follows those is not looked at.
///
/// As big-ann-benchmarks counts: where `exact` has distances, every id as near as the k-th nearest is right,
/// since which of them come first is chance.
///
/// # Errors
/// As [`check_exact`].
pub fn recall(exact: &IdFile, found: &[u32], k: usize, queries: usize) -> Result<f64, GroundTruthError> {
    check_exact(exact, k, queries)?;
    let mut right = 0;
    for (query, row) in found.chunks(k.max(1)).take(queries).enumerate() {
        let mut accepted = exact.ids(query)[..k + ties(exact, query, k)].to_vec();
        accepted.sort_unstable();
        right += row.iter().filter(|&id| accepted.binary_search(id).is_ok()).count();
    }
    Ok(right as f64 / (k * queries).max(1) as f64)
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

/// Exact neighbours after the k-th that are just as near.
fn ties(exact: &IdFile, query: usize, k: usize) -> usize {
    let (Some(distances), Some(last)) = (exact.distances(query), k.checked_sub(1)) else { return 0 };
    distances[k..].iter().take_while(|&&distance| distance <= distances[last]).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_at_the_end_count_as_right() {
        let ids = vec![1, 2, 3, 4];
        let exact = IdFile::from_parts(4, ids.clone(), Some(vec![0.0, 1.0, 1.0, 2.0])).unwrap();
        assert_eq!(recall(&exact, &[1, 3], 2, 1).unwrap(), 1.0);
        assert_eq!(recall(&exact, &[1, 4], 2, 1).unwrap(), 0.5);
        assert_eq!(recall(&exact, &[], 0, 1).unwrap(), 0.0);
        let exact = IdFile::from_parts(4, ids, None).unwrap();
        assert_eq!(recall(&exact, &[1, 3], 2, 1).unwrap(), 0.5);
    }

    #[test]
    fn ground_truth_of_other_queries_is_refused() {
        let exact = IdFile::from_parts(2, vec![1, 2, 3, 4], None).unwrap();
        assert!(recall(&exact, &[1, 2], 2, 1).is_err());
        assert!(recall(&exact, &[1, 2, 3, 4, 5, 6], 3, 2).is_err());
    }
}
