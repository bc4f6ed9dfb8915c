//! Distances between vectors: one file for each instruction set (ISA), which is chosen once at run time.
//!
//! A [`Distance`] is resolved from element type, metric and CPU, and is then a few function pointers. No
//! function here panics: a slice of the wrong length or an id without a row gives NaN, which the result lists
//! of [`crate::topk`] refuse.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod bf16;
mod bits;
mod components;
mod isa;
mod kernel;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod vnni;

pub use components::{dot, first_non_finite, from_f32, normalize_f32, squared_norm, to_f32};
pub use isa::Isa;

use crate::element::Element;
use crate::metric::Metric;
use kernel::{RowBatch, Table};
use std::fmt;

/// Most dimensions for which every sum of the integer kernels fits 32 bits (2^16 times 255 squared is just
/// below 2^32). Above it [`Distance`] uses the scalar kernels, which have 64-bit sums.
pub const MAX_SIMD_DIM: usize = 1 << 16;

/// Rows of an array of vectors: row `i` starts at byte `i * stride`.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// The array. It may end with the last row, without the rest of its stride.
    pub bytes: &'a [u8],
    /// Bytes from the start of a row to the start of the next.
    pub stride: usize,
}

/// A metric over an element type and a dimension, bound to the best kernels of this CPU.
#[derive(Clone, Copy)]
pub struct Distance {
    table: Table,
    dim: usize,
    query_bytes: usize,
    row_bytes: usize,
    query: Element,
    element: Element,
    metric: Metric,
    isa: Isa,
}

impl fmt::Debug for Distance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Distance { dim, query, element, metric, isa, .. } = self;
        write!(formatter, "Distance({metric} {query} to {element} x {dim} by {isa})")
    }
}

impl Distance {
    /// Creates the distance of `metric` over vectors of `dim` components, with the best ISA of this CPU.
    pub fn new(element: Element, metric: Metric, dim: usize) -> Distance {
        Self::build(Isa::best(), element, element, metric, dim)
    }

    /// Creates the same distance with a given ISA; `None` if this CPU lacks it. For tests and benchmarks.
    pub fn with_isa(isa: Isa, element: Element, metric: Metric, dim: usize) -> Option<Distance> {
        isa.is_available().then(|| Self::build(isa, element, element, metric, dim))
    }

    /// Creates the distance from f32 queries to rows of `element`, all of `dim` components. The rows were
    /// rounded to a smaller element; the query is not rounded, too. Sums are of f32, also for bytes.
    pub fn of_floats(element: Element, metric: Metric, dim: usize) -> Distance {
        Self::build(Isa::best(), Element::F32, element, metric, dim)
    }

    /// Creates the distance of [`Distance::of_floats`] with a given ISA; `None` if this CPU lacks it. For
    /// tests and benchmarks.
    pub fn of_floats_with_isa(isa: Isa, element: Element, metric: Metric, dim: usize) -> Option<Distance> {
        isa.is_available().then(|| Self::build(isa, Element::F32, element, metric, dim))
    }

    fn build(isa: Isa, query: Element, element: Element, metric: Metric, dim: usize) -> Distance {
        let isa = if dim > MAX_SIMD_DIM { Isa::Scalar } else { isa };
        let same_element = query == element;
        Distance {
            table: if same_element {
                isa.table(element, metric)
            } else {
                isa.table_of_floats(element, metric)
            },
            dim,
            // If no slice can be so long, this is `usize::MAX`, and every length check fails.
            query_bytes: query.row_bytes(dim),
            row_bytes: element.row_bytes(dim),
            query,
            element,
            metric,
            isa,
        }
    }

    /// Returns the number of components of a vector.
    #[inline]
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Returns the bytes of a query: those of a row, except for [`Distance::of_floats`].
    #[inline]
    pub fn query_bytes(&self) -> usize {
        self.query_bytes
    }

