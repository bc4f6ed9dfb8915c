//! The files of centroids, and the checksums in them.

use super::spans::spans_of;
use super::{Centroids, GROUPS_PER_RUN, TABLES, spread_penalty};
use crate::allocate::try_collect;
use crate::error::Unreadable;
use crate::format::groups::GroupLayout;
use crate::format::identity::Identity;
use crate::query::codes::plain_metric;
use bathyal_kernels::{Distance, Element, Metric};
use half::f16;
use std::sync::OnceLock;

/// Sizes of the file of centroids, as the manifest has them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CentroidFile {
    /// Number of groups.
    pub(crate) groups: usize,
    /// Number of runs.
    pub(crate) runs: usize,
    /// Bytes of the file.
    pub(crate) bytes: u64,
    /// True if the rows of the groups are in a file of their own.
    pub(crate) rows_apart: bool,
}

impl Centroids {
    /// Sets the checksum of the codes of each group.
    pub(crate) fn set_code_checksums(&mut self, checksums: Vec<u32>) {
        self.code_checksums = checksums;
    }

    /// Compares the codes of a group that were read from a tier with their checksum.
    ///
    /// # Errors
    /// A sentence with both checksums.
    pub(crate) fn check_codes(&self, identity: Identity, group: u32, blocks: &[u8]) -> Result<(), String> {
        let (stored, found) = (self.code_checksums[group as usize], identity.checksum(blocks));
        if stored == found { Ok(()) } else { Err(format!("checksum {found:08x}, expected {stored:08x}")) }
    }

    /// Computes and sets the checksums of the rows.
    pub(crate) fn set_row_checksums(&mut self, identity: Identity) {
        let rows = self.rows().unwrap_or_default().chunks_exact(2 * self.dim);
        self.row_checksums = rows.map(|row| identity.checksum(row)).collect();
    }

    /// Compares the row of a group that was read from a tier with its checksum, and checks that it is finite.
    ///
    /// # Errors
    /// A sentence that names the fault.
    pub(crate) fn check_row(&self, identity: Identity, group: u32, row: &[u8]) -> Result<(), String> {
        let (stored, found) = (self.row_checksums[group as usize], identity.checksum(row));
        if stored != found {
            return Err(format!("checksum {found:08x}, expected {stored:08x}"));
        }
        if are_finite(row) { Ok(()) } else { Err("it is not finite".into()) }
    }

    /// Returns each group with the result of [`Centroids::check_row`] for its row; nothing if there are no
    /// checksums.
    pub(crate) fn checked_rows(&self, identity: Identity) -> impl Iterator<Item = (u32, Result<(), String>)> {
        let rows = self.rows().unwrap_or_default().chunks_exact(2 * self.dim);
        let groups = 0..self.row_checksums.len() as u32;
        groups.zip(rows).map(move |(group, row)| (group, self.check_row(identity, group, row)))
    }

    /// Returns the bytes of `centroids.bin`: mean, unit, runs, first groups, counts, checksums of codes and
    /// rows, for normalised vectors the squares of the groups' centroids, and the codes of centroids.
    /// [`Centroids::rows`] has the bytes of `rows.bin`.
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

    /// Parses and checks the bytes of [`Centroids::to_bytes`]. In older indexes, they contain the rows of the
    /// groups as well.
    ///
    /// # Errors
    /// [`Unreadable::Damaged`] if the numbers do not fit each other or `file`; [`Unreadable::NoMemory`].
    pub(crate) fn from_bytes(
        bytes: &[u8],
        file: &CentroidFile,
        layout: &GroupLayout,
        metric: Metric,
        vectors: u64,
    ) -> Result<Centroids, Unreadable> {
        let CentroidFile { groups, runs, rows_apart, .. } = *file;
        let dim = layout.dim();
        if bytes.len() as u64 != file.bytes {
            return Err(format!("its length does not fit {groups} groups in {runs} runs").into());
        }
        let (floats, rest) = bytes.split_at(4 * (dim + 1));
        let mut mean: Vec<f32> = floats.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let unit = mean.pop().unwrap_or(0.0);
        let (run_rows, rest) = rest.split_at(2 * dim * runs);
        let (group_rows, rest) = rest.split_at(if rows_apart { 0 } else { 2 * dim * groups });
        let numbers_per_group =
            2 + usize::from(rows_apart) + usize::from(rows_apart && metric == Metric::Cosine);
        let (rest, codes) = rest.split_at(4 * (numbers_per_group * groups + runs));
        let mut numbers = rest.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b));
        let first_groups = try_collect(TABLES, numbers.by_ref().take(runs))?;
        let counts = try_collect(TABLES, numbers.by_ref().take(groups))?;
        let code_checksums = try_collect(TABLES, numbers.by_ref().take(groups))?;
        let row_checksums = try_collect(TABLES, numbers.by_ref().take(if rows_apart { groups } else { 0 }))?;
        let spread_penalties: Vec<f32> =
            try_collect(TABLES, numbers.map(f32::from_bits).map(spread_penalty))?;
        let finite =
            mean.iter().chain(&spread_penalties).all(|v| v.is_finite()) && unit.is_finite() && unit > 0.0;
        if !finite || !are_finite(run_rows) || !are_finite(group_rows) {
            return Err("a centroid is not finite".into());
        }
        let rising = first_groups.first() == Some(&0) && first_groups.windows(2).all(|w| w[0] < w[1]);
        if !rising || first_groups.last().is_none_or(|last| *last as usize >= groups) {
            return Err("the runs do not divide the groups".into());
        }
        let ends = first_groups.iter().skip(1).copied().chain([groups as u32]);
        if first_groups.iter().zip(ends).any(|(first, end)| end - first > GROUPS_PER_RUN as u32) {
            return Err(format!("a run has more than {GROUPS_PER_RUN} groups").into());
        }
        let sum: u64 = counts.iter().map(|c| u64::from(*c)).sum();
        if counts.iter().any(|c| *c == 0 || *c as usize > layout.group_vectors()) || sum != vectors {
            return Err(format!("the groups hold {sum} vectors; the manifest has {vectors}").into());
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
            spread_penalties,
        };
        if !rows_apart {
            centroids.groups = OnceLock::from(copied(group_rows)?);
            if metric == Metric::Cosine {
                centroids = centroids.with_spread_penalties()?;
            }
        }
        Ok(centroids)
    }

    /// Sets the rows of all groups. The caller has compared them with the checksum of their file.
    ///
    /// # Errors
    /// A sentence if their number is wrong or one is not finite.
    pub(crate) fn take_rows(&self, rows: Vec<u8>) -> Result<(), String> {
        if rows.len() != 2 * self.dim * self.groups() || !are_finite(&rows) {
            return Err("a centroid is not finite, or is missing".into());
        }
        // Only one thread loads the rows, so they are not set yet.
        let _ = self.groups.set(rows);
        Ok(())
    }
}

/// Returns true if all these f16 are finite. It checks many at once, because a hundred million vectors have
/// about as many coordinates of centroids.
fn are_finite(halves: &[u8]) -> bool {
    let largest = |most: u16, bytes: &[u8; 2]| most.max(u16::from_le_bytes(*bytes) & !(1 << 15));
    halves.as_chunks::<2>().0.iter().fold(0, largest) < f16::INFINITY.to_bits()
}
