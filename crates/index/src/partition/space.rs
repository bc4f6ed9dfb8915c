//! The vectors of a build in memory, with the distance by which its graph is built.
//!
//! A graph needs a distance that obeys an approximate triangle inequality. Squared L2 does. Cosine is L2
//! between normalised vectors. For the inner product, every vector gets an extra coordinate that makes all
//! vectors equally long (`sqrt(longest^2 - length^2)`); the order by L2 from a query is then the order by
//! inner product. The extra coordinate is stored beside the rows and never written to a file.

use crate::allocate::try_with_capacity;
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::partition::placement::project::{dot, dot_u8};
use crate::partition::placement::{Points, READS_AHEAD};
use crate::partition::{CHECK_BYTES, READ_BYTES};
use bathyal_kernels::{Distance, Element, Metric, Neighbor, Rows, normalize_f32, squared_norm, to_f32};
use bathyal_vectors::progress::Progress;
use bathyal_vectors::{RowReader, VectorError};
use std::sync::Mutex;

/// Alignment of rows, so that no row extends over more cache lines than it must.
const ROW_ALIGNMENT: usize = 64;

/// Vectors in memory, with a build distance.
pub(crate) struct Space {
    bytes: Vec<u8>,
    /// Bytes before the first row, so that rows begin on a cache line.
    lead: usize,
    stride: usize,
    count: usize,
    dim: usize,
    element: Element,
    metric: Metric,
    distance: Distance,
    /// Inner product only: the extra coordinate of each row, and twice the largest squared length.
    lift: Option<(Vec<f32>, f32)>,
}

impl Space {
    /// Returns the bytes that a space over `data` takes.
    pub(crate) fn planned_bytes(data: &SourceVectors<'_>, metric: Metric) -> u64 {
        Space::planned_rows(data.count(), data.row_bytes(), metric)
    }

    /// Returns the bytes that a space of `count` rows takes.
    pub(crate) fn planned_rows(count: usize, row_bytes: usize, metric: Metric) -> u64 {
        let lift = if metric == Metric::InnerProduct { 4 } else { 0 };
        (stride_of(row_bytes) as u64 + lift) * count as u64 + ROW_ALIGNMENT as u64
    }

    /// Allocates `count` rows of zeros; [`Space::row_mut`] sets them.
    ///
    /// # Errors
    /// [`IndexError::NoMemory`].
    pub(crate) fn blank(
        count: usize,
        dim: usize,
        element: Element,
        metric: Metric,
    ) -> Result<Space, IndexError> {
        let stride = stride_of(element.row_bytes(dim));
        let needed = stride.saturating_mul(count).saturating_add(ROW_ALIGNMENT);
        let mut bytes = try_with_capacity("the vectors of a build", needed)?;
        bathyal_tier::advise_huge_pages(&mut bytes);
        bytes.resize(needed, 0_u8);
        let lead = bytes.as_ptr().align_offset(ROW_ALIGNMENT).min(ROW_ALIGNMENT);
        let kernel = match (metric, element.has_unit_vectors()) {
            (Metric::Cosine, true) => Metric::L2,
            (other, _) => other,
        };
        let distance = Distance::new(element, kernel, dim);
        Ok(Space { bytes, lead, stride, count, dim, element, metric, distance, lift: None })
    }

    /// Returns the bytes of one row, to be set.
    pub(crate) fn row_mut(&mut self, id: u32) -> &mut [u8] {
        let start = self.lead + id as usize * self.stride;
        &mut self.bytes[start..start + self.element.row_bytes(self.dim)]
    }

    /// Computes the extra coordinate of each row, which extends it to `longest`, a squared length.
    pub(crate) fn lift(&mut self, longest: f32) {
        let norms = (0..self.count).map(|i| squared_norm(self.element, self.row(i as u32)));
        let lift = norms.map(|norm| (longest - norm).max(0.0).sqrt()).collect();
        self.lift = Some((lift, 2.0 * longest));
    }

