//! Finds the groups that a query scans.

use super::scope::{DistanceRatioCounts, Scope};
use super::spans::{MAX_RUNS, RUNS_PER_SPAN};
use super::{Centroids, GROUPS_PER_RUN};
use bathyal_kernels::quantize::{CodeQuery, Codec, GroupScan, SCAN_BLOCK};
use bathyal_kernels::{Metric, Neighbor, Rows};
use half::f16;
use half::slice::HalfFloatSliceExt;

/// Groups whose centroids' codes are scored for each group that is scanned. The runs nearest to a query do
/// not hold all groups nearest to it: with 6 instead of 24, 192 probes find 0.946 of the neighbours of SIFT
/// instead of 0.955.
const GROUPS_PER_PROBE: usize = 24;
/// Least number of runs whose groups are scored.
const MIN_RUNS: usize = 8;
/// Runs whose centroids are compared for each run whose groups are scored, if not all runs are compared.
const RUNS_PER_CHOICE: usize = 8;
/// Least number of spans whose runs are compared.
const MIN_SPANS: usize = 12;
/// Twice the number of centroids that are compared exactly for each group that queries scan on average. It is
/// small, because codes rank centroids almost correctly.
const EXACT_HALVES: usize = 3;

/// Groups that are scanned in the order of their distances. After them, the threshold of a scan hardly falls
/// any more.
const ORDERED_GROUPS: usize = 64;

/// Buffers of one query, which later queries reuse.
#[derive(Debug, Default)]
pub(crate) struct Navigation {
    /// The query minus the mean of the data; under the inner product, the query itself.
    pub(crate) shifted: Vec<f32>,
    coordinates: Vec<f16>,
    query: Vec<u8>,
    distances: Vec<f32>,
    runs: Vec<Neighbor>,
    ids: Vec<u32>,
    /// Factor between distances of scaled vectors and distances.
    distance_scale: f32,
    /// The groups to scan, with the distance of the query to their centroid. The nearest ones come first.
    pub(crate) groups: Vec<Neighbor>,
}

impl Centroids {
    /// Prepares `navigation` for a query. The caller then prepares its code query with
    /// [`Navigation::shifted`].
    pub(crate) fn begin(&self, query: &[f32], navigation: &mut Navigation) {
        let n = navigation;
        n.shifted.clear();
        match self.metric {
            Metric::L2 => n.shifted.extend(query.iter().zip(&self.mean).map(|(q, m)| q - m)),
            _ => n.shifted.extend_from_slice(query),
        }
        // The inner product scales with the query, which may have any length. L2 does not.
        let scale;
        (scale, n.distance_scale) = match self.metric {
            Metric::L2 => (1.0 / self.unit, self.unit * self.unit),
            _ => {
                let largest = n.shifted.iter().fold(0.0_f32, |a, v| a.max(v.abs())).max(f32::MIN_POSITIVE);
                (1.0 / largest, self.unit * largest)
            }
        };
        // The inverse of the smallest numbers is infinite, and infinity times zero is NaN.
        let scale = scale.min(f32::MAX);
        n.coordinates.resize(self.dim, f16::ZERO);
        n.distances.clear();
        n.distances.extend(n.shifted.iter().map(|v| (v * scale).clamp(-60_000.0, 60_000.0)));
        n.coordinates.convert_from_f32_slice(&n.distances);
        n.query.clear();
        n.query.extend(n.coordinates.iter().flat_map(|v| v.to_le_bytes()));
    }

    /// Returns the bytes of the rows of runs that every query compares, or of spans and the fewest runs.
    pub(crate) fn compared_run_bytes(&self) -> usize {
        match self.spans.is_empty() {
            true => self.runs.len(),
            false => self.spans.len() + MIN_SPANS * RUNS_PER_SPAN * 2 * self.dim,
        }
    }

    /// Fills `navigation` with the groups nearest to the query, as many as `scope` gives. The rows must have
    /// arrived.
    pub(crate) fn nearest(
        &self,
        codec: &Codec,
        code_query: &CodeQuery,
        scope: &Scope,
        navigation: &mut Navigation,
    ) {
        let n = navigation;
        let rows = self.rows().unwrap_or_default();
        let exact = exact_count(scope);
        if exact < self.groups() {
            self.rank_by_codes(codec, code_query, (scope, exact), n);
            n.ids.clear();
            n.ids.extend(n.groups.iter().map(|group| group.id));
            n.distances.resize(n.ids.len(), 0.0);
            let rows = Rows { bytes: rows, stride: 2 * self.dim };
            self.distance.score(&n.query, rows, &n.ids, &mut n.distances);
            for (group, distance) in n.groups.iter_mut().zip(&n.distances) {
                group.distance = distance * n.distance_scale;
            }
            if self.choose_groups(scope, n) {
                return;
            }
        }
        self.list_all_groups(n);
        n.distances.resize(self.groups(), 0.0);
        self.distance.score_block(&n.query, rows, &mut n.distances);
        for (group, distance) in n.groups.iter_mut().zip(&n.distances) {
            group.distance = distance * n.distance_scale;
        }
        self.choose_of_all_groups(scope, n);
    }

