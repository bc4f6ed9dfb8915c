//! Codes of vectors relative to the centroid of their group, in blocks of 32 that one table a query scores: what a
//! cluster index keeps in DRAM.
//!
//! A vector of a group is `c + r`. The code is of the residual `r`, and a score is the exact distance of the query
//! to `c` corrected by what the code says: `|q-c|^2 + F - 2 g <q, p>`, with `p` the grid point, `g` its gain and
//! `F = |r|^2 + 2 g <c, p>` stored beside it, so that nothing of the query depends on the group.

use super::code::block::{GroupScan, SCAN_BLOCK};
use super::{Body, CodeQuery, Codec, EncodeScratch, ScanNumbers};
use crate::metric::Metric;
use crate::topk::Neighbor;

impl Codec {
    /// True where codes can be grouped: plane codes (`axes`, `rabitq`), not product codes.
    pub fn has_groups(&self) -> bool {
        matches!(self.body, Body::Planes(_))
    }

    /// Bytes of a block of 32 codes; laid out as `docs/format/codes.md` says.
    pub fn block_bytes(&self) -> usize {
        SCAN_BLOCK * self.code_bytes()
    }

    /// Encodes the `n x dim` row-major `vectors` of a group relative to its `centroid` (`dim` values) into
    /// `ceil(n / 32)` blocks of [`Codec::block_bytes`]; lanes beyond `n` become zeros.
    ///
    /// The codec has been trained on residuals. Values must be finite. Vectors, centroids and queries are in one
    /// frame; under L2 any shift will do, and the mean of the data rounds least.
    ///
    /// # Panics
    /// When the codec has no groups ([`Codec::has_groups`]) or a slice is of another length, which are a caller's
    /// bugs.
    pub fn encode_group(
        &self,
        vectors: &[f32],
        centroid: &[f32],
        blocks: &mut [u8],
        scratch: &mut EncodeScratch,
    ) {
        let Body::Planes(quantizer) = &self.body else { panic!("product codes have no groups") };
        assert_eq!(centroid.len(), self.dim, "a centroid of another dimension than the codec");
        assert!(vectors.len().is_multiple_of(self.dim), "vectors of another dimension than the codec");
        let rows = vectors.len() / self.dim;
        assert_eq!(
            blocks.len(),
            rows.div_ceil(SCAN_BLOCK) * self.block_bytes(),
            "not the blocks of the rows"
        );
        quantizer.encode_group(self.metric == Metric::L2, vectors, centroid, blocks, &mut scratch.planes);
    }

    /// The codec whose codes are at most `code_bytes` bytes of these codes ([`Codec::shorten_group`]): nearly as good as one
    /// that was trained for so few, and sooner ready. `None` where that is not fewer, or too few for any, or the kind has no
    /// groups.
    pub fn shortened(&self, code_bytes: usize) -> Option<Codec> {
        let Body::Planes(quantizer) = &self.body else { return None };
        let body = Body::Planes(quantizer.shortened(code_bytes)?);
        Some(Codec { body, kind: self.kind, metric: self.metric, dim: self.dim })
    }

    /// Writes what [`Codec::encode_group`] of `shorter`, made by [`Codec::shortened`] of this codec, would write, nearly:
    /// from the `count` codes in `blocks` in place of their vectors.
    ///
    /// `centroid` (`dim` values) is the one that the codes are relative to; `out` has as many blocks, of `shorter`.
    ///
    /// # Panics
    /// When a codec has no groups, `shorter` is of another dimension, or a slice is of another length, which are a caller's
    /// bugs.
    pub fn shorten_group(
        &self,
        shorter: &Codec,
        (blocks, count): (&[u8], usize),
        centroid: &[f32],
        out: &mut [u8],
        scratch: &mut EncodeScratch,
    ) {
        let (Body::Planes(long), Body::Planes(short)) = (&self.body, &shorter.body) else {
            panic!("product codes have no groups")
        };
        assert_eq!(
            (centroid.len(), shorter.dim),
            (self.dim, self.dim),
            "of another dimension than the codec"
        );
        let number = count.div_ceil(SCAN_BLOCK);
        assert!(blocks.len() >= number * self.block_bytes(), "fewer blocks than codes");
        assert_eq!(out.len(), number * shorter.block_bytes(), "not the blocks of the codes");
        let is_l2 = self.metric == Metric::L2;
        long.shorten_group(short, is_l2, (blocks, count), centroid, out, &mut scratch.planes);
    }

