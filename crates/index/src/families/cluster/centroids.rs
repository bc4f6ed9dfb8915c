//! The centroids of groups and of runs of groups: how a query finds the groups to scan.
//!
//! All are kept as f16 around the data's mean, in units of the largest coordinate, so that any data fits.

use super::scope::{Farness, Scope};
use super::section::ClusterEntry;
use crate::allocate::{try_collect, try_with_capacity, try_zeros};
use crate::error::{NoMemory, Unreadable};
use crate::format::groups::GroupLayout;
use crate::format::identity::Identity;
use crate::query::codes::plain_metric;
use bathyal_kernels::quantize::{CodeQuery, Codec, EncodeScratch, GroupScan, SCAN_BLOCK};
use bathyal_kernels::{Distance, Element, Metric, Neighbor, Rows};
use half::f16;
use half::slice::HalfFloatSliceExt;
use std::sync::OnceLock;

/// What is said of all this where there is no memory for it.
const TABLES: &str = "the centroids of groups and runs";
/// Most groups of a run: two blocks of codes.
pub(crate) const GROUPS_A_RUN: usize = 2 * SCAN_BLOCK;
/// Groups whose codes are looked at for each one that is scanned. The runs nearest to a query do not hold all of the
/// groups nearest to it: with 6 instead of 24, 192 probes find 0.946 of the neighbours of SIFT instead of 0.955.
const GROUPS_A_PROBE: usize = 24;
/// Runs looked at, at least.
const LEAST_RUNS: usize = 8;
/// Up to so many runs are all compared with a query.
const MOST_RUNS: usize = 2048;
/// Consecutive runs, which lie near each other, whose mean is looked at first where there are more.
pub(crate) const RUNS_A_SPAN: usize = 64;
/// Runs that are compared for each one that is looked into, where not all are.
const RUNS_A_CHOICE: usize = 8;
/// Spans looked into, at least.
const LEAST_SPANS: usize = 12;
/// Centroids that are compared exactly for each one that is chosen on average, in halves, or as many as a query may choose:
/// codes rank them nearly right.
const EXACT_HALVES: usize = 3;

/// What the mean square distance of a group's vectors from their centroid counts beside the square distance of the query
/// from it. With a quarter 16% fewer groups hold 99% of the neighbours of GloVe than with none, with a half 8%.
const SPREAD_WEIGHT: f32 = 0.25;

/// Groups that are handed over in order: with as many, the threshold of a scan is about as low as it will be.
const IN_ORDER: usize = 64;

