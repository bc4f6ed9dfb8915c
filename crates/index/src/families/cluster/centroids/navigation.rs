//! How a query finds the groups to scan.

use super::spans::{MOST_RUNS, RUNS_A_SPAN};
use super::{Centroids, GROUPS_A_RUN};
use crate::families::cluster::scope::{Farness, Scope};
use bathyal_kernels::quantize::{CodeQuery, Codec, GroupScan, SCAN_BLOCK};
use bathyal_kernels::{Metric, Neighbor, Rows};
use half::f16;
use half::slice::HalfFloatSliceExt;

/// Groups whose codes are looked at for each one that is scanned. The runs nearest to a query do not hold all
/// of the groups nearest to it: with 6 instead of 24, 192 probes find 0.946 of the neighbours of SIFT instead
/// of 0.955.
const GROUPS_A_PROBE: usize = 24;
/// Runs looked at, at least.
const LEAST_RUNS: usize = 8;
/// Runs that are compared for each one that is looked into, where not all are.
const RUNS_A_CHOICE: usize = 8;
/// Spans looked into, at least.
const LEAST_SPANS: usize = 12;
/// Centroids that are compared exactly for each one that is chosen on average, in halves, or as many as a
/// query may choose: codes rank them nearly right.
const EXACT_HALVES: usize = 3;

/// Groups that are handed over in order: with as many, the threshold of a scan is about as low as it will be.
const IN_ORDER: usize = 64;

/// Memory of one query, reused.
#[derive(Debug, Default)]
pub(crate) struct Navigation {
    /// The query around the mean; as it is under the inner product.
    pub(crate) shifted: Vec<f32>,
    coordinates: Vec<f16>,
    query: Vec<u8>,
    distances: Vec<f32>,
    runs: Vec<Neighbor>,
    ids: Vec<u32>,
    /// What a distance of scaled vectors has to be multiplied by.
    back: f32,
    /// The groups to scan, the nearest of them first, with the distance of the query to their centroid.
    pub(crate) groups: Vec<Neighbor>,
}

impl Centroids {
    /// Makes `navigation` ready for a query, whose shifted form `code_query` is then to be prepared with.
    pub(crate) fn begin(&self, query: &[f32], navigation: &mut Navigation) {
        let n = navigation;
        n.shifted.clear();
        match self.metric {
            Metric::L2 => n.shifted.extend(query.iter().zip(&self.mean).map(|(q, m)| q - m)),
            _ => n.shifted.extend_from_slice(query),
        }
        // The inner product scales with the query, whose length may be anything; L2 does not.
        let scale;
        (scale, n.back) = match self.metric {
            Metric::L2 => (1.0 / self.unit, self.unit * self.unit),
            _ => {
                let largest = n.shifted.iter().fold(0.0_f32, |a, v| a.max(v.abs())).max(f32::MIN_POSITIVE);
                (1.0 / largest, self.unit * largest)
            }
        };
        // The inverse of the least numbers is infinite, and zero times that is no coordinate.
        let scale = scale.min(f32::MAX);
        n.coordinates.resize(self.dim, f16::ZERO);
        n.distances.clear();
        n.distances.extend(n.shifted.iter().map(|v| (v * scale).clamp(-60_000.0, 60_000.0)));
        n.coordinates.convert_from_f32_slice(&n.distances);
        n.query.clear();
        n.query.extend(n.coordinates.iter().flat_map(|v| v.to_le_bytes()));
    }

