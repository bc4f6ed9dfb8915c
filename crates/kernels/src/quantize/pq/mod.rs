//! Product quantization (Jégou, Douze & Schmid, PAMI'11): a code holds the number of a centroid for each
//! subspace.

mod score;
#[cfg(target_arch = "x86_64")]
mod score_avx512;

use crate::kmeans::random::{Random, sample_rows};
use crate::kmeans::{KMeansOptions, Panels, kmeans};
use crate::metric::Metric;
use crate::quantize::code::bytes::{ByteReader, ByteWriter};
use crate::quantize::code::{QuantizeError, finite_or_zero};
use score::Lookup;
pub(super) use score::score;

/// Most rows that a codebook is trained on: 256 for each of 256 centroids, as in faiss.
const TRAINING_ROWS: usize = 65_536;
/// Rows that are encoded together, so that they stay in the L2 cache over all subspaces.
const ENCODE_ROWS: usize = 256;

/// The trained quantizer: a codebook of `2^bits` centroids for each subspace.
#[derive(Clone, Debug)]
pub(super) struct ProductQuantizer {
    bits: usize,
    dim: usize,
    /// First dimension of each subspace, and the end. Widths differ by one at most.
    starts: Vec<usize>,
    /// Codebooks one after the other, each `2^bits x width`, row-major.
    centroids: Vec<f32>,
    panels: Vec<Panels>,
}

impl PartialEq for ProductQuantizer {
    fn eq(&self, other: &Self) -> bool {
        (self.bits, self.dim, &self.starts) == (other.bits, other.dim, &other.starts)
            && self.centroids == other.centroids
    }
}

/// Tables of a query for product codes.
#[derive(Clone, Debug, Default)]
pub(super) struct ProductQuery {
    /// A table of 256 (or 16) bytes for each subspace.
    pub(super) tables: Vec<u8>,
    /// Scale of a sum of table bytes: the score is `bias + scale * sum`.
    pub(super) scale: f32,
    pub(super) bias: f32,
    /// The tables before rounding to bytes.
    exact: Vec<f32>,
}

impl ProductQuery {
    fn lookup(&self, bits: usize) -> Lookup<'_> {
        Lookup { bits, tables: &self.tables, scale: self.scale, bias: self.bias }
    }
}

/// Splits `dim` dimensions into `subspaces` runs whose widths differ by one at most.
fn split(dim: usize, subspaces: usize) -> Vec<usize> {
    (0..=subspaces).map(|s| s * dim / subspaces).collect()
}

impl ProductQuantizer {
    pub(super) fn train(
        bits: usize,
        subspaces: usize,
        sample: &[f32],
        dim: usize,
        seed: u64,
        threads: usize,
    ) -> Result<Self, QuantizeError> {
        let starts = split(dim, subspaces.min(dim));
        let subspaces = starts.len() - 1;
        let rows = sample_rows(sample.len() / dim, TRAINING_ROWS, &mut Random::new(seed));
        let mut books: Vec<Result<Vec<f32>, QuantizeError>> = vec![Ok(Vec::new()); subspaces];
        let part = subspaces.div_ceil(threads.max(1));
        std::thread::scope(|scope| {
            for (p, part_books) in books.chunks_mut(part).enumerate() {
                let (starts, rows) = (&starts, &rows);
                scope.spawn(move || {
                    for (i, book) in part_books.iter_mut().enumerate() {
                        let s = p * part + i;
                        let (from, to) = (starts[s], starts[s + 1]);
                        let slice: Vec<f32> = rows
                            .iter()
                            .flat_map(|r| &sample[r * dim + from..r * dim + to])
                            .copied()
                            .collect();
                        let options = KMeansOptions::new(1 << bits, seed.wrapping_add(s as u64));
                        *book = kmeans(&slice, to - from, &options)
                            .map(|c| c.centroids)
                            .map_err(QuantizeError::from);
                    }
                });
            }
        });
        let mut centroids = Vec::with_capacity(dim << bits);
        for book in books {
            centroids.extend_from_slice(&book?);
        }
        Ok(Self::assemble(bits, dim, starts, centroids))
    }

    fn assemble(bits: usize, dim: usize, starts: Vec<usize>, centroids: Vec<f32>) -> Self {
        let book = |s: usize| &centroids[starts[s] << bits..starts[s + 1] << bits];
        let panels = (0..starts.len() - 1).map(|s| Panels::new(book(s), starts[s + 1] - starts[s])).collect();
        ProductQuantizer { bits, dim, starts, centroids, panels }
    }

