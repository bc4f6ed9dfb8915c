//! The searcher: navigation and scan in memory, then one round of reads.

use super::centroids::{Centroids, Navigation};
use super::codes::Codes;
use super::cost::ClusterShape;
use super::early;
use super::on_card;
use super::scope::{Farness, Scope};
use super::section::ClusterEntry;
use crate::calibrate::solve::Solved;
use crate::cost::Machine;
use crate::cost::demand::Demand;
use crate::error::IndexError;
use crate::family::pages::{PageReads, Pages};
use crate::family::rows::{PageRows, Rows};
use crate::family::{Arrival, CardUse, Scanned, Searcher};
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

/// How many groups ahead codes are asked for: one is too late for DRAM.
const GROUPS_AHEAD: usize = 2;
/// Bytes of a query for each dimension, at most: the query as bytes, floats, halves and rotated, and its tables, which take 34
/// bytes for each byte of a code. What the allocator counts (`bathyal-suites state`) is 16 KB at 128 dimensions with what
/// follows.
const DIMENSION_BYTES: usize = 64;
/// The same of tables for codes that are read, where those in memory are shorter.
const STORED_BYTES: usize = 40;
/// Bytes of a query whatever it is: its future, lists of reads, room that lists leave unused.
const LEAST_BYTES: usize = 16 << 10;
/// Candidates are collected up to so many times the list before the worst are dropped.
const SLACK: usize = 4;

/// The part of an open index that a search reads.
pub(crate) struct Cluster {
    pub(crate) pages: Pages,
    pub(crate) set: VectorSet,
    /// Of the codes in memory.
    pub(crate) codec: Codec,
    /// Of the codes on the tier, where those in memory are shorter.
    pub(crate) stored: Option<Codec>,
    /// The codes of the first groups, as many as the budget holds: all of them, as a rule, at once or in time.
    pub(crate) codes: Codes,
    /// Where the tier has the codes of group 0, for the groups whose codes are not in memory.
    pub(crate) codes_offset: u64,
    /// The same of the row of group 0, while rows are yet to come.
    pub(crate) rows_offset: u64,
    pub(crate) centroids: Arc<Centroids>,
    pub(crate) entry: ClusterEntry,
    /// The codes of all groups on a graphics card, instead of in memory.
    pub(crate) card: Option<Scans>,
    /// What says where the vector of each id lies, if there is such a file.
    pub(crate) positions: Option<Positions>,
    /// What says whose vector lies where, if there is such a file and not the other one.
    pub(crate) order: Option<Arc<dyn Object>>,
}

impl Cluster {
    /// Bytes of the codes of a group in memory.
    pub(crate) fn group_codes(&self) -> usize {
        self.pages.layout.group_blocks() * self.codec.block_bytes()
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
            // A card that has the vectors compares those of the best codes and no others.
            lone: self.pages.lone() || self.card.as_ref().is_some_and(Scans::computes_exact_distances),
            absent: 1.0 - (self.codes.len() as f64 + on_card) / all,
        }
    }

    /// Whether what is kept in memory is still on its way.
    fn arriving(&self) -> bool {
        matches!(&self.codes, Codes::Arriving(codes) if codes.here() < codes.all())
    }

    /// The first groups, whose codes a graphics card has.
    pub(super) fn groups_on_card(&self) -> u32 {
        self.card.as_ref().map_or(0, |scans| scans.shape().groups)
    }

    /// The codes of a group, if they are in memory.
    pub(super) fn resident_codes(&self, group: u32) -> Option<&[u8]> {
        self.codes.group(group, self.group_codes())
    }

    /// Where the tier has the codes of a group.
    pub(super) fn codes_span(&self, group: u32) -> Span {
        let bytes = self.entry.group_codes();
        Span { offset: self.codes_offset + u64::from(group) * bytes, len: bytes as u32 }
    }

    /// Where the tier has the row of a group's centroid.
    pub(super) fn row_span(&self, group: u32) -> Span {
        let bytes = self.pages.layout.row_bytes(1);
        Span { offset: self.rows_offset + u64::from(group) * bytes, len: bytes as u32 }
    }

    /// Checks the codes of a group that were read.
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