    /// Loads the rows of `data`, normalised for cosine if the element can represent that.
    pub(crate) fn load(
        data: &SourceVectors<'_>,
        metric: Metric,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<Space, IndexError> {
        let (count, row_bytes, element) = (data.count(), data.row_bytes(), data.element());
        let mut space = Space::blank(count, data.dim(), element, metric)?;
        let (stride, lead) = (space.stride, space.lead);
        let check_rows = (CHECK_BYTES / data.given_row_bytes()).max(1);
        let zeros = Mutex::new((0_u64, Vec::new()));
        let rows_a_thread = count.div_ceil(threads.max(1)).max(1);
        let copy = |first: usize, slots: &mut [u8]| {
            let mut rows = RowReader::new(data.given(), READ_BYTES);
            for (i, slot) in slots.chunks_mut(stride).enumerate() {
                if i % check_rows == 0 && progress.cancelled() {
                    return Ok(());
                }
                if !data.form().take(rows.row(first + i)?, &mut slot[..row_bytes]) {
                    note_zero(&zeros, (first + i) as u64);
                }
            }
            Ok(())
        };
        let failed = Mutex::new(None::<VectorError>);
        std::thread::scope(|scope| {
            let parts = space.bytes[lead..lead + stride * count].chunks_mut(rows_a_thread * stride);
            for (part, slots) in parts.enumerate() {
                let (copy, failed) = (&copy, &failed);
                scope.spawn(move || {
                    let copied = copy(part * rows_a_thread, slots);
                    if let (Err(error), Ok(mut failed)) = (copied, failed.lock()) {
                        *failed = Some(error);
                    }
                });
            }
        });
        if let Ok(Some(error)) = failed.into_inner() {
            return Err(error.into());
        }
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        let (count_zero, mut rows) = zeros.into_inner().unwrap_or_default();
        if count_zero > 0 {
            rows.sort_unstable();
            rows.truncate(10);
            return Err(IndexError::ZeroVectors { count: count_zero, rows });
        }
        if metric == Metric::InnerProduct {
            let norms = (0..count).map(|i| squared_norm(element, space.row(i as u32)));
            let longest = norms.fold(0.0_f32, f32::max);
            space.lift(longest);
        }
        Ok(space)
    }

    /// Returns the number of vectors.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the element of the rows.
    pub(crate) fn element(&self) -> Element {
        self.element
    }

    /// Returns the number of dimensions of a row.
    pub(crate) fn dim(&self) -> usize {
        self.dim
    }

    /// Returns the bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.element.row_bytes(self.dim)
    }

    /// Returns the number of coordinates of a row for the build distance, including the extra coordinate.
    pub(crate) fn point_dim(&self) -> usize {
        self.dim + usize::from(self.lift.is_some())
    }

    /// Returns the bytes of one row, as the index stores them.
    #[inline]
    pub(crate) fn row(&self, id: u32) -> &[u8] {
        let start = self.lead + id as usize * self.stride;
        &self.bytes[start..start + self.element.row_bytes(self.dim)]
    }

    /// Writes row `id` to `out` as floats, normalised for cosine, for the training of codes.
    pub(crate) fn row_f32(&self, id: u32, out: &mut [f32]) {
        to_f32(self.element, self.row(id), out);
        if self.metric == Metric::Cosine && !self.element.has_unit_vectors() {
            normalize_f32(out);
        }
    }

    /// Returns the build distance between two rows.
    #[inline]
    pub(crate) fn between(&self, a: u32, b: u32) -> f32 {
        let distance = self.distance.between(self.row(a), self.row(b));
        match &self.lift {
            None => distance,
            Some((lift, doubled)) => doubled + 2.0 * (distance - lift[a as usize] * lift[b as usize]),
        }
    }

    /// Computes the build distance from row `from` to each of `ids`.
    #[inline]
    pub(crate) fn score(&self, from: u32, ids: &[u32], out: &mut [f32]) {
        let lift = self.lift.as_ref().map_or(0.0, |(lift, _)| lift[from as usize]);
        self.score_lifted(self.row(from), lift, ids, out);
    }

    /// Computes the build distance from a vector that is not in the space to each of `ids`.
    pub(crate) fn score_row(&self, row: &[u8], ids: &[u32], out: &mut [f32]) {
        let lift = |longest: f32| (longest - squared_norm(self.element, row)).max(0.0).sqrt();
        let lift = self.longest().map_or(0.0, lift);
        self.score_lifted(row, lift, ids, out);
    }

    /// Computes the distances of `ids` from a query, whose extra coordinate under the inner product is 0.
    pub(crate) fn score_query(&self, row: &[u8], ids: &[u32], out: &mut [f32]) {
        self.score_lifted(row, 0.0, ids, out);
    }

