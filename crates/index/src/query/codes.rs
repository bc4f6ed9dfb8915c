//! Codes of vectors around their common mean, which are scanned in blocks: for posting lists that share
//! vectors, and for sets without groups.
//!
//! The codes are of whole vectors, not of residuals. So a vector has the same estimate in every list, and the
//! answers do not depend on the order of arrival. The codes are encoded and scanned in blocks, as those of
//! the cluster family.

use crate::error::IndexError;
use bathyal_kernels::quantize::{CodeKind, CodeQuery, Codec, EncodeScratch, GroupScan, SCAN_BLOCK};
use bathyal_kernels::{Metric, Neighbor};

/// Returns the metric of codes and means: L2 for normalised vectors.
pub(crate) fn plain_metric(metric: Metric) -> Metric {
    match metric {
        Metric::L2 | Metric::Cosine => Metric::L2,
        Metric::InnerProduct => Metric::InnerProduct,
    }
}

/// Returns the most bytes of a query of `dim` dimensions: as floats, rotated, and as the tables by which
/// codes are scored. `codes` are the kind and the bytes of a code. For short vectors, the result has space
/// for product codes of one byte per dimension, whatever the kind.
pub(crate) fn query_bytes(dim: usize, codes: Option<(&str, u32)>) -> u64 {
    /// Bytes per dimension with product codes of one byte per dimension.
    const PRODUCT_BYTES: u64 = 1100;
    /// From this size on, the result depends on the kind of codes.
    const LONG_BYTES: u64 = 1 << 20;
    /// Bytes per dimension of everything but the tables of product codes.
    const DIMENSION_BYTES: u64 = 104;
    /// Bytes of the tables for one byte of a product code: 256 floats, and as many bytes.
    const TABLE_BYTES: u64 = 256 * (4 + 1);
    let dim = dim as u64;
    let tables = |(kind, bytes): (&str, u32)| match kind.parse() {
        Ok(CodeKind::Axes | CodeKind::RaBitQ { .. }) => 0,
        _ => TABLE_BYTES * u64::from(bytes),
    };
    (PRODUCT_BYTES * dim).min(LONG_BYTES.max(DIMENSION_BYTES * dim + codes.map_or(0, tables)))
}

/// The codec of vectors, and the mean that is subtracted before encoding.
#[derive(Debug)]
pub(crate) struct VectorCodes {
    pub(crate) codec: Codec,
    /// The vector that is subtracted from every vector before it is encoded: the mean, around which codes
    /// have the smallest error.
    pub(crate) shift: Vec<f32>,
}

/// A query that is prepared for such codes. Its memory is reused.
#[derive(Debug)]
pub(crate) struct CodedQuery {
    shifted: Vec<f32>,
    codes: CodeQuery,
    /// The distance from the query to the shift.
    base: f32,
    /// The last, incomplete block of a list.
    block: Vec<u8>,
}

impl CodedQuery {
    pub(crate) fn new() -> CodedQuery {
        CodedQuery { shifted: Vec::new(), codes: CodeQuery::new(), base: 0.0, block: Vec::new() }
    }
}

impl VectorCodes {
    /// Trains a codec on `sample` (`n x dim`, row-major), from which the mean is subtracted in place.
    pub(crate) fn train(
        (kind, bytes): (CodeKind, usize),
        metric: Metric,
        sample: &mut [f32],
        dim: usize,
        seed: u64,
        threads: usize,
    ) -> Result<VectorCodes, IndexError> {
        let rows = sample.len() / dim;
        let mut sums = vec![0.0_f64; dim];
        for row in sample.chunks_exact(dim) {
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
        }
        let shift: Vec<f32> = sums.iter().map(|sum| (sum / rows as f64) as f32).collect();
        for row in sample.chunks_exact_mut(dim) {
            row.iter_mut().zip(&shift).for_each(|(value, shift)| *value -= shift);
        }
        let codec = Codec::train(kind, bytes, plain_metric(metric), sample, dim, seed, threads)?;
        Ok(VectorCodes { codec, shift })
    }

