//! The codes of a cluster index: residuals to the centroids, group by group.

use super::build::{CODES_NAME, Placed};
use super::centroids::{Centroids, codes_metric};
use crate::build::code_bytes;
use crate::error::IndexError;
use crate::format::appender::Appender;
use crate::format::manifest::FileEntry;
use crate::progress::Progress;
use crate::vamana::BuildOptions;
use bathyal_kernels::quantize::{CodeKind, Codec, EncodeScratch, SCAN_BLOCK};
use std::path::Path;

/// Vectors that a codec is trained on.
const TRAINING_VECTORS: usize = 65_536;
/// Up to so many dimensions principal axes are found in seconds.
const MOST_AXES_DIM: usize = 1024;
/// Bytes of codes written at once.
const WRITE_BYTES: usize = 4 << 20;

/// Bytes of the training sample, twice: as it is and as the codec centres it.
pub(crate) fn sample_bytes(count: usize, dim: usize) -> u64 {
    2 * (count.min(TRAINING_VECTORS) * dim * 4) as u64
}

/// Vectors around the data's mean, as centroids are.
struct Shifted<'a> {
    placed: &'a Placed<'a>,
    centroids: &'a Centroids,
}

impl Shifted<'_> {
    fn read(&self, id: u32, out: &mut [f32]) {
        self.placed.space.row_f32(id, out);
        out.iter_mut().zip(self.centroids.mean()).for_each(|(value, mean)| *value -= mean);
    }
}

/// The kind and the size of the codes.
fn code(options: &BuildOptions, dim: usize) -> (CodeKind, usize) {
    let bytes = code_bytes(options, dim) as usize;
    let kind = options.code_kind.unwrap_or_else(|| match Codec::default_for(dim, bytes) {
        // Tables of product codes do not fit registers. Residuals want fewer bytes than whole vectors, so the planes
        // are ahead at any size.
        CodeKind::Pq | CodeKind::Pq4 if dim <= MOST_AXES_DIM => CodeKind::Axes,
        CodeKind::Pq | CodeKind::Pq4 => CodeKind::RaBitQ { bits: 1 },
        kind => kind,
    });
    // One bit a dimension and the factors are the least that a long vector can have.
    let least = if kind == (CodeKind::RaBitQ { bits: 1 }) { dim.div_ceil(8) + 8 } else { 8 };
    (kind, if options.code_bytes.is_none() { bytes.max(least) } else { bytes })
}

/// Trains the codec on the residuals of a sample.
pub(crate) fn train(
    placed: &Placed<'_>,
    centroids: &Centroids,
    options: &BuildOptions,
    threads: usize,
    progress: &dyn Progress,
) -> Result<Codec, IndexError> {
    progress.stage("training codes", 1);
    let (dim, count) = (placed.space.dim(), placed.order.len());
    let rows = count.min(TRAINING_VECTORS);
    let mut sample = vec![0.0_f32; rows * dim];
    let mut centroid = vec![0.0_f32; dim];
    let shifted = Shifted { placed, centroids };
    for (i, row) in sample.chunks_exact_mut(dim).enumerate() {
        // Evenly spread over the places, so over the data.
        let place = (i as u64 * count as u64 / rows as u64) as usize;
        centroids.shifted((place / placed.layout.group_vectors()) as u32, &mut centroid);
        shifted.read(placed.order[place], row);
        row.iter_mut().zip(&centroid).for_each(|(value, centre)| *value -= centre);
    }
    let (kind, bytes) = code(options, dim);
    if !matches!(kind, CodeKind::Axes | CodeKind::RaBitQ { .. }) {
        return Err(IndexError::Parameter(format!(
            "code kind {kind} cannot be scanned in groups; take axes or rabitq1 to rabitq8, or leave the choice open"
        )));
    }
    if progress.cancelled() {
        return Err(IndexError::Cancelled);
    }
    Ok(Codec::train(kind, bytes, codes_metric(options.metric), &sample, dim, options.seed, threads)?)
}

/// Writes the blocks of all groups; returns the checksum of each group's too.
pub(crate) fn write(
    directory: &Path,
    placed: &Placed<'_>,
    centroids: &Centroids,
    codec: &Codec,
    threads: usize,
    progress: &dyn Progress,
) -> Result<(FileEntry, Vec<u32>), IndexError> {
    let groups = placed.groups();
    progress.stage("encoding", groups as u64);
    let group_bytes = placed.layout.group_blocks() * codec.block_bytes();
    let at_once = (WRITE_BYTES / group_bytes).max(threads).min(groups);
    let mut file = Appender::create(directory, CODES_NAME)?;
    let mut codes = vec![0_u8; at_once * group_bytes];
    let mut checksums = Vec::with_capacity(groups);
    for first in (0..groups).step_by(at_once) {
        let count = at_once.min(groups - first);
        let codes = &mut codes[..count * group_bytes];
        let part = count.div_ceil(threads).max(1);
        std::thread::scope(|scope| {
            for (number, codes) in codes.chunks_mut(part * group_bytes).enumerate() {
                let shifted = Shifted { placed, centroids };
                scope.spawn(move || {
                    let first = first + number * part;
                    encode_groups(&shifted, codec, first, codes, group_bytes, progress);
                });
            }
        });
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        checksums.extend(codes.chunks_exact(group_bytes).map(crc32c::crc32c));
        file.append(codes)?;
        progress.advance((first + count) as u64);
    }
    Ok((file.finish()?, checksums))
}

/// Encodes the groups from `first` on that `codes` has room for.
fn encode_groups(
    shifted: &Shifted<'_>,
    codec: &Codec,
    first: usize,
    codes: &mut [u8],
    group_bytes: usize,
    progress: &dyn Progress,
) {
    let dim = shifted.placed.space.dim();
    let mut scratch = EncodeScratch::default();
    let mut centroid = vec![0.0_f32; dim];
    let mut rows = vec![0.0_f32; shifted.placed.layout.group_vectors() * dim];
    for (group, codes) in (first..).zip(codes.chunks_exact_mut(group_bytes)) {
        if progress.cancelled() {
            return;
        }
        shifted.centroids.shifted(group as u32, &mut centroid);
        let ids = shifted.placed.group(group);
        let rows = &mut rows[..ids.len() * dim];
        for (id, row) in ids.iter().zip(rows.chunks_exact_mut(dim)) {
            shifted.read(*id, row);
        }
        // The blocks that the last group does not fill stay zero.
        let used = ids.len().div_ceil(SCAN_BLOCK) * codec.block_bytes();
        codes[used..].fill(0);
        codec.encode_group(rows, &centroid, &mut codes[..used], &mut scratch);
    }
}
