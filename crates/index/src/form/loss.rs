//! What is lost when vectors are stored as something smaller: exact search of what is stored, held against exact search of
//! what was given.

use super::Form;
use crate::error::IndexError;
use crate::exact::{exact_neighbors_on, index_error};
use crate::format::stored::Loss;
use bathyal_gpu::Card;
use bathyal_kernels::{Element, Metric, TopK, normalize_f32};
use bathyal_vectors::groundtruth::GroundTruthError;
use bathyal_vectors::progress::{CancelOnly, Progress};
use bathyal_vectors::{IdFile, RowReader, VectorFile};
use rand::rngs::SmallRng;
use rand::seq::index::sample;
use rand::{Rng, SeedableRng};
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Neighbours that the loss is told by.
const K: usize = 10;
/// Neighbours that are looked for: those of a calibration, each of which loses its own share.
const ALL_K: [usize; 3] = [1, K, 100];
/// Queries measured: a share of ten thousand neighbours is known to some hundredths of a percentage point.
const MOST_QUERIES: usize = 1000;
/// Bytes of vectors, as f32, that are converted and searched at once.
const BLOCK_BYTES: usize = 8 << 20;

/// What a form loses, and which shares of the nearest are left to be found.
#[derive(Debug, Clone)]
pub(crate) struct MeasuredLoss {
    pub(crate) loss: Loss,
    shares: Vec<(usize, f32)>,
}

impl MeasuredLoss {
    /// The share of the `k` nearest that exact search of the stored vectors finds.
    pub(crate) fn share(&self, k: usize) -> f32 {
        self.shares.iter().find(|(of, _)| *of == k).map_or(self.loss.recall, |(_, share)| *share)
    }
}

/// What a measurement works on.
pub(crate) struct LossMeasurement<'a> {
    pub(crate) data: &'a VectorFile,
    pub(crate) form: Form,
    /// Root mean square error that a component of `data` already has, because it was stored before. The same error is added once
    /// more at random, since the originals are gone: what that loses is what was lost.
    pub(crate) error_before: f32,
    /// Queries like those to come; else vectors of the data stand in for them, each left out of its own answer.
    pub(crate) queries: Option<&'a VectorFile>,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    pub(crate) card: Option<&'a Arc<dyn Card>>,
    pub(crate) progress: &'a dyn Progress,
}

/// Queries, and their own ids where they are vectors of the data.
type Sampled = (VectorFile, Option<Vec<u32>>);