    /// Fills `navigation` with the `wanted` groups nearest to the query, nearest first. Returns the number of
    /// groups that a query with `scope` scans.
    pub(crate) fn nearest_in_order(
        &self,
        codec: &Codec,
        code_query: &CodeQuery,
        scope: &Scope,
        wanted: usize,
        navigation: &mut Navigation,
    ) -> usize {
        let wide = Scope { probes: wanted.max(scope.most(self.groups())), prune: 0.0, least: 1 };
        self.nearest(codec, code_query, &wide, navigation);
        self.add_spread_penalties(&mut navigation.groups);
        let chosen = self.scan_count(scope, &mut navigation.groups);
        navigation.groups.sort_unstable();
        self.subtract_spread_penalties(&mut navigation.groups);
        chosen
    }

    /// Fills `n` with the groups nearest to the query by the codes of their centroids, while the rows have
    /// not arrived. The groups are almost those of [`Centroids::nearest`], and their distances are estimates.
    pub(crate) fn nearest_by_codes(
        &self,
        codec: &Codec,
        code_query: &CodeQuery,
        scope: &Scope,
        n: &mut Navigation,
    ) {
        let exact = exact_count(scope);
        if exact < self.groups() {
            self.rank_by_codes(codec, code_query, (scope, exact), n);
            self.subtract_spread_penalties(&mut n.groups);
            if self.choose_groups(scope, n) {
                return;
            }
        }
        let everywhere = Scope { probes: self.groups(), ..*scope };
        self.rank_by_codes(codec, code_query, (&everywhere, self.groups()), n);
        self.subtract_spread_penalties(&mut n.groups);
        self.choose_of_all_groups(scope, n);
        if self.vectors_in_groups(n) < scope.least {
            // For queries far outside of the data, estimates are not numbers.
            self.list_all_groups(n);
        }
    }

    /// Fills `n` with the `exact` groups that are nearest by the codes of their centroids, in no order, with
    /// spread penalties.
    fn rank_by_codes(
        &self,
        codec: &Codec,
        code_query: &CodeQuery,
        (scope, exact): (&Scope, usize),
        n: &mut Navigation,
    ) {
        let groups_per_run = self.groups().div_ceil(self.runs());
        self.nearest_runs((scope.probes * GROUPS_PER_PROBE).div_ceil(groups_per_run).max(MIN_RUNS), n);
        let run_bytes = GROUPS_PER_RUN / SCAN_BLOCK * codec.block_bytes();
        let mut worst = f32::INFINITY;
        n.groups.clear();
        for (i, run) in n.runs.iter().enumerate() {
            let groups = self.groups_of(run.id);
            let codes = |run: u32| &self.centroid_codes[run as usize * run_bytes..][..run_bytes];
            let scan = GroupScan {
                blocks: codes(run.id),
                count: groups.len(),
                centroid_distance: run.distance,
                threshold: worst,
                first: groups.start,
                next: n.runs.get(i + 1).map_or(&[], |next| codes(next.id)),
            };
            let groups_before = n.groups.len();
            code_query.scan_group_before(codec, &scan, &mut n.groups);
            self.add_spread_penalties(&mut n.groups[groups_before..]);
            if n.groups.len() >= 2 * exact {
                keep_nearest(&mut n.groups, exact);
                worst = n.groups.last().map_or(worst, |group| group.distance);
            }
        }
        keep_nearest(&mut n.groups, exact);
    }

    /// Returns the distance of the query to the group with the row `row`.
    pub(crate) fn score_row(&self, n: &Navigation, row: &[u8]) -> f32 {
        let mut distance = [0.0];
        self.distance.score_block(&n.query, row, &mut distance);
        distance[0] * n.distance_scale
    }

