//! The centroids of groups and of runs of groups: how a query finds the groups to scan.
//!
//! All are kept as f16 around the data's mean, in units of the largest coordinate, so that any data fits.

use crate::error::IndexError;
use crate::format::groups::GroupLayout;
use crate::format::manifest::ClusterEntry;
use bathyal_kernels::{Distance, Element, Metric, Neighbor};
use half::f16;
use half::slice::HalfFloatSliceExt;

/// Groups looked at for each one that is scanned: the runs nearest to a query must hold nearly all of the groups
/// nearest to it. From 6 on the recall at equal probes no longer rises.
const GROUPS_A_PROBE: usize = 6;
/// Runs looked at, at least.
const LEAST_RUNS: usize = 8;

/// Centroids of all groups and runs.
#[derive(Debug)]
pub(crate) struct Centroids {
    dim: usize,
    metric: Metric,
    mean: Vec<f32>,
    /// What a stored coordinate of 1 stands for.
    unit: f32,
    /// Row-major f16.
    groups: Vec<u8>,
    runs: Vec<u8>,
    /// The first group of each run.
    first_groups: Vec<u32>,
    /// Vectors of each group.
    counts: Vec<u32>,
    /// CRC-32C of the blocks of codes of each group.
    code_checksums: Vec<u32>,
    distance: Distance,
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
    /// The groups to scan, nearest first, with the distance of the query to their centroid.
    pub(crate) groups: Vec<Neighbor>,
}

