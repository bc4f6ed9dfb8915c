//! Makes shorter codes from the stored ones while an index is opened, if the budget does not hold the stored
//! ones.
//!
//! The alternative is to leave the codes of some groups on the tier, which takes hundreds of reads in a
//! query. With codes of half the length, a query needs only some more candidates.

use super::centroids::Centroids;
use super::section::{ClusterEntry, LEAST_CODE_BYTES};
use crate::error::IndexError;
use crate::format::identity::Identity;
use crate::format::manifest::Manifest;
use bathyal_kernels::quantize::{Codec, EncodeScratch, SCAN_BLOCK};
use bathyal_store::{Generation, ObjectExt};
use bathyal_vectors::progress::Progress;

/// Lengths that a build measures, in eighths of the length of its codes. If the budget does not hold the
/// shortest, groups are left on the tier: codes of a quarter of the length would take as many reads.
const EIGHTHS: [u32; 4] = [6, 5, 4, 3];
/// Bytes of stored codes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Returns the lengths of shorter codes that a build measures, for codes of `code_bytes` bytes.
pub(super) fn lengths(code_bytes: u32) -> Vec<u32> {
    let mut lengths: Vec<u32> = EIGHTHS.iter().map(|eighths| code_bytes * eighths / 8).collect();
    lengths.retain(|length| (LEAST_CODE_BYTES..code_bytes).contains(length));
    lengths.dedup();
    lengths
}

/// Returns the codec of codes of `code_bytes` bytes that are made from those of `codec`.
///
/// # Errors
/// A sentence if `codec` cannot be shortened to exactly this length.
pub(super) fn codec(codec: &Codec, code_bytes: u32) -> Result<Codec, String> {
    codec
        .shortened(code_bytes as usize)
        .filter(|shorter| shorter.code_bytes() == code_bytes as usize)
        .ok_or_else(|| format!("codes of {} bytes cannot be shortened to {code_bytes}", codec.code_bytes()))
}

/// Reads stored codes, and makes shorter ones from them.
pub(super) struct Shortener<'a> {
    pub(super) directory: &'a dyn Generation,
    pub(super) manifest: &'a Manifest,
    pub(super) entry: &'a ClusterEntry,
    pub(super) identity: Identity,
    pub(super) centroids: &'a Centroids,
    pub(super) stored: &'a Codec,
    pub(super) shorter: &'a Codec,
    pub(super) progress: &'a dyn Progress,
}

impl Shortener<'_> {
    /// Returns the first `bytes` bytes of the shorter codes. Checks the stored codes of each group.
    pub(super) fn load(&self, bytes: u64) -> Result<Vec<u8>, IndexError> {
        let object = self.manifest.open_file(self.directory, &self.entry.codes.file)?;
        let stored_bytes = self.entry.group_codes() as usize;
        let group_bytes = self.entry.group_bytes(self.shorter.code_bytes() as u32) as usize;
        let mut codes = object.allocate(bytes, 0)?;
        bathyal_tier::advise_huge_pages(&mut codes);
        codes.resize(bytes as usize, 0);
        let at_once = (READ_BYTES / stored_bytes).max(1);
        let mut read = vec![0; at_once * stored_bytes];
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
        for (batch, codes) in codes.chunks_mut(at_once * group_bytes).enumerate() {
            if self.progress.cancelled() {
                return Err(IndexError::Cancelled);
            }
            let first = batch * at_once;
            let read = &mut read[..codes.len() / group_bytes * stored_bytes];
            object.read_at((first * stored_bytes) as u64, read)?;
            let part = (codes.len() / group_bytes).div_ceil(threads).max(1);
            let parts = codes.chunks_mut(part * group_bytes).zip(read.chunks(part * stored_bytes));
            std::thread::scope(|scope| {
                let work = parts.enumerate().map(|(number, (codes, read))| {
                    scope.spawn(move || self.shorten(first + number * part, read, codes))
                });
                let running: Vec<_> = work.collect();
                running.into_iter().try_for_each(|part| {
                    let outcome = part
                        .join()
                        .map_err(|_| IndexError::Internal("a thread that shortens codes panicked".into()))?;
                    outcome.map_err(|(group, reason)| {
                        IndexError::damaged(object.address(), format!("the codes of group {group}"), reason)
                    })
                })
            })?;
        }
        Ok(codes)
    }

    /// Checks the stored codes in `read`, the first of which are those of group `first`, and writes the
    /// shorter ones to `codes`. An error has the number of the group.
    fn shorten(&self, first: usize, read: &[u8], codes: &mut [u8]) -> Result<(), (u32, String)> {
        let (mut centroid, mut scratch) = (vec![0.0; self.stored.dim()], EncodeScratch::default());
        let stored = read.chunks_exact(self.entry.group_codes() as usize);
        let group_bytes = codes.len() / stored.len().max(1);
        for ((group, read), codes) in (first as u32..).zip(stored).zip(codes.chunks_exact_mut(group_bytes)) {
            self.centroids.check_codes(self.identity, group, read).map_err(|reason| (group, reason))?;
            let count = self.centroids.count(group);
            let used = count.div_ceil(SCAN_BLOCK) * self.shorter.block_bytes();
            self.centroids.read_centroid(group, &mut centroid);
            let out = &mut codes[..used];
            self.stored.shorten_group(self.shorter, (read, count), &centroid, out, &mut scratch);
        }
        Ok(())
    }
}