    /// Keeps the groups that the query scans, the nearest ones first. Returns false if they hold too few
    /// vectors; then all groups must be compared.
    fn choose_groups(&self, scope: &Scope, n: &mut Navigation) -> bool {
        self.add_spread_penalties(&mut n.groups);
        let chosen = self.scan_count(scope, &mut n.groups);
        keep_nearest(&mut n.groups, chosen);
        // With the nearest groups first, the threshold of the scan falls soon. Ordering the others gains
        // nothing.
        order_nearest(&mut n.groups);
        self.subtract_spread_penalties(&mut n.groups);
        self.vectors_in_groups(n) >= scope.least
    }

    /// Returns the number of vectors in the groups of `n`.
    fn vectors_in_groups(&self, n: &Navigation) -> usize {
        n.groups.iter().map(|group| self.count(group.id)).sum()
    }

    /// Returns the number of `groups` (in no order, with spread penalties) that a query scans.
    fn scan_count(&self, scope: &Scope, groups: &mut [Neighbor]) -> usize {
        scope.scan_count(groups, |distance| self.square_distance(distance))
    }

    /// Converts a distance to a square distance, which is possible for inner products of normalised vectors,
    /// too.
    fn square_distance(&self, distance: f32) -> f32 {
        match self.metric {
            Metric::L2 => distance,
            _ => 2.0 + 2.0 * distance,
        }
    }

    /// Counts the distance ratios of the groups that [`Centroids::nearest`] has found.
    pub(crate) fn count_distance_ratios(
        &self,
        navigation: &mut Navigation,
        counts: &mut DistanceRatioCounts,
    ) {
        self.add_spread_penalties(&mut navigation.groups);
        counts.add(&mut navigation.groups, |distance| self.square_distance(distance));
    }

    /// Fills `n` with the `wanted` runs nearest to the query, nearest first. If there are many runs, only
    /// those of the nearest spans are compared.
    fn nearest_runs(&self, wanted: usize, n: &mut Navigation) {
        let row = 2 * self.dim;
        let mut score = |rows: &[u8], first: usize, found: &mut Vec<Neighbor>| {
            n.distances.resize(rows.len() / row, 0.0);
            self.distance.score_block(&n.query, rows, &mut n.distances);
            let scored = n.distances.iter().zip(first as u32..);
            found
                .extend(scored.map(|(distance, id)| Neighbor { distance: *distance * n.distance_scale, id }));
        };
        n.runs.clear();
        if self.spans.is_empty() {
            score(&self.runs, 0, &mut n.runs);
        } else {
            n.groups.clear();
            score(&self.spans, 0, &mut n.groups);
            keep_nearest(&mut n.groups, (wanted * RUNS_PER_CHOICE).div_ceil(RUNS_PER_SPAN).max(MIN_SPANS));
            for span in &n.groups {
                let first = span.id as usize * RUNS_PER_SPAN;
                let last = (first + RUNS_PER_SPAN).min(self.runs());
                score(&self.runs[first * row..last * row], first, &mut n.runs);
            }
        }
        keep_nearest(&mut n.runs, wanted);
        n.runs.sort_unstable();
    }

    /// Fills `n` with all groups, in the order of their numbers.
    fn list_all_groups(&self, n: &mut Navigation) {
        n.groups.clear();
        n.groups.extend((0..self.groups() as u32).map(|id| Neighbor { distance: 0.0, id }));
    }

    /// Keeps the nearest of all groups, nearest first: as many as the query scans, and more until they hold
    /// enough vectors.
    fn choose_of_all_groups(&self, scope: &Scope, n: &mut Navigation) {
        self.add_spread_penalties(&mut n.groups);
        let chosen = self.scan_count(scope, &mut n.groups);
        n.groups.sort_unstable();
        self.subtract_spread_penalties(&mut n.groups);
        let mut vectors = 0;
        let enough = n.groups.iter().position(|group| {
            vectors += self.count(group.id);
            vectors >= scope.least
        });
        n.groups.truncate(enough.map_or(usize::MAX, |at| (at + 1).max(chosen)));
    }
}

/// Returns the number of groups whose centroids are compared exactly to choose those that a query scans.
fn exact_count(scope: &Scope) -> usize {
    (scope.probes * EXACT_HALVES).div_ceil(2).max(scope.most(usize::MAX))
}

impl Navigation {
    /// Estimates the bytes of a query that scans up to `planned` groups, in an index of `groups` groups and
    /// `runs` runs.
    pub(crate) fn planned_bytes(groups: usize, runs: usize, planned: usize) -> usize {
        let spans =
            MIN_SPANS.max(planned * GROUPS_PER_PROBE / GROUPS_PER_RUN * RUNS_PER_CHOICE / RUNS_PER_SPAN);
        let compared_runs = if runs > MAX_RUNS { runs / RUNS_PER_SPAN + spans * RUNS_PER_SPAN } else { runs };
        // A growing vector holds the candidates twice. Exact comparisons need ids and distances.
        let candidates = (EXACT_HALVES * planned + GROUPS_PER_RUN).min(groups);
        16 * compared_runs.min(runs) + 24 * candidates
    }
}

