//! Full vectors of any element, on a card and on the processor.

use bathyal_gpu::{Card, Exact, GpuError, VectorUpload, Vectors};
use bathyal_kernels::{Distance, Element, Metric, TopK, from_f32};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Vectors by place, and queries. Components are small whole numbers, so that sums are exact in any order,
/// and many distances are equal.
pub struct Stored {
    exact: Exact,
    distance: Distance,
    rows: Vec<Vec<u8>>,
    ids: Vec<u32>,
    queries: Vec<Vec<u8>>,
}

fn bytes_of(element: Element, values: &[i8]) -> Vec<u8> {
    match element {
        Element::F32 => values.iter().flat_map(|value| f32::from(*value).to_le_bytes()).collect(),
        // Small whole numbers are f16 numbers, so their bits can be converted.
        Element::F16 => values
            .iter()
            .flat_map(|value| {
                let bits = f32::from(*value).to_bits();
                let magnitude = if bits << 1 == 0 { 0 } else { (bits >> 13 & 0x3_ffff) - (112 << 10) };
                ((bits >> 16 & 0x8000 | magnitude) as u16).to_le_bytes()
            })
            .collect(),
        Element::U8 => values.iter().map(|value| value.unsigned_abs()).collect(),
        Element::I8 => values.iter().map(|value| *value as u8).collect(),
        Element::Bf16 | Element::B1 => {
            let floats: Vec<f32> = values.iter().map(|value| f32::from(*value)).collect();
            let mut bytes = vec![0; element.row_bytes(values.len())];
            from_f32(element, &floats, &mut bytes);
            bytes
        }
    }
}

impl Stored {
    /// Creates `places` random vectors of `dim` dimensions, and `queries` queries. Queries are f32 with
    /// `has_f32_queries`, otherwise they have the element of the vectors.
    pub fn new(
        (row, has_f32_queries, metric): (Element, bool, Metric),
        dim: usize,
        places: usize,
        queries: usize,
    ) -> Stored {
        let mut random = SmallRng::seed_from_u64(5);
        let mut values = |_| (0..dim).map(|_| random.random_range(-3..4)).collect::<Vec<i8>>();
        let mut rows: Vec<Vec<i8>> = (0..places).map(&mut values).collect();
        // A vector without a direction, for cosines.
        rows[places / 2].fill(0);
        let queries: Vec<Vec<i8>> = (0..queries).map(&mut values).collect();
        let query = if has_f32_queries { Element::F32 } else { row };
        let distance = match has_f32_queries {
            true => Distance::of_floats(row, metric, dim),
            false => Distance::new(row, metric, dim),
        };
        Stored {
            exact: Exact { metric, row, query, dim: dim as u32, scale: 0.25, shift: 1.0 },
            distance,
            rows: rows.iter().map(|values| bytes_of(row, values)).collect(),
            // Another order than that of places.
            ids: (0..places as u32).map(|place| (place + 7) * 11 % places as u32).collect(),
            queries: queries.iter().map(|values| bytes_of(query, values)).collect(),
        }
    }

    /// Returns the bytes of query number `number`.
    pub fn query(&self, number: usize) -> &[u8] {
        &self.queries[number]
    }

    /// Copies the vectors to a card.
    pub fn upload(&self, card: &dyn Card) -> Result<Vectors, GpuError> {
        let mut upload = VectorUpload::begin(card, self.exact, self.rows.len() as u64)?;
        for (row, id) in self.rows.iter().zip(&self.ids) {
            upload.append(row, *id)?;
        }
        upload.finish()
    }

    /// Finds the nearest `wanted` vectors at `places` on the processor. Returns their distances and ids.
    pub fn nearest(
        &self,
        number: usize,
        places: impl Iterator<Item = u32>,
        wanted: usize,
    ) -> Vec<(f32, u32)> {
        let mut found = TopK::new(wanted);
        for place in places {
            let distance = self.distance.between(&self.queries[number], &self.rows[place as usize]);
            found.push(self.ids[place as usize], self.exact.shift + self.exact.scale * distance);
        }
        found.into_sorted().into_iter().map(|neighbor| (neighbor.distance, neighbor.id)).collect()
    }
}
