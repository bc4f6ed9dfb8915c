//! The search of a cluster index: it finds groups and scans their codes in memory, then reads vectors in one
//! round.

use super::centroids::scope::{DistanceRatioCounts, Scope};
use super::centroids::{Centroids, Navigation};
use super::codes::Codes;
use super::cost::ClusterShape;
use super::early;
use super::section::ClusterEntry;
use crate::calibrate::solve::Solved;
use crate::cost::Machine;
use crate::cost::demand::Demand;
use crate::cost::work::Estimate;
use crate::error::IndexError;
use crate::family::capabilities::{CardSearch, EarlySearch, FilteredSearch, SingleVectors};
use crate::family::pages::{PageReads, Pages};
use crate::family::rows::{PageRows, StoredRows};
use crate::family::{Arrival, CardUse, Scanned, Searcher};
use crate::family::{OpenCapabilities, Opened, QueryState, query_state};
use crate::format::groups::GroupLayout;
use crate::format::positions::Positions;
use crate::query::set::VectorSet;
use crate::query::under_way::Query;
use crate::query::within::keep_of;
use crate::query::{FAR_LATENCY_NS, Phase, SearchParams, spread};
use bathyal_gpu::scans::Scans;
use bathyal_kernels::Neighbor;
use bathyal_kernels::quantize::{CodeQuery, Codec, GroupScan};
use bathyal_store::Object;
use bathyal_tier::{Cx, Span};
use std::sync::Arc;

/// Number of groups that codes are prefetched ahead. One is too late for DRAM.
const GROUPS_AHEAD: usize = 2;
/// Most bytes of a query for each dimension: the query as bytes, as f32, as f16 and rotated, and its tables,
/// which take 34 bytes for each byte of a code. With [`LEAST_BYTES`], the allocator counts 16 KB at 128
/// dimensions (`bathyal-suites state`).
const DIMENSION_BYTES: usize = 64;
/// Most bytes for each dimension of the tables for stored codes, if those in memory are shorter.
const STORED_BYTES: usize = 40;
/// Bytes of a query that do not depend on the dimension: its future, lists of reads, unused capacity of
/// lists.
const LEAST_BYTES: usize = 16 << 10;
/// Candidates that are collected before the worst are dropped, as a multiple of the candidate list.
const SLACK: usize = 4;

/// An open cluster index, as searches use it.
pub(crate) struct Cluster {
    pub(crate) pages: Pages,
    pub(crate) set: VectorSet,
    /// The codec of the codes in memory.
    pub(crate) codec: Codec,
    /// The codec of the codes on the tier, if those in memory are shorter.
    pub(crate) stored_codec: Option<Codec>,
    /// The codes in memory, as many as the budget holds; usually those of all groups.
    pub(crate) codes: Codes,
    /// Offset of the codes of group 0 on the tier, for groups whose codes are not in memory.
    pub(crate) codes_offset: u64,
    /// Offset of the row of group 0 on the tier, for searches before the rows have arrived.
    pub(crate) rows_offset: u64,
    pub(crate) centroids: Arc<Centroids>,
    pub(crate) entry: ClusterEntry,
    /// The codes of the first groups on a graphics card, instead of in memory.
    pub(crate) card: Option<Scans>,
    /// The places by id, if the index has this file.
    pub(crate) positions: Option<Positions>,
    /// The file of ids by place, if the index has it but no file of positions.
    pub(crate) order: Option<Arc<dyn Object>>,
}

impl Cluster {
    /// Returns the bytes of the codes of a group in memory.
    pub(crate) fn group_codes(&self) -> usize {
        self.pages.layout.group_blocks() * self.codec.block_bytes()
    }

    /// Returns true if candidates are compared without the other vectors on their pages. A card with the
    /// vectors compares only those of the best candidates.
    fn reads_candidates_alone(&self) -> bool {
        self.pages.lone() || self.card.as_ref().is_some_and(Scans::computes_exact_distances)
    }