/// Memory of one running query, reused from query to query.
pub(crate) struct Scratch {
    pub(super) query: Query,
    pub(super) code_query: CodeQuery,
    pub(super) navigation: Navigation,
    pub(super) hits: Vec<Neighbor>,
    /// Estimates from here on need not be kept.
    worst: f32,
    /// Codes that a graphics card scans.
    pub(super) on_card: u32,
    /// Groups whose codes are not in memory.
    pub(super) absent: Vec<Neighbor>,
    /// The query for codes that are read, where those in memory are shorter.
    stored_query: CodeQuery,
    pub(super) spans: Vec<Span>,
    pub(super) reads: PageReads,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch {
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

impl Scratch {
    /// Bytes that a query holds at its peak, about, if it scans up to `planned` of so many groups or has so many candidates.
    pub(crate) fn planned_bytes(groups: usize, runs: usize, layout: &GroupLayout, planned: usize) -> u64 {
        let hits = SLACK * planned + layout.group_vectors();
        let navigating = Navigation::planned_bytes(groups, runs, planned);
        (navigating
            + hits * 12
            + planned * 24
            + layout.dim() * (DIMENSION_BYTES + STORED_BYTES)
            + LEAST_BYTES) as u64
    }

    /// The candidates of the last scan, in no order: their places.
    pub(crate) fn candidates(&mut self) -> &mut Vec<Neighbor> {
        &mut self.hits
    }

    /// Makes the query ready.
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

    /// Makes the query ready and finds the groups to scan.
    fn navigate(&mut self, cluster: &Cluster, query: &[u8], params: &SearchParams) {
        self.begin(cluster, query, params);
        let navigation = &mut self.navigation;
        cluster.centroids.nearest(&cluster.codec, &self.code_query, &Scope::of(params), navigation);
        self.query.clock.spent(Phase::Navigate);
    }

    /// Navigates and counts how far the groups are that a query may scan.
    pub(crate) fn count_far(
        &mut self,
        cluster: &Cluster,
        query: &[u8],
        params: &SearchParams,
        farness: &mut Farness,
    ) {
        self.navigate(cluster, query, params);
        cluster.centroids.count_far(&mut self.navigation, farness);
    }

    /// Scans the groups whose codes are in memory and notes the others, but for those that a graphics card has.
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

    /// Scans the codes of one group, while those of the next are brought into the cache; `stored` is their codec where they
    /// are longer than those in memory.
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
            // What is just as far as the worst may come before it by its place, whichever is scanned first.
            threshold: self.worst.next_up(),
            first: group.id * cluster.pages.layout.group_vectors() as u32,
            next,
        };
        let before = self.hits.len();
        let hits = &mut self.hits;
        match stored {
            Some(codec) => self.stored_query.scan_group_before(codec, &scan, hits),
            None => self.code_query.scan_group_before(&cluster.codec, &scan, hits),
        }
        self.query.stats.code_distances += count as u32;
        if let Some(among) = &self.query.within {
            keep_of(among.places(), before, hits);
        }
        if hits.len() >= SLACK * wanted {
            self.worst = keep_best(hits, wanted);
        }
    }

    /// Leaves the best `wanted` candidates, the best first.
    fn rank(&mut self, cluster: &Cluster, wanted: usize) {
        self.leave(cluster, wanted);
        self.hits.sort_unstable();
        self.query.clock.spent(Phase::Scan);
    }

    /// Leaves the best `wanted` candidates, in no order.
    fn leave(&mut self, cluster: &Cluster, wanted: usize) {
        if self.hits.len() < wanted.min(self.query.stats.code_distances as usize) {
            self.take_unordered(cluster);
        }
        if self.hits.len() > wanted {
            keep_best(&mut self.hits, wanted);
        }
    }

    /// Takes all vectors of the groups: their estimates are beyond what a number can say, so that none is below
    /// another. Queries far outside of the data have such.
    #[cold]
    fn take_unordered(&mut self, cluster: &Cluster) {
        self.hits.clear();
        for group in &self.navigation.groups {
            let first = group.id * cluster.pages.layout.group_vectors() as u32;
            let places = (0..cluster.centroids.count(group.id)).map(|slot| first.wrapping_add(slot as u32));
            self.hits.extend(places.map(|id| Neighbor { distance: f32::INFINITY, id }));
        }
    }

    /// Navigates and scans an index whose codes are all in memory; the candidates are in no order.
    pub(crate) fn scan(&mut self, cluster: &Cluster, query: &[u8], params: &SearchParams) {
        self.navigate(cluster, query, params);
        self.scan_resident(cluster, params.wanted());
        self.leave(cluster, params.wanted());
    }
}

/// Keeps the best `wanted` and returns the worst of them.
fn keep_best(hits: &mut Vec<Neighbor>, wanted: usize) -> f32 {
    let (_, worst, _) = hits.select_nth_unstable(wanted - 1);
    let worst = worst.distance;
    hits.truncate(wanted);
    worst
}

impl crate::family::Scratch for Scratch {
    fn query(&self) -> &Query {
        &self.query
    }

    fn query_mut(&mut self) -> &mut Query {
        &mut self.query
    }
}

impl Searcher for Cluster {
    type Scratch = Scratch;

