//! Vector codes: a few bits for each dimension in DRAM, which stand for vectors on the tier below.
//!
//! A [`Codec`] is trained on a sample, encodes rows into codes of a fixed size and scores codes against a
//! query ([`CodeQuery`]) without decoding them. `docs/codes.md` compares the kinds of codes.

mod code;
mod groups;
mod lanes;
mod planes;
mod pq;
mod scan;
#[cfg(test)]
mod tests;

use crate::distance::Isa;
use crate::kmeans::KMeansError;
use crate::metric::Metric;
pub use code::block::{GroupScan, SCAN_BLOCK};
use code::bytes::{ByteReader, ByteWriter};
pub use code::{CodeKind, MAX_DIM, QuantizeError};
use planes::{GroupQuery, PlaneQuantizer, PlaneQuery, PlaneScratch};
pub use planes::{PlaneCodes, PlaneNumbers, ScanNumbers};
use pq::{ProductQuantizer, ProductQuery};
pub use scan::ScanCodes;
use scan::ScanTables;

/// First bytes of a serialised codec.
const MAGIC: [u8; 4] = *b"BYCD";
/// Version of the serialised form; see `docs/format/codes.md`.
const FORMAT_VERSION: u32 = 1;
/// Version of the serialised form of a codec with a dense rotation in bytes.
const BYTES_VERSION: u32 = 2;
/// Bytes from which `axes` codes rank better than product codes; they also train 10 times faster. In shorter
/// codes the four bytes of factors take too large a share.
const LEAST_AXES_BYTES: usize = 32;
/// Most bytes of training memory for axes, divided by the square of the dimensions: covariances, and axes
/// three times.
const AXES_TRAINING_BYTES: u64 = 28;
/// Most dimensions that the estimate of training memory assumes for other kinds.
const OTHER_TRAINING_DIM: usize = 1024;

#[derive(Clone, Debug, PartialEq)]
enum Body {
    Product(ProductQuantizer),
    Planes(PlaneQuantizer),
}

/// A trained quantizer of any kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Codec {
    kind: CodeKind,
    metric: Metric,
    dim: usize,
    body: Body,
}

impl Codec {
    /// Most dimensions for which [`Codec::default_for`] chooses principal axes. Up to here training finds the
    /// axes in a few seconds, and the rotation of a query (`dim^2` products) takes less time than its search.
    pub const MOST_AXES_DIM: usize = 1536;

    /// Returns the most bytes of memory that training takes in addition to its sample and a copy of it.
    pub fn training_bytes(kind: CodeKind, dim: usize) -> u64 {
        let dim = if kind == CodeKind::Axes { dim } else { dim.min(OTHER_TRAINING_DIM) };
        AXES_TRAINING_BYTES * (dim as u64).pow(2)
    }

    /// Trains a codec of `kind` with codes of at most `code_bytes` bytes on `sample` (`s x dim`, row-major).
    ///
    /// The actual size, [`Codec::code_bytes`], is smaller if the kind cannot use all bytes. The result
    /// depends on `seed` but not on `threads`.
    ///
    /// # Errors
    /// [`QuantizeError`] for an empty sample, incomplete rows, values that are not finite, a dimension out of
    /// range, too small a code, and values whose squares overflow.
    pub fn train(
        kind: CodeKind,
        code_bytes: usize,
        metric: Metric,
        sample: &[f32],
        dim: usize,
        seed: u64,
        threads: usize,
    ) -> Result<Codec, QuantizeError> {
        if dim == 0 || dim > MAX_DIM {
            return Err(QuantizeError::Dimension(dim));
        }
        check_sample(sample, dim)?;
        if code_bytes == 0 {
            return Err(QuantizeError::CodeBytes { code_bytes, kind, least: 1 });
        }
        let body = match kind {
            CodeKind::Pq => {
                Body::Product(ProductQuantizer::train(8, code_bytes, sample, dim, seed, threads)?)
            }
            CodeKind::Pq4 => {
                Body::Product(ProductQuantizer::train(4, 2 * code_bytes, sample, dim, seed, threads)?)
            }
            CodeKind::RaBitQ { bits } => {
                if !(1..=8).contains(&bits) {
                    return Err(QuantizeError::Bits(bits));
                }
                Body::Planes(PlaneQuantizer::train_uniform(bits, code_bytes, sample, dim, seed)?)
            }
            CodeKind::Axes => {
                Body::Planes(PlaneQuantizer::train_allocated(code_bytes, sample, dim, seed, threads)?)
            }
        };
        Ok(Codec { kind, metric, dim, body })
    }

    /// Returns the best kind for codes of `code_bytes` bytes of `dim`-dimensional vectors, by the table in
    /// `docs/codes.md`.
    pub fn default_for(dim: usize, code_bytes: usize) -> CodeKind {
        if code_bytes < LEAST_AXES_BYTES {
            return CodeKind::Pq;
        }
        if dim <= Codec::MOST_AXES_DIM {
            return CodeKind::Axes;
        }
        // The rotation of a query to principal axes costs dim^2, a fast rotation dim log dim.
        let bits = (code_bytes.saturating_sub(8) * 8 / dim).min(8) as u8;
        if bits >= 1 { CodeKind::RaBitQ { bits } } else { CodeKind::Pq }
    }