    fn shape(&self) -> ClusterShape {
        let code_bytes = self.codec.code_bytes() as u32;
        let all = self.entry.all_bytes(code_bytes).max(1) as f64;
        let on_card = self.card.as_ref().map_or(0.0, |scans| scans.shape().codes_bytes() as f64);
        ClusterShape {
            code_bytes,
            group_codes: self.group_codes() as f64,
            stored_codes: self.entry.group_codes() as f64,
            vector_bytes: self.pages.layout.vector_bytes() as u32,
            page_bytes: self.entry.page_bytes,
            lone: self.reads_candidates_alone(),
            absent_share: 1.0 - (self.codes.len() as f64 + on_card) / all,
        }
    }

    /// Returns the nanoseconds that every query takes: for its tables, and for comparing the runs of groups.
    fn preparation_ns(&self, machine: &Machine<'_>) -> f64 {
        let processor = machine.processor;
        let runs = self.centroids.compared_run_bytes() as f64 * processor.vector_byte_ns;
        processor.preparation_ns(self.set.dim) + runs
    }

    /// Returns true if some of the codes are still arriving from a store.
    fn arriving(&self) -> bool {
        matches!(&self.codes, Codes::Arriving(codes) if codes.arrived_bytes() < codes.total_bytes())
    }

    /// Returns the number of groups whose codes are on a graphics card: the first ones.
    pub(super) fn groups_on_card(&self) -> u32 {
        self.card.as_ref().map_or(0, |scans| scans.shape().groups)
    }

    /// Returns the codes of a group, if they are in memory.
    pub(super) fn resident_codes(&self, group: u32) -> Option<&[u8]> {
        self.codes.group(group, self.group_codes())
    }

    /// Returns the span of the codes of a group on the tier.
    pub(super) fn codes_span(&self, group: u32) -> Span {
        let bytes = self.entry.group_codes();
        Span { offset: self.codes_offset + u64::from(group) * bytes, len: bytes as u32 }
    }

    /// Returns the span of the row of a group's centroid on the tier.
    pub(super) fn row_span(&self, group: u32) -> Span {
        let bytes = self.pages.layout.row_bytes(1);
        Span { offset: self.rows_offset + u64::from(group) * bytes, len: bytes as u32 }
    }

    /// Checks codes of a group that were read from the tier.
    pub(super) fn check_codes(&self, group: u32, codes: &[u8]) -> Result<(), IndexError> {
        let checked = self.centroids.check_codes(self.pages.layout.identity(), group, codes);
        checked.map_err(|reason| self.set.damaged(format!("the codes of group {group}"), reason))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Codes::Arriving(codes) = &self.codes {
            codes.stop();
        }
    }
}

/// Buffers of one running query, which later queries reuse.
pub(crate) struct ClusterScratch {
    pub(super) query: Query,
    pub(super) code_query: CodeQuery,
    pub(super) navigation: Navigation,
    /// Candidates: places, with their estimated distances.
    pub(super) hits: Vec<Neighbor>,
    /// Estimates above this are not kept.
    worst: f32,
    /// Number of codes that a graphics card scans.
    pub(super) on_card: u32,
    /// Groups whose codes are not in memory.
    pub(super) absent: Vec<Neighbor>,
    /// The query for stored codes, if those in memory are shorter.
    stored_query: CodeQuery,
    pub(super) spans: Vec<Span>,
    pub(super) reads: PageReads,
}

impl Default for ClusterScratch {
    fn default() -> ClusterScratch {
        ClusterScratch {
            query: Query::new(),
            code_query: CodeQuery::new(),
            navigation: Navigation::default(),
            hits: Vec::new(),
            worst: f32::INFINITY,
            on_card: 0,
            absent: Vec::new(),
            stored_query: CodeQuery::new(),
            spans: Vec::new(),
            reads: PageReads::default(),
        }
    }
}

impl ClusterScratch {
    /// Estimates the bytes of a query at its peak, if it scans up to `planned` of `groups` groups, or has up
    /// to `planned` candidates.
    pub(crate) fn planned_bytes(groups: usize, runs: usize, layout: &GroupLayout, planned: usize) -> u64 {
        let hits = SLACK * planned + layout.group_vectors();
        let navigating = Navigation::planned_bytes(groups, runs, planned);
        (navigating
            + hits * 12
            + planned * 24
            + layout.dim() * (DIMENSION_BYTES + STORED_BYTES)
            + LEAST_BYTES) as u64
    }

    /// Returns the candidates of the last scan, in no order. Their ids are places.
    pub(crate) fn candidates(&mut self) -> &mut Vec<Neighbor> {
        &mut self.hits
    }