    async fn search(
        &self,
        cx: Cx,
        query: &[u8],
        params: SearchParams,
        scratch: &mut Scratch,
    ) -> Result<(), IndexError> {
        if let Some(among) = scratch.query.within.clone() {
            return scratch.search_among(&cx, self, query, &params, &among).await;
        }
        let params = if self.arriving() { params.early() } else { params };
        let wanted = params.wanted();
        let mut slot = None;
        if let Some(scans) = &self.card {
            let slot = slot.insert(on_card::place(scans, &cx).await);
            scratch.navigate(self, query, &params);
            scratch.ask_card(self, slot, &cx, &params)?;
            // Meanwhile the groups that the card has not.
            scratch.scan_resident(self, wanted);
            scan_absent(&cx, self, wanted, scratch).await?;
            if scratch.take_from_card(slot, &cx, &params).await? {
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
        let Scratch { query, hits, reads, .. } = scratch;
        self.pages.compare(&cx, &self.set, hits, query, reads).await
    }

    fn effort(&self, k: usize, recall: f32, machine: &Machine<'_>) -> Option<Solved> {
        // Of codes of one length the effort for a recall is the same however many the memory budget holds, unless each that it does
        // not hold is a request; those on their way are as good as there.
        let shape = self.shape();
        let far = machine.profile.latency_ns >= FAR_LATENCY_NS && matches!(self.codes, Codes::Here { .. });
        let shape = ClusterShape { absent: if far { shape.absent } else { 0.0 }, ..shape };
        self.entry.effort(k, recall, &shape, machine)
    }

    fn early_effort(&self, k: usize, recall: f32, machine: &Machine<'_>) -> Option<Solved> {
        let shape = ClusterShape { absent: 1.0, ..self.shape() };
        self.arriving().then(|| self.entry.effort(k, recall, &shape, machine))?
    }

    fn demand(&self, params: &SearchParams, machine: &Machine<'_>) -> Demand {
        let params = if self.arriving() { params.early() } else { *params };
        let probes = params.probes.min(self.centroids.groups());
        self.shape().demand(probes as f64, params.wanted() as f64, machine)
    }

    fn among(&self, params: &SearchParams, matches: u32, machine: &Machine<'_>) -> Option<Demand> {
        // A card has the codes; what is on its way is waited for before.
        if self.card.is_some() || self.arriving() || self.centroids.rows().is_none() {
            return None;
        }
        let groups = self.groups_among(params, matches) as f64;
        let candidates = params.wanted().min(matches as usize);
        Some(self.shape().demand(groups, candidates as f64, machine))
    }

    fn read_places(
        &self,
        go_on: &dyn Fn() -> Result<(), IndexError>,
    ) -> Result<Option<Vec<u32>>, IndexError> {
        self.read_order(go_on)
    }

    fn places(&self) -> Option<Box<dyn Iterator<Item = (u32, u32)> + '_>> {
        self.pages.places()
    }

    fn positions(&self) -> Option<&Positions> {
        self.positions.as_ref()
    }

    fn rows(&self) -> Box<dyn Rows + '_> {
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
            self.centroids.shifted(group as u32, &mut row);
            out.extend(row.iter().zip(self.centroids.mean()).map(|(value, mean)| value + mean));
        }
    }

    fn arrival(&self) -> Option<Arrival> {
        match &self.codes {
            Codes::Here { .. } => None,
            Codes::Arriving(codes) => {
                let rows = self.entry.rows.as_ref().map_or(0, |rows| rows.bytes);
                let rows_here = if self.centroids.rows().is_some() { rows } else { 0 };
                let (here, all) = (codes.here() + rows_here, codes.all() + rows);
                Some(Arrival { here, all, failed: codes.failed() })
            }
        }
    }

    fn card(&self) -> Option<CardUse> {
        self.card.as_ref().map(|scans| CardUse {
            list: scans.shape().list,
            width: None,
            slots: scans.shape().slots,
            resident_bytes: scans.resident_bytes(),
            counters: scans.counters(),
        })
    }

    fn scanned(&self, scratch: &Scratch) -> Option<Scanned> {
        Some(Scanned { scanned: scratch.navigation.groups.len(), of: self.centroids.groups() })
    }
}

/// Scans the groups whose codes are not in memory.
pub(super) async fn scan_absent(
    cx: &Cx,
    cluster: &Cluster,
    wanted: usize,
    scratch: &mut Scratch,
) -> Result<(), IndexError> {
    if let Some(codec) = cluster.stored.as_ref().filter(|_| !scratch.absent.is_empty()) {
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
            scratch.scan_group(cluster, group, (codes, &[]), cluster.stored.as_ref(), wanted);
        }
    }
    Ok(())
}
