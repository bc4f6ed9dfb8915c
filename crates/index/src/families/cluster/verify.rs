//! Compares the pages of a cluster index, and its rows, with the numbers and checksums in its file of
//! centroids.

use super::centroids::Centroids;
use crate::family::VerifyReport;
use crate::format::identity::Identity;

/// Compares the number of vectors in the pages of each group with the number that a scan uses.
pub(super) fn compare_groups(centroids: &Centroids, page_counts: &[u32], report: &mut VerifyReport) {
    for (group, page_count) in (0..centroids.groups() as u32).zip(page_counts) {
        let count = centroids.count(group);
        if count != *page_count as usize {
            report.fault(format!(
                "group {group}: its pages hold {page_count} vectors; the file of centroids has {count}"
            ));
        }
    }
}

/// Compares the rows of groups with their checksums. A search uses these while the index still arrives from a
/// store.
pub(super) fn compare_rows(centroids: &Centroids, identity: Identity, report: &mut VerifyReport) {
    for (group, checked) in centroids.checked_rows(identity) {
        if let Err(reason) = checked {
            report.fault(format!("group {group}: its centroid: {reason}"));
        }
    }
}