    /// Prepares a query.
    pub(super) fn begin(&mut self, cluster: &Cluster, query: &[u8], params: &SearchParams) {
        self.query.begin(&cluster.set, query, params);
        self.reads.begin();
        let navigation = &mut self.navigation;
        cluster.centroids.begin(&self.query.floats, navigation);
        self.code_query.prepare_groups(&cluster.codec, &navigation.shifted);
        self.hits.clear();
        self.absent.clear();
        self.worst = f32::INFINITY;
    }

    /// Prepares a query, and finds the groups to scan.
    fn navigate(&mut self, cluster: &Cluster, query: &[u8], params: &SearchParams) {
        self.begin(cluster, query, params);
        let navigation = &mut self.navigation;
        cluster.centroids.nearest(&cluster.codec, &self.code_query, &Scope::from_params(params), navigation);
        self.query.clock.spent(Phase::Navigate);
    }

    /// Finds the groups that a query may scan, and counts their distance ratios.
    pub(crate) fn count_distance_ratios(
        &mut self,
        cluster: &Cluster,
        query: &[u8],
        params: &SearchParams,
        counts: &mut DistanceRatioCounts,
    ) {
        self.navigate(cluster, query, params);
        cluster.centroids.count_distance_ratios(&mut self.navigation, counts);
    }

    /// Scans the groups whose codes are in memory. Adds the others to `self.absent`, except those on a
    /// graphics card.
    fn scan_resident(&mut self, cluster: &Cluster, wanted: usize) {
        let on_card = cluster.groups_on_card();
        for i in 0..self.navigation.groups.len() {
            let group = self.navigation.groups[i];
            if group.id < on_card {
                continue;
            }
            let Some(codes) = cluster.resident_codes(group.id) else {
                self.absent.push(group);
                continue;
            };
            let next = self.navigation.groups.get(i + GROUPS_AHEAD);
            let next = next.and_then(|next| cluster.resident_codes(next.id)).unwrap_or_default();
            self.scan_group(cluster, group, (codes, next), None, wanted);
        }
    }

    /// Scans the codes of one group, and prefetches those of the next into the cache. `stored` is their codec
    /// if they are longer than those in memory.
    pub(super) fn scan_group(
        &mut self,
        cluster: &Cluster,
        group: Neighbor,
        (blocks, next): (&[u8], &[u8]),
        stored: Option<&Codec>,
        wanted: usize,
    ) {
        let count = cluster.centroids.count(group.id);
        let scan = GroupScan {
            blocks,
            count,
            centroid_distance: group.distance,
            // A candidate at the same distance as the worst may have a smaller place, so it must be kept: the
            // result must not depend on the order of scans.
            threshold: self.worst.next_up(),
            first: group.id * cluster.pages.layout.group_vectors() as u32,
            next,
        };
        let hits_before = self.hits.len();
        let hits = &mut self.hits;
        match stored {
            Some(codec) => self.stored_query.scan_group_before(codec, &scan, hits),
            None => self.code_query.scan_group_before(&cluster.codec, &scan, hits),
        }
        self.query.stats.code_distances += count as u32;
        if let Some(among) = &self.query.within {
            keep_of(among.places(), hits_before, hits);
        }
        if hits.len() >= SLACK * wanted {
            self.worst = keep_best(hits, wanted);
        }
    }

    /// Keeps the best `wanted` candidates, and sorts them, best first.
    fn rank(&mut self, cluster: &Cluster, wanted: usize) {
        self.drop_worst(cluster, wanted);
        self.hits.sort_unstable();
        self.query.clock.spent(Phase::Scan);
    }

    /// Keeps the best `wanted` candidates, in no order.
    fn drop_worst(&mut self, cluster: &Cluster, wanted: usize) {
        if self.hits.len() < wanted.min(self.query.stats.code_distances as usize) {
            self.take_all_vectors(cluster);
        }
        if self.hits.len() > wanted {
            keep_best(&mut self.hits, wanted);
        }
    }

