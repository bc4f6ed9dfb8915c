//! Queries that keep to a set of vectors: groups with none of the set are left out, and more of the others are scanned.
//!
//! A query scans the nearest groups until they hold as many vectors of the set as it would scan of all, and then for as long as
//! the last half of these has brought candidates that are among the nearest. So effort grows as sets get smaller, and where a
//! set lies far from the query.

use super::scope::Scope;
use super::search::{Cluster, Scratch, scan_absent};
use crate::allocate::{try_with_capacity, try_zeros};
use crate::error::IndexError;
use crate::format::groups::NO_ID;
use crate::format::places::{PLACE_BYTES, ids_in};
use crate::query::within::{RowFilter, Stages};
use crate::query::{Phase, SearchParams};
use bathyal_kernels::Neighbor;
use bathyal_tier::Cx;

/// Groups that are put in order at first, of those that would hold enough if the set were spread evenly.
const AT_FIRST: f64 = 1.5;
/// What is said of ids by place where there is no memory for them.
const WHOSE: &str = "whose vector lies where";
/// All groups are put in order at once where a part of them as large as one in so many is wanted.
const ALL_SHARE: usize = 4;

/// What a query has scanned of its set.
struct Scanning<'a> {
    among: &'a RowFilter,
    /// Candidates that are kept.
    most: usize,
    /// Groups that were scanned, of those in order.
    next: usize,
    /// Vectors of the set in these.
    held: usize,
}

impl Cluster {
    /// Groups of an effort among `matches` of the vectors, if they are spread evenly.
    pub(super) fn groups_among(&self, params: &SearchParams, matches: u32) -> usize {
        let share = f64::from(matches) / f64::from(self.set.vectors.max(1));
        let groups = params.probes.min(self.centroids.groups()) as f64 / share.max(f64::MIN_POSITIVE);
        (groups.ceil() as usize).min(self.centroids.groups())
    }

    /// Vectors of the set in a group.
    fn held_in(&self, among: &RowFilter, group: u32) -> usize {
        let first = group * self.pages.layout.group_vectors() as u32;
        among.places().count_in(first..first + self.centroids.count(group) as u32) as usize
    }
}

impl Cluster {
    /// The ids by place from a file that says it; `None` where there is none, or none that fits.
    pub(super) fn read_order(
        &self,
        go_on: &dyn Fn() -> Result<(), IndexError>,
    ) -> Result<Option<Vec<u32>>, IndexError> {
        if let Some(positions) = &self.positions {
            let mut ids = try_zeros(WHOSE, self.pages.layout.places(self.centroids.groups()))?;
            ids.fill(NO_ID);
            positions.read_all(go_on, |id, place| ids[place as usize] = id)?;
            return Ok(Some(ids));
        }
        let (Some(object), Some(file)) = (&self.order, &self.entry.places) else { return Ok(None) };
        let mut ids = try_with_capacity(WHOSE, file.bytes as usize / PLACE_BYTES)?;
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
            let reason = format!("checksum {crc:08x}, the manifest says {:08x}", file.crc32c);
            return Err(IndexError::damaged(object.address(), "its content", reason));
        }
        Ok(Some(ids))
    }
}