    /// Returns the content of the file: the shift, then the codec.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let shift = self.shift.iter().flat_map(|value| value.to_le_bytes());
        shift.chain(self.codec.to_bytes()).collect()
    }

    /// Reads what [`VectorCodes::to_bytes`] wrote for vectors of `dim` dimensions under `metric`.
    ///
    /// # Errors
    /// A sentence if the bytes are not a codec, or one that does not fit.
    pub(crate) fn from_bytes(
        bytes: &[u8],
        dim: usize,
        metric: Metric,
        code_bytes: u32,
    ) -> Result<VectorCodes, String> {
        let (shift, codec) = bytes.split_at_checked(4 * dim).ok_or("it ends within the shift")?;
        let shift: Vec<f32> =
            shift.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
        if !shift.iter().all(|value| value.is_finite()) {
            return Err("a number of the shift is not finite".into());
        }
        let codec = Codec::from_bytes(codec).map_err(|error| error.to_string())?;
        if codec.dim() != dim || codec.code_bytes() != code_bytes as usize {
            return Err(format!(
                "it makes codes of {} bytes from {} dimensions, the manifest says {code_bytes} from {dim}",
                codec.code_bytes(),
                codec.dim()
            ));
        }
        if codec.metric() != plain_metric(metric) || !codec.has_groups() {
            return Err(format!(
                "codes of kind {} for {} cannot be scanned for this index",
                codec.kind(),
                codec.metric()
            ));
        }
        Ok(VectorCodes { codec, shift })
    }

    /// Returns the bytes of a code.
    pub(crate) fn code_bytes(&self) -> usize {
        self.codec.code_bytes()
    }

    /// Encodes `rows` (`n x dim`, row-major) as codes one after the other. Subtracts the shift from `rows` in
    /// place.
    pub(crate) fn encode(&self, rows: &mut [f32], codes: &mut [u8], scratch: &mut EncodeScratch) {
        let (dim, bytes) = (self.shift.len(), self.codec.code_bytes());
        rows.chunks_exact_mut(dim).for_each(|row| row.iter_mut().zip(&self.shift).for_each(|(v, s)| *v -= s));
        // Relative to the mean, the centroid is zero.
        let (centre, mut block) = (vec![0.0; dim], vec![0; self.codec.block_bytes()]);
        for (rows, codes) in rows.chunks(SCAN_BLOCK * dim).zip(codes.chunks_mut(SCAN_BLOCK * bytes)) {
            self.codec.encode_group(rows, &centre, &mut block, scratch);
            self.codec.codes_of_block(&block, codes);
        }
    }

    /// Appends codes, which are one after the other, in the order in which they are scanned: in blocks of 32,
    /// and a last one with the rest.
    pub(crate) fn append_blocks(&self, codes: &[u8], out: &mut Vec<u8>) {
        for codes in codes.chunks(self.codec.block_bytes()) {
            let before = out.len();
            out.resize(before + codes.len(), 0);
            self.codec.block_of_codes(codes, &mut out[before..]);
        }
    }

    /// Prepares `query` for the vector `floats`, which is normalised under cosine.
    pub(crate) fn begin(&self, floats: &[f32], query: &mut CodedQuery) {
        query.shifted.clear();
        query.shifted.extend_from_slice(floats);
        query.base = match self.codec.metric() {
            Metric::InnerProduct => -floats.iter().zip(&self.shift).map(|(q, s)| q * s).sum::<f32>(),
            _ => {
                query.shifted.iter_mut().zip(&self.shift).for_each(|(q, s)| *q -= s);
                query.shifted.iter().map(|q| q * q).sum()
            }
        };
        query.codes.prepare_groups(&self.codec, &query.shifted);
        query.block.resize(self.codec.block_bytes(), 0);
    }

    /// Appends to `hits` the numbers of the codes whose estimates are below `threshold`. An estimate that is
    /// NaN is never below.
    #[inline]
    pub(crate) fn scan(
        &self,
        query: &mut CodedQuery,
        codes: &[u8],
        threshold: f32,
        hits: &mut Vec<Neighbor>,
    ) {
        let count = codes.len() / self.codec.code_bytes();
        let whole = count / SCAN_BLOCK * SCAN_BLOCK;
        let (blocks, short) = codes.split_at(whole * self.codec.code_bytes());
        let scan = |blocks, count, first| GroupScan {
            blocks,
            count,
            centroid_distance: query.base,
            threshold,
            first,
            next: &[],
        };
        if whole > 0 {
            query.codes.scan_group_before(&self.codec, &scan(blocks, whole, 0), hits);
        }
        if count > whole {
            self.codec.widen_block(short, &mut query.block);
            let last = scan(&query.block, count - whole, whole as u32);
            query.codes.scan_group_before(&self.codec, &last, hits);
        }
    }
}