impl LossMeasurement<'_> {
    /// Measures; `None` where there are no two vectors and no queries.
    ///
    /// # Errors
    /// [`IndexError::Cancelled`], and data that cannot be read.
    pub(crate) fn run(&self) -> Result<Option<MeasuredLoss>, IndexError> {
        let Some((queries, own)) = self.sampled()? else { return Ok(None) };
        let present = self.data.count() - usize::from(own.is_some());
        let Some(most) = ALL_K.map(|k| k.min(present)).last().copied().filter(|most| *most > 0) else {
            return Ok(None);
        };
        // One more than asked for, since a query that is in the data is its own nearest.
        let wide = most + usize::from(own.is_some());
        let truth = self.exact(self.data, &queries, wide, self.progress)?;
        let found = self.stored_neighbors(&queries, wide)?;
        let own = |query: usize| own.as_ref().map(|own| own[query]);
        let others = |ids: &[u32], query: usize| -> Vec<u32> {
            ids.iter().copied().filter(|id| Some(*id) != own(query)).take(most).collect()
        };
        let pairs: Vec<[Vec<u32>; 2]> = (0..queries.count())
            .map(|query| [others(truth.ids(query), query), others(&found[query], query)])
            .collect();
        let k = K.min(present);
        Ok(Some(MeasuredLoss {
            loss: Loss {
                queries: queries.count() as u32,
                k: k as u32,
                recall: share_found(&pairs, k),
                distance_error: self.distance_error(&queries, &pairs, k)?,
                component_error: Some(self.component_error()?),
            },
            shares: ALL_K.into_iter().filter(|k| *k <= most).map(|k| (k, share_found(&pairs, k))).collect(),
        }))
    }

    /// The mean error of the distances of the `k` nearest, by their mean.
    fn distance_error(
        &self,
        queries: &VectorFile,
        pairs: &[[Vec<u32>; 2]],
        k: usize,
    ) -> Result<f32, IndexError> {
        let (mut error, mut total) = (0.0, 0.0);
        let mut rows = RowReader::new(self.data, 0);
        for (query, [truth, _]) in pairs.iter().enumerate() {
            let query = floats(queries.row(query));
            for id in truth.iter().take(k) {
                let row = rows.row(*id as usize)?;
                let to = |row: &[f32]| distance(self.form.metric(), &query, row);
                let (given, stored) = (to(&floats(row)), to(&self.stored(*id, row)));
                error += (stored - given).abs();
                total += given.abs();
            }
        }
        Ok(if total > 0.0 { (error / total) as f32 } else { 0.0 })
    }

    /// The root mean square error of the components of a vector: of the middle one of some, since one that is far longer than all
    /// others says nothing of these.
    fn component_error(&self) -> Result<f32, IndexError> {
        let mut rows = RowReader::new(self.data, 0);
        let mut errors = Vec::new();
        for id in self.drawn(self.data.count()) {
            let row = rows.row(id as usize)?;
            let (mut given, stored) = (floats(row), self.stored(id, row));
            if self.form.metric() == Metric::Cosine {
                normalize_f32(&mut given);
            }
            let pairs = given.iter().zip(&stored);
            let squares = pairs.map(|(x, y)| (f64::from(*x) - f64::from(*y)).powi(2)).sum::<f64>();
            errors.push((squares / given.len().max(1) as f64).sqrt() as f32);
        }
        errors.sort_unstable_by(f32::total_cmp);
        Ok(errors.get(errors.len() / 2).copied().unwrap_or(0.0))
    }

    /// Some of `count` rows, rising.
    fn drawn(&self, count: usize) -> Vec<u32> {
        let mut random = rand::rngs::StdRng::seed_from_u64(self.seed ^ 0x1055);
        let drawn = sample(&mut random, count, count.min(MOST_QUERIES));
        let mut ids: Vec<u32> = drawn.iter().map(|id| id as u32).collect();
        ids.sort_unstable();
        ids
    }

    /// The queries, and their own ids where they are vectors of the data; none without a direction under cosine.
    fn sampled(&self) -> Result<Option<Sampled>, IndexError> {
        let source = self.queries.unwrap_or(self.data);
        let (mut reader, mut taken, mut rows) = (RowReader::new(source, 0), Vec::new(), Vec::new());
        for id in self.drawn(source.count()) {
            let row = reader.row(id as usize)?;
            if self.form.metric() != Metric::Cosine || crate::extent::has_direction(source.element(), row) {
                rows.extend_from_slice(row);
                taken.push(id);
            }
        }
        if taken.is_empty() {
            return Ok(None);
        }
        let queries = VectorFile::from_rows(Element::F32, source.dim(), rows)?;
        Ok(Some((queries, self.queries.is_none().then_some(taken))))
    }

    fn exact(
        &self,
        data: &VectorFile,
        queries: &VectorFile,
        k: usize,
        progress: &dyn Progress,
    ) -> Result<IdFile, IndexError> {
        let threads = NonZeroUsize::new(self.threads);
        exact_neighbors_on(self.card, data, queries, self.form.metric(), k, threads, progress).map_err(
            |error| match error {
                GroundTruthError::ZeroVector { row, .. } => {
                    IndexError::ZeroVectors { count: 1, rows: vec![row] }
                }
                other => index_error(other),
            },
        )
    }

    /// The ids of the `k` nearest by the stored vectors, which are made block by block.
    fn stored_neighbors(&self, queries: &VectorFile, k: usize) -> Result<Vec<Vec<u32>>, IndexError> {
        let (count, dim) = (self.data.count(), self.data.dim());
        let block = (BLOCK_BYTES / self.data.row_bytes()).max(1);
        let mut nearest: Vec<TopK> = (0..queries.count()).map(|_| TopK::new(k)).collect();
        self.progress.stage("measuring the loss", count as u64);
        let mut reader = RowReader::new(self.data, 0);
        for first in (0..count).step_by(block) {
            let rows = block.min(count - first);
            let mut decoded = Vec::with_capacity(rows * self.data.row_bytes());
            let given = reader.block(first..first + rows)?;
            for (id, row) in (first as u32..).zip(given.rows()) {
                let values = self.stored(id, given.row(row));
                values.iter().for_each(|value| decoded.extend_from_slice(&value.to_le_bytes()));
            }
            let decoded = VectorFile::from_rows(Element::F32, dim, decoded)?;
            let found = self.exact(&decoded, queries, k.min(rows), &CancelOnly(self.progress))?;
            for (query, nearest) in nearest.iter_mut().enumerate() {
                let distances = found.distances(query).unwrap_or_default();
                for (id, distance) in found.ids(query).iter().zip(distances) {
                    nearest.push(first as u32 + id, *distance);
                }
            }
            self.progress.advance((first + rows) as u64);
        }
        Ok(nearest.into_iter().map(|found| found.into_sorted().iter().map(|one| one.id).collect()).collect())
    }

    /// The row `id` as a search of the index sees it, in the units of the data, with the error that it had before.
    fn stored(&self, id: u32, row: &[u8]) -> Vec<f32> {
        let mut stored = vec![0; self.form.stored().row_bytes(self.data.dim())];
        self.form.take(row, &mut stored);
        let mut values = vec![0.0; self.data.dim()];
        self.form.decode(&stored, &mut values);
        if self.error_before > 0.0 {
            // Values spread evenly between -w and w have a root mean square of w / sqrt(3).
            let width = 3.0_f32.sqrt() * self.error_before;
            let mut random = SmallRng::seed_from_u64(self.seed ^ u64::from(id));
            values.iter_mut().for_each(|value| *value += width * (2.0 * random.random::<f32>() - 1.0));
        }
        values
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect()
}

/// The share of the `k` nearest, of pairs of what is true and what was found, that were found among as many.
fn share_found(pairs: &[[Vec<u32>; 2]], k: usize) -> f32 {
    let hits = |[truth, found]: &[Vec<u32>; 2]| {
        let found = &found[..k.min(found.len())];
        truth.iter().take(k).filter(|id| found.contains(id)).count()
    };
    (pairs.iter().map(hits).sum::<usize>() as f64 / (pairs.len() * k) as f64) as f32
}

/// A distance in 64 bits.
fn distance(metric: Metric, a: &[f32], b: &[f32]) -> f64 {
    let sum = |term: &dyn Fn(f64, f64) -> f64| -> f64 {
        a.iter().zip(b).map(|(x, y)| term(f64::from(*x), f64::from(*y))).sum()
    };
    let product = sum(&|x, y| x * y);
    match metric {
        Metric::L2 => sum(&|x, y| (x - y) * (x - y)),
        Metric::InnerProduct => -product,
        Metric::Cosine => 1.0 - product / (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt(),
    }
}