/// Keeps the `wanted` nearest entries, in no order.
fn keep_nearest(found: &mut Vec<Neighbor>, wanted: usize) {
    if found.len() > wanted && wanted > 0 {
        found.select_nth_unstable(wanted - 1);
        found.truncate(wanted);
    }
}

/// Moves the [`ORDERED_GROUPS`] nearest entries to the front, and sorts them.
fn order_nearest(found: &mut [Neighbor]) {
    if found.len() > ORDERED_GROUPS {
        found.select_nth_unstable(ORDERED_GROUPS);
    }
    let ordered = found.len().min(ORDERED_GROUPS);
    found[..ordered].sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::super::span_bytes;
    use super::*;
    use crate::partition::placement::{Placement, Points};
    use bathyal_kernels::quantize::CodeKind;
    use bathyal_vectors::progress::Silent;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    const DIM: usize = 6;

    struct RandomPoints(Vec<f32>);

    impl Points for RandomPoints {
        fn dim(&self) -> usize {
            DIM
        }

        fn read(&self, id: u32, out: &mut [f32]) {
            out.copy_from_slice(&self.0[id as usize * DIM..][..DIM]);
        }
    }

    #[test]
    fn a_search_by_spans_finds_the_nearest_groups() {
        let mut random = StdRng::seed_from_u64(1);
        let groups = (MAX_RUNS + 100) * GROUPS_PER_RUN + 17;
        let rows = RandomPoints((0..groups * DIM).map(|_| random.random_range(-1.0_f32..1.0)).collect());
        let mut order: Vec<u32> = (0..groups as u32).collect();
        let placement =
            Placement { units: vec![GROUPS_PER_RUN], exchanged: None, threads: 2, seed: 1, card: None };
        placement.order(&rows, &mut order, &Silent).expect("nothing cancels");
        let centroids: Vec<f32> =
            order.iter().flat_map(|id| &rows.0[*id as usize * DIM..][..DIM]).copied().collect();
        let firsts = (0..groups as u32).step_by(GROUPS_PER_RUN).collect();
        let mut centroids =
            Centroids::new(Metric::L2, vec![0.0; DIM], centroids, firsts, vec![1; groups]).expect("memory");
        assert_eq!(centroids.spans.len() as u64, span_bytes(centroids.runs(), DIM));
        assert_eq!((span_bytes(MAX_RUNS, DIM), centroids.runs()), (0, MAX_RUNS + 101));
        let codec = Codec::train(CodeKind::Axes, 8, Metric::L2, &rows.0, DIM, 1, 2).expect("a codec");
        centroids.encode(&codec).expect("memory");
        let (mut query, mut navigation) = (CodeQuery::new(), Navigation::default());
        let mut search = |centroids: &Centroids, vector: &[f32], probes: usize| {
            centroids.begin(vector, &mut navigation);
            query.prepare_groups(&codec, &navigation.shifted);
            let scope = Scope { probes, prune: 0.0, least: 1 };
            centroids.nearest(&codec, &query, &scope, &mut navigation);
            let mut found: Vec<u32> = navigation.groups.iter().map(|group| group.id).collect();
            found.sort_unstable();
            (found, navigation.runs.capacity())
        };
        let (mut both, mut all, mut compared_runs) = (0, 0, 0);
        let queries: Vec<Vec<f32>> =
            (0..50).map(|_| (0..DIM).map(|_| random.random_range(-1.0..1.0)).collect()).collect();
        let with_spans: Vec<_> = queries.iter().map(|query| search(&centroids, query, 100)).collect();
        centroids.spans = Vec::new();
        for (query, (found, capacity)) in queries.iter().zip(with_spans) {
            let (exact, _) = search(&centroids, query, 100);
            both += exact.iter().filter(|id| found.binary_search(id).is_ok()).count();
            all += exact.len();
            compared_runs = compared_runs.max(capacity);
        }
        assert!(both * 100 >= all * 98, "{both} of {all}");
        assert!(compared_runs < centroids.runs(), "{compared_runs} runs");
        let planned = Navigation::planned_bytes(groups, MAX_RUNS + 101, 100);
        assert!(planned > compared_runs * 8 && planned < 24 * groups / 50, "{planned} bytes");
        assert!(Navigation::planned_bytes(1 << 24, 1 << 18, 1000) < 256 << 10);
    }
}