/// Centroids of all groups and runs.
#[derive(Debug)]
pub(crate) struct Centroids {
    dim: usize,
    metric: Metric,
    mean: Vec<f32>,
    /// What a stored coordinate of 1 stands for.
    unit: f32,
    /// Row-major f16; of a store that is elsewhere they may come while searches run.
    groups: OnceLock<Vec<u8>>,
    runs: Vec<u8>,
    /// The means of spans of runs; empty where runs are few.
    spans: Vec<u8>,
    /// The first group of each run.
    first_groups: Vec<u32>,
    /// Vectors of each group.
    counts: Vec<u32>,
    /// CRC-32C of the blocks of codes of each group.
    code_checksums: Vec<u32>,
    /// The same of each group's row; empty of an index that has its rows where it has the rest.
    row_checksums: Vec<u32>,
    /// The codes of the groups' centroids as residuals to their run's: two blocks a run.
    centroid_codes: Vec<u8>,
    distance: Distance,
    /// What a group is behind by, for being spread out; empty where that is not known.
    behind: Vec<f32>,
}

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
    /// `plain_metric` is L2 or the inner product. `centroids` are `groups x dim`, `first_groups` rise from 0.
    pub(crate) fn new(
        plain_metric: Metric,
        mean: Vec<f32>,
        centroids: Vec<f32>,
        first_groups: Vec<u32>,
        counts: Vec<u32>,
    ) -> Result<Centroids, NoMemory> {
        let dim = mean.len();
        let mut shifted = centroids;
        for row in shifted.chunks_exact_mut(dim) {
            row.iter_mut().zip(&mean).for_each(|(v, m)| *v -= m);
        }
        let largest = shifted.iter().fold(0.0_f32, |a, v| a.max(v.abs()));
        let unit = if largest > 0.0 { largest } else { 1.0 };
        let half = |rows: &[f32]| {
            let mut bytes = try_with_capacity(TABLES, 2 * rows.len())?;
            rows.iter().for_each(|v| bytes.extend(f16::from_f32(v / unit).to_le_bytes()));
            Ok(bytes)
        };
        let groups = half(&shifted)?;
        let ends = first_groups.iter().skip(1).copied().chain([counts.len() as u32]);
        let mut means = try_zeros(TABLES, first_groups.len() * dim)?;
        for ((first, end), run) in first_groups.iter().zip(ends).zip(means.chunks_exact_mut(dim)) {
            for row in shifted[*first as usize * dim..end as usize * dim].chunks_exact(dim) {
                run.iter_mut().zip(row).for_each(|(m, v)| *m += v / (end - first) as f32);
            }
        }
        let runs = half(&means)?;
        let distance = Distance::new(Element::F16, plain_metric, dim);
        let code_checksums = try_zeros(TABLES, counts.len())?;
        let spans = spans_of(&runs, dim)?;
        Ok(Centroids {
            dim,
            metric: plain_metric,
            mean,
            unit,
            groups: OnceLock::from(groups),
            runs,
            spans,
            first_groups,
            counts,
            code_checksums,
            row_checksums: Vec::new(),
            centroid_codes: Vec::new(),
            distance,
            behind: Vec::new(),
        })
    }

    /// The centroids of all groups, if they are there.
    pub(super) fn rows(&self) -> Option<&[u8]> {
        self.groups.get().map(Vec::as_slice)
    }

    /// The row of a group; zeros where it is not there yet, which only those ask for who have waited.
    fn read_group(&self, group: u32, out: &mut [f32]) {
        match self.rows() {
            Some(rows) => self.read_row(rows, group as usize, out),
            None => out.fill(0.0),
        }
    }

    /// Codes the centroids by the codec of the vectors: both are residuals, and codes take the scale of what they code.
    pub(crate) fn encode(&mut self, codec: &Codec) -> Result<(), NoMemory> {
        let run_bytes = GROUPS_A_RUN / SCAN_BLOCK * codec.block_bytes();
        let mut codes = try_zeros(TABLES, self.first_groups.len() * run_bytes)?;
        let mut scratch = EncodeScratch::default();
        let (mut rows, mut centre) = (Vec::new(), vec![0.0_f32; self.dim]);
        for (run, blocks) in codes.chunks_exact_mut(run_bytes).enumerate() {
            let groups = self.groups_of(run as u32);
            rows.resize(groups.len() * self.dim, 0.0);
            for (group, row) in groups.clone().zip(rows.chunks_exact_mut(self.dim)) {
                self.shifted(group, row);
            }
            self.read_row(&self.runs, run, &mut centre);
            let used = groups.len().div_ceil(SCAN_BLOCK) * codec.block_bytes();
            codec.encode_group(&rows, &centre, &mut blocks[..used], &mut scratch);
        }
        self.centroid_codes = codes;
        Ok(())
    }

    /// Shortens the codes of the centroids as those of the vectors are: a query has one table for both.
    pub(super) fn shorten(&mut self, codec: &Codec, shorter: &Codec) -> Result<(), NoMemory> {
        let blocks = GROUPS_A_RUN / SCAN_BLOCK;
        let (long, short) = (blocks * codec.block_bytes(), blocks * shorter.block_bytes());
        let mut codes = try_zeros(TABLES, self.first_groups.len() * short)?;
        let (mut scratch, mut centre) = (EncodeScratch::default(), vec![0.0_f32; self.dim]);
        for (run, out) in codes.chunks_exact_mut(short).enumerate() {
            let groups = self.groups_of(run as u32).len();
            self.read_row(&self.runs, run, &mut centre);
            let out = &mut out[..groups.div_ceil(SCAN_BLOCK) * shorter.block_bytes()];
            let stored = &self.centroid_codes[run * long..(run + 1) * long];
            codec.shorten_group(shorter, (stored, groups), &centre, out, &mut scratch);
        }
        self.centroid_codes = codes;
        Ok(())
    }

    /// The groups of a run.
    fn groups_of(&self, run: u32) -> std::ops::Range<u32> {
        let end = self.first_groups.get(run as usize + 1).copied().unwrap_or(self.counts.len() as u32);
        self.first_groups[run as usize]..end
    }

    fn read_row(&self, rows: &[u8], row: usize, out: &mut [f32]) {
        let row = &rows[row * 2 * self.dim..][..2 * self.dim];
        for (value, bytes) in out.iter_mut().zip(row.as_chunks::<2>().0) {
            *value = f16::from_le_bytes(*bytes).to_f32() * self.unit;
        }
    }

    /// Notes the checksums of the codes, one a group.
    pub(crate) fn set_code_checksums(&mut self, checksums: Vec<u32>) {
        self.code_checksums = checksums;
    }

    /// Checks the blocks of a group that come from a tier.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(crate) fn check_codes(&self, identity: Identity, group: u32, blocks: &[u8]) -> Result<(), String> {
        let (stored, found) = (self.code_checksums[group as usize], identity.checksum(blocks));
        if stored == found { Ok(()) } else { Err(format!("checksum {found:08x}, expected {stored:08x}")) }
    }

    /// Notes the checksums of the rows.
    pub(crate) fn check_rows(&mut self, identity: Identity) {
        let rows = self.rows().unwrap_or_default().chunks_exact(2 * self.dim);
        self.row_checksums = rows.map(|row| identity.checksum(row)).collect();
    }

    /// Compares the row of a group that comes from a tier with its checksum.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(super) fn check_row(&self, identity: Identity, group: u32, row: &[u8]) -> Result<(), String> {
        let (stored, found) = (self.row_checksums[group as usize], identity.checksum(row));
        if stored != found {
            return Err(format!("checksum {found:08x}, expected {stored:08x}"));
        }
        if are_finite(row) { Ok(()) } else { Err("it is not finite".into()) }
    }

    /// Each group with what [`Centroids::check_row`] says of its row; none where there are no checksums.
    pub(super) fn checked_rows(&self, identity: Identity) -> impl Iterator<Item = (u32, Result<(), String>)> {
        let rows = self.rows().unwrap_or_default().chunks_exact(2 * self.dim);
        let groups = 0..self.row_checksums.len() as u32;
        groups.zip(rows).map(move |(group, row)| (group, self.check_row(identity, group, row)))
    }

    /// The bytes of `centroids.bin`: mean, unit, runs, first groups, counts, checksums of codes and rows, of normalised vectors the
    /// squares of the groups' centroids, codes of centroids. [`Centroids::rows`] are those of `rows.bin`.
    pub(crate) fn to_bytes(&self, metric: Metric) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.mean.iter().chain([&self.unit]).for_each(|v| bytes.extend(v.to_le_bytes()));
        bytes.extend_from_slice(&self.runs);
        let numbers = [&self.first_groups, &self.counts, &self.code_checksums, &self.row_checksums];
        numbers.into_iter().flatten().for_each(|v| bytes.extend(v.to_le_bytes()));
        if metric == Metric::Cosine {
            self.squares().for_each(|v| bytes.extend(v.to_le_bytes()));
        }
        bytes.extend_from_slice(&self.centroid_codes);
        bytes
    }

    /// Reads what [`Centroids::to_bytes`] wrote; `bytes` have the length that the manifest was checked for. Of an index whose
    /// rows are among them these are there, too.
    ///
    /// # Errors
    /// A sentence when numbers do not agree with each other.
    pub(crate) fn from_bytes(
        bytes: &[u8],
        entry: &ClusterEntry,
        layout: &GroupLayout,
        metric: Metric,
        vectors: u64,
    ) -> Result<Centroids, Unreadable> {
        let (groups, runs, dim) = (entry.groups as usize, entry.runs as usize, layout.dim());
        if bytes.len() as u64 != entry.centroid_bytes(layout, metric) {
            return Err(format!("{} bytes do not hold {groups} groups of {runs} runs", bytes.len()).into());
        }
        let apart = entry.rows.is_some();
        let (floats, rest) = bytes.split_at(4 * (dim + 1));
        let mut mean: Vec<f32> = floats.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let unit = mean.pop().unwrap_or(0.0);
        let (run_rows, rest) = rest.split_at(2 * dim * runs);
        let (group_rows, rest) = rest.split_at(if apart { 0 } else { 2 * dim * groups });
        let of_groups = 2 + usize::from(apart) + usize::from(apart && metric == Metric::Cosine);
        let (rest, codes) = rest.split_at(4 * (of_groups * groups + runs));
        let mut numbers = rest.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b));
        let first_groups = try_collect(TABLES, numbers.by_ref().take(runs))?;
        let counts = try_collect(TABLES, numbers.by_ref().take(groups))?;
        let code_checksums = try_collect(TABLES, numbers.by_ref().take(groups))?;
        let row_checksums = try_collect(TABLES, numbers.by_ref().take(if apart { groups } else { 0 }))?;
        let behind: Vec<f32> = try_collect(TABLES, numbers.map(f32::from_bits).map(behind))?;
        let finite = mean.iter().chain(&behind).all(|v| v.is_finite()) && unit.is_finite() && unit > 0.0;
        if !finite || !are_finite(run_rows) || !are_finite(group_rows) {
            return Err("a centroid is not finite".into());
        }
        let rising = first_groups.first() == Some(&0) && first_groups.windows(2).all(|w| w[0] < w[1]);
        if !rising || first_groups.last().is_none_or(|last| *last as usize >= groups) {
            return Err("the runs do not divide the groups".into());
        }
        let ends = first_groups.iter().skip(1).copied().chain([groups as u32]);
        if first_groups.iter().zip(ends).any(|(first, end)| end - first > GROUPS_A_RUN as u32) {
            return Err(format!("a run has more than {GROUPS_A_RUN} groups").into());
        }
        let sum: u64 = counts.iter().map(|c| u64::from(*c)).sum();
        if counts.iter().any(|c| *c == 0 || *c as usize > layout.group_vectors()) || sum != vectors {
            return Err(format!("the groups hold {sum} vectors, the manifest says {vectors}").into());
        }
        let copied = |bytes: &[u8]| try_collect(TABLES, bytes.iter().copied());
        let plain_metric = plain_metric(metric);
        let mut centroids = Centroids {
            dim,
            metric: plain_metric,
            mean,
            unit,
            groups: OnceLock::new(),
            runs: copied(run_rows)?,
            spans: spans_of(run_rows, dim)?,
            first_groups,
            counts,
            code_checksums,
            row_checksums,
            centroid_codes: copied(codes)?,
            distance: Distance::new(Element::F16, plain_metric, dim),
            behind,
        };
        if !apart {
            centroids.groups = OnceLock::from(copied(group_rows)?);
            if metric == Metric::Cosine {
                centroids = centroids.of_unit_vectors()?;
            }
        }
        Ok(centroids)
    }

    /// Takes the rows of all groups, which were compared with the checksum of their file.
    ///
    /// # Errors
    /// A sentence where they are none.
    pub(super) fn take_rows(&self, rows: Vec<u8>) -> Result<(), String> {
        if rows.len() != 2 * self.dim * self.groups() || !are_finite(&rows) {
            return Err("a centroid is not finite, or is missing".into());
        }
        // Nobody else sets them.
        let _ = self.groups.set(rows);
        Ok(())
    }

    /// Says that vectors are normalised, so that a centroid tells how far its group is spread: by as much as its own
    /// square is below 1.
    ///
    /// Of two groups at one distance the one that is less spread has more of the nearest neighbours.
    fn of_unit_vectors(mut self) -> Result<Centroids, NoMemory> {
        self.behind = try_collect(TABLES, self.squares().map(behind))?;
        Ok(self)
    }

    /// The square of the length of each group's centroid.
    fn squares(&self) -> impl ExactSizeIterator<Item = f32> {
        let mut centroid = vec![0.0; self.dim];
        (0..self.groups() as u32).map(move |group| {
            self.read_group(group, &mut centroid);
            centroid.iter().zip(&self.mean).map(|(c, m)| (c + m) * (c + m)).sum()
        })
    }

    /// Puts groups back by what their spread costs them.
    fn put_back(&self, groups: &mut [Neighbor]) {
        if !self.behind.is_empty() {
            groups.iter_mut().for_each(|group| group.distance += self.behind[group.id as usize]);
        }
    }

    /// Makes the distances of groups those to their centroids again.
    fn put_forward(&self, groups: &mut [Neighbor]) {
        if !self.behind.is_empty() {
            groups.iter_mut().for_each(|group| group.distance -= self.behind[group.id as usize]);
        }
    }

    /// Number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.counts.len()
    }

    /// Number of runs.
    pub(crate) fn runs(&self) -> usize {
        self.first_groups.len()
    }

    /// Number of vectors in a group.
    #[inline]
    pub(crate) fn count(&self, group: u32) -> usize {
        self.counts[group as usize] as usize
    }

    /// The centroid of a group as residuals are measured from it, around the mean: what f16 made of it.
    pub(crate) fn shifted(&self, group: u32, out: &mut [f32]) {
        self.read_group(group, out);
    }

    /// The mean of the data, which codes are shifted by.
    pub(crate) fn mean(&self) -> &[f32] {
        &self.mean
    }

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

    /// Fills `navigation` with the `wanted` groups nearest to the query, the nearest first, and returns how many of these are of
    /// `scope`.
    pub(super) fn nearest_in_order(
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

    /// The same by the codes of the centroids alone, while their rows are not there: nearly the same groups, with distances that are
    /// not exact.
    pub(super) fn nearest_by_codes(
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

    /// Leaves in `n` the groups of which those of `scope` are to be chosen, `exact` of them in no order, put back by their spread.
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
    pub(super) fn score_row(&self, n: &Navigation, row: &[u8]) -> f32 {
        let mut distance = [0.0];
        self.distance.score_block(&n.query, row, &mut distance);
        distance[0] * n.back
    }

    /// Leaves of the candidates the groups that the query scans, the nearest first; `false` if these do not hold as many vectors as
    /// are asked for, so that all groups are to be compared.
    fn choose(&self, scope: &Scope, n: &mut Navigation) -> bool {
        self.put_back(&mut n.groups);
        let chosen = self.chosen(scope, &mut n.groups);
        keep_nearest(&mut n.groups, chosen);
        // The nearest first, so that the threshold of the scan falls soon; the order of the others gains nothing.
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

    /// Whether it is known how far groups are, and not only which is nearer: inner products of vectors of any length say no
    /// more.
    pub(crate) fn tells_far(&self) -> bool {
        self.metric == Metric::L2 || !self.behind.is_empty()
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

/// What a group of normalised vectors is behind by whose centroid has this square.
fn behind(square: f32) -> f32 {
    SPREAD_WEIGHT * (1.0 - square).max(0.0)
}

/// Whether all of these f16 are finite: many at once, since at a hundred million vectors there are as many of them.
fn are_finite(halves: &[u8]) -> bool {
    let largest = |most: u16, bytes: &[u8; 2]| most.max(u16::from_le_bytes(*bytes) & !(1 << 15));
    halves.as_chunks::<2>().0.iter().fold(0, largest) < f16::INFINITY.to_bits()
}

/// Rows of f16, the means of [`RUNS_A_SPAN`] of `runs` each, where these are more than [`MOST_RUNS`].
fn spans_of(runs: &[u8], dim: usize) -> Result<Vec<u8>, NoMemory> {
    let mut spans = try_with_capacity(TABLES, span_bytes(runs.len() / (2 * dim), dim) as usize)?;
    if spans.capacity() == 0 {
        return Ok(spans);
    }
    let mut sums = vec![0.0_f32; dim];
    for rows in runs.chunks(RUNS_A_SPAN * 2 * dim) {
        sums.fill(0.0);
        for row in rows.chunks_exact(2 * dim) {
            let values = row.as_chunks::<2>().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32());
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        let count = (rows.len() / (2 * dim)) as f32;
        spans.extend(sums.iter().flat_map(|sum| f16::from_f32(sum / count).to_le_bytes()));
    }
    Ok(spans)
}

/// Bytes of the means of spans of so many runs.
pub(crate) fn span_bytes(runs: usize, dim: usize) -> u64 {
    if runs > MOST_RUNS { (runs.div_ceil(RUNS_A_SPAN) * 2 * dim) as u64 } else { 0 }
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