    /// The error to expect of a group's scores: `|estimate - exact|` has a standard deviation of about
    /// `group_error * 2 * |q-c| * |r|` under L2, half of that under the inner product.
    ///
    /// A constant of the codec, from the variances of its sample; infinite for product codes.
    pub fn group_error(&self) -> f32 {
        match &self.body {
            Body::Product(_) => f32::INFINITY,
            Body::Planes(quantizer) => quantizer.group_error(),
        }
    }
}

impl CodeQuery {
    /// Makes the query ready for [`CodeQuery::scan_group`] against `query` (`dim` values); allocates nothing once
    /// warm. What [`Codec::prepare`] has made is kept.
    ///
    /// # Panics
    /// When the codec has no groups ([`Codec::has_groups`]) or `query` is of another dimension, which are a caller's
    /// bugs.
    pub fn prepare_groups(&mut self, codec: &Codec, query: &[f32]) {
        let Body::Planes(quantizer) = &codec.body else { panic!("product codes have no groups") };
        assert_eq!(query.len(), codec.dim, "a query of another dimension than the codec");
        quantizer.prepare_groups(codec.metric == Metric::L2, query, &mut self.group);
    }

    /// What scores the codes of groups by this query on another processor, once [`CodeQuery::prepare_groups`] has prepared it; `None` of
    /// product codes.
    pub fn scan_numbers(&self, codec: &Codec) -> Option<ScanNumbers<'_>> {
        match &codec.body {
            Body::Product(_) => None,
            Body::Planes(quantizer) => Some(self.group.numbers(quantizer)),
        }
    }

    /// Appends the estimated distance of each of the first `count` codes of a group that is below `threshold`, with
    /// `first` plus the code's number in the group as id; [`CodeQuery::prepare_groups`] comes first.
    ///
    /// `centroid_distance` is the exact `|q-c|^2` under L2, `-<q,c>` under the inner product and `1 - <q,c>` under
    /// cosine. Infinity as the threshold keeps every code. Ids wrap around at `u32::MAX`.
    ///
    /// # Panics
    /// When `blocks` are too few for `count`, or the query was prepared for another codec, which are a caller's bugs.
    #[allow(clippy::too_many_arguments)] // The hot call of a search: a struct of them would be built for each group.
    pub fn scan_group(
        &self,
        codec: &Codec,
        blocks: &[u8],
        count: usize,
        centroid_distance: f32,
        threshold: f32,
        first: u32,
        hits: &mut Vec<Neighbor>,
    ) {
        let group = GroupScan { blocks, count, centroid_distance, threshold, first, next: &[] };
        self.scan_group_before(codec, &group, hits);
    }

    /// [`CodeQuery::scan_group`], while the blocks that are scanned next are brought into the cache.
    ///
    /// Groups lie anywhere, so each starts with misses that no hardware foresees: this takes a quarter off a scan
    /// whose codes are not in the cache.
    ///
    /// # Panics
    /// As `scan_group`.
    pub fn scan_group_before(&self, codec: &Codec, group: &GroupScan<'_>, hits: &mut Vec<Neighbor>) {
        let Body::Planes(quantizer) = &codec.body else { panic!("product codes have no groups") };
        let used = group.count.div_ceil(SCAN_BLOCK) * codec.block_bytes();
        assert!(group.blocks.len() >= used, "fewer blocks than codes");
        quantizer.scan_group(self.isa, &self.group, group, hits);
    }
}