impl Centroids {
    /// `codes_metric` is L2 or the inner product. `centroids` are `groups x dim`, `first_groups` rise from 0.
    pub(crate) fn new(
        codes_metric: Metric,
        mean: Vec<f32>,
        centroids: &[f32],
        first_groups: Vec<u32>,
        counts: Vec<u32>,
    ) -> Centroids {
        let dim = mean.len();
        let shifted: Vec<f32> =
            centroids.chunks_exact(dim).flat_map(|row| row.iter().zip(&mean).map(|(v, m)| v - m)).collect();
        let largest = shifted.iter().fold(0.0_f32, |a, v| a.max(v.abs()));
        let unit = if largest > 0.0 { largest } else { 1.0 };
        let half = |rows: &[f32]| {
            let half: Vec<f16> = rows.iter().map(|v| f16::from_f32(v / unit)).collect();
            half.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()
        };
        let groups = half(&shifted);
        let ends = first_groups.iter().skip(1).copied().chain([counts.len() as u32]);
        let mut means = vec![0.0_f32; first_groups.len() * dim];
        for ((first, end), run) in first_groups.iter().zip(ends).zip(means.chunks_exact_mut(dim)) {
            for row in shifted[*first as usize * dim..end as usize * dim].chunks_exact(dim) {
                run.iter_mut().zip(row).for_each(|(m, v)| *m += v / (end - first) as f32);
            }
        }
        let runs = half(&means);
        let distance = Distance::new(Element::F16, codes_metric, dim);
        let code_checksums = vec![0; counts.len()];
        Centroids {
            dim,
            metric: codes_metric,
            mean,
            unit,
            groups,
            runs,
            first_groups,
            counts,
            code_checksums,
            distance,
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
    pub(crate) fn check_codes(&self, group: u32, blocks: &[u8]) -> Result<(), String> {
        let (stored, found) = (self.code_checksums[group as usize], crc32c::crc32c(blocks));
        if stored == found { Ok(()) } else { Err(format!("checksum {found:08x}, expected {stored:08x}")) }
    }

    /// The bytes of `centroids.bin`: mean, unit, runs, groups, first groups, counts, checksums of codes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.mean.iter().chain([&self.unit]).for_each(|v| bytes.extend(v.to_le_bytes()));
        bytes.extend_from_slice(&self.runs);
        bytes.extend_from_slice(&self.groups);
        let numbers = self.first_groups.iter().chain(&self.counts).chain(&self.code_checksums);
        numbers.for_each(|v| bytes.extend(v.to_le_bytes()));
        bytes
    }

    /// Reads what [`Centroids::to_bytes`] wrote; `bytes` have the length that the manifest was checked for.
    ///
    /// # Errors
    /// A sentence when numbers do not agree with each other.
    pub(crate) fn from_bytes(
        bytes: &[u8],
        entry: &ClusterEntry,
        layout: &GroupLayout,
        codes_metric: Metric,
        vectors: u64,
        dim: usize,
    ) -> Result<Centroids, String> {
        let (groups, runs) = (entry.groups as usize, entry.runs as usize);
        if bytes.len() as u64 != layout.centroid_bytes(groups as u64, runs as u64) {
            return Err(format!("{} bytes do not hold {groups} groups of {runs} runs", bytes.len()));
        }
        let (floats, rest) = bytes.split_at(4 * (dim + 1));
        let mut mean: Vec<f32> = floats.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let unit = mean.pop().unwrap_or(0.0);
        let (run_rows, rest) = rest.split_at(2 * dim * runs);
        let (group_rows, rest) = rest.split_at(2 * dim * groups);
        let mut numbers = rest.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b));
        let first_groups: Vec<u32> = numbers.by_ref().take(runs).collect();
        let counts: Vec<u32> = numbers.by_ref().take(groups).collect();
        let code_checksums = numbers.collect();
        let finite = mean.iter().all(|v| v.is_finite()) && unit.is_finite() && unit > 0.0;
        let halves = |rows: &[u8]| rows.as_chunks::<2>().0.iter().all(|b| f16::from_le_bytes(*b).is_finite());
        if !finite || !halves(run_rows) || !halves(group_rows) {
            return Err("a centroid is not finite".into());
        }
        let rising = first_groups.first() == Some(&0) && first_groups.windows(2).all(|w| w[0] < w[1]);
        if !rising || first_groups.last().is_none_or(|last| *last as usize >= groups) {
            return Err("the runs do not divide the groups".into());
        }
        let sum: u64 = counts.iter().map(|c| u64::from(*c)).sum();
        if counts.iter().any(|c| *c == 0 || *c as usize > layout.group_vectors()) || sum != vectors {
            return Err(format!("the groups hold {sum} vectors, the manifest says {vectors}"));
        }
        Ok(Centroids {
            dim,
            metric: codes_metric,
            mean,
            unit,
            groups: group_rows.to_vec(),
            runs: run_rows.to_vec(),
            first_groups,
            counts,
            code_checksums,
            distance: Distance::new(Element::F16, codes_metric, dim),
        })
    }

    /// Number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.counts.len()
    }

    /// Number of vectors in a group.
    #[inline]
    pub(crate) fn count(&self, group: u32) -> usize {
        self.counts[group as usize] as usize
    }

    /// The centroid of a group as residuals are measured from it, around the mean: what f16 made of it.
    pub(crate) fn shifted(&self, group: u32, out: &mut [f32]) {
        let row = &self.groups[group as usize * 2 * self.dim..][..2 * self.dim];
        for (value, bytes) in out.iter_mut().zip(row.as_chunks::<2>().0) {
            *value = f16::from_le_bytes(*bytes).to_f32() * self.unit;
        }
    }

    /// The mean of the data, which codes are shifted by.
    pub(crate) fn mean(&self) -> &[f32] {
        &self.mean
    }

    /// Fills `navigation` with the `probes` groups nearest to `query`, and more if these hold fewer than `least`
    /// vectors.
    pub(crate) fn nearest(&self, query: &[f32], probes: usize, least: usize, navigation: &mut Navigation) {
        let n = navigation;
        n.shifted.clear();
        match self.metric {
            Metric::L2 => n.shifted.extend(query.iter().zip(&self.mean).map(|(q, m)| q - m)),
            _ => n.shifted.extend_from_slice(query),
        }
        // The inner product scales with the query, whose length may be anything; L2 does not.
        let (scale, back) = match self.metric {
            Metric::L2 => (1.0 / self.unit, self.unit * self.unit),
            _ => {
                let largest = n.shifted.iter().fold(0.0_f32, |a, v| a.max(v.abs())).max(f32::MIN_POSITIVE);
                (1.0 / largest, self.unit * largest)
            }
        };
        n.coordinates.resize(self.dim, f16::ZERO);
        n.distances.clear();
        n.distances.extend(n.shifted.iter().map(|v| (v * scale).clamp(-60_000.0, 60_000.0)));
        n.coordinates.convert_from_f32_slice(&n.distances);
        n.query.clear();
        n.query.extend(n.coordinates.iter().flat_map(|v| v.to_le_bytes()));

        let runs = self.first_groups.len();
        n.distances.resize(runs, 0.0);
        self.distance.score_block(&n.query, &self.runs, &mut n.distances);
        n.runs.clear();
        n.runs.extend(n.distances.iter().enumerate().map(|(id, d)| Neighbor { distance: *d, id: id as u32 }));
        let a_run = self.groups().div_ceil(runs);
        let wanted = (probes * GROUPS_A_PROBE).div_ceil(a_run).max(LEAST_RUNS);
        keep_nearest(&mut n.runs, wanted);
        n.groups.clear();
        for run in &n.runs {
            let first = self.first_groups[run.id as usize];
            let end = self.first_groups.get(run.id as usize + 1).copied().unwrap_or(self.counts.len() as u32);
            let rows = &self.groups[first as usize * 2 * self.dim..end as usize * 2 * self.dim];
            n.distances.resize((end - first) as usize, 0.0);
            self.distance.score_block(&n.query, rows, &mut n.distances);
            let scored = n.distances.iter().zip(first..);
            n.groups.extend(scored.map(|(d, id)| Neighbor { distance: *d * back, id }));
        }
        keep_nearest(&mut n.groups, probes);
        n.groups.sort_unstable();
        let held: usize = n.groups.iter().map(|g| self.count(g.id)).sum();
        if held < least {
            // Small sets, or a large k: the groups asked for do not hold as many vectors.
            self.all_until(least, back, n);
        }
    }

    /// Scores all groups and keeps the nearest that hold `least` vectors together.
    fn all_until(&self, least: usize, back: f32, n: &mut Navigation) {
        n.distances.resize(self.groups(), 0.0);
        self.distance.score_block(&n.query, &self.groups, &mut n.distances);
        n.groups.clear();
        n.groups.extend(n.distances.iter().zip(0..).map(|(d, id)| Neighbor { distance: *d * back, id }));
        n.groups.sort_unstable();
        let mut held = 0;
        let enough = n.groups.iter().position(|group| {
            held += self.count(group.id);
            held >= least
        });
        n.groups.truncate(enough.map_or(usize::MAX, |at| at + 1));
    }
}

/// Keeps the `wanted` nearest, in no order.
fn keep_nearest(found: &mut Vec<Neighbor>, wanted: usize) {
    if found.len() > wanted && wanted > 0 {
        found.select_nth_unstable(wanted - 1);
        found.truncate(wanted);
    }
}

/// The metric that codes and centroids are compared by: normalised vectors are ordered alike by cosine and L2.
pub(crate) fn codes_metric(metric: Metric) -> Metric {
    match metric {
        Metric::Cosine | Metric::L2 => Metric::L2,
        Metric::InnerProduct => Metric::InnerProduct,
    }
}

/// An error that a centroid file is damaged.
pub(crate) fn damaged(path: std::path::PathBuf, reason: String) -> IndexError {
    IndexError::damaged(path, "the centroids", reason)
}
