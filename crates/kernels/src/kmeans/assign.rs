//! Nearest centroid of many rows: the product `rows x centroids` in register tiles, never stored.
//!
//! A tile is 8 rows by 16 centroids; centroids lie transposed in panels of 16, so that one lane holds one
//! centroid and the argmin stays in registers. The tile is plain Rust compiled once an instruction set:
//! the compiler turns the fixed arrays into vectors of the width that it was promised.

/// Centroids of one panel: the lanes of an AVX-512 register.
const LANES: usize = 16;
/// Rows of one tile: 8 accumulators of 16 lanes, and enough work to hide the latency of a fused multiply-add.
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

    /// Writes the nearest centroid of each row and, where `distances` has room, its squared L2 distance.
    ///
    /// `rows` holds `labels.len()` rows, `stride` floats apart, of which `dim` are read from the start of each.
    /// Ties go to the lower centroid.
    pub(crate) fn assign(&self, rows: &[f32], stride: usize, labels: &mut [u32], distances: &mut [f32]) {
        if self.count == 0 || labels.is_empty() {
            return;
        }
        assert!(stride >= self.dim && rows.len() >= (labels.len() - 1) * stride + self.dim);
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                // SAFETY: the CPU has AVX-512F, as asked on the line above. (Bench: `code_table`, encode time.)
                return unsafe { assign_avx512(self, rows, stride, labels, distances) };
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                // SAFETY: the CPU has AVX2 and FMA, as asked on the line above. (Bench: as above.)
                return unsafe { assign_avx2(self, rows, stride, labels, distances) };
            }
        }
        assign_rows::<false>(self, rows, stride, labels, distances);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,fma")]
fn assign_avx512(panels: &Panels, rows: &[f32], stride: usize, labels: &mut [u32], distances: &mut [f32]) {
    assign_rows::<true>(panels, rows, stride, labels, distances);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn assign_avx2(panels: &Panels, rows: &[f32], stride: usize, labels: &mut [u32], distances: &mut [f32]) {
    assign_rows::<true>(panels, rows, stride, labels, distances);
}

#[inline(always)]
fn assign_rows<const FUSED: bool>(
    panels: &Panels,
    rows: &[f32],
    stride: usize,
    labels: &mut [u32],
    distances: &mut [f32],
) {
    let dim = panels.dim;
    for start in (0..labels.len()).step_by(TILE) {
        let count = TILE.min(labels.len() - start);
        // A short last tile repeats its last row: one loop, and the repeats are not written out.
        let row_of = |r: usize| {
            let at = (start + r.min(count - 1)) * stride;
            &rows[at..at + dim]
        };
        let tile: [&[f32]; TILE] = std::array::from_fn(row_of);
        let (best, label) = tile_argmin::<FUSED>(panels, tile);
        for r in 0..count {
            let mut winner = 0;
            for lane in 1..LANES {
                let (v, w) = (best[r][lane], best[r][winner]);
                if v < w || (v == w && label[r][lane] < label[r][winner]) {
                    winner = lane;
                }
            }
            let found = label[r][winner].min(panels.count as u32 - 1);
            labels[start + r] = found;
            if let Some(distance) = distances.get_mut(start + r) {
                let norm: f32 = tile[r].iter().map(|v| v * v).sum();
                *distance = (norm + 2.0 * best[r][winner]).max(0.0);
            }
        }
    }
}

/// For each row and lane the least `|c|^2 / 2 - <x, c>` over the panels, and the centroid that gave it.
#[inline(always)]
fn tile_argmin<const FUSED: bool>(
    panels: &Panels,
    tile: [&[f32]; TILE],
) -> ([[f32; LANES]; TILE], [[u32; LANES]; TILE]) {
    let dim = panels.dim;
    let mut best = [[f32::INFINITY; LANES]; TILE];
    let mut label = [[0u32; LANES]; TILE];
    for (p, norms) in panels.half_norms.chunks_exact(LANES).enumerate() {
        let panel = &panels.values[p * dim * LANES..(p + 1) * dim * LANES];
        let mut sums = [[0.0f32; LANES]; TILE];
        for (d, column) in panel.chunks_exact(LANES).enumerate() {
            for r in 0..TILE {
                // SAFETY: every tile row has `dim` floats, and the panel has `dim` columns. (Bench: `code_table`.)
                let x = unsafe { *tile[r].get_unchecked(d) };
                for l in 0..LANES {
                    sums[r][l] =
                        if FUSED { x.mul_add(column[l], sums[r][l]) } else { sums[r][l] + x * column[l] };
                }
            }
        }
        for r in 0..TILE {
            for l in 0..LANES {
                let score = norms[l] - sums[r][l];
                let better = score < best[r][l];
                best[r][l] = if better { score } else { best[r][l] };
                label[r][l] = if better { (p * LANES + l) as u32 } else { label[r][l] };
            }
        }
    }
    (best, label)
}
