//! Nearest centroid of many rows. The product `rows x centroids` is computed in register tiles and not
//! stored.
//!
//! A tile is 8 rows by 16 centroids. Centroids are stored transposed, in panels of 16, so that one lane holds
//! one centroid and the argmin stays in registers.

use crate::distance::Isa;
use std::sync::OnceLock;

/// Centroids in a panel: the lanes of an AVX-512 register.
const LANES: usize = 16;
/// Rows in a tile. 8 accumulators of 16 lanes are enough work to hide the latency of a fused multiply-add.
const TILE: usize = 8;

/// Centroids packed for assignment.
#[derive(Clone, Debug)]
pub(crate) struct Panels {
    dim: usize,
    count: usize,
    /// `ceil(count / 16)` panels of `dim x 16`.
    values: Vec<f32>,
    /// Half the squared norm of each centroid; infinity in the unused lanes of the last panel.
    half_norms: Vec<f32>,
}

impl Panels {
    /// Packs `count x dim` row-major centroids.
    pub(crate) fn new(centroids: &[f32], dim: usize) -> Self {
        let count = centroids.len().checked_div(dim).unwrap_or(0);
        let panels = count.div_ceil(LANES);
        let mut values = vec![0.0; panels * dim * LANES];
        let mut half_norms = vec![f32::INFINITY; panels * LANES];
        for (c, row) in centroids.chunks_exact(dim.max(1)).enumerate() {
            let (panel, lane) = (c / LANES, c % LANES);
            for (d, &v) in row.iter().enumerate() {
                values[(panel * dim + d) * LANES + lane] = v;
            }
            half_norms[c] = 0.5 * row.iter().map(|v| v * v).sum::<f32>();
        }
        Panels { dim, count, values, half_norms }
    }

    /// Writes the nearest centroid of each row to `labels`, and its squared L2 distance to `distances` as far
    /// as that reaches. Of equally near centroids the first one is taken.
    ///
    /// `rows` holds `labels.len()` rows that are `stride` floats apart. The first `dim` floats of each are
    /// read.
    pub(crate) fn assign(&self, rows: &[f32], stride: usize, labels: &mut [u32], distances: &mut [f32]) {
        if self.count == 0 || labels.is_empty() {
            return;
        }
        assert!(stride >= self.dim && rows.len() >= (labels.len() - 1) * stride + self.dim);
        let argmin = best_argmin();
        for start in (0..labels.len()).step_by(TILE) {
            let count = TILE.min(labels.len() - start);
            // A short last tile repeats its last row, so that one loop serves all tiles. The repeats are not
            // written out.
            let tile: Tile = std::array::from_fn(|r| {
                let at = (start + r.min(count - 1)) * stride;
                &rows[at..at + self.dim]
            });
            // SAFETY: `best_argmin` chose a kernel for this CPU, and every row of the tile has `dim` values.
            let (best, label) = unsafe { argmin(self, &tile) };
            for r in 0..count {
                let mut winner = 0;
                for lane in 1..LANES {
                    let (v, w) = (best[r][lane], best[r][winner]);
                    if v < w || (v == w && label[r][lane] < label[r][winner]) {
                        winner = lane;
                    }
                }
                labels[start + r] = label[r][winner].min(self.count as u32 - 1);
                if let Some(distance) = distances.get_mut(start + r) {
                    let norm: f32 = tile[r].iter().map(|v| v * v).sum();
                    *distance = (norm + 2.0 * best[r][winner]).max(0.0);
                }
            }
        }
    }
}

type Tile<'a> = [&'a [f32]; TILE];
/// The least `|c|^2 / 2 - <x, c>` over all panels and its centroid, for each row and lane.
type Minima = ([[f32; LANES]; TILE], [[u32; LANES]; TILE]);
type Argmin = unsafe fn(&Panels, &Tile<'_>) -> Minima;

/// Returns the best kernel for this CPU. The result is cached.
fn best_argmin() -> Argmin {
    static BEST: OnceLock<Argmin> = OnceLock::new();
    *BEST.get_or_init(|| match Isa::best() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Avx512Vnni => argmin_avx512,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => argmin_avx2,
        _ => argmin_scalar,
    })
}

fn argmin_scalar(panels: &Panels, tile: &Tile<'_>) -> Minima {
    let mut best = [[f32::INFINITY; LANES]; TILE];
    let mut label = [[0u32; LANES]; TILE];
    for (p, norms) in panels.half_norms.chunks_exact(LANES).enumerate() {
        let panel = &panels.values[p * panels.dim * LANES..(p + 1) * panels.dim * LANES];
        for r in 0..TILE {
            let mut sums = [0.0f32; LANES];
            for (x, column) in tile[r].iter().zip(panel.chunks_exact(LANES)) {
                sums.iter_mut().zip(column).for_each(|(s, c)| *s += x * c);
            }
            for l in 0..LANES {
                let score = norms[l] - sums[l];
                if score < best[r][l] {
                    (best[r][l], label[r][l]) = (score, (p * LANES + l) as u32);
                }
            }
        }
    }
    (best, label)
}