    pub(super) fn bits(&self) -> usize {
        self.bits
    }

    pub(super) fn subspaces(&self) -> usize {
        self.starts.len() - 1
    }

    pub(super) fn code_bytes(&self) -> usize {
        (self.subspaces() * self.bits).div_ceil(8)
    }

    fn centroid(&self, subspace: usize, label: usize) -> &[f32] {
        let (from, to) = (self.starts[subspace], self.starts[subspace + 1]);
        let at = (from << self.bits) + label * (to - from);
        &self.centroids[at..at + to - from]
    }

    /// Encodes whole rows. With 4 bits, the labels of subspaces 2i and 2i + 1 share byte i, the even one in
    /// the low half.
    pub(super) fn encode(&self, vectors: &[f32], codes: &mut [u8], labels: &mut Vec<u32>) {
        let bytes = self.code_bytes();
        labels.resize(ENCODE_ROWS, 0);
        for (rows, codes) in vectors.chunks(ENCODE_ROWS * self.dim).zip(codes.chunks_mut(ENCODE_ROWS * bytes))
        {
            let labels = &mut labels[..rows.len() / self.dim];
            codes.fill(0);
            for (s, panels) in self.panels.iter().enumerate() {
                panels.assign(&rows[self.starts[s]..], self.dim, labels, &mut []);
                let (byte, shift) = (s * self.bits / 8, s * self.bits % 8);
                for (code, &label) in codes.chunks_exact_mut(bytes).zip(labels.iter()) {
                    code[byte] |= (label as u8) << shift;
                }
            }
        }
    }

    pub(super) fn decode(&self, code: &[u8], out: &mut [f32]) {
        let mask = (1usize << self.bits) - 1;
        for s in 0..self.subspaces() {
            let label = usize::from(code[s * self.bits / 8] >> (s * self.bits % 8)) & mask;
            out[self.starts[s]..self.starts[s + 1]].copy_from_slice(self.centroid(s, label));
        }
    }

    /// Fills the tables with the distance of the query's part to each centroid, rounded to bytes with one
    /// scale.
    pub(super) fn prepare(&self, metric: Metric, query: &[f32], prepared: &mut ProductQuery) {
        let size = 1 << self.bits;
        prepared.exact.clear();
        for s in 0..self.subspaces() {
            let (from, to) = (self.starts[s], self.starts[s + 1]);
            let part = &query[from..to];
            let book = &self.centroids[from << self.bits..to << self.bits];
            prepared.exact.extend(book.chunks_exact(to - from).map(|centroid| {
                let pairs = part.iter().zip(centroid);
                match metric {
                    Metric::L2 => pairs.map(|(q, c)| (q - c) * (q - c)).sum::<f32>(),
                    _ => -pairs.map(|(q, c)| q * c).sum::<f32>(),
                }
            }));
        }
        prepared.bias = if metric == Metric::Cosine { 1.0 } else { 0.0 };
        let mut widest = 0.0f32;
        for table in prepared.exact.chunks_exact_mut(size) {
            let least = table.iter().copied().fold(f32::INFINITY, f32::min);
            table.iter_mut().for_each(|v| *v -= least);
            widest = table.iter().copied().fold(widest, f32::max);
            prepared.bias += least;
        }
        let inverse;
        (prepared.scale, inverse) = finite_or_zero(widest / 255.0, 255.0 / widest);
        prepared.tables.clear();
        prepared.tables.extend(prepared.exact.iter().map(|v| (v * inverse + 0.5) as u8));
    }

    pub(super) fn write(&self, writer: &mut ByteWriter) {
        writer.u32(self.subspaces() as u32);
        writer.floats(&self.centroids);
    }

    pub(super) fn read(bits: usize, dim: usize, reader: &mut ByteReader<'_>) -> Result<Self, QuantizeError> {
        let subspaces = reader.u32()? as usize;
        if subspaces == 0 || subspaces > dim {
            return Err(QuantizeError::Malformed("number of subspaces out of range"));
        }
        let centroids = reader.floats(dim << bits)?;
        Ok(Self::assemble(bits, dim, split(dim, subspaces), centroids))
    }
}
