//! The inner kernel of exact search: 16 queries against 16 vectors at a time.
//!
//! Both sides are packed so that one step (a dimension, or four 8-bit ones) of all 16 is contiguous. A vector
//! register then holds one step of 16 vectors, the step of each query is broadcast, and no sum runs across a
//! register. The kernel returns no distances, but a mask of the pairs that may be near enough.
//! [`super::exact`] computes the exact distances of those few.

use bathyal_kernels::{Element, to_f32};

/// Queries in a tile, and vectors in a panel: one AVX-512 register of 32-bit lanes.
pub(super) const LANES: usize = 16;

/// Most dimensions for which the sum of products of bytes fits the 32 bits of an integer lane.
#[cfg(target_arch = "x86_64")]
const MAX_INTEGER_DIM: usize = 1 << 15;

/// Instruction set of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TileIsa {
    /// Plain Rust, and the reference for the others.
    Portable,
    /// AVX2 and FMA, on f32.
    Avx2,
    /// AVX-512 F, on f32.
    Avx512,
    /// AVX-512 VNNI, on bytes: four products a lane and step.
    Vnni,
}

impl TileIsa {
    #[cfg(test)]
    pub(super) const ALL: [TileIsa; 4] = [TileIsa::Portable, TileIsa::Avx2, TileIsa::Avx512, TileIsa::Vnni];

    /// Returns true if this CPU has the instructions and they support vectors of this element and dim.
    pub(super) fn fits(self, element: Element, dim: usize) -> bool {
        let bytes = matches!(element, Element::U8 | Element::I8 | Element::B1);
        #[cfg(target_arch = "x86_64")]
        return match self {
            TileIsa::Portable => true,
            TileIsa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            TileIsa::Avx512 => is_x86_feature_detected!("avx512f"),
            TileIsa::Vnni => {
                bytes
                    && dim <= MAX_INTEGER_DIM
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512vnni")
            }
        };
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = (bytes, dim);
            self == TileIsa::Portable
        }
    }

    /// Returns the fastest instruction set that fits.
    pub(super) fn best(element: Element, dim: usize) -> TileIsa {
        [TileIsa::Vnni, TileIsa::Avx512, TileIsa::Avx2]
            .into_iter()
            .find(|isa| isa.fits(element, dim))
            .unwrap_or(TileIsa::Portable)
    }

    /// Returns the number of steps of a vector of `dim` elements.
    pub(super) fn steps(self, dim: usize) -> usize {
        if self == TileIsa::Vnni { dim.div_ceil(4) } else { dim }
    }

    /// Returns the number of roundings in the product of two vectors.
    pub(super) fn roundings(self, dim: usize) -> usize {
        if self == TileIsa::Vnni { 0 } else { dim }
    }
}

/// Side of the product that a vector is packed for. VNNI multiplies unsigned by signed bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The vectors that are searched: unsigned bytes.
    Base,
    /// The queries: signed bytes.
    Query,
}

/// Packer of vectors of one element and dim for one kernel.
pub(super) struct Packer {
    isa: TileIsa,
    element: Element,
    /// A decoded row; scratch memory.
    values: Vec<f32>,
}

impl Packer {
    pub(super) fn new(isa: TileIsa, element: Element, dim: usize) -> Packer {
        Packer { isa, element, values: vec![0.0; dim] }
    }

    /// Writes `row` into lane `lane` of `cells` (`steps x LANES`). Returns the offset to add to its integer
    /// products: it undoes the shift by 128 that turns unsigned bytes into signed ones, or signed into
    /// unsigned.
    pub(super) fn pack(&mut self, side: Side, row: &[u8], lane: usize, cells: &mut [u32]) -> i32 {
        let cells = cells.iter_mut().skip(lane).step_by(LANES);
        if self.isa != TileIsa::Vnni {
            to_f32(self.element, row, &mut self.values);
            for (cell, value) in cells.zip(&self.values) {
                *cell = value.to_bits();
            }
            return 0;
        }
        let shift = match (self.element, side) {
            (Element::U8, Side::Query) | (Element::I8, Side::Base) => 0x80,
            _ => 0,
        };
        if self.element == Element::B1 {
            to_f32(self.element, row, &mut self.values);
            for (cell, bits) in cells.zip(self.values.chunks(4)) {
                let mut word = [0; 4];
                word.iter_mut().zip(bits).for_each(|(to, from)| *to = *from as u8);
                *cell = u32::from_le_bytes(word);
            }
            return 0;
        }
        let mut words = row.chunks(4);
        for cell in cells {
            let mut word = [0; 4];
            for (to, from) in word.iter_mut().zip(words.next().unwrap_or_default()) {
                *to = from ^ shift;
            }
            *cell = u32::from_le_bytes(word);
        }
        match (self.element, side) {
            // (q - 128) b + 128 b = q b
            (Element::U8, Side::Base) => 128 * row.iter().map(|b| i32::from(*b)).sum::<i32>(),
            // q (b + 128) - 128 q = q b
            (Element::I8, Side::Query) => -128 * row.iter().map(|b| i32::from(*b as i8)).sum::<i32>(),
            _ => 0,
        }
    }
}