    /// Fills `navigation` with the groups of `scope` nearest to the query.
    pub(crate) fn nearest(
        &self,
        codec: &Codec,
        code_query: &CodeQuery,
        scope: &Scope,
        navigation: &mut Navigation,
    ) {
        let n = navigation;
        let rows = self.rows().unwrap_or_default();
        let exact = compared(scope);
        if exact < self.groups() {
            self.candidates(codec, code_query, (scope, exact), n);
            n.ids.clear();
            n.ids.extend(n.groups.iter().map(|group| group.id));
            n.distances.resize(n.ids.len(), 0.0);
            let rows = Rows { bytes: rows, stride: 2 * self.dim };
            self.distance.score(&n.query, rows, &n.ids, &mut n.distances);
            for (group, distance) in n.groups.iter_mut().zip(&n.distances) {
                group.distance = distance * n.back;
            }
            if self.choose(scope, n) {
                return;
            }
        }
        self.every(n);
        n.distances.resize(self.groups(), 0.0);
        self.distance.score_block(&n.query, rows, &mut n.distances);
        for (group, distance) in n.groups.iter_mut().zip(&n.distances) {
            group.distance = distance * n.back;
        }
        self.choose_of_all(scope, n);
    }

    /// Fills `navigation` with the `wanted` groups nearest to the query, the nearest first, and returns how
    /// many of these are of `scope`.
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
        self.put_back(&mut navigation.groups);
        let chosen = self.chosen(scope, &mut navigation.groups);
        navigation.groups.sort_unstable();
        self.put_forward(&mut navigation.groups);
        chosen
    }

    /// The same by the codes of the centroids alone, while their rows are not there: nearly the same groups,
    /// with distances that are not exact.
    pub(crate) fn nearest_by_codes(
        &self,
        codec: &Codec,
        code_query: &CodeQuery,
        scope: &Scope,
        n: &mut Navigation,
    ) {
        let exact = compared(scope);
        if exact < self.groups() {
            self.candidates(codec, code_query, (scope, exact), n);
            self.put_forward(&mut n.groups);
            if self.choose(scope, n) {
                return;
            }
        }
        let everywhere = Scope { probes: self.groups(), ..*scope };
        self.candidates(codec, code_query, (&everywhere, self.groups()), n);
        self.put_forward(&mut n.groups);
        self.choose_of_all(scope, n);
        if self.held(n) < scope.least {
            // Of queries far outside of the data estimates are no numbers.
            self.every(n);
        }
    }

    /// Leaves in `n` the groups of which those of `scope` are to be chosen, `exact` of them in no order, put
    /// back by their spread.
    fn candidates(
        &self,
        codec: &Codec,
        code_query: &CodeQuery,
        (scope, exact): (&Scope, usize),
        n: &mut Navigation,
    ) {
        let a_run = self.groups().div_ceil(self.runs());
        self.nearest_runs((scope.probes * GROUPS_A_PROBE).div_ceil(a_run).max(LEAST_RUNS), n);
        let run_bytes = GROUPS_A_RUN / SCAN_BLOCK * codec.block_bytes();
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
            let before = n.groups.len();
            code_query.scan_group_before(codec, &scan, &mut n.groups);
            self.put_back(&mut n.groups[before..]);
            if n.groups.len() >= 2 * exact {
                keep_nearest(&mut n.groups, exact);
                worst = n.groups.last().map_or(worst, |group| group.distance);
            }
        }
        keep_nearest(&mut n.groups, exact);
    }

    /// The distance of the query to a group whose row is this.
    pub(crate) fn score_row(&self, n: &Navigation, row: &[u8]) -> f32 {
        let mut distance = [0.0];
        self.distance.score_block(&n.query, row, &mut distance);
        distance[0] * n.back
    }

    /// Leaves of the candidates the groups that the query scans, the nearest first; `false` if these do not
    /// hold as many vectors as are asked for, so that all groups are to be compared.
    fn choose(&self, scope: &Scope, n: &mut Navigation) -> bool {
        self.put_back(&mut n.groups);
        let chosen = self.chosen(scope, &mut n.groups);
        keep_nearest(&mut n.groups, chosen);
        // The nearest first, so that the threshold of the scan falls soon; the order of the others gains
        // nothing.
        order_nearest(&mut n.groups);
        self.put_forward(&mut n.groups);
        self.held(n) >= scope.least
    }

    /// Vectors of the groups in `n`.
    fn held(&self, n: &Navigation) -> usize {
        n.groups.iter().map(|group| self.count(group.id)).sum()
    }

    /// How many of `groups` (in no order, put back by their spread) a query scans.
    fn chosen(&self, scope: &Scope, groups: &mut [Neighbor]) -> usize {
        scope.chosen(groups, |distance| self.square(distance))
    }

    /// The square distance that a distance stands for: an inner product of normalised vectors does, too.
    fn square(&self, distance: f32) -> f32 {
        match self.metric {
            Metric::L2 => distance,
            _ => 2.0 + 2.0 * distance,
        }
    }

    /// Counts how far the groups are that [`Centroids::nearest`] has found.
    pub(crate) fn count_far(&self, navigation: &mut Navigation, farness: &mut Farness) {
        self.put_back(&mut navigation.groups);
        farness.add(&mut navigation.groups, |distance| self.square(distance));
    }

    /// Leaves the `wanted` runs nearest to the query in order; of many runs, those among the nearest spans.
    fn nearest_runs(&self, wanted: usize, n: &mut Navigation) {
        let row = 2 * self.dim;
        let mut score = |rows: &[u8], first: usize, found: &mut Vec<Neighbor>| {
            n.distances.resize(rows.len() / row, 0.0);
            self.distance.score_block(&n.query, rows, &mut n.distances);
            let scored = n.distances.iter().zip(first as u32..);
            found.extend(scored.map(|(distance, id)| Neighbor { distance: *distance * n.back, id }));
        };
        n.runs.clear();
        if self.spans.is_empty() {
            score(&self.runs, 0, &mut n.runs);
        } else {
            n.groups.clear();
            score(&self.spans, 0, &mut n.groups);
            keep_nearest(&mut n.groups, (wanted * RUNS_A_CHOICE).div_ceil(RUNS_A_SPAN).max(LEAST_SPANS));
            for span in &n.groups {
                let first = span.id as usize * RUNS_A_SPAN;
                let last = (first + RUNS_A_SPAN).min(self.runs());
                score(&self.runs[first * row..last * row], first, &mut n.runs);
            }
        }
        keep_nearest(&mut n.runs, wanted);
        n.runs.sort_unstable();
    }

    /// Leaves all groups in `n`, by their numbers.
    fn every(&self, n: &mut Navigation) {
        n.groups.clear();
        n.groups.extend((0..self.groups() as u32).map(|id| Neighbor { distance: 0.0, id }));
    }

    /// Keeps of all groups the nearest, as many as the query scans, and more until they hold enough
    /// vectors.
    fn choose_of_all(&self, scope: &Scope, n: &mut Navigation) {
        self.put_back(&mut n.groups);
        let chosen = self.chosen(scope, &mut n.groups);
        n.groups.sort_unstable();
        self.put_forward(&mut n.groups);
        let mut held = 0;
        let enough = n.groups.iter().position(|group| {
            held += self.count(group.id);
            held >= scope.least
        });
        n.groups.truncate(enough.map_or(usize::MAX, |at| (at + 1).max(chosen)));
    }
}

