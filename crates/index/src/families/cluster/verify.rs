//! What the pages of a cluster index hold, and its rows, beside what its centroids say.

use super::centroids::Centroids;
use crate::family::VerifyReport;
use crate::format::identity::Identity;

/// Compares the vectors that the pages of each group hold with what a scan believes.
pub(super) fn compare_groups(centroids: &Centroids, held: &[u32], report: &mut VerifyReport) {
    for (group, held) in (0..centroids.groups() as u32).zip(held) {
        let count = centroids.count(group);
        if count != *held as usize {
            report.fault(format!("group {group}: its pages hold {held} vectors, the centroids say {count}"));
        }
    }
}

/// Compares the rows of groups with the checksums that a search has for them which reads some before all are there.
pub(super) fn compare_rows(centroids: &Centroids, identity: Identity, report: &mut VerifyReport) {
    for (group, checked) in centroids.checked_rows(identity) {
        if let Err(reason) = checked {
            report.fault(format!("group {group}: its centroid: {reason}"));
        }
    }
}