    /// Returns the bytes of one code.
    pub fn code_bytes(&self) -> usize {
        match &self.body {
            Body::Product(quantizer) => quantizer.code_bytes(),
            Body::Planes(quantizer) => quantizer.code_bytes(),
        }
    }

    /// Returns the dimensions of the vectors.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Returns the kind of the codes.
    pub fn kind(&self) -> CodeKind {
        self.kind
    }

    /// Returns the metric whose distance [`CodeQuery::score`] estimates.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Returns the layout of codes of bit planes, for scoring on another processor; `None` for product codes.
    pub fn plane_codes(&self) -> Option<PlaneCodes> {
        match &self.body {
            Body::Product(_) => None,
            Body::Planes(quantizer) => Some(quantizer.plane_codes()),
        }
    }

    /// Encodes `n x dim` row-major `vectors` into `n x code_bytes` bytes. Callers split rows over threads,
    /// each with its own scratch.
    ///
    /// If the slices hold different numbers of rows, the smaller number is encoded. Values must be finite.
    pub fn encode(&self, vectors: &[f32], codes: &mut [u8], scratch: &mut EncodeScratch) {
        let n = (vectors.len() / self.dim).min(codes.len() / self.code_bytes());
        let (vectors, codes) = (&vectors[..n * self.dim], &mut codes[..n * self.code_bytes()]);
        match &self.body {
            Body::Product(quantizer) => quantizer.encode(vectors, codes, &mut scratch.labels),
            Body::Planes(quantizer) => quantizer.encode(vectors, codes, &mut scratch.planes),
        }
    }

    /// Writes the reconstruction of `code` (`code_bytes` bytes) to `out` (`dim` values). Any bytes are a
    /// valid code.
    ///
    /// # Panics
    /// If a slice is shorter.
    pub fn decode(&self, code: &[u8], out: &mut [f32]) {
        let (code, out) = (&code[..self.code_bytes()], &mut out[..self.dim]);
        match &self.body {
            Body::Product(quantizer) => quantizer.decode(code, out),
            Body::Planes(quantizer) => quantizer.decode(code, out),
        }
    }

    /// Prepares `prepared` for scoring codes against `query` (`dim` values). A reused `prepared` allocates
    /// nothing.
    ///
    /// # Panics
    /// If `query` does not have `dim` values.
    pub fn prepare(&self, query: &[f32], prepared: &mut CodeQuery) {
        assert_eq!(query.len(), self.dim, "a query of another dimension than the codec");
        match &self.body {
            Body::Product(quantizer) => quantizer.prepare(self.metric, query, &mut prepared.product),
            Body::Planes(quantizer) => quantizer.prepare(self.metric, query, &mut prepared.planes),
        }
    }

    /// Serializes the codec, little-endian, in the layout of `docs/format/codes.md`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = ByteWriter::default();
        writer.bytes(&MAGIC);
        writer.u32(match &self.body {
            Body::Planes(quantizer) if quantizer.has_byte_rotation() => BYTES_VERSION,
            _ => FORMAT_VERSION,
        });
        writer.u32(match self.kind {
            CodeKind::Pq => 0,
            CodeKind::Pq4 => 1,
            CodeKind::RaBitQ { bits } => 0x100 + u32::from(bits),
            CodeKind::Axes => 2,
        });
        writer.u32(match self.metric {
            Metric::L2 => 0,
            Metric::InnerProduct => 1,
            Metric::Cosine => 2,
        });
        writer.u32(self.dim as u32);
        match &self.body {
            Body::Product(quantizer) => quantizer.write(&mut writer),
            Body::Planes(quantizer) => quantizer.write(&mut writer),
        }
        writer.finish()
    }

    /// Reads the bytes of [`Codec::to_bytes`].
    ///
    /// # Errors
    /// [`QuantizeError::Malformed`] for truncated, over-long or inconsistent bytes and for later versions.
    pub fn from_bytes(bytes: &[u8]) -> Result<Codec, QuantizeError> {
        let mut reader = ByteReader::new(bytes);
        if reader.take(4)? != MAGIC {
            return Err(QuantizeError::Malformed("the first four bytes are not BYCD"));
        }
        let version = reader.u32()?;
        if !matches!(version, FORMAT_VERSION | BYTES_VERSION) {
            return Err(QuantizeError::Malformed(
                "written by another version; rebuild the index with this one",
            ));
        }
        let kind = match reader.u32()? {
            0 => CodeKind::Pq,
            1 => CodeKind::Pq4,
            2 => CodeKind::Axes,
            bits @ 0x101..=0x108 => CodeKind::RaBitQ { bits: (bits - 0x100) as u8 },
            _ => return Err(QuantizeError::Malformed("unknown kind of code")),
        };
        let metric = match reader.u32()? {
            0 => Metric::L2,
            1 => Metric::InnerProduct,
            2 => Metric::Cosine,
            _ => return Err(QuantizeError::Malformed("unknown metric")),
        };
        let dim = reader.u32()? as usize;
        if dim == 0 || dim > MAX_DIM {
            return Err(QuantizeError::Malformed("dimension out of range"));
        }
        let body = match kind {
            CodeKind::Pq => Body::Product(ProductQuantizer::read(8, dim, &mut reader)?),
            CodeKind::Pq4 => Body::Product(ProductQuantizer::read(4, dim, &mut reader)?),
            CodeKind::RaBitQ { .. } | CodeKind::Axes => {
                Body::Planes(PlaneQuantizer::read(dim, version == BYTES_VERSION, &mut reader)?)
            }
        };
        reader.end()?;
        let has_byte_rotation = matches!(&body, Body::Planes(quantizer) if quantizer.has_byte_rotation());
        if has_byte_rotation != (version == BYTES_VERSION) {
            return Err(QuantizeError::Malformed("the version does not match the rotation"));
        }
        Ok(Codec { kind, metric, dim, body })
    }
}

