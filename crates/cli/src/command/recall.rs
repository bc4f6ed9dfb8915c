//! How many of the true neighbours were found.

use std::path::Path;

use bathyal_index::Index;
use bathyal_vectors::IdFile;

use crate::failure::Failure;

/// Mean share of the `k` exact neighbours of each query that are among the `k` found, in 0..=1.
///
/// As big-ann-benchmarks counts: where `exact` has distances, every id as near as the k-th nearest is right,
/// since which of them come first is chance.
///
/// # Errors
/// If `exact` has another number of queries than were searched, or fewer than `k` neighbours for each.
pub(super) fn recall(exact: &IdFile, found: &[u32], k: usize, queries: usize) -> Result<f64, Failure> {
    check(exact, k, queries)?;
    let mut right = 0;
    for (query, row) in found.chunks(k.max(1)).enumerate() {
        let mut accepted = exact.ids(query)[..k + ties(exact, query, k)].to_vec();
        accepted.sort_unstable();
        right += row.iter().filter(|&id| accepted.binary_search(id).is_ok()).count();
    }
    Ok(right as f64 / (k * queries).max(1) as f64)
}

/// Opens the exact neighbours `path` for a search of `index` for `k` neighbours of each of `queries` queries.
///
/// # Errors
/// What is wrong with the file, or what does not agree with the search.
pub(super) fn open(path: &Path, index: &Index, k: usize, queries: usize) -> Result<IdFile, Failure> {
    let exact = IdFile::open(path)?;
    check(&exact, k, queries)?;
    exact.check_ids(index.len())?;
    Ok(exact)
}

fn check(exact: &IdFile, k: usize, queries: usize) -> Result<(), Failure> {
    let path = exact.path().display();
    if exact.queries() != queries {
        return Err(Failure::new(format!(
            "{path}: holds the neighbours of {} queries, but {queries} are searched; \
             give the ground truth of these queries",
            exact.queries()
        )));
    }
    if exact.k() < k {
        return Err(Failure::new(format!(
            "{path}: holds {} neighbours a query, but {k} are searched; lower -k or run \
             `bathyal groundtruth` with -k {k}",
            exact.k()
        )));
    }
    Ok(())
}

/// Exact neighbours after the k-th that are just as near.
fn ties(exact: &IdFile, query: usize, k: usize) -> usize {
    let Some(distances) = exact.distances(query) else { return 0 };
    let last = distances[k - 1];
    distances[k..].iter().take_while(|&&distance| distance <= last).count()
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