    /// Returns the bytes of a row.
    #[inline]
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Returns the type of the queries' components.
    #[inline]
    pub fn query_element(&self) -> Element {
        self.query
    }

    /// Returns the type of the rows' components.
    #[inline]
    pub fn element(&self) -> Element {
        self.element
    }

    /// Returns the metric.
    #[inline]
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Returns the ISA whose kernels are called.
    #[inline]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Returns the distance of a query and a row, `dim` components each, of any alignment. NaN unless their
    /// lengths are [`Distance::query_bytes`] and [`Distance::row_bytes`].
    #[inline]
    pub fn between(&self, query: &[u8], row: &[u8]) -> f32 {
        if query.len() != self.query_bytes || row.len() != self.row_bytes {
            return f32::NAN;
        }
        // SAFETY: both hold `dim` components, and the table's ISA was found on this CPU.
        unsafe { (self.table.pair)(query.as_ptr(), row.as_ptr(), self.dim) }
    }

    /// Sets `out[i]` to the distance from `query` to the row `ids[i]`, and prefetches later rows meanwhile.
    /// NaN for an id whose row is not in `rows`, and for every id if `query` has the wrong length. If `ids`
    /// and `out` differ in length, the shorter length counts.
    pub fn score(&self, query: &[u8], rows: Rows<'_>, ids: &[u32], out: &mut [f32]) {
        let count = ids.len().min(out.len());
        let (ids, out) = (&ids[..count], &mut out[..count]);
        let largest = ids.iter().copied().max().unwrap_or(0);
        if query.len() != self.query_bytes {
            out.fill(f32::NAN);
        } else if self.holds(rows, largest) {
            let batch = self.batch(query, rows, ids.as_ptr(), out);
            // SAFETY: the query has `dim` components, and so has every row up to the largest id.
            unsafe { (self.table.by_id)(&batch) }
        } else {
            for (&id, distance) in ids.iter().zip(out) {
                *distance = self.row(rows, id).map_or(f32::NAN, |row| self.between(query, row));
            }
        }
    }

    /// Sets `out[i]` to the distance from `query` to row `i` of `rows`, which holds rows without gaps. NaN
    /// for rows beyond its end.
    pub fn score_block(&self, query: &[u8], rows: &[u8], out: &mut [f32]) {
        let count = rows.len().checked_div(self.row_bytes).unwrap_or(out.len());
        let (out, missing) = out.split_at_mut(count.min(out.len()));
        missing.fill(f32::NAN);
        if query.len() != self.query_bytes {
            out.fill(f32::NAN);
            return;
        }
        let stride = self.row_bytes;
        let batch = self.batch(query, Rows { bytes: rows, stride }, std::ptr::null(), out);
        // SAFETY: the query has `dim` components and `rows` holds `out.len()` times as many.
        unsafe { (self.table.in_order)(&batch) }
    }

    /// Returns true if all bytes of row `id` are in `rows`.
    #[inline]
    fn holds(&self, rows: Rows<'_>, id: u32) -> bool {
        (id as usize)
            .checked_mul(rows.stride)
            .and_then(|start| start.checked_add(self.row_bytes))
            .is_some_and(|end| end <= rows.bytes.len())
    }

    fn row<'a>(&self, rows: Rows<'a>, id: u32) -> Option<&'a [u8]> {
        let start = (id as usize).checked_mul(rows.stride)?;
        rows.bytes.get(start..start.checked_add(self.row_bytes)?)
    }

    #[inline]
    fn batch(&self, query: &[u8], rows: Rows<'_>, ids: *const u32, out: &mut [f32]) -> RowBatch {
        RowBatch {
            query: query.as_ptr(),
            rows: rows.bytes.as_ptr(),
            stride: rows.stride,
            row_bytes: self.row_bytes,
            ids,
            out: out.as_mut_ptr(),
            count: out.len(),
            dim: self.dim,
        }
    }
}