    /// Makes all vectors of the groups candidates, without an order. This is for queries far outside of the
    /// data, whose estimates overflow.
    #[cold]
    fn take_all_vectors(&mut self, cluster: &Cluster) {
        self.hits.clear();
        for group in &self.navigation.groups {
            let first = group.id * cluster.pages.layout.group_vectors() as u32;
            let places = (0..cluster.centroids.count(group.id)).map(|slot| first.wrapping_add(slot as u32));
            self.hits.extend(places.map(|id| Neighbor { distance: f32::INFINITY, id }));
        }
    }

    /// Finds groups and scans them, for an index whose codes are all in memory. The candidates are in no
    /// order.
    pub(crate) fn scan(&mut self, cluster: &Cluster, query: &[u8], params: &SearchParams) {
        self.navigate(cluster, query, params);
        self.scan_resident(cluster, params.wanted());
        self.drop_worst(cluster, params.wanted());
    }
}

/// Keeps the best `wanted` hits, and returns the distance of the worst of them.
fn keep_best(hits: &mut Vec<Neighbor>, wanted: usize) -> f32 {
    let (_, worst, _) = hits.select_nth_unstable(wanted - 1);
    let worst = worst.distance;
    hits.truncate(wanted);
    worst
}

crate::family::impl_scratch!(ClusterScratch);

impl Searcher for Cluster {
    type Scratch = ClusterScratch;

    async fn search(
        &self,
        cx: Cx,
        query: &[u8],
        params: SearchParams,
        scratch: &mut ClusterScratch,
    ) -> Result<(), IndexError> {
        if let Some(among) = scratch.query.within.clone() {
            return scratch.search_among(&cx, self, query, &params, &among).await;
        }
        let params = if self.arriving() { params.early() } else { params };
        let wanted = params.wanted();
        let mut slot = None;
        if let Some(scans) = &self.card {
            // The query keeps its slot until it ends, because a mini-batch waits for the queries with a slot.
            let slot = slot.insert(scans.wait_for_slot(&cx).await);
            scratch.navigate(self, query, &params);
            scratch.submit_to_card(self, slot, &cx, &params)?;
            // Meanwhile, the processor scans the groups that are not on the card.
            scratch.scan_resident(self, wanted);
            scan_absent(&cx, self, wanted, scratch).await?;
            if scratch.wait_for_card(slot, &cx, &params).await? {
                return Ok(());
            }
        } else if self.centroids.rows().is_some() {
            scratch.navigate(self, query, &params);
            scratch.scan_resident(self, wanted);
            scan_absent(&cx, self, wanted, scratch).await?;
        } else {
            scratch.begin(self, query, &params);
            early::scan(&cx, self, &params, scratch).await?;
        }
        scratch.rank(self, wanted);
        let ClusterScratch { query, hits, reads, .. } = scratch;
        self.pages.compare(&cx, &self.set, hits, query, reads).await
    }

    fn scanned(&self, scratch: &ClusterScratch) -> Option<Scanned> {
        Some(Scanned { scanned: scratch.navigation.groups.len(), of: self.centroids.groups() })
    }
}

impl Opened for Cluster {
    fn effort(&self, k: usize, recall: f32, machine: &Machine<'_>) -> Option<Solved> {
        // The effort for a recall should not depend on the number of codes that the budget holds, so absent
        // codes count only if each is a request to a far tier. Codes that are still arriving count as loaded.
        let shape = self.shape();
        let far = machine.profile.latency_ns >= FAR_LATENCY_NS && matches!(self.codes, Codes::Loaded { .. });
        let shape = ClusterShape { absent_share: if far { shape.absent_share } else { 0.0 }, ..shape };
        self.entry.effort(k, recall, &shape, machine)
    }

    fn estimate(&self, params: &SearchParams, machine: &Machine<'_>) -> Estimate {
        let params = if self.arriving() { params.early() } else { *params };
        let probes = params.probes.min(self.centroids.groups());
        let estimate = self.shape().estimate(probes as f64, params.wanted() as f64, machine);
        estimate.with_preparation(self.preparation_ns(machine))
    }

