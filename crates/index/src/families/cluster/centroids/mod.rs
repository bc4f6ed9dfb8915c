//! The centroids of groups and of runs of groups, by which a query finds the groups to scan.
//!
//! They are stored as f16, minus the mean of the data and divided by the largest coordinate, so that any data
//! fits.

mod codes;
mod file;
mod navigation;
pub(crate) mod scope;
mod spans;

pub(crate) use file::CentroidFile;
pub(crate) use navigation::Navigation;
pub(crate) use spans::span_bytes;

use crate::allocate::{try_collect, try_with_capacity, try_zeros};
use crate::error::NoMemory;
use bathyal_kernels::quantize::SCAN_BLOCK;
use bathyal_kernels::{Distance, Element, Metric, Neighbor};
use half::f16;
use spans::spans_of;
use std::sync::OnceLock;

/// Name of the centroids in an error about missing memory.
const TABLES: &str = "the centroids of groups and runs";
/// Most groups of a run: two blocks of codes.
pub(crate) const GROUPS_PER_RUN: usize = 2 * SCAN_BLOCK;

/// Weight of the mean square distance of a group's vectors from their centroid, which is added to the square
/// distance of the query from the centroid. With a weight of 0.25, 16% fewer groups hold 99% of the
/// neighbours of GloVe than without; with 0.5, 8% fewer.
const SPREAD_WEIGHT: f32 = 0.25;

/// The centroids of all groups and runs.
#[derive(Debug)]
pub(crate) struct Centroids {
    dim: usize,
    metric: Metric,
    mean: Vec<f32>,
    /// The value of a stored coordinate of 1.
    unit: f32,
    /// The rows of the groups: `groups x dim` f16, row-major. From an object store, they may arrive while
    /// searches run.
    groups: OnceLock<Vec<u8>>,
    /// The rows of the runs: `runs x dim` f16, row-major.
    runs: Vec<u8>,
    /// The means of spans of consecutive runs; empty if there are few runs.
    spans: Vec<u8>,
    /// The first group of each run.
    first_groups: Vec<u32>,
    /// Vectors of each group.
    counts: Vec<u32>,
    /// CRC-32C of the blocks of codes of each group.
    code_checksums: Vec<u32>,
    /// CRC-32C of each group's row; empty if the rows are not in a file of their own.
    row_checksums: Vec<u32>,
    /// The codes of the groups' centroids, as residuals to the centroid of their run: two blocks for each
    /// run.
    centroid_codes: Vec<u8>,
    distance: Distance,
    /// The spread penalty of each group, which is added to its distance; empty if the spread is unknown.
    spread_penalties: Vec<f32>,
}

impl Centroids {
    /// Creates the centroids without codes and checksums. `plain_metric` is L2 or the inner product.
    /// `centroids` are `groups x dim`, row-major. `first_groups` has the first group of each run, in rising
    /// order from 0.
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
            spread_penalties: Vec::new(),
        })
    }

    /// Returns the rows of all groups, if they have arrived.
    pub(super) fn rows(&self) -> Option<&[u8]> {
        self.groups.get().map(Vec::as_slice)
    }

    /// Returns the range of the groups of a run.
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

    /// Computes the spread penalties of groups of normalised vectors, whose spread is 1 minus the square of
    /// the centroid.
    ///
    /// Of two groups at the same distance, the one with less spread holds more of the nearest neighbours.
    fn with_spread_penalties(mut self) -> Result<Centroids, NoMemory> {
        self.spread_penalties = try_collect(TABLES, self.squares().map(spread_penalty))?;
        Ok(self)
    }

    /// Returns the square of the length of each group's centroid.
    fn squares(&self) -> impl ExactSizeIterator<Item = f32> {
        let mut centroid = vec![0.0; self.dim];
        (0..self.groups() as u32).map(move |group| {
            self.read_centroid(group, &mut centroid);
            centroid.iter().zip(&self.mean).map(|(c, m)| (c + m) * (c + m)).sum()
        })
    }

    /// Adds the spread penalties to the distances of groups.
    fn add_spread_penalties(&self, groups: &mut [Neighbor]) {
        if !self.spread_penalties.is_empty() {
            groups.iter_mut().for_each(|group| group.distance += self.spread_penalties[group.id as usize]);
        }
    }

    /// Subtracts the spread penalties, so that distances are those to the centroids again.
    fn subtract_spread_penalties(&self, groups: &mut [Neighbor]) {
        if !self.spread_penalties.is_empty() {
            groups.iter_mut().for_each(|group| group.distance -= self.spread_penalties[group.id as usize]);
        }
    }

    /// Returns the number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.counts.len()
    }

    /// Returns the number of runs.
    pub(crate) fn runs(&self) -> usize {
        self.first_groups.len()
    }

    /// Returns the number of vectors in a group.
    #[inline]
    pub(crate) fn count(&self, group: u32) -> usize {
        self.counts[group as usize] as usize
    }

    /// Reads the stored (f16) centroid of a group, minus the mean of the data; residuals are relative to it.
    /// Writes zeros if the rows have not arrived yet; callers have waited for them.
    pub(crate) fn read_centroid(&self, group: u32, out: &mut [f32]) {
        match self.rows() {
            Some(rows) => self.read_row(rows, group as usize, out),
            None => out.fill(0.0),
        }
    }

    /// Returns the mean of the data, which is subtracted before vectors are encoded.
    pub(crate) fn mean(&self) -> &[f32] {
        &self.mean
    }

    /// Returns true if the distances of groups can be compared as ratios. Inner products of vectors of any
    /// length only order the groups.
    pub(crate) fn has_distances(&self) -> bool {
        self.metric == Metric::L2 || !self.spread_penalties.is_empty()
    }
}

/// Returns the spread penalty of a group of normalised vectors whose centroid has this square.
fn spread_penalty(square: f32) -> f32 {
    SPREAD_WEIGHT * (1.0 - square).max(0.0)
}
