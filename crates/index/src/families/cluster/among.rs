//! Searches within a set of rows: groups without vectors of the set are skipped, and more of the other groups
//! are scanned.
//!
//! A query scans the nearest groups until they hold as many vectors of the set as it would scan without a
//! set. Then it continues for as long as the second half of these has contributed some of the nearest
//! candidates. So the effort is larger for smaller sets, and for sets that are far from the query.

use super::centroids::scope::Scope;
use super::search::{Cluster, ClusterScratch, scan_absent};
use crate::allocate::{try_with_capacity, try_zeros};
use crate::error::IndexError;
use crate::format::groups::NO_ID;
use crate::format::places::{PLACE_BYTES, ids_in};
use crate::query::within::{CandidateStages, RowFilter};
use crate::query::{Phase, SearchParams};
use bathyal_kernels::Neighbor;
use bathyal_tier::Cx;

/// Groups that are ordered at first, as a multiple of those that would hold enough vectors of an evenly
/// spread set.
const FIRST_ORDERED: f64 = 1.5;
/// Name of the ids by place in an error about missing memory.
const IDS_BY_PLACE: &str = "the ids by place";
/// All groups are ordered at once if at least one in `ALL_SHARE` of them is wanted.
const ALL_SHARE: usize = 4;

/// The progress of a query within a set.
struct SetScan<'a> {
    among: &'a RowFilter,
    /// Most candidates that are kept.
    most: usize,
    /// The next group to scan in the order.
    next: usize,
    /// Vectors of the set in the scanned groups.
    matches: usize,
}

impl Cluster {
    /// Returns the number of groups that a query scans within a set of `matches` vectors, if they are spread
    /// evenly.
    pub(super) fn groups_among(&self, params: &SearchParams, matches: u32) -> usize {
        let share = f64::from(matches) / f64::from(self.set.vectors.max(1));
        let groups = params.probes.min(self.centroids.groups()) as f64 / share.max(f64::MIN_POSITIVE);
        (groups.ceil() as usize).min(self.centroids.groups())
    }

    /// Returns the number of vectors of the set in a group.
    fn matches_in(&self, among: &RowFilter, group: u32) -> usize {
        let first = group * self.pages.layout.group_vectors() as u32;
        among.places().count_in(first..first + self.centroids.count(group) as u32) as usize
    }
}

impl Cluster {
    /// Reads the ids by place. `None` if the index has no file with them.
    pub(super) fn read_order(
        &self,
        go_on: &dyn Fn() -> Result<(), IndexError>,
    ) -> Result<Option<Vec<u32>>, IndexError> {
        if let Some(positions) = &self.positions {
            let mut ids = try_zeros(IDS_BY_PLACE, self.pages.layout.places(self.centroids.groups()))?;
            ids.fill(NO_ID);
            positions.read_all(go_on, |id, place| ids[place as usize] = id)?;
            return Ok(Some(ids));
        }
        let (Some(object), Some(file)) = (&self.order, &self.entry.places) else { return Ok(None) };
        let mut ids = try_with_capacity(IDS_BY_PLACE, file.bytes as usize / PLACE_BYTES)?;
        let (mut bytes, mut crc) = (Vec::new(), 0);
        let piece = (object.piece_bytes() / PLACE_BYTES).max(1) * PLACE_BYTES;
        for offset in (0..file.bytes).step_by(piece) {
            go_on()?;
            bytes.resize((file.bytes - offset).min(piece as u64) as usize, 0);
            object.read_at(offset, &mut bytes)?;
            crc = crc32c::crc32c_append(crc, &bytes);
            ids.extend(ids_in(&bytes));
        }
        if crc != file.crc32c {
            let reason = format!("its checksum is {crc:08x}; the manifest has {:08x}", file.crc32c);
            return Err(IndexError::damaged(object.address(), "its content", reason));
        }
        Ok(Some(ids))
    }
}