    fn rows(&self) -> Box<dyn StoredRows + '_> {
        let layout = &self.pages.layout;
        let pages = (self.centroids.groups() * layout.group_pages()) as u32;
        Box::new(PageRows { layout, set: &self.set, pages, ordered: false })
    }

    fn samples(&self, wanted: usize, out: &mut Vec<f32>) {
        if self.centroids.rows().is_none() {
            return;
        }
        let mut row = vec![0.0; self.set.dim];
        for group in spread(self.centroids.groups(), wanted) {
            self.centroids.read_centroid(group as u32, &mut row);
            out.extend(row.iter().zip(self.centroids.mean()).map(|(value, mean)| value + mean));
        }
    }

    fn capabilities(&self) -> OpenCapabilities<'_> {
        OpenCapabilities {
            reads_candidates_alone: self.reads_candidates_alone(),
            arrival: Some(self),
            filter: Some(self),
            single_vectors: Some(self),
            card: Some(self),
            ..OpenCapabilities::default()
        }
    }

    fn query_state(self: Arc<Self>) -> Box<dyn QueryState> {
        query_state(self)
    }
}

impl EarlySearch for Cluster {
    fn early_effort(&self, k: usize, recall: f32, machine: &Machine<'_>) -> Option<Solved> {
        let shape = ClusterShape { absent_share: 1.0, ..self.shape() };
        self.arriving().then(|| self.entry.effort(k, recall, &shape, machine))?
    }

    fn arrival(&self) -> Option<Arrival> {
        match &self.codes {
            Codes::Loaded { .. } => None,
            Codes::Arriving(codes) => {
                let rows = self.entry.rows.as_ref().map_or(0, |rows| rows.bytes);
                let arrived_rows = if self.centroids.rows().is_some() { rows } else { 0 };
                let (here, all) = (codes.arrived_bytes() + arrived_rows, codes.total_bytes() + rows);
                Some(Arrival { here, all, failed: codes.failure() })
            }
        }
    }
}

impl FilteredSearch for Cluster {
    fn among(&self, params: &SearchParams, matches: u32, machine: &Machine<'_>) -> Option<Demand> {
        // This search needs all codes in memory or on the tier, and the centroids in memory.
        if self.card.is_some() || self.arriving() || self.centroids.rows().is_none() {
            return None;
        }
        let groups = self.groups_among(params, matches) as f64;
        let candidates = params.wanted().min(matches as usize);
        Some(self.shape().estimate(groups, candidates as f64, machine).demand)
    }
}

impl SingleVectors for Cluster {
    fn places(&self) -> Option<Box<dyn Iterator<Item = (u32, u32)> + '_>> {
        self.pages.places()
    }

    fn read_places(
        &self,
        go_on: &dyn Fn() -> Result<(), IndexError>,
    ) -> Result<Option<Vec<u32>>, IndexError> {
        self.read_order(go_on)
    }

    fn positions(&self) -> Option<&Positions> {
        self.positions.as_ref()
    }
}

impl CardSearch for Cluster {
    fn card(&self) -> Option<CardUse> {
        self.card.as_ref().map(|scans| CardUse {
            list: scans.shape().list,
            width: None,
            slots: scans.shape().slots,
            resident_bytes: scans.resident_bytes(),
            counters: scans.counters(),
        })
    }
}

/// Reads and scans the codes of the groups in `scratch.absent`.
pub(super) async fn scan_absent(
    cx: &Cx,
    cluster: &Cluster,
    wanted: usize,
    scratch: &mut ClusterScratch,
) -> Result<(), IndexError> {
    if let Some(codec) = cluster.stored_codec.as_ref().filter(|_| !scratch.absent.is_empty()) {
        scratch.stored_query.prepare_groups(codec, &scratch.navigation.shifted);
    }
    for first in (0..scratch.absent.len()).step_by(cluster.pages.at_once) {
        let last = scratch.absent.len().min(first + cluster.pages.at_once);
        scratch.spans.clear();
        scratch.spans.extend(scratch.absent[first..last].iter().map(|group| cluster.codes_span(group.id)));
        scratch.query.count_round(&scratch.spans, cx.alignment());
        scratch.query.clock.spent(Phase::Scan);
        let blocks = cx.read(&scratch.spans).await.map_err(|source| cluster.set.failed(source))?;
        scratch.query.clock.spent(Phase::Read);
        for i in first..last {
            let (group, codes) = (scratch.absent[i], blocks.bytes(i - first));
            cluster.check_codes(group.id, codes)?;
            scratch.scan_group(cluster, group, (codes, &[]), cluster.stored_codec.as_ref(), wanted);
        }
    }
    Ok(())
}
