//! Exact search by products, on a card and on the processor. Queries and vectors consist of small whole
//! numbers, so that sums are exact.

use bathyal_gpu::nearest::{Cells, Nearest, ProductSizes};
use bathyal_gpu::{Card, GpuError};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Queries and vectors.
pub struct Pairs {
    cells: Cells,
    dim: usize,
    queries: Vec<Vec<u8>>,
    rows: Vec<Vec<u8>>,
    biases: Vec<f32>,
    scales: Vec<f32>,
    limits: Vec<f32>,
}

impl Pairs {
    /// Creates random queries and vectors.
    pub fn new(cells: Cells, dim: usize, queries: usize, rows: usize) -> Pairs {
        let mut random = SmallRng::seed_from_u64(3);
        let mut row = |_| -> Vec<u8> {
            match cells {
                Cells::Floats => {
                    (0..dim).flat_map(|_| (random.random_range(-9_i8..9) as f32).to_le_bytes()).collect()
                }
                // The smallest normal number, subnormal numbers, and others, with either sign.
                Cells::Halves => {
                    let halves = [0x0400_u16, 0x8400, 0x0600, 0x0300, 0x0200, 0x8200, 0x8100, 0];
                    (0..dim)
                        .flat_map(|_| halves[random.random_range(0..halves.len())].to_le_bytes())
                        .collect()
                }
                // Small whole numbers, of which the upper half of an f32 has all bits.
                Cells::UpperHalves => (0..dim)
                    .flat_map(|_| {
                        let value = random.random_range(-9_i8..9) as f32;
                        [value.to_le_bytes()[2], value.to_le_bytes()[3]]
                    })
                    .collect(),
                Cells::Unsigned | Cells::Signed => (0..dim).map(|_| random.random()).collect(),
                Cells::Bits => (0..dim / 8).map(|_| random.random()).collect(),
            }
        };
        let (queries, rows): (Vec<_>, Vec<_>) =
            ((0..queries).map(&mut row).collect(), (0..rows).map(&mut row).collect());
        let unit = if cells == Cells::Halves { 2_f32.powi(-27) } else { 10.0 };
        let bias = |at: usize| if at % 11 == 5 { f32::NAN } else { (at % 7) as f32 * unit };
        let biases = (0..rows.len()).map(bias).collect();
        let scales = (0..rows.len()).map(|at| [1.0, 2.0][at % 2]).collect();
        let mut pairs = Pairs { cells, dim, queries, rows, biases, scales, limits: Vec::new() };
        // The limit is the value of a pair of the query, so that a value equals its limit. Other limits admit
        // all pairs, or none.
        pairs.limits = (0..pairs.queries.len())
            .map(|query| match query % 13 {
                4 => f32::NAN,
                7 => f32::INFINITY,
                9 => f32::NEG_INFINITY,
                _ => pairs.value(query, query * 5 % pairs.rows.len().max(1)),
            })
            .collect();
        pairs
    }

    fn number(&self, row: &[u8], at: usize) -> f64 {
        match self.cells {
            Cells::Floats => f64::from(f32::from_le_bytes(row[4 * at..][..4].try_into().unwrap())),
            Cells::Halves => {
                let bits = u16::from_le_bytes(row[2 * at..][..2].try_into().unwrap());
                let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
                let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
                let magnitude = match exponent {
                    0 => fraction * 2_f64.powi(-24),
                    _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
                };
                sign * magnitude
            }
            Cells::Unsigned => f64::from(row[at]),
            Cells::Signed => f64::from(row[at] as i8),
            Cells::UpperHalves => f64::from(f32::from_le_bytes([0, 0, row[2 * at], row[2 * at + 1]])),
            Cells::Bits => f64::from(row[at / 8] >> (at % 8) & 1),
        }
    }

    fn value(&self, query: usize, row: usize) -> f32 {
        let (a, b) = (&self.queries[query], &self.rows[row]);
        let product: f64 = (0..self.dim).map(|at| self.number(a, at) * self.number(b, at)).sum();
        self.biases[row] - self.scales[row] * product as f32
    }

    fn expected(&self, rows: std::ops::Range<usize>) -> Vec<(u32, u32)> {
        let all = (0..self.queries.len()).flat_map(|query| rows.clone().map(move |row| (query, row)));
        let above = |(query, row): &(usize, usize)| self.value(*query, *row) > self.limits[*query];
        all.filter(|pair| !above(pair)).map(|(query, row)| (query as u32, row as u32)).collect()
    }

    /// Compares the pairs on `card` with those of the processor. Returns a description of the first
    /// difference.
    pub fn check(&self, card: &dyn Card) -> Result<(), String> {
        let to_text = |error: GpuError| error.to_string();
        let (queries, rows) = (self.queries.len(), self.rows.len());
        let (all, part) = (self.expected(0..rows), self.expected(rows / 3..rows * 2 / 3));
        // The output has room for the pairs of a part of the rows, but not for those of all rows.
        let wanted = ProductSizes { queries, rows, pairs: (all.len() - 1).max(part.len()).max(queries) };
        let row_bytes = self.queries[0].len();
        let mut nearest = Nearest::new(card, self.cells, row_bytes, wanted).map_err(to_text)?;
        assert_eq!(nearest.sizes(), wanted);
        fn slices(rows: &[Vec<u8>]) -> impl ExactSizeIterator<Item = &[u8]> {
            rows.iter().map(Vec::as_slice)
        }
        nearest.set_queries(slices(&self.queries)).map_err(to_text)?;
        let mut found = Vec::new();
        for block in [0, 1, 0] {
            nearest.set_rows(block, slices(&self.rows), &self.biases, &self.scales).map_err(to_text)?;
            nearest.launch(block, 0..rows, &self.limits).map_err(to_text)?;
            if nearest.pairs(block, &mut found).map_err(to_text)? && all.len() > wanted.pairs {
                return Err("more pairs are returned than fit".into());
            }
            nearest.launch(block, rows / 3..rows * 2 / 3, &self.limits).map_err(to_text)?;
            if !nearest.pairs(block, &mut found).map_err(to_text)? {
                return Err("pairs that fit are not returned".into());
            }
            found.sort_unstable();
            if found != part {
                let differ = found.iter().zip(&part).position(|(a, b)| a != b);
                return Err(format!(
                    "{} pairs instead of {}; the first difference is at {differ:?}",
                    found.len(),
                    part.len()
                ));
            }
        }
        Ok(())
    }
}
