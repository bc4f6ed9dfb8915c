//! Queries before the centroids of groups are there, of an index in a store that is elsewhere: groups are ranked by the codes of
//! their centroids, and the centroids of the best are read together with their codes, in one round. What is found is the same.

use super::scope::Scope;
use super::search::{Cluster, Scratch};
use crate::error::IndexError;
use crate::query::{Phase, SearchParams};
use bathyal_tier::Cx;

/// Finds the groups to scan. Returns whether they are scanned, since their codes came with their centroids.
pub(super) async fn navigate(
    cx: &Cx,
    cluster: &Cluster,
    params: &SearchParams,
    scratch: &mut Scratch,
) -> Result<bool, IndexError> {
    let (centroids, scope, wanted) = (&cluster.centroids, Scope::of(params), params.wanted());
    if centroids.candidates(&cluster.codec, &scratch.code_query, &scope, &mut scratch.navigation) {
        let candidates: Vec<u32> = scratch.navigation.groups.iter().map(|group| group.id).collect();
        let together = 2 * candidates.len() <= cluster.pages.at_once;
        if !together {
            read_rows(cx, cluster, scratch).await?;
            if centroids.choose(&scope, &mut scratch.navigation) {
                return Ok(false);
            }
        } else {
            scratch.spans.clear();
            scratch.spans.extend(candidates.iter().map(|group| cluster.row_span(*group)));
            scratch.spans.extend(candidates.iter().map(|group| cluster.codes_span(*group)));
            scratch.query.count_round(&scratch.spans, cx.alignment());
            scratch.query.clock.spent(Phase::Navigate);
            let both = cx.read(&scratch.spans).await.map_err(|source| cluster.set.failed(source))?;
            scratch.query.clock.spent(Phase::Read);
            for at in 0..candidates.len() {
                score(cluster, scratch, at, both.bytes(at))?;
            }
            let enough = centroids.choose(&scope, &mut scratch.navigation);
            scratch.query.clock.spent(Phase::Navigate);
            if enough {
                for at in 0..scratch.navigation.groups.len() {
                    let group = scratch.navigation.groups[at];
                    let read = candidates.iter().position(|candidate| *candidate == group.id);
                    let codes = both.bytes(candidates.len() + read.unwrap_or(at));
                    cluster.check_codes(group.id, codes)?;
                    scratch.scan_group(cluster, group, (codes, &[]), None, wanted);
                }
                return Ok(true);
            }
        }
    }
    centroids.every(&mut scratch.navigation);
    read_rows(cx, cluster, scratch).await?;
    centroids.choose_of_all(&scope, &mut scratch.navigation);
    Ok(false)
}

/// Reads the centroids of the groups that are to be compared, and compares them.
async fn read_rows(cx: &Cx, cluster: &Cluster, scratch: &mut Scratch) -> Result<(), IndexError> {
    let groups = scratch.navigation.groups.len();
    for first in (0..groups).step_by(cluster.pages.at_once) {
        let last = groups.min(first + cluster.pages.at_once);
        scratch.spans.clear();
        let some = &scratch.navigation.groups[first..last];
        scratch.spans.extend(some.iter().map(|group| cluster.row_span(group.id)));
        scratch.query.count_round(&scratch.spans, cx.alignment());
        scratch.query.clock.spent(Phase::Navigate);
        let rows = cx.read(&scratch.spans).await.map_err(|source| cluster.set.failed(source))?;
        scratch.query.clock.spent(Phase::Read);
        for at in first..last {
            score(cluster, scratch, at, rows.bytes(at - first))?;
        }
        scratch.query.clock.spent(Phase::Navigate);
    }
    Ok(())
}

/// Compares the query with the centroid of the group in place `at`, which was read.
fn score(cluster: &Cluster, scratch: &mut Scratch, at: usize, row: &[u8]) -> Result<(), IndexError> {
    let group = scratch.navigation.groups[at].id;
    let checked = cluster.centroids.check_row(cluster.pages.layout.identity(), group, row);
    checked.map_err(|reason| cluster.set.damaged(format!("the centroid of group {group}"), reason))?;
    scratch.navigation.groups[at].distance = cluster.centroids.score_row(&scratch.navigation, row);
    Ok(())
}
