//! Losses of random points that move to another group, on a card and on the processor.

use bathyal_gpu::losses::{ClusteringShape, Losses, MOST_OTHERS};
use bathyal_gpu::{Card, GpuError};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

/// Points in groups.
pub struct Grouped {
    pub shape: ClusteringShape,
    points: Vec<f32>,
    ids: Vec<u32>,
    means: Vec<f32>,
    near: Vec<[u32; MOST_OTHERS]>,
}

impl Grouped {
    /// Creates `points` random points in groups of `unit`, each near `others` other groups.
    pub fn new(dim: usize, points: usize, unit: usize, others: usize) -> Grouped {
        let mut random = SmallRng::seed_from_u64(5);
        let groups = points.div_ceil(unit);
        let mut number = |_| random.random_range(-1.0_f32..1.0);
        let (rows, means) =
            ((0..points * dim).map(&mut number).collect(), (0..groups * dim).map(&mut number).collect());
        let mut ids: Vec<u32> = (0..points as u32).collect();
        ids.shuffle(&mut random);
        // Unused places have an invalid group.
        let near = |group: usize| {
            let other = |at| if at < others { ((group + at + 1) % groups) as u32 } else { u32::MAX };
            std::array::from_fn(other)
        };
        let shape = ClusteringShape { dim, points, unit, others };
        Grouped { shape, points: rows, ids, means, near: (0..groups).map(near).collect() }
    }

    fn row<'a>(&self, rows: &'a [f32], at: u32) -> &'a [f32] {
        &rows[at as usize * self.shape.dim..][..self.shape.dim]
    }

    fn expected(&self) -> Vec<f32> {
        let members = self.ids.iter().enumerate();
        let losses = members.flat_map(|(place, id)| {
            let group = place / self.shape.unit;
            let (point, own) = (self.row(&self.points, *id), self.row(&self.means, group as u32));
            self.near[group][..self.shape.others].iter().map(move |other| {
                let (mut square, mut product) = (0.0_f32, 0.0_f32);
                for ((x, own), other) in point.iter().zip(own).zip(self.row(&self.means, *other)) {
                    square += (other - own) * (other - own);
                    product += (x - own) * (other - own);
                }
                square - 2.0 * product
            })
        });
        losses.collect()
    }

    /// Compares the losses on `card` with those of the processor. Returns a description of the first
    /// difference.
    pub fn check(&self, card: &dyn Card) -> Result<(), String> {
        let to_text = |error: GpuError| error.to_string();
        let mut losses = Losses::new(card, self.shape).map_err(to_text)?;
        if losses.is_resident() {
            for points in self.points.chunks(1000) {
                losses.append(points).map_err(to_text)?;
            }
        }
        losses.set_means(&self.means).map_err(to_text)?;
        let (unit, groups, block_groups) = (self.shape.unit, self.near.len(), losses.block_groups());
        let (mut all, mut found) = (Vec::new(), Vec::new());
        for (number, first) in (0..groups).step_by(block_groups).enumerate() {
            let block = first..groups.min(first + block_groups);
            let members = &self.ids[first * unit..self.ids.len().min(block.end * unit)];
            let points: Vec<f32> = match losses.is_resident() {
                true => Vec::new(),
                false => members.iter().flat_map(|id| self.row(&self.points, *id).to_vec()).collect(),
            };
            losses.begin(number % 2, block.clone(), members, &self.near[block], &points).map_err(to_text)?;
            losses.finish(number % 2, &mut found).map_err(to_text)?;
            all.extend_from_slice(&found);
        }
        let expected = self.expected();
        let differ = all.iter().zip(&expected).position(|(a, b)| a.to_bits() != b.to_bits());
        match (differ, all.len() == expected.len()) {
            (None, true) => Ok(()),
            (Some(at), _) => Err(format!("loss {at}: {} instead of {}", all[at], expected[at])),
            (None, false) => Err(format!("{} losses instead of {}", all.len(), expected.len())),
        }
    }
}
