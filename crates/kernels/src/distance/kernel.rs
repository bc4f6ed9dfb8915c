//! What every ISA's file provides, and the loops around it that are the same on all of them.

/// Distance of the `dim` components at two addresses of any alignment.
pub(super) type Pair = unsafe fn(*const u8, *const u8, usize) -> f32;

/// Distances from one query to several rows; see [`Batch`].
pub(super) type Many = unsafe fn(&Batch);

/// The kernels that one [`super::Distance`] calls.
#[derive(Clone, Copy)]
pub(super) struct Table {
    pub(super) pair: Pair,
    pub(super) by_id: Many,
    pub(super) in_order: Many,
}

/// One call of a batch scorer. Whoever calls it has checked every bound.
pub(super) struct Batch {
    /// `dim` components.
    pub(super) query: *const u8,
    /// The first row.
    pub(super) rows: *const u8,
    /// Bytes from row to row.
    pub(super) stride: usize,
    /// Bytes of a row that are read.
    pub(super) row_bytes: usize,
    /// `count` row numbers; not read by the scorer of rows in order.
    pub(super) ids: *const u32,
    /// `count` distances, written.
    pub(super) out: *mut f32,
    pub(super) count: usize,
    pub(super) dim: usize,
}

/// The sums that a cosine is made of.
#[derive(Clone, Copy)]
pub(super) struct Moments {
    pub(super) ab: f32,
    pub(super) aa: f32,
    pub(super) bb: f32,
}

/// Products of squared norms in this range lose nothing by being rounded once.
const ORDINARY: std::ops::RangeInclusive<f32> = 1e-30..=1e38;

impl Moments {
    /// `1 - cos`, and 1 where a vector has no length.
    #[inline(always)]
    pub(super) fn cosine_distance(self) -> f32 {
        let squares = self.aa * self.bb;
        if ORDINARY.contains(&squares) {
            // One root instead of two: some 3% of a distance of 32 bytes.
            1.0 - (self.ab / squares.sqrt()).clamp(-1.0, 1.0)
        } else {
            self.extreme_cosine_distance()
        }
    }

    /// The same for vectors whose product of squares overflows, underflows or is no number.
    #[cold]
    fn extreme_cosine_distance(self) -> f32 {
        if self.aa == 0.0 || self.bb == 0.0 {
            return 1.0;
        }
        1.0 - (self.ab / (self.aa.sqrt() * self.bb.sqrt())).clamp(-1.0, 1.0)
    }
}

/// The three passes that one ISA has for one element type. Implementations carry the ISA's
/// `target_feature`, so that the loops of [`batch_loop`] inline them.
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

/// A metric's way from a [`Kernel`]'s sums to a distance; the type parameter of the loops.
pub(super) struct SquaredL2;
/// See [`SquaredL2`].
pub(super) struct InnerProduct;
/// See [`SquaredL2`].
pub(super) struct Cosine;

/// Rows are fetched this many bytes ahead of the one that is scored: about as many cache lines as a
/// core keeps in flight.
pub(super) const PREFETCH_BYTES: usize = 4096;
/// At most this many rows ahead, or the first ones are scored before their lines arrive.
pub(super) const PREFETCH_ROWS: usize = 16;
/// Of a long row only its start is fetched: the hardware follows a stream by itself.
pub(super) const PREFETCH_ROW_BYTES: usize = 1024;

impl Batch {
    /// How many rows to fetch ahead.
    #[inline(always)]
    pub(super) fn rows_ahead(&self) -> usize {
        (PREFETCH_BYTES / self.row_bytes.max(1)).clamp(2, PREFETCH_ROWS)
    }

    /// Asks for the start of row `id`; never faults.
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

/// The `count` bytes at `at` (1 to 15), the first one lowest, with zeros above them.
///
/// # Safety
/// `count` bytes are readable at `at`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(super) unsafe fn tail_bytes(at: *const u8, count: usize) -> u128 {
    // Reads that overlap agree on the bytes that both hold, so their union is the whole.
    // SAFETY: each read lies within the first `count` bytes.
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

/// The `count` bytes at `at` (1 to 7) as a word, filled up with zeros.
///
/// # Safety
/// `count` bytes are readable at `at`.
#[inline(always)]
pub(super) unsafe fn tail_word(at: *const u8, count: usize) -> u64 {
    let mut word = [0; 8];
    // SAFETY: the caller vouches for `count` bytes, and a word holds more.
    unsafe { std::ptr::copy_nonoverlapping(at, word.as_mut_ptr(), count) };
    u64::from_ne_bytes(word)
}

/// Writes the pair function, the two batch loops and the table of an ISA's file. They are a macro
/// because `target_feature` cannot be a type parameter, and without it the kernels would not inline.
macro_rules! batch_loop {
    ($($feature:literal)?) => {
        /// A metric over a kernel, in this file's ISA.
        trait Finish {
            /// # Safety
            /// As for [`Kernel::squared_l2`].
            unsafe fn pair<K: Kernel>(a: *const u8, b: *const u8, dim: usize) -> f32;
        }

        impl Finish for SquaredL2 {
            #[inline]
            $(#[target_feature(enable = $feature)])?
            unsafe fn pair<K: Kernel>(a: *const u8, b: *const u8, dim: usize) -> f32 {
                // SAFETY: the same contract as this function's.
                unsafe { K::squared_l2(a, b, dim) }
            }
        }

        impl Finish for InnerProduct {
            #[inline]
            $(#[target_feature(enable = $feature)])?
            unsafe fn pair<K: Kernel>(a: *const u8, b: *const u8, dim: usize) -> f32 {
                // SAFETY: the same contract as this function's.
                unsafe { -K::dot(a, b, dim) }
            }
        }

        impl Finish for Cosine {
            #[inline]
            $(#[target_feature(enable = $feature)])?
            unsafe fn pair<K: Kernel>(a: *const u8, b: *const u8, dim: usize) -> f32 {
                // SAFETY: the same contract as this function's.
                unsafe { K::moments(a, b, dim).cosine_distance() }
            }
        }

        $(#[target_feature(enable = $feature)])?
        unsafe fn by_id<F: Finish, K: Kernel>(batch: &$crate::distance::kernel::Batch) {
            // SAFETY: `ids` and `out` hold `count` items and every id's row lies in `rows`: the
            // caller has checked it.
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
                    F::pair::<K>(batch.query, batch.rows.add(id as usize * batch.stride), batch.dim)
                };
            }
        }

        $(#[target_feature(enable = $feature)])?
        unsafe fn in_order<F: Finish, K: Kernel>(batch: &$crate::distance::kernel::Batch) {
            // SAFETY: `out` holds `count` items: the caller has checked it.
            let out = unsafe { std::slice::from_raw_parts_mut(batch.out, batch.count) };
            for (position, distance) in out.iter_mut().enumerate() {
                // SAFETY: `rows` holds `count` rows of `dim` components.
                *distance = unsafe {
                    F::pair::<K>(batch.query, batch.rows.add(position * batch.stride), batch.dim)
                };
            }
        }

        fn for_metric<K: Kernel>(metric: $crate::metric::Metric) -> Table {
            fn entry<F: Finish, K: Kernel>() -> Table {
                Table {
                    pair: F::pair::<K>,
                    by_id: by_id::<F, K>,
                    in_order: in_order::<F, K>,
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
