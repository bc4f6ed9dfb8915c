//! Codes of vectors relative to the centroid of their group, in blocks of 32. A cluster index keeps them in
//! DRAM. One set of tables for each query scores the codes of all groups.
//!
//! A vector of a group is `c + r`, and its code is that of the residual `r`. A score is the exact distance of
//! the query to `c` plus a correction from the code: `|q-c|^2 + F - 2 g <q, p>`. Here `p` is the grid point,
//! `g` its gain, and `F = |r|^2 + 2 g <c, p>` is stored with the code. So the tables of a query do not depend
//! on the group.

use super::code::block::{GroupScan, SCAN_BLOCK};
use super::{Body, CodeQuery, Codec, EncodeScratch, ScanNumbers};
use crate::metric::Metric;
use crate::topk::Neighbor;

impl Codec {
    /// Returns true if codes can be grouped: for plane codes (`axes`, `rabitq`), not for product codes.
    pub fn has_groups(&self) -> bool {
        matches!(self.body, Body::Planes(_))
    }

    /// Returns the bytes of a block of 32 codes. `docs/format/codes.md` describes its layout.
    pub fn block_bytes(&self) -> usize {
        SCAN_BLOCK * self.code_bytes()
    }

    /// Encodes the `n x dim` row-major `vectors` of a group relative to its `centroid` (`dim` values) into
    /// `ceil(n / 32)` blocks of [`Codec::block_bytes`]. Lanes beyond `n` become zeros.
    ///
    /// The codec must be trained on residuals. Values must be finite. Vectors, centroids and queries must
    /// have the same origin. Under L2 any origin will do; the mean of the data gives the least rounding.
    ///
    /// # Panics
    /// If the codec has no groups ([`Codec::has_groups`]) or a slice has another length.
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

    /// Returns a codec for codes of at most `code_bytes` bytes, to which [`Codec::shorten_group`] shortens
    /// codes of this codec. It is nearly as good as a codec that is trained for this size, and takes less
    /// time to make.
    ///
    /// `None` if these codes are not longer than `code_bytes`, if that is too small for any code, or if the
    /// kind has no groups.
    pub fn shortened(&self, code_bytes: usize) -> Option<Codec> {
        let Body::Planes(quantizer) = &self.body else { return None };
        let body = Body::Planes(quantizer.shortened(code_bytes)?);
        Some(Codec { body, kind: self.kind, metric: self.metric, dim: self.dim })
    }

    /// Shortens the first `count` codes in `blocks` to codes of `shorter`, which [`Codec::shortened`] of this
    /// codec has made.
    ///
    /// The result nearly equals that of [`Codec::encode_group`] of `shorter`, but it comes from codes and not
    /// from vectors. `centroid` (`dim` values) is the centroid of the codes. `out` has the same number of
    /// blocks, in the layout of `shorter`.
    ///
    /// # Panics
    /// If a codec has no groups, `shorter` has another dimension, or a slice has another length.
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

    /// Returns the expected relative error of the scores in groups: `|estimate - exact|` has a standard
    /// deviation of about `group_error * 2 * |q-c| * |r|` under L2, and half of that under the inner product.
    ///
    /// It is a constant of the codec, computed from the variances of its sample; infinite for product codes.
    pub fn group_error(&self) -> f32 {
        match &self.body {
            Body::Product(_) => f32::INFINITY,
            Body::Planes(quantizer) => quantizer.group_error(),
        }
    }
}

impl CodeQuery {
    /// Prepares this for [`CodeQuery::scan_group`] with `query` (`dim` values). Reuse allocates nothing. The
    /// state of [`Codec::prepare`] is kept.
    ///
    /// # Panics
    /// If the codec has no groups ([`Codec::has_groups`]) or `query` has another dimension.
    pub fn prepare_groups(&mut self, codec: &Codec, query: &[f32]) {
        let Body::Planes(quantizer) = &codec.body else { panic!("product codes have no groups") };
        assert_eq!(query.len(), codec.dim, "a query of another dimension than the codec");
        quantizer.prepare_groups(codec.metric == Metric::L2, query, &mut self.group);
    }

    /// Returns the numbers for scoring codes of groups on another processor, after
    /// [`CodeQuery::prepare_groups`]. `None` for product codes.
    pub fn scan_numbers(&self, codec: &Codec) -> Option<ScanNumbers<'_>> {
        match &codec.body {
            Body::Product(_) => None,
            Body::Planes(quantizer) => Some(self.group.numbers(quantizer)),
        }
    }

    /// Appends to `hits` the estimated distances below `threshold` of the first `count` codes of a group. The
    /// id of a code is `first` plus its number in the group. Call [`CodeQuery::prepare_groups`] first.
    ///
    /// `centroid_distance` is the exact `|q-c|^2` under L2, `-<q,c>` under the inner product and `1 - <q,c>`
    /// under cosine. With infinity as threshold all codes are appended. Ids wrap around at `u32::MAX`.
    ///
    /// # Panics
    /// If `blocks` are too few for `count`, or the query is prepared for another codec.
    // Searches make this call for each group, and a struct of arguments would have to be built each time.
    #[allow(clippy::too_many_arguments)]
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

    /// Scans a group as [`CodeQuery::scan_group`] does, and prefetches the blocks of the next group.
    ///
    /// The groups of a search are scattered in memory, so the hardware prefetcher misses the start of each.
    /// This saves a quarter of the time of a scan whose codes are not in the cache.
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