/// Terms that turn the product `p` of a query with vector `i` into the value `bias[i] - scale[i] * p`, which
/// is compared with the limit of the query.
#[derive(Clone, Copy)]
pub(super) struct PanelTerms {
    pub bias: [f32; LANES],
    pub scale: [f32; LANES],
    /// See [`Packer::pack`].
    pub offset: [i32; LANES],
    /// Bit `i` is set if lane `i` holds a vector.
    pub valid: u16,
}

/// A panel of vectors: packed cells (`steps x LANES`) and terms.
#[derive(Clone, Copy)]
pub(super) struct Panel<'a> {
    pub cells: &'a [u32],
    pub terms: &'a PanelTerms,
}

/// A tile of up to [`LANES`] queries.
pub(super) struct QueryTile {
    /// `steps x LANES`.
    pub cells: Vec<u32>,
    /// See [`Packer::pack`].
    pub offset: [i32; LANES],
    /// Queries in the tile; the lanes after them hold zeros.
    pub count: usize,
}

/// Returns, for each query of the tile, a mask of the panel's vectors whose value is not above the limit of
/// the query. Comparisons with NaN are false, so pairs with a NaN value or limit are in the mask.
///
/// `isa` must fit this CPU ([`TileIsa::fits`]).
pub(super) fn screen(
    isa: TileIsa,
    panel: Panel<'_>,
    tile: &QueryTile,
    limits: &[f32; LANES],
) -> [u16; LANES] {
    let mut masks = [0; LANES];
    debug_assert_eq!(panel.cells.len(), tile.cells.len());
    match isa {
        TileIsa::Portable => portable(panel, tile, limits, &mut masks),
        // SAFETY: callers pass an `isa` for which `TileIsa::fits` holds, so the CPU has these instructions.
        #[cfg(target_arch = "x86_64")]
        TileIsa::Avx2 => unsafe { x86::avx2(panel, tile, limits, &mut masks) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        TileIsa::Avx512 => unsafe {
            match tile.count {
                0..=4 => x86::avx512::<4>(panel, tile, limits, &mut masks),
                5..=8 => x86::avx512::<8>(panel, tile, limits, &mut masks),
                _ => x86::avx512::<LANES>(panel, tile, limits, &mut masks),
            }
        },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        TileIsa::Vnni => unsafe {
            match tile.count {
                0..=4 => x86::vnni::<4>(panel, tile, limits, &mut masks),
                5..=8 => x86::vnni::<8>(panel, tile, limits, &mut masks),
                _ => x86::vnni::<LANES>(panel, tile, limits, &mut masks),
            }
        },
        #[cfg(not(target_arch = "x86_64"))]
        _ => portable(panel, tile, limits, &mut masks),
    }
    masks
}

/// Screens in plain Rust, four queries at a time, so that the sums stay in registers on CPUs with 16
/// registers of 128 bits or more.
fn portable(panel: Panel<'_>, tile: &QueryTile, limits: &[f32; LANES], masks: &mut [u16; LANES]) {
    const GROUP: usize = 4;
    for first in (0..tile.count).step_by(GROUP) {
        let mut sums = [[0.0f32; LANES]; GROUP];
        for (rows, queries) in
            panel.cells.as_chunks::<LANES>().0.iter().zip(tile.cells.as_chunks::<LANES>().0)
        {
            for (sum, query) in sums.iter_mut().zip(&queries[first..]) {
                let query = f32::from_bits(*query);
                for (lane, row) in sum.iter_mut().zip(rows) {
                    *lane += f32::from_bits(*row) * query;
                }
            }
        }
        for ((sum, mask), limit) in sums.iter().zip(&mut masks[first..]).zip(&limits[first..]) {
            for (lane, product) in sum.iter().enumerate() {
                let value = panel.terms.bias[lane] - panel.terms.scale[lane] * product;
                let is_above = value > *limit;
                *mask |= u16::from(!is_above) << lane;
            }
            *mask &= panel.terms.valid;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! The kernels in intrinsics. `cargo bench -p bathyal-vectors --bench groundtruth` compares their speed
    //! with that of one query at a time through the distance kernels.

    use std::arch::x86_64::*;

    use super::{LANES, Panel, QueryTile};

    /// # Safety
    /// The CPU has AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn avx2(
        panel: Panel<'_>,
        tile: &QueryTile,
        limits: &[f32; LANES],
        masks: &mut [u16; LANES],
    ) {
        const GROUP: usize = 4;
        let steps = panel.cells.len().min(tile.cells.len()) / LANES;
        for first in (0..tile.count).step_by(GROUP) {
            let mut low = [_mm256_setzero_ps(); GROUP];
            let mut high = [_mm256_setzero_ps(); GROUP];
            for step in 0..steps {
                // SAFETY: `step` is below the number of whole groups of LANES in both slices, and
                // `first + GROUP` is at most LANES, as LANES is a multiple of GROUP.
                unsafe {
                    let rows = panel.cells.as_ptr().add(step * LANES).cast::<f32>();
                    let queries = tile.cells.as_ptr().add(step * LANES + first).cast::<f32>();
                    let (a, b) = (_mm256_loadu_ps(rows), _mm256_loadu_ps(rows.add(8)));
                    for query in 0..GROUP {
                        let value = _mm256_broadcast_ss(&*queries.add(query));
                        low[query] = _mm256_fmadd_ps(a, value, low[query]);
                        high[query] = _mm256_fmadd_ps(b, value, high[query]);
                    }
                }
            }
            // SAFETY: both arrays hold LANES floats.
            let (bias, scale) = unsafe {
                let (bias, scale) = (panel.terms.bias.as_ptr(), panel.terms.scale.as_ptr());
                (
                    [_mm256_loadu_ps(bias), _mm256_loadu_ps(bias.add(8))],
                    [_mm256_loadu_ps(scale), _mm256_loadu_ps(scale.add(8))],
                )
            };
            for query in 0..GROUP {
                let limit = _mm256_set1_ps(limits[first + query]);
                let mask_of_half = |sums, half: usize| {
                    let value = _mm256_fnmadd_ps(scale[half], sums, bias[half]);
                    _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_NGT_UQ>(value, limit)) as u16
                };
                masks[first + query] =
                    (mask_of_half(low[query], 0) | (mask_of_half(high[query], 1) << 8)) & panel.terms.valid;
            }
        }
    }

    /// # Safety
    /// The CPU has AVX-512 F. `Q` is at most LANES; the first `Q` queries are screened.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn avx512<const Q: usize>(
        panel: Panel<'_>,
        tile: &QueryTile,
        limits: &[f32; LANES],
        masks: &mut [u16; LANES],
    ) {
        let steps = panel.cells.len().min(tile.cells.len()) / LANES;
        let mut sums = [_mm512_setzero_ps(); Q];
        for step in 0..steps {
            // SAFETY: `step` is below the number of whole groups of LANES in both slices.
            unsafe {
                let rows = _mm512_loadu_ps(panel.cells.as_ptr().add(step * LANES).cast());
                let queries = tile.cells.as_ptr().add(step * LANES).cast::<f32>();
                for (query, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm512_fmadd_ps(rows, _mm512_set1_ps(*queries.add(query)), *sum);
                }
            }
        }
        // SAFETY: the same CPU.
        unsafe { compare(panel, &sums, limits, masks) }
    }

    /// # Safety
    /// The CPU has AVX-512 F and VNNI. `Q` is at most LANES; the first `Q` queries are screened.
    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) unsafe fn vnni<const Q: usize>(
        panel: Panel<'_>,
        tile: &QueryTile,
        limits: &[f32; LANES],
        masks: &mut [u16; LANES],
    ) {
        let steps = panel.cells.len().min(tile.cells.len()) / LANES;
        // SAFETY: the array holds LANES integers.
        let offset = unsafe { _mm512_loadu_si512(panel.terms.offset.as_ptr().cast()) };
        let mut sums = [offset; Q];
        for (sum, offset) in sums.iter_mut().zip(&tile.offset) {
            *sum = _mm512_add_epi32(*sum, _mm512_set1_epi32(*offset));
        }
        for step in 0..steps {
            // SAFETY: `step` is below the number of whole groups of LANES in both slices.
            unsafe {
                let rows = _mm512_loadu_si512(panel.cells.as_ptr().add(step * LANES).cast());
                let queries = tile.cells.as_ptr().add(step * LANES).cast::<i32>();
                for (query, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm512_dpbusd_epi32(*sum, rows, _mm512_set1_epi32(*queries.add(query)));
                }
            }
        }
        // A loop and not `map`, whose closure would be compiled without the instructions of this function.
        let mut products = [_mm512_setzero_ps(); Q];
        for (product, sum) in products.iter_mut().zip(sums) {
            *product = _mm512_cvtepi32_ps(sum);
        }
        // SAFETY: the same CPU.
        unsafe { compare(panel, &products, limits, masks) }
    }

    /// # Safety
    /// The CPU has AVX-512 F.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn compare<const Q: usize>(
        panel: Panel<'_>,
        sums: &[__m512; Q],
        limits: &[f32; LANES],
        masks: &mut [u16; LANES],
    ) {
        // SAFETY: both arrays hold LANES floats.
        let (bias, scale) = unsafe {
            (_mm512_loadu_ps(panel.terms.bias.as_ptr()), _mm512_loadu_ps(panel.terms.scale.as_ptr()))
        };
        for ((sum, limit), mask) in sums.iter().zip(limits).zip(masks) {
            let value = _mm512_fnmadd_ps(scale, *sum, bias);
            let valid = panel.terms.valid;
            *mask = _mm512_mask_cmp_ps_mask::<_CMP_NGT_UQ>(valid, value, _mm512_set1_ps(*limit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packs 16 rows on each side and screens them with `isa`.
    fn masks(
        isa: TileIsa,
        element: Element,
        dim: usize,
        rows: &[Vec<u8>],
        limits: &[f32; LANES],
    ) -> [u16; LANES] {
        let mut packer = Packer::new(isa, element, dim);
        let mut cells = vec![0; isa.steps(dim) * LANES];
        let mut terms =
            PanelTerms { bias: [0.5; LANES], scale: [0.25; LANES], offset: [0; LANES], valid: 0x7fff };
        terms.bias[3] = f32::NAN;
        let mut tile = QueryTile { cells: cells.clone(), offset: [0; LANES], count: LANES };
        for (lane, row) in rows.iter().enumerate() {
            terms.offset[lane] = packer.pack(Side::Base, row, lane, &mut cells);
            tile.offset[lane] = packer.pack(Side::Query, &rows[LANES - 1 - lane], lane, &mut tile.cells);
        }
        screen(isa, Panel { cells: &cells, terms: &terms }, &tile, limits)
    }

    #[test]
    fn every_isa_screens_the_same_pairs() {
        for element in Element::ALL {
            for dim in (1..70).chain([128, 1000]) {
                // Small whole numbers: sums are exact in f32, so the masks have to be equal.
                let value = |row: usize, at: usize| ((row * 7 + at * 13 + row * at) % 19) as u8;
                let rows: Vec<Vec<u8>> = (0..LANES)
                    .map(|row| match element {
                        // The top bit is set in some, to test that the shift by 128 is undone.
                        Element::U8 | Element::I8 => {
                            (0..dim).map(|d| value(row, d).wrapping_mul(13)).collect()
                        }
                        Element::F32 | Element::F16 | Element::Bf16 | Element::B1 => {
                            let values = (0..dim).map(|d| f32::from(value(row, d)));
                            let mut bytes = vec![0; element.row_bytes(dim)];
                            bathyal_kernels::from_f32(element, &values.collect::<Vec<_>>(), &mut bytes);
                            bytes
                        }
                    })
                    .collect();
                let mut limits: [f32; LANES] = std::array::from_fn(|q| -((dim * q * 8) as f32));
                limits[5] = f32::NAN;
                limits[6] = f32::INFINITY;
                let expected = masks(TileIsa::Portable, element, dim, &rows, &limits);
                assert_eq!((expected[5], expected[6], expected[0] & 8), (0x7fff, 0x7fff, 8));
                for isa in TileIsa::ALL.into_iter().filter(|isa| isa.fits(element, dim)) {
                    assert_eq!(masks(isa, element, dim, &rows, &limits), expected, "{isa:?} {element} {dim}");
                }
            }
        }
    }

    #[test]
    fn the_extremes_of_bytes_do_not_overflow_the_lanes() {
        let dim = MAX_INTEGER_DIM;
        for (element, byte) in [(Element::U8, 255), (Element::I8, 0x80), (Element::I8, 0x7f)] {
            let rows = vec![vec![byte; dim]; LANES];
            let value = if element == Element::U8 { 255.0 } else { f32::from(byte as i8) };
            let product = value * value * dim as f32;
            for (limit, near) in [(0.5 - 0.25 * product * 1.001, 8), (0.5 - 0.25 * product * 0.999, 0x7fff)] {
                for isa in [TileIsa::Vnni, TileIsa::Avx512].into_iter().filter(|isa| isa.fits(element, dim)) {
                    assert_eq!(masks(isa, element, dim, &rows, &[limit; LANES]), [near; LANES], "{isa:?}");
                }
            }
        }
    }
}