/// Groups whose distances are compared exactly, to choose those of `scope` from.
fn compared(scope: &Scope) -> usize {
    (scope.probes * EXACT_HALVES).div_ceil(2).max(scope.most(usize::MAX))
}

impl Navigation {
    /// Bytes of a search of up to `planned` groups in an index of `groups` and `runs`, about.
    pub(crate) fn planned_bytes(groups: usize, runs: usize, planned: usize) -> usize {
        let spans = LEAST_SPANS.max(planned * GROUPS_A_PROBE / GROUPS_A_RUN * RUNS_A_CHOICE / RUNS_A_SPAN);
        let compared = if runs > MOST_RUNS { runs / RUNS_A_SPAN + spans * RUNS_A_SPAN } else { runs };
        // Candidates twice, as their vector grows; ids and distances of those that are compared exactly.
        let chosen = (EXACT_HALVES * planned + GROUPS_A_RUN).min(groups);
        16 * compared.min(runs) + 24 * chosen
    }
}

/// Keeps the `wanted` nearest, in no order.
fn keep_nearest(found: &mut Vec<Neighbor>, wanted: usize) {
    if found.len() > wanted && wanted > 0 {
        found.select_nth_unstable(wanted - 1);
        found.truncate(wanted);
    }
}

/// Moves the nearest to the front and orders them.
fn order_nearest(found: &mut [Neighbor]) {
    if found.len() > IN_ORDER {
        found.select_nth_unstable(IN_ORDER);
    }
    let ordered = found.len().min(IN_ORDER);
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

    struct Rows(Vec<f32>);

    impl Points for Rows {
        fn dim(&self) -> usize {
            DIM
        }

        fn read(&self, id: u32, out: &mut [f32]) {
            out.copy_from_slice(&self.0[id as usize * DIM..][..DIM]);
        }
    }

    #[test]
    fn spans_of_runs_lead_to_the_nearest_groups() {
        let mut random = StdRng::seed_from_u64(1);
        let groups = (MOST_RUNS + 100) * GROUPS_A_RUN + 17;
        let rows = Rows((0..groups * DIM).map(|_| random.random_range(-1.0_f32..1.0)).collect());
        let mut order: Vec<u32> = (0..groups as u32).collect();
        let placement =
            Placement { units: vec![GROUPS_A_RUN], exchanged: None, threads: 2, seed: 1, card: None };
        placement.order(&rows, &mut order, &Silent).expect("nothing cancels");
        let centroids: Vec<f32> =
            order.iter().flat_map(|id| &rows.0[*id as usize * DIM..][..DIM]).copied().collect();
        let firsts = (0..groups as u32).step_by(GROUPS_A_RUN).collect();
        let mut centroids =
            Centroids::new(Metric::L2, vec![0.0; DIM], centroids, firsts, vec![1; groups]).expect("memory");
        assert_eq!(centroids.spans.len() as u64, span_bytes(centroids.runs(), DIM));
        assert_eq!((span_bytes(MOST_RUNS, DIM), centroids.runs()), (0, MOST_RUNS + 101));
        let codec = Codec::train(CodeKind::Axes, 8, Metric::L2, &rows.0, DIM, 1, 2).expect("a codec");
        centroids.encode(&codec).expect("memory");
        let (mut query, mut navigation) = (CodeQuery::new(), Navigation::default());
        let mut ask = |centroids: &Centroids, asked: &[f32], probes: usize| {
            centroids.begin(asked, &mut navigation);
            query.prepare_groups(&codec, &navigation.shifted);
            let scope = Scope { probes, prune: 0.0, least: 1 };
            centroids.nearest(&codec, &query, &scope, &mut navigation);
            let mut found: Vec<u32> = navigation.groups.iter().map(|group| group.id).collect();
            found.sort_unstable();
            (found, navigation.runs.capacity())
        };
        let (mut both, mut all, mut compared) = (0, 0, 0);
        let asked: Vec<Vec<f32>> =
            (0..50).map(|_| (0..DIM).map(|_| random.random_range(-1.0..1.0)).collect()).collect();
        let with_spans: Vec<_> = asked.iter().map(|asked| ask(&centroids, asked, 100)).collect();
        centroids.spans = Vec::new();
        for (asked, (found, capacity)) in asked.iter().zip(with_spans) {
            let (every, _) = ask(&centroids, asked, 100);
            both += every.iter().filter(|id| found.binary_search(id).is_ok()).count();
            all += every.len();
            compared = compared.max(capacity);
        }
        assert!(both * 100 >= all * 98, "{both} of {all}");
        assert!(compared < centroids.runs(), "{compared} runs");
        let planned = Navigation::planned_bytes(groups, MOST_RUNS + 101, 100);
        assert!(planned > compared * 8 && planned < 24 * groups / 50, "{planned} bytes");
        assert!(Navigation::planned_bytes(1 << 24, 1 << 18, 1000) < 256 << 10);
    }
}
