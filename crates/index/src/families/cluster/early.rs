//! Queries before the rows of the centroids have arrived from an object store. Groups are chosen by the codes
//! of their centroids. Each centroid's row is read together with the codes of its group, in one round.

use super::centroids::scope::Scope;
use super::search::{Cluster, ClusterScratch};
use crate::error::IndexError;
use crate::query::{Phase, SearchParams};
use bathyal_tier::Cx;

/// Finds groups by the codes of their centroids, and scans them.
pub(super) async fn scan(
    cx: &Cx,
    cluster: &Cluster,
    params: &SearchParams,
    scratch: &mut ClusterScratch,
) -> Result<(), IndexError> {
    let (centroids, identity) = (&cluster.centroids, cluster.pages.layout.identity());
    let ClusterScratch { code_query, navigation, .. } = scratch;
    centroids.nearest_by_codes(&cluster.codec, code_query, &Scope::from_params(params), navigation);
    scratch.query.clock.spent(Phase::Navigate);
    let groups = scratch.navigation.groups.len();
    // Each group takes two reads.
    let at_once = (cluster.pages.at_once / 2).max(1);
    for first in (0..groups).step_by(at_once) {
        let batch = &scratch.navigation.groups[first..groups.min(first + at_once)];
        scratch.spans.clear();
        scratch.spans.extend(batch.iter().map(|group| cluster.row_span(group.id)));
        scratch.spans.extend(batch.iter().map(|group| cluster.codes_span(group.id)));
        let batch_groups = batch.len();
        scratch.query.count_round(&scratch.spans, cx.alignment());
        scratch.query.clock.spent(Phase::Scan);
        let rows_and_codes = cx.read(&scratch.spans).await.map_err(|source| cluster.set.failed(source))?;
        scratch.query.clock.spent(Phase::Read);
        for at in 0..batch_groups {
            let group = &mut scratch.navigation.groups[first + at];
            let (row, codes) = (rows_and_codes.bytes(at), rows_and_codes.bytes(batch_groups + at));
            let checked = centroids.check_row(identity, group.id, row);
            checked.map_err(|reason| {
                cluster.set.damaged(format!("the centroid of group {}", group.id), reason)
            })?;
            cluster.check_codes(group.id, codes)?;
            let distance = centroids.score_row(&scratch.navigation, row);
            let group = &mut scratch.navigation.groups[first + at];
            group.distance = distance;
            let group = *group;
            scratch.scan_group(cluster, group, (codes, &[]), None, params.wanted());
        }
    }
    Ok(())
}
