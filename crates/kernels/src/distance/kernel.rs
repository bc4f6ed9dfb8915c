//! The interface that the file of each ISA implements, and the loops around it that are the same for all of
//! them.

/// Function for the distance of the `dim` components at two addresses of any alignment.
pub(super) type PairFn = unsafe fn(*const u8, *const u8, usize) -> f32;

/// Function for the distances from one query to several rows; see [`RowBatch`].
pub(super) type BatchFn = unsafe fn(&RowBatch);

/// The kernels that one [`super::Distance`] calls.
#[derive(Clone, Copy)]
pub(super) struct Table {
    pub(super) pair: PairFn,
    pub(super) by_id: BatchFn,
    pub(super) in_order: BatchFn,
}

/// The arguments of a batch function. The caller has checked every bound.
pub(super) struct RowBatch {
    /// `dim` components.
    pub(super) query: *const u8,
    /// The first row.
    pub(super) rows: *const u8,
    /// Bytes from row to row.
    pub(super) stride: usize,
    /// Bytes of a row that are read.
    pub(super) row_bytes: usize,
    /// `count` row numbers; not read by [`Table::in_order`].
    pub(super) ids: *const u32,
    /// Output: `count` distances.
    pub(super) out: *mut f32,
    pub(super) count: usize,
    pub(super) dim: usize,
}

/// Floats as components. The file of each ISA says how it loads each of these component types.
pub(super) struct F32;
/// Components of half precision.
pub(super) struct F16;
/// Components of two bytes with the exponent of a float.
pub(super) struct Bf16;
/// Unsigned bytes.
pub(super) struct U8;
/// Signed bytes.
pub(super) struct I8;

/// The three sums of a cosine: `a.b`, `a.a` and `b.b`.
#[derive(Clone, Copy)]
pub(super) struct Moments {
    pub(super) ab: f32,
    pub(super) aa: f32,
    pub(super) bb: f32,
}

/// Range of products of two squared norms whose root is accurate: they neither overflow nor lose digits.
const ORDINARY: std::ops::RangeInclusive<f32> = 1e-30..=1e38;

impl Moments {
    /// Returns `1 - cos`, or 1 if a vector has length 0.
    #[inline(always)]
    pub(super) fn cosine_distance(self) -> f32 {
        let squares = self.aa * self.bb;
        if ORDINARY.contains(&squares) {
            // One root and not two saves some 3% of the time of a distance of 32 bytes.
            1.0 - (self.ab / squares.sqrt()).clamp(-1.0, 1.0)
        } else {
            self.extreme_cosine_distance()
        }
    }

    /// Returns the same if the product of squares overflows, underflows or is NaN.
    #[cold]
    fn extreme_cosine_distance(self) -> f32 {
        if self.aa == 0.0 || self.bb == 0.0 {
            return 1.0;
        }
        1.0 - (self.ab / (self.aa.sqrt() * self.bb.sqrt())).clamp(-1.0, 1.0)
    }
}

/// The three passes over a pair of vectors, for one ISA and one element type. Implementations have the
/// `target_feature` of the ISA, so that the loops of [`batch_loop`] can inline them.
pub(super) trait Kernel {
    /// # Safety
    /// The CPU has the ISA, and `dim` components are readable at `a` and at `b`.
    unsafe fn squared_l2(a: *const u8, b: *const u8, dim: usize) -> f32;
    /// # Safety
    /// As for [`Kernel::squared_l2`].
    unsafe fn dot(a: *const u8, b: *const u8, dim: usize) -> f32;
    /// # Safety
    /// As for [`Kernel::squared_l2`].
    unsafe fn moments(a: *const u8, b: *const u8, dim: usize) -> Moments;
}

/// Marker type of a metric, and type parameter of the loops. Each ISA's file implements for it the step from
/// the sums of a [`Kernel`] to a distance.
pub(super) struct SquaredL2;
/// See [`SquaredL2`].
pub(super) struct InnerProduct;
/// See [`SquaredL2`].
pub(super) struct Cosine;

/// Bytes of rows that are prefetched ahead of the scored one: about as many cache lines as a core keeps in
/// flight.
pub(super) const PREFETCH_BYTES: usize = 4096;
/// Most rows that are prefetched ahead. With more, the first rows would be scored before their lines arrive.
pub(super) const PREFETCH_ROWS: usize = 16;
/// Most bytes of a row that are prefetched. The hardware prefetches the rest of a long row by itself.
pub(super) const PREFETCH_ROW_BYTES: usize = 1024;

impl RowBatch {
    /// Returns the number of rows to prefetch ahead.
    #[inline(always)]
    pub(super) fn rows_ahead(&self) -> usize {
        (PREFETCH_BYTES / self.row_bytes.max(1)).clamp(2, PREFETCH_ROWS)
    }

    /// Prefetches the start of row `id`. Never faults.
    #[inline(always)]
    pub(super) fn prefetch(&self, id: u32) {
        let row = self.rows.wrapping_add(id as usize * self.stride);
        let mut offset = 0;
        while offset < self.row_bytes.min(PREFETCH_ROW_BYTES) {
            prefetch_line(row.wrapping_add(offset));
            offset += CACHE_LINE;
        }
    }
}