impl Scratch {
    /// Finds the nearest of a set.
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
        let wanted = (cluster.groups_among(params, among.places().count()) as f64 * AT_FIRST) as usize;
        let mut ordered = if wanted >= groups / ALL_SHARE { groups } else { wanted.max(1) };
        let chosen = self.order_groups(cluster, params, among, ordered);
        let mean = cluster.set.vectors as usize / groups.max(1);
        let least = (chosen.max(1) * mean.max(1)).max(params.k);
        let most = among.most(params.wanted());
        let mut scanning = Scanning { among, most, next: 0, held: 0 };
        let mut stages = among.stages(least, params.k, among.places().count() as usize);
        loop {
            let (best, threshold) = self.best_hits(params.k);
            let Some(range) = stages.next_of(best.into_iter(), threshold) else { break };
            if self.scan_until(cx, cluster, range.end, &mut scanning).await? {
                continue;
            }
            if ordered == groups {
                break;
            }
            // What was put in order holds too few: all groups, but for those that were scanned.
            ordered = groups;
            let mut scanned: Vec<u32> =
                self.navigation.groups[..scanning.next].iter().map(|group| group.id).collect();
            scanned.sort_unstable();
            self.order_groups(cluster, params, among, groups);
            self.navigation.groups.retain(|group| scanned.binary_search(&group.id).is_err());
            scanning.next = 0;
            if !self.scan_until(cx, cluster, range.end, &mut scanning).await? {
                break;
            }
        }
        self.settle(&scanning);
        self.compare_among(cx, cluster, params, among).await
    }

    /// Leaves the groups with vectors of the set, of the `wanted` nearest, the nearest first. Returns how many groups the query
    /// would scan if it were to find any vector.
    fn order_groups(
        &mut self,
        cluster: &Cluster,
        params: &SearchParams,
        among: &RowFilter,
        wanted: usize,
    ) -> usize {
        let (scope, navigation) = (Scope::of(params), &mut self.navigation);
        let chosen =
            cluster.centroids.nearest_in_order(&cluster.codec, &self.code_query, &scope, wanted, navigation);
        let first = cluster.pages.layout.group_vectors() as u32;
        navigation.groups.retain(|group| {
            let start = group.id * first;
            among.places().has_any(start..start + cluster.centroids.count(group.id) as u32)
        });
        self.query.clock.spent(Phase::Navigate);
        chosen
    }

    /// Scans groups in their order until `enough` vectors of the set were among them; false if there are no more groups.
    async fn scan_until(
        &mut self,
        cx: &Cx,
        cluster: &Cluster,
        enough: usize,
        scanning: &mut Scanning<'_>,
    ) -> Result<bool, IndexError> {
        self.absent.clear();
        while scanning.held < enough && scanning.next < self.navigation.groups.len() {
            let group = self.navigation.groups[scanning.next];
            scanning.next += 1;
            scanning.held += cluster.held_in(scanning.among, group.id);
            match cluster.resident_codes(group.id) {
                Some(codes) => self.scan_group(cluster, group, (codes, &[]), None, scanning.most),
                None => self.absent.push(group),
            }
        }
        scan_absent(cx, cluster, scanning.most, self).await?;
        self.query.clock.spent(Phase::Scan);
        Ok(scanning.held >= enough)
    }

    /// The distances of the `k` best candidates so far, and that of the worst of them; infinite where there are fewer.
    fn best_hits(&mut self, k: usize) -> (Vec<f32>, f32) {
        let k = k.max(1);
        if self.hits.len() < k {
            return (self.hits.iter().map(|hit| hit.distance).collect(), f32::INFINITY);
        }
        let (_, worst, _) = self.hits.select_nth_unstable(k - 1);
        let worst = worst.distance;
        (self.hits[..k].iter().map(|hit| hit.distance).collect(), worst)
    }

    /// Leaves the best candidates, the best first; all of the set in what was scanned where no number says which these are.
    fn settle(&mut self, scanning: &Scanning<'_>) {
        if self.hits.len() < scanning.most.min(scanning.held) {
            let places = scanning.among.places();
            let mut estimated: Vec<u32> = self.hits.iter().map(|hit| hit.id).collect();
            estimated.sort_unstable();
            let others = places.iter().filter(|place| estimated.binary_search(place).is_err());
            let lacking = scanning.most - self.hits.len();
            let others = others.take(lacking).map(|id| Neighbor { distance: f32::INFINITY, id });
            self.hits.extend(others);
        }
        self.hits.sort_unstable();
        self.hits.truncate(scanning.most);
        self.query.clock.spent(Phase::Scan);
    }

    /// Reads and compares the best candidates.
    async fn compare_among(
        &mut self,
        cx: &Cx,
        cluster: &Cluster,
        params: &SearchParams,
        among: &RowFilter,
    ) -> Result<(), IndexError> {
        let Scratch { query, hits, reads, .. } = self;
        let mut stages: Stages = among.stages(params.wanted(), params.k, hits.len());
        while let Some(range) = stages.next(&query.found) {
            cluster.pages.compare(cx, &cluster.set, &hits[range], query, reads).await?;
        }
        Ok(())
    }
}
