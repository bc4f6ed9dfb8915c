//! Vector codes: a few bits a dimension in DRAM that stand for the vectors below it.
//!
//! A [`Codec`] is trained on a sample, encodes rows into fixed-size codes and scores codes against a query
//! ([`CodeQuery`]) without decoding them. Which code to take is a matter of measurement: `docs/codes.md`.

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
use code::bytes::{Reader, Writer};
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
/// The same of a codec whose dense rotation is of bytes.
const BYTES_VERSION: u32 = 2;
/// In shorter codes the four bytes of factors weigh too much and product codes rank better; from here on `axes`
/// does, and trains 10 times faster.
const LEAST_AXES_BYTES: usize = 32;
/// Bytes a dimension squared that training takes at most while it looks for axes: covariances, and axes three times.
const AXES_TRAINING_BYTES: u64 = 28;
/// Dimensions that the training of other kinds is counted as, at most.
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
    /// Up to so many dimensions principal axes are found in some seconds ([`Codec::default_for`]), and a query's rotation, of as
    /// many products as the square, takes less than its search.
    pub const MOST_AXES_DIM: usize = 1536;

    /// Most bytes of memory that training takes besides its sample and a copy of it.
    pub fn training_bytes(kind: CodeKind, dim: usize) -> u64 {
        let dim = if kind == CodeKind::Axes { dim } else { dim.min(OTHER_TRAINING_DIM) };
        AXES_TRAINING_BYTES * (dim as u64).pow(2)
    }

    /// Trains a codec of `kind` with codes of at most `code_bytes` bytes on `sample` (`s x dim`, row-major).
    ///
    /// The size that came out is [`Codec::code_bytes`]: fewer bytes where the kind cannot use them all. The
    /// result depends on `seed` and not on `threads`.
    ///
    /// # Errors
    /// [`QuantizeError`] for an empty, ragged or non-finite sample, a dimension out of range, too small a code, values
    /// whose squares overflow.
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

    /// The kind to take for `code_bytes` bytes of a `dim`-dimensional vector, by the table in `docs/codes.md`.
    pub fn default_for(dim: usize, code_bytes: usize) -> CodeKind {
        if code_bytes < LEAST_AXES_BYTES {
            return CodeKind::Pq;
        }
        if dim <= Codec::MOST_AXES_DIM {
            return CodeKind::Axes;
        }
        // Principal axes cost dim^2 a query; a fast rotation costs dim log dim.
        let bits = (code_bytes.saturating_sub(8) * 8 / dim).min(8) as u8;
        if bits >= 1 { CodeKind::RaBitQ { bits } } else { CodeKind::Pq }
    }

    /// Bytes of one code.
    pub fn code_bytes(&self) -> usize {
        match &self.body {
            Body::Product(quantizer) => quantizer.code_bytes(),
            Body::Planes(quantizer) => quantizer.code_bytes(),
        }
    }

    /// Dimensions of the vectors.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The family of the code.
    pub fn kind(&self) -> CodeKind {
        self.kind
    }

    /// The metric whose distance [`CodeQuery::score`] estimates.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// How codes of bit planes lie, for whoever scores them elsewhere than here; `None` of product codes.
    pub fn plane_codes(&self) -> Option<PlaneCodes> {
        match &self.body {
            Body::Product(_) => None,
            Body::Planes(quantizer) => Some(quantizer.plane_codes()),
        }
    }

    /// Encodes `n x dim` row-major `vectors` into `n x code_bytes` bytes; callers split rows over threads, each
    /// with a scratch of its own.
    ///
    /// Rows beyond the shorter of the two slices are left alone. Values must be finite.
    pub fn encode(&self, vectors: &[f32], codes: &mut [u8], scratch: &mut EncodeScratch) {
        let n = (vectors.len() / self.dim).min(codes.len() / self.code_bytes());
        let (vectors, codes) = (&vectors[..n * self.dim], &mut codes[..n * self.code_bytes()]);
        match &self.body {
            Body::Product(quantizer) => quantizer.encode(vectors, codes, &mut scratch.labels),
            Body::Planes(quantizer) => quantizer.encode(vectors, codes, &mut scratch.planes),
        }
    }

    /// Writes the reconstruction of `code` (`code_bytes` bytes) to `out` (`dim` values).
    ///
    /// # Panics
    /// When a slice is shorter than that, which is a caller's bug; any bytes of a code are accepted.
    pub fn decode(&self, code: &[u8], out: &mut [f32]) {
        let (code, out) = (&code[..self.code_bytes()], &mut out[..self.dim]);
        match &self.body {
            Body::Product(quantizer) => quantizer.decode(code, out),
            Body::Planes(quantizer) => quantizer.decode(code, out),
        }
    }

    /// Makes `prepared` ready to score codes against `query` (`dim` values); allocates nothing once warm.
    ///
    /// # Panics
    /// When `query` does not have `dim` values, which is a caller's bug.
    pub fn prepare(&self, query: &[f32], prepared: &mut CodeQuery) {
        assert_eq!(query.len(), self.dim, "a query of another dimension than the codec");
        match &self.body {
            Body::Product(quantizer) => quantizer.prepare(self.metric, query, &mut prepared.product),
            Body::Planes(quantizer) => quantizer.prepare(self.metric, query, &mut prepared.planes),
        }
    }

    /// The codec as bytes, little-endian, laid out as `docs/format/codes.md` says.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::default();
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

    /// Reads what [`Codec::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`QuantizeError::Malformed`] for truncated, over-long or inconsistent bytes and for later versions.
    pub fn from_bytes(bytes: &[u8]) -> Result<Codec, QuantizeError> {
        let mut reader = Reader::new(bytes);
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
        let of_bytes = matches!(&body, Body::Planes(quantizer) if quantizer.has_byte_rotation());
        if of_bytes != (version == BYTES_VERSION) {
            return Err(QuantizeError::Malformed("its version is not that of its rotation"));
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

/// Buffers of [`Codec::encode`], one a thread.
#[derive(Clone, Debug, Default)]
pub struct EncodeScratch {
    labels: Vec<u32>,
    planes: PlaneScratch,
}

/// A query made ready for scoring by [`Codec::prepare`]; reusable, one a thread.
#[derive(Clone, Debug)]
pub struct CodeQuery {
    isa: Isa,
    product: ProductQuery,
    planes: PlaneQuery,
    scan: ScanTables,
    group: GroupQuery,
}

impl CodeQuery {
    /// An empty query for the best instruction set of this CPU; [`Codec::prepare`] fills it.
    pub fn new() -> Self {
        Self::with_isa(Isa::best()).unwrap_or_else(Self::scalar)
    }

    /// An empty query that scores with `isa`; `None` where this CPU does not have it.
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
    /// `codes` is the whole array, `n x code_bytes`; one call scores a batch and prefetches the codes of later ids.
    ///
    /// # Panics
    /// When an id is outside `codes` or `out` is shorter than `ids`, which are a caller's bugs.
    pub fn score(&self, codec: &Codec, codes: &[u8], ids: &[u32], out: &mut [f32]) {
        let count = codes.len() / codec.code_bytes();
        // A fold without a branch: this runs before every batch.
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
    /// What scores codes of bit planes by this query, once a codec of these has prepared it.
    pub fn plane_numbers(&self) -> PlaneNumbers<'_> {
        self.planes.numbers()
    }

    /// [`CodeQuery::score`], and how far each score may be off: `bounds[i]` is three standard deviations of the error.
    ///
    /// For RaBitQ that holds for at least 99% of rotations (SIGMOD'24, theorem 3.2), for `axes` it assumes errors as
    /// on the sample, and product codes have no bound: theirs is infinite. Slower than `score`: levels are unpacked.
    ///
    /// # Panics
    /// As `score`; and when `bounds` is shorter than `ids`.
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