fn check_sample(sample: &[f32], dim: usize) -> Result<(), KMeansError> {
    if sample.is_empty() {
        return Err(KMeansError::Empty);
    }
    if !sample.len().is_multiple_of(dim) {
        return Err(KMeansError::Shape { len: sample.len(), dim });
    }
    match sample.iter().position(|v| !v.is_finite()) {
        Some(at) => Err(KMeansError::NotFinite { row: at / dim }),
        None => Ok(()),
    }
}

/// Buffers of [`Codec::encode`]; reusable, one for each thread.
#[derive(Clone, Debug, Default)]
pub struct EncodeScratch {
    labels: Vec<u32>,
    planes: PlaneScratch,
}

/// A query that [`Codec::prepare`] has prepared for scoring; reusable, one for each thread.
#[derive(Clone, Debug)]
pub struct CodeQuery {
    isa: Isa,
    product: ProductQuery,
    planes: PlaneQuery,
    scan: ScanTables,
    group: GroupQuery,
}

impl CodeQuery {
    /// Creates an empty query for the best instruction set of this CPU. [`Codec::prepare`] fills it.
    pub fn new() -> Self {
        Self::with_isa(Isa::best()).unwrap_or_else(Self::scalar)
    }

    /// Creates an empty query that scores with `isa`; `None` if this CPU does not have it.
    pub fn with_isa(isa: Isa) -> Option<Self> {
        isa.is_available().then(|| CodeQuery { isa, ..Self::scalar() })
    }

    fn scalar() -> Self {
        CodeQuery {
            isa: Isa::Scalar,
            product: ProductQuery::default(),
            planes: PlaneQuery::default(),
            scan: ScanTables::default(),
            group: GroupQuery::default(),
        }
    }

    /// Writes the estimated distance of code `ids[i]` to `out[i]`: squared L2, or minus the dot product.
    ///
    /// `codes` is the whole array, `n x code_bytes`. One call scores a batch and prefetches the codes of
    /// later ids.
    ///
    /// # Panics
    /// If an id is outside `codes` or `out` is shorter than `ids`.
    pub fn score(&self, codec: &Codec, codes: &[u8], ids: &[u32], out: &mut [f32]) {
        let count = codes.len() / codec.code_bytes();
        // A fold without branches, since this runs before every batch.
        assert!(
            ids.iter().fold(true, |inside, &id| inside & ((id as usize) < count)),
            "an id beyond the codes"
        );
        let out = &mut out[..ids.len()];
        match &codec.body {
            Body::Product(quantizer) => pq::score(self.isa, quantizer, &self.product, codes, ids, out),
            Body::Planes(quantizer) => planes::score(self.isa, quantizer, &self.planes, codes, ids, out),
        }
    }
}

impl CodeQuery {
    /// Returns the numbers for scoring codes of bit planes on another processor, after [`Codec::prepare`].
    pub fn plane_numbers(&self) -> PlaneNumbers<'_> {
        self.planes.numbers()
    }

    /// Scores as [`CodeQuery::score`] does, and writes an error bound to `bounds[i]`: three standard
    /// deviations of the error.
    ///
    /// For RaBitQ the bound holds for at least 99% of rotations (SIGMOD'24, theorem 3.2). For `axes` it
    /// assumes errors as on the sample. Product codes have no bound; theirs is infinite. This is slower than
    /// `score`, because it unpacks levels.
    ///
    /// # Panics
    /// As `score`, and if `bounds` is shorter than `ids`.
    pub fn score_with_bound(
        &self,
        codec: &Codec,
        codes: &[u8],
        ids: &[u32],
        out: &mut [f32],
        bounds: &mut [f32],
    ) {
        self.score(codec, codes, ids, out);
        let bytes = codec.code_bytes();
        for (bound, &id) in bounds[..ids.len()].iter_mut().zip(ids) {
            *bound = match &codec.body {
                Body::Product(_) => f32::INFINITY,
                Body::Planes(quantizer) => {
                    quantizer.bound(&self.planes, &codes[id as usize * bytes..][..bytes])
                }
            };
        }
    }
}

impl Default for CodeQuery {
    fn default() -> Self {
        Self::new()
    }
}