const CACHE_LINE: usize = 64;

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch_line(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch is a hint; it does not fault on any address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn prefetch_line(address: *const u8) {
    // SAFETY: a prefetch is a hint; it does not fault on any address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags))
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
fn prefetch_line(_address: *const u8) {}

/// Loads the `count` bytes (1 to 15) at `at`, the first one lowest, with zeros above them.
///
/// # Safety
/// `count` bytes are readable at `at`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(super) unsafe fn tail_bytes(at: *const u8, count: usize) -> u128 {
    // The two reads may overlap. They agree on the common bytes, so their union is all bytes.
    // SAFETY: each read is within the first `count` bytes.
    unsafe {
        if count >= 8 {
            let low = at.cast::<u64>().read_unaligned();
            let high = at.add(count - 8).cast::<u64>().read_unaligned();
            u128::from(low) | (u128::from(high) << ((count - 8) * 8))
        } else if count >= 4 {
            let low = at.cast::<u32>().read_unaligned();
            let high = at.add(count - 4).cast::<u32>().read_unaligned();
            u128::from(u64::from(low) | (u64::from(high) << ((count - 4) * 8)))
        } else {
            let (middle, last) = (count / 2, count - 1);
            let (low, high) = (u32::from(*at), u32::from(*at.add(last)) << (last * 8));
            u128::from(low | (u32::from(*at.add(middle)) << (middle * 8)) | high)
        }
    }
}

/// Loads the `count` bytes (1 to 7) at `at` as a word, padded with zeros.
///
/// # Safety
/// `count` bytes are readable at `at`.
#[inline(always)]
pub(super) unsafe fn tail_word(at: *const u8, count: usize) -> u64 {
    let mut word = [0; 8];
    // SAFETY: the caller guarantees `count` readable bytes, and a word has more.
    unsafe { std::ptr::copy_nonoverlapping(at, word.as_mut_ptr(), count) };
    u64::from_ne_bytes(word)
}

/// Generates the pair function, the two batch loops and the table for the file of an ISA. They come from a
/// macro because `target_feature` cannot be a type parameter, and without it the kernels would not be
/// inlined.
macro_rules! batch_loop {
    ($($feature:literal)?) => {
        /// The distance of a metric from the sums of a kernel, in this file's ISA.
        trait PairDistance {
            /// # Safety
            /// As for [`Kernel::squared_l2`].
            unsafe fn pair<K: Kernel>(a: *const u8, b: *const u8, dim: usize) -> f32;
        }

        impl PairDistance for SquaredL2 {
            #[inline]
            $(#[target_feature(enable = $feature)])?
            unsafe fn pair<K: Kernel>(a: *const u8, b: *const u8, dim: usize) -> f32 {
                // SAFETY: this function has the same contract.
                unsafe { K::squared_l2(a, b, dim) }
            }
        }

        impl PairDistance for InnerProduct {
            #[inline]
            $(#[target_feature(enable = $feature)])?
            unsafe fn pair<K: Kernel>(a: *const u8, b: *const u8, dim: usize) -> f32 {
                // SAFETY: this function has the same contract.
                unsafe { -K::dot(a, b, dim) }
            }
        }

        impl PairDistance for Cosine {
            #[inline]
            $(#[target_feature(enable = $feature)])?
            unsafe fn pair<K: Kernel>(a: *const u8, b: *const u8, dim: usize) -> f32 {
                // SAFETY: this function has the same contract.
                unsafe { K::moments(a, b, dim).cosine_distance() }
            }
        }

        $(#[target_feature(enable = $feature)])?
        unsafe fn by_id<D: PairDistance, K: Kernel>(batch: &$crate::distance::kernel::RowBatch) {
            // SAFETY: the caller has checked that `ids` and `out` hold `count` items and that the row of
            // every id is in `rows`.
            let (ids, out) = unsafe {
                (
                    std::slice::from_raw_parts(batch.ids, batch.count),
                    std::slice::from_raw_parts_mut(batch.out, batch.count),
                )
            };
            let ahead = batch.rows_ahead();
            for &id in ids.iter().take(ahead) {
                batch.prefetch(id);
            }
            for (position, (&id, distance)) in ids.iter().zip(out).enumerate() {
                if let Some(&next) = ids.get(position + ahead) {
                    batch.prefetch(next);
                }
                // SAFETY: as above; the row has `dim` components.
                *distance = unsafe {
                    D::pair::<K>(batch.query, batch.rows.add(id as usize * batch.stride), batch.dim)
                };
            }
        }

        $(#[target_feature(enable = $feature)])?
        unsafe fn in_order<D: PairDistance, K: Kernel>(batch: &$crate::distance::kernel::RowBatch) {
            // SAFETY: the caller has checked that `out` holds `count` items.
            let out = unsafe { std::slice::from_raw_parts_mut(batch.out, batch.count) };
            for (position, distance) in out.iter_mut().enumerate() {
                // SAFETY: `rows` holds `count` rows of `dim` components.
                *distance = unsafe {
                    D::pair::<K>(batch.query, batch.rows.add(position * batch.stride), batch.dim)
                };
            }
        }

        fn for_metric<K: Kernel>(metric: $crate::metric::Metric) -> Table {
            fn entry<D: PairDistance, K: Kernel>() -> Table {
                Table {
                    pair: D::pair::<K>,
                    by_id: by_id::<D, K>,
                    in_order: in_order::<D, K>,
                }
            }
            match metric {
                $crate::metric::Metric::L2 => entry::<SquaredL2, K>(),
                $crate::metric::Metric::InnerProduct => entry::<InnerProduct, K>(),
                $crate::metric::Metric::Cosine => entry::<Cosine, K>(),
            }
        }
    };
}
pub(super) use batch_loop;