impl ClusterScratch {
    /// Finds the nearest vectors of a set.
    pub(super) async fn search_among(
        &mut self,
        cx: &Cx,
        cluster: &Cluster,
        query: &[u8],
        params: &SearchParams,
        among: &RowFilter,
    ) -> Result<(), IndexError> {
        self.begin(cluster, query, params);
        let groups = cluster.centroids.groups();
        let wanted = (cluster.groups_among(params, among.places().count()) as f64 * FIRST_ORDERED) as usize;
        let mut ordered = if wanted >= groups / ALL_SHARE { groups } else { wanted.max(1) };
        let plain_groups = self.order_groups(cluster, params, among, ordered);
        let mean_count = cluster.set.vectors as usize / groups.max(1);
        let least = (plain_groups.max(1) * mean_count.max(1)).max(params.k);
        let most = among.most(params.wanted());
        let mut scan = SetScan { among, most, next: 0, matches: 0 };
        let mut stages = among.stages(least, params.k, among.places().count() as usize);
        loop {
            let (best, threshold) = self.best_hits(params.k);
            let Some(range) = stages.next_of(best.into_iter(), threshold) else { break };
            if self.scan_until(cx, cluster, range.end, &mut scan).await? {
                continue;
            }
            if ordered == groups {
                break;
            }
            // The ordered groups hold too few vectors of the set. Order all groups except the scanned ones.
            ordered = groups;
            let mut scanned: Vec<u32> =
                self.navigation.groups[..scan.next].iter().map(|group| group.id).collect();
            scanned.sort_unstable();
            self.order_groups(cluster, params, among, groups);
            self.navigation.groups.retain(|group| scanned.binary_search(&group.id).is_err());
            scan.next = 0;
            if !self.scan_until(cx, cluster, range.end, &mut scan).await? {
                break;
            }
        }
        self.rank_matches(&scan);
        self.compare_among(cx, cluster, params, among).await
    }

    /// Orders the `wanted` nearest groups, nearest first, and drops those without vectors of the set. Returns
    /// the number of groups that the query would scan without a set.
    fn order_groups(
        &mut self,
        cluster: &Cluster,
        params: &SearchParams,
        among: &RowFilter,
        wanted: usize,
    ) -> usize {
        let (scope, navigation) = (Scope::from_params(params), &mut self.navigation);
        let plain_groups =
            cluster.centroids.nearest_in_order(&cluster.codec, &self.code_query, &scope, wanted, navigation);
        let group_vectors = cluster.pages.layout.group_vectors() as u32;
        navigation.groups.retain(|group| {
            let start = group.id * group_vectors;
            among.places().has_any(start..start + cluster.centroids.count(group.id) as u32)
        });
        self.query.clock.spent(Phase::Navigate);
        plain_groups
    }

    /// Scans groups in order, until they hold `enough` vectors of the set. Returns false if there are no more
    /// groups.
    async fn scan_until(
        &mut self,
        cx: &Cx,
        cluster: &Cluster,
        enough: usize,
        scan: &mut SetScan<'_>,
    ) -> Result<bool, IndexError> {
        self.absent.clear();
        while scan.matches < enough && scan.next < self.navigation.groups.len() {
            let group = self.navigation.groups[scan.next];
            scan.next += 1;
            scan.matches += cluster.matches_in(scan.among, group.id);
            match cluster.resident_codes(group.id) {
                Some(codes) => self.scan_group(cluster, group, (codes, &[]), None, scan.most),
                None => self.absent.push(group),
            }
        }
        scan_absent(cx, cluster, scan.most, self).await?;
        self.query.clock.spent(Phase::Scan);
        Ok(scan.matches >= enough)
    }

    /// Returns the distances of the `k` best candidates so far, and that of the worst of them, which is
    /// infinite if there are fewer candidates.
    fn best_hits(&mut self, k: usize) -> (Vec<f32>, f32) {
        let k = k.max(1);
        if self.hits.len() < k {
            return (self.hits.iter().map(|hit| hit.distance).collect(), f32::INFINITY);
        }
        let (_, worst, _) = self.hits.select_nth_unstable(k - 1);
        let worst = worst.distance;
        (self.hits[..k].iter().map(|hit| hit.distance).collect(), worst)
    }

    /// Keeps the best candidates, and sorts them, best first. If estimates overflowed, adds vectors of the
    /// set without an estimate.
    fn rank_matches(&mut self, scan: &SetScan<'_>) {
        if self.hits.len() < scan.most.min(scan.matches) {
            let places = scan.among.places();
            let mut estimated: Vec<u32> = self.hits.iter().map(|hit| hit.id).collect();
            estimated.sort_unstable();
            let others = places.iter().filter(|place| estimated.binary_search(place).is_err());
            let missing = scan.most - self.hits.len();
            let others = others.take(missing).map(|id| Neighbor { distance: f32::INFINITY, id });
            self.hits.extend(others);
        }
        self.hits.sort_unstable();
        self.hits.truncate(scan.most);
        self.query.clock.spent(Phase::Scan);
    }

    /// Reads the best candidates, and compares them exactly.
    async fn compare_among(
        &mut self,
        cx: &Cx,
        cluster: &Cluster,
        params: &SearchParams,
        among: &RowFilter,
    ) -> Result<(), IndexError> {
        let ClusterScratch { query, hits, reads, .. } = self;
        let mut stages: CandidateStages = among.stages(params.wanted(), params.k, hits.len());
        while let Some(range) = stages.next(&query.found) {
            cluster.pages.compare(cx, &cluster.set, &hits[range], query, reads).await?;
        }
        Ok(())
    }
}
