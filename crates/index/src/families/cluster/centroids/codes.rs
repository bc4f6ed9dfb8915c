//! The codes of the groups' centroids, by which a query ranks groups.

use super::{Centroids, GROUPS_PER_RUN, TABLES};
use crate::allocate::try_zeros;
use crate::error::NoMemory;
use bathyal_kernels::quantize::{Codec, EncodeScratch, SCAN_BLOCK};

impl Centroids {
    /// Encodes the centroids with the codec of the vectors. That works because both are residuals, and codes
    /// adapt to the scale of their input.
    pub(crate) fn encode(&mut self, codec: &Codec) -> Result<(), NoMemory> {
        let run_bytes = GROUPS_PER_RUN / SCAN_BLOCK * codec.block_bytes();
        let mut codes = try_zeros(TABLES, self.first_groups.len() * run_bytes)?;
        let mut scratch = EncodeScratch::default();
        let (mut rows, mut centre) = (Vec::new(), vec![0.0_f32; self.dim]);
        for (run, blocks) in codes.chunks_exact_mut(run_bytes).enumerate() {
            let groups = self.groups_of(run as u32);
            rows.resize(groups.len() * self.dim, 0.0);
            for (group, row) in groups.clone().zip(rows.chunks_exact_mut(self.dim)) {
                self.read_centroid(group, row);
            }
            self.read_row(&self.runs, run, &mut centre);
            let used = groups.len().div_ceil(SCAN_BLOCK) * codec.block_bytes();
            codec.encode_group(&rows, &centre, &mut blocks[..used], &mut scratch);
        }
        self.centroid_codes = codes;
        Ok(())
    }

    /// Shortens the codes of the centroids like those of the vectors, because a query has one table for both.
    pub(crate) fn shorten(&mut self, codec: &Codec, shorter: &Codec) -> Result<(), NoMemory> {
        let blocks = GROUPS_PER_RUN / SCAN_BLOCK;
        let (long, short) = (blocks * codec.block_bytes(), blocks * shorter.block_bytes());
        let mut codes = try_zeros(TABLES, self.first_groups.len() * short)?;
        let (mut scratch, mut centre) = (EncodeScratch::default(), vec![0.0_f32; self.dim]);
        for (run, out) in codes.chunks_exact_mut(short).enumerate() {
            let groups = self.groups_of(run as u32).len();
            self.read_row(&self.runs, run, &mut centre);
            let out = &mut out[..groups.div_ceil(SCAN_BLOCK) * shorter.block_bytes()];
            let stored = &self.centroid_codes[run * long..(run + 1) * long];
            codec.shorten_group(shorter, (stored, groups), &centre, out, &mut scratch);
        }
        self.centroid_codes = codes;
        Ok(())
    }
}
