//! Encodes the vectors of a cluster index, group by group, as residuals to the centroids. Reads them from the
//! pages that were written before.

use super::build::{Journal, Work};
use super::centroids::Centroids;
use super::section::{CODES_NAME, PLACES_NAME, VECTORS_NAME};
use crate::build::StageTimes;
use crate::build::journal::JOURNAL_NAME;
use crate::error::IndexError;
use crate::format::appender::{Appender, ReadBack};
use crate::format::groups::GroupLayout;
use crate::format::manifest::FileEntry;
use crate::format::places::Places;
use crate::partition::intake::Intake;
use crate::partition::sample_rows;
use crate::query::codes::plain_metric;
use bathyal_kernels::quantize::{Codec, EncodeScratch, SCAN_BLOCK};
use bathyal_store::Object;
use std::sync::Arc;

/// Bytes of pages that are read at once.
const READ_BYTES: usize = 12 << 20;
/// Bytes of codes that are written at once.
const WRITE_BYTES: usize = 4 << 20;
/// Bytes of codes between two entries in the journal. A killed build repeats at most this work, which takes
/// seconds.
const CHECKPOINT_BYTES: u64 = 64 << 20;

/// Reads vectors from the written pages, and subtracts the mean of the data.
struct PageVectors<'a> {
    file: Arc<dyn Object>,
    layout: GroupLayout,
    intake: &'a Intake,
    centroids: &'a Centroids,
}

impl<'a> PageVectors<'a> {
    fn open(work: &Work<'_>, intake: &'a Intake, centroids: &'a Centroids) -> Result<Self, IndexError> {
        let file = work.directory.get(VECTORS_NAME)?;
        Ok(PageVectors { file, layout: work.layout, intake, centroids })
    }

    /// Fills `pages` with the pages from `first` on.
    fn read(&self, first: usize, pages: &mut [u8]) -> Result<(), IndexError> {
        let offset = first as u64 * self.layout.page_bytes() as u64;
        Ok(self.file.read_at(offset, pages)?)
    }

    /// Reads the vector in slot `slot` of `page` into `out`, without the mean.
    fn read_vector(&self, page: &[u8], slot: usize, out: &mut [f32]) {
        let bytes = self.layout.vector_bytes();
        self.intake.floats(&self.layout.vectors(page)[slot * bytes..][..bytes], out);
        out.iter_mut().zip(self.centroids.mean()).for_each(|(value, mean)| *value -= mean);
    }
}

/// Trains the codec on the residuals of a sample of vectors.
pub(crate) fn train(work: &Work<'_>, intake: &Intake, centroids: &Centroids) -> Result<Codec, IndexError> {
    work.progress.stage("training codes", 1);
    let (dim, count, options) = (intake.dim, work.data.count(), work.options);
    let (kind, bytes) = work.own.codes().of_groups(dim);
    let rows = sample_rows(count, dim);
    let mut sample = vec![0.0_f32; rows * dim];
    let mut centroid = vec![0.0_f32; dim];
    let vectors = PageVectors::open(work, intake, centroids)?;
    let mut page = vec![0_u8; work.layout.page_bytes()];
    let (mut group, mut vectors_before, mut loaded_page) = (0_u32, 0_usize, None);
    for (i, row) in sample.chunks_exact_mut(dim).enumerate() {
        if i % 4096 == 0 {
            work.check_cancelled()?;
        }
        // The sample is spread evenly over the order, and so over the data.
        let sampled = (i as u64 * count as u64 / rows as u64) as usize;
        while vectors_before + centroids.count(group) <= sampled {
            vectors_before += centroids.count(group);
            group += 1;
        }
        let (number, slot) = work.layout.page_in(group, sampled - vectors_before);
        if loaded_page != Some(number) {
            vectors.read(number, &mut page)?;
            loaded_page = Some(number);
        }
        centroids.read_centroid(group, &mut centroid);
        vectors.read_vector(&page, slot, row);
        row.iter_mut().zip(&centroid).for_each(|(value, centre)| *value -= centre);
    }
    Ok(Codec::train(kind, bytes, plain_metric(options.metric), &sample, dim, options.seed, work.threads)?)
}

/// The result of [`write()`].
pub(crate) struct EncodedGroups {
    pub(crate) codes: FileEntry,
    /// The checksum of the codes of each group.
    pub(crate) checksums: Vec<u32>,
    pub(crate) places: Option<FileEntry>,
}