/// Kernel for AVX-512: 8 sums, 8 minima and 8 labels take 24 of the 32 registers.
///
/// # Safety
/// The CPU has AVX-512F; every row of the tile has `dim` values.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn argmin_avx512(panels: &Panels, tile: &Tile<'_>) -> Minima {
    use std::arch::x86_64::*;
    let mut best = [_mm512_set1_ps(f32::INFINITY); TILE];
    let mut label = [_mm512_setzero_si512(); TILE];
    let rows: [*const f32; TILE] = std::array::from_fn(|r| tile[r].as_ptr());
    let mut lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let mut column = panels.values.as_ptr();
    for norms in panels.half_norms.chunks_exact(LANES) {
        // SAFETY: a panel holds `dim` columns of 16; a row holds `dim` values; `norms` holds 16.
        // (`code_table`)
        unsafe {
            let mut sums = [_mm512_loadu_ps(norms.as_ptr()); TILE];
            for d in 0..panels.dim {
                let centroids = _mm512_loadu_ps(column);
                column = column.add(LANES);
                for r in 0..TILE {
                    sums[r] = _mm512_fnmadd_ps(_mm512_set1_ps(*rows[r].add(d)), centroids, sums[r]);
                }
            }
            for r in 0..TILE {
                let better = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(sums[r], best[r]);
                best[r] = _mm512_mask_mov_ps(best[r], better, sums[r]);
                label[r] = _mm512_mask_mov_epi32(label[r], better, lanes);
            }
        }
        lanes = _mm512_add_epi32(lanes, _mm512_set1_epi32(LANES as i32));
    }
    let mut out = ([[0.0; LANES]; TILE], [[0; LANES]; TILE]);
    for r in 0..TILE {
        // SAFETY: each array is 64 bytes, and the stores are unaligned.
        unsafe {
            _mm512_storeu_ps(out.0[r].as_mut_ptr(), best[r]);
            _mm512_storeu_si512(out.1[r].as_mut_ptr().cast(), label[r]);
        }
    }
    out
}

/// Kernel for AVX2: four rows by half a panel at a time take 12 of the 16 registers.
///
/// # Safety
/// The CPU has AVX2 and FMA; every row of the tile has `dim` values.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn argmin_avx2(panels: &Panels, tile: &Tile<'_>) -> Minima {
    use std::arch::x86_64::*;
    const ROWS: usize = 4;
    const HALF: usize = LANES / 2;
    let mut out = ([[0.0; LANES]; TILE], [[0; LANES]; TILE]);
    for (first, half) in [(0, 0), (0, HALF), (ROWS, 0), (ROWS, HALF)] {
        let mut best = [_mm256_set1_ps(f32::INFINITY); ROWS];
        let mut label = [_mm256_setzero_ps(); ROWS];
        let rows: [*const f32; ROWS] = std::array::from_fn(|r| tile[first + r].as_ptr());
        let start = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let mut lanes = _mm256_add_epi32(start, _mm256_set1_epi32(half as i32));
        let mut column = panels.values.as_ptr().wrapping_add(half);
        for norms in panels.half_norms.chunks_exact(LANES) {
            // SAFETY: a panel holds `dim` columns of 16; a row holds `dim` values; `norms` holds 16.
            // (`code_table`)
            unsafe {
                let mut sums = [_mm256_loadu_ps(norms.as_ptr().add(half)); ROWS];
                for d in 0..panels.dim {
                    let centroids = _mm256_loadu_ps(column);
                    column = column.wrapping_add(LANES);
                    for r in 0..ROWS {
                        sums[r] = _mm256_fnmadd_ps(_mm256_set1_ps(*rows[r].add(d)), centroids, sums[r]);
                    }
                }
                for r in 0..ROWS {
                    let better = _mm256_cmp_ps::<_CMP_LT_OQ>(sums[r], best[r]);
                    best[r] = _mm256_blendv_ps(best[r], sums[r], better);
                    label[r] = _mm256_blendv_ps(label[r], _mm256_castsi256_ps(lanes), better);
                }
            }
            lanes = _mm256_add_epi32(lanes, _mm256_set1_epi32(LANES as i32));
        }
        for r in 0..ROWS {
            // SAFETY: `half + 8` is at most 16, the length of each array.
            unsafe {
                _mm256_storeu_ps(out.0[first + r].as_mut_ptr().add(half), best[r]);
                _mm256_storeu_ps(out.1[first + r].as_mut_ptr().add(half).cast(), label[r]);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kmeans::random::Random;

    #[test]
    fn kernels_agree() {
        let mut random = Random::new(1);
        for (k, dim) in [(1, 1), (16, 3), (40, 8), (256, 4), (33, 65)] {
            let centroids: Vec<f32> = (0..k * dim).map(|_| random.normal() as f32).collect();
            let rows: Vec<f32> = (0..TILE * dim).map(|_| random.normal() as f32).collect();
            let panels = Panels::new(&centroids, dim);
            let tile: Tile = std::array::from_fn(|r| &rows[r * dim..(r + 1) * dim]);
            let expected = argmin_scalar(&panels, &tile);
            #[cfg(target_arch = "x86_64")]
            for (isa, kernel) in [(Isa::Avx2, argmin_avx2 as Argmin), (Isa::Avx512, argmin_avx512 as Argmin)]
            {
                if !isa.is_available() {
                    continue;
                }
                // SAFETY: the CPU has the ISA, and the rows have `dim` values.
                let found = unsafe { kernel(&panels, &tile) };
                for (f, e) in found.0.iter().flatten().zip(expected.0.iter().flatten()) {
                    assert!(f == e || (f - e).abs() < 1e-3, "{f} {e}");
                }
                assert_eq!(found.1, expected.1);
            }
        }
    }
}