    #[inline]
    fn score_lifted(&self, row: &[u8], row_lift: f32, ids: &[u32], out: &mut [f32]) {
        let rows = Rows { bytes: &self.bytes[self.lead..], stride: self.stride };
        self.distance.score(row, rows, ids, out);
        if let Some((lift, doubled)) = &self.lift {
            for (value, id) in out.iter_mut().zip(ids) {
                *value = doubled + 2.0 * (*value - row_lift * lift[*id as usize]);
            }
        }
    }

    /// Returns the squared length to which all rows are extended under the inner product.
    pub(crate) fn longest(&self) -> Option<f32> {
        self.lift.as_ref().map(|(_, doubled)| doubled / 2.0)
    }

    /// Returns the row nearest to the mean of all rows, except those in `not` (ascending): searches begin
    /// there. Returns the first row if there is no other.
    pub(crate) fn medoid(
        &self,
        not: &[u32],
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<u32, IndexError> {
        let mut mean = vec![0.0_f64; self.dim + 1];
        let mut row = vec![0.0_f32; self.dim + 1];
        // A sample estimates the mean well enough; the medoid is chosen among all rows.
        let step = (self.count / 100_000).max(1);
        let sampled = self.count.div_ceil(step);
        for id in (0..self.count).step_by(step) {
            self.lifted_row(id as u32, &mut row);
            mean.iter_mut().zip(&row).for_each(|(m, x)| *m += f64::from(*x));
        }
        let mean: Vec<f32> = mean.iter().map(|m| (*m / sampled as f64) as f32).collect();
        let part = self.count.div_ceil(threads.max(1)).max(1);
        let nearest = |first: usize| {
            let mut row = vec![0.0_f32; self.dim + 1];
            let mut best = Neighbor { distance: f32::INFINITY, id: first as u32 };
            for id in first..self.count.min(first + part) {
                if id % 4096 == 0 && progress.cancelled() {
                    break;
                }
                if not.binary_search(&(id as u32)).is_ok() {
                    continue;
                }
                self.lifted_row(id as u32, &mut row);
                let distance = row.iter().zip(&mean).map(|(a, b)| (a - b) * (a - b)).sum();
                best = best.min(Neighbor { distance, id: id as u32 });
            }
            best
        };
        let best = std::thread::scope(|scope| {
            let parts: Vec<_> = (0..self.count)
                .step_by(part)
                .map(|first| {
                    let nearest = &nearest;
                    scope.spawn(move || nearest(first))
                })
                .collect();
            parts.into_iter().filter_map(|part| part.join().ok()).min()
        });
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        best.map(|best| best.id)
            .ok_or_else(|| IndexError::Internal("no vector is nearest to the mean".into()))
    }

    fn lifted_row(&self, id: u32, out: &mut [f32]) {
        self.row_f32(id, &mut out[..self.dim]);
        out[self.dim] = self.lift.as_ref().map_or(0.0, |(lift, _)| lift[id as usize]);
    }
}

impl Points for Space {
    fn dim(&self) -> usize {
        self.point_dim()
    }

    fn read(&self, id: u32, out: &mut [f32]) {
        self.row_f32(id, &mut out[..self.dim]);
        if let Some((lift, _)) = &self.lift {
            out[self.dim] = lift[id as usize];
        }
    }

    fn expect(&self, id: u32) {
        let row = self.row(id);
        bathyal_tier::prefetch(row.as_ptr(), row.len());
    }

    fn project(&self, keys: &mut [(f32, u32)], normal: &[f32]) {
        let bytes = self.element == Element::U8 && self.lift.is_none() && self.metric != Metric::Cosine;
        let mut row = vec![0.0; normal.len()];
        for at in 0..keys.len() {
            if let Some(later) = keys.get(at + READS_AHEAD) {
                self.expect(later.1);
            }
            let (key, id) = &mut keys[at];
            *key = if bytes {
                dot_u8(self.row(*id), normal)
            } else {
                self.read(*id, &mut row);
                dot(&row, normal)
            };
        }
    }
}

fn stride_of(row_bytes: usize) -> usize {
    // Short rows are packed: padding them would cost more memory than straddled lines cost time.
    if row_bytes >= ROW_ALIGNMENT { row_bytes.next_multiple_of(ROW_ALIGNMENT) } else { row_bytes }
}

fn note_zero(zeros: &Mutex<(u64, Vec<u64>)>, row: u64) {
    if let Ok(mut zeros) = zeros.lock() {
        zeros.0 += 1;
        if zeros.1.len() < 1000 {
            zeros.1.push(row);
        }
    }
}