/// Writes the codes of all groups that have none yet, and their places if searches may read vectors alone.
pub(crate) fn write(
    work: &Work<'_>,
    intake: &Intake,
    centroids: &Centroids,
    codec: &Codec,
    journal: &mut Journal,
    stages: &StageTimes,
) -> Result<EncodedGroups, IndexError> {
    let (groups, threads, layout) = (centroids.groups(), work.threads, &work.layout);
    let group_bytes = layout.group_blocks() * codec.block_bytes();
    let at_once = (WRITE_BYTES / group_bytes).min(READ_BYTES / layout.group_bytes()).clamp(1, groups);
    let mut file = Appender::resume(work.directory, CODES_NAME, journal.own.codes)?;
    let mut places = match Places::are_needed(layout) {
        true => Some(Appender::resume(work.directory, PLACES_NAME, journal.own.places)?),
        false => None,
    };
    let mut place_bytes = Vec::new();
    let mut codes = vec![0_u8; at_once * group_bytes];
    let mut pages = vec![0_u8; at_once * layout.group_bytes()];
    let vectors = PageVectors::open(work, intake, centroids)?;
    let mut checksums = checksums_so_far(work, journal, groups, group_bytes)?;
    let groups_before = checksums.len();
    work.progress.stage("encoding", (groups - groups_before) as u64);
    for first in (groups_before..groups).step_by(at_once) {
        work.check_cancelled()?;
        let count = at_once.min(groups - first);
        let (codes, pages) = (&mut codes[..count * group_bytes], &mut pages[..count * layout.group_bytes()]);
        vectors.read(first * layout.group_pages(), pages)?;
        let part = count.div_ceil(threads).max(1);
        std::thread::scope(|scope| {
            let pages = pages.chunks(part * layout.group_bytes());
            for (number, (codes, pages)) in codes.chunks_mut(part * group_bytes).zip(pages).enumerate() {
                let vectors = &vectors;
                scope.spawn(move || encode_groups(vectors, codec, first + number * part, pages, codes));
            }
        });
        checksums.extend(codes.chunks_exact(group_bytes).map(|codes| work.identity.checksum(codes)));
        file.append(codes)?;
        if let Some(places) = &mut places {
            place_bytes.clear();
            Places::encode(layout, first as u32, pages, &mut place_bytes);
            places.append(&place_bytes)?;
        }
        if file.written().bytes - journal.own.codes.bytes >= CHECKPOINT_BYTES {
            journal.own.codes = file.sync()?;
            if let Some(places) = &mut places {
                journal.own.places = places.sync()?;
            }
            journal.write(work.directory, stages)?;
        }
        work.progress.advance((first + count - groups_before) as u64);
    }
    let places = places.map(Appender::finish).transpose()?;
    Ok(EncodedGroups { codes: file.finish()?, checksums, places })
}

/// Returns the checksums of the groups that an earlier process has encoded.
fn checksums_so_far(
    work: &Work<'_>,
    journal: &Journal,
    groups: usize,
    group_bytes: usize,
) -> Result<Vec<u32>, IndexError> {
    let done = usize::try_from(journal.own.codes.bytes / group_bytes as u64).unwrap_or(usize::MAX);
    if done > groups || !journal.own.codes.bytes.is_multiple_of(group_bytes as u64) {
        let reason = format!("{} bytes of codes do not fit {groups} groups", journal.own.codes.bytes);
        return Err(IndexError::damaged(work.directory.address().join(JOURNAL_NAME), "the journal", reason));
    }
    let mut checksums = Vec::with_capacity(done);
    if done > 0 {
        let mut file = ReadBack::open(work.directory, CODES_NAME, journal.own.codes)?;
        let mut codes = vec![0; group_bytes];
        for _ in 0..done {
            file.fill(&mut codes)?;
            checksums.push(work.identity.checksum(&codes));
        }
    }
    Ok(checksums)
}

/// Encodes the groups in `pages`, the first of which is group `first`.
fn encode_groups(vectors: &PageVectors<'_>, codec: &Codec, first: usize, pages: &[u8], codes: &mut [u8]) {
    let (dim, layout) = (vectors.intake.dim, &vectors.layout);
    let mut scratch = EncodeScratch::default();
    let mut centroid = vec![0.0_f32; dim];
    let mut rows = vec![0.0_f32; layout.group_vectors() * dim];
    let codes = codes.chunks_exact_mut(layout.group_blocks() * codec.block_bytes());
    for ((group, pages), codes) in (first as u32..).zip(pages.chunks_exact(layout.group_bytes())).zip(codes) {
        let count = vectors.centroids.count(group);
        vectors.centroids.read_centroid(group, &mut centroid);
        let rows = &mut rows[..count * dim];
        for (i, row) in rows.chunks_exact_mut(dim).enumerate() {
            let (page, slot) = layout.page_in(0, i);
            vectors.read_vector(&pages[page * layout.page_bytes()..][..layout.page_bytes()], slot, row);
        }
        // The unused blocks of a group that is not full are zero.
        let used = count.div_ceil(SCAN_BLOCK) * codec.block_bytes();
        codes[used..].fill(0);
        codec.encode_group(rows, &centroid, &mut codes[..used], &mut scratch);
    }
}
