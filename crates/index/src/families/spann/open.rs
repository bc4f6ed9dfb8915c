//! Opening an index of posting lists: reads and checks the data that stays in memory.

use super::centroids::{CentroidLinks, Centroids, centroid_element};
use super::coded_search::Candidates;
use super::effort;
use super::search::{Lists, SpannScratch, Submission};
use super::section::SpannEntry;
use super::table::open_table;
use super::{inspect, verify};
use crate::calibrate::reach::Reach;
use crate::cost::device::Device;
use crate::error::IndexError;
use crate::family::StoredCapabilities;
use crate::family::{
    Buffers, Description, Knob, Loading, MemorySplit, Needs, Opened, Place, Stored, VerifyReport, Verifying,
};
use crate::format::loading::{load, load_codec};
use crate::format::manifest::{FileEntry, Manifest};
use crate::format::postings::{BLOCK_BYTES, PackedIds, Postings, checksums};
use crate::query::codes::{VectorCodes, plain_metric, query_bytes};
use crate::query::set::VectorSet;
use crate::query::{CODES_A_VECTOR, Effort, FRAMES, SearchParams};
use bathyal_kernels::first_non_finite;
use bathyal_store::Generation;
use bathyal_tier::TierProfile;
use bathyal_vectors::progress::Progress;
use std::sync::Arc;

/// The least gap: bytes that a search reads without need to save another read. With a million SIFT
/// descriptors in grouped lists, 22 lists a query, one thread, in DRAM, it answers 1,843 queries/s without
/// gaps and 2,042 with this gap, at half of the reads and 1.8 times the bytes. Twice the gap gains another
/// tenth for 1.4 times the bytes.
const LEAST_GAP: u64 = 1 << 10;
/// The largest gap, for devices with expensive reads: two blocks of a disk.
const MOST_GAP: u64 = 8 << 10;

/// Returns the gap that suits a device: the bytes whose transfer takes as long as one more read, rounded to a
/// power of two, so that two measurements of a device lead to the same reads. With emulated RDMA (150 ns to
/// submit a read, 25 GB/s: 3.8 KiB) the search described above answers 1,229 queries/s without gaps, 1,530
/// with 1 KiB and 1,800 to 1,950 with 2 to 4 KiB.
pub(crate) fn suited_gap(profile: &TierProfile) -> u64 {
    (Device::of(profile).bytes_a_read().ceil() as u64).clamp(LEAST_GAP, MOST_GAP).next_power_of_two()
}

/// The submission for a tier whose bytes are prefetched into a cache. With 16 queries in flight it fits a
/// second-level cache of 1 MiB. With a million SIFT descriptors, emulated CXL and 1 thread, coupled lists
/// answer 9,100 queries/s with 16 reads at once and 6,560 with 128; grouped ones answer 2,770 to 2,815 with
/// 16 or 32, 1,880 with 4, and 2,590 with 128.
const CACHED: Submission = Submission { reads: 24, bytes: 48 << 10 };

/// Returns the submission for a device, within the limits of the buffers.
pub(crate) fn suited_submission(profile: &TierProfile, buffers: Submission) -> Submission {
    // Bytes that are not read in place are in buffers, not in a cache.
    if !profile.addressable {
        return buffers;
    }
    Submission { reads: buffers.reads.min(CACHED.reads), bytes: buffers.bytes.min(CACHED.bytes) }
}

/// Memory for a thread's buffers for posting lists, and the least number of buffers.
const LIST_BUFFER_BYTES: usize = 32 << 20;
const LEAST_FRAMES: u32 = 16;
/// The shortest buffer for posting lists, because adjacent lists share a read. With grouped lists with 1
/// replica on a disk, a thread answers 1.20 and 1.24 times as many queries as with 16 KiB (SIFT, recall 0.90
/// and 0.95), and 1.13 times as many (GloVe, 0.90), with 70 to 85% of the reads. 64 and 128 KiB gain no more,
/// and take more memory.
const LEAST_LIST_FRAME: usize = 32 << 10;

/// An index of posting lists as its manifest describes it.
pub(super) struct StoredLists {
    entry: SpannEntry,
    dim: usize,
    /// Bytes of a stored vector.
    row_bytes: usize,
}

impl StoredLists {
    pub(super) fn read(manifest: &Manifest) -> Result<StoredLists, String> {
        let (entry, row_bytes) = (SpannEntry::read(manifest)?, manifest.stored_row_bytes()?);
        Ok(StoredLists { entry, dim: manifest.dim as usize, row_bytes })
    }

    /// Returns the approximate number of vectors of a list.
    fn mean_list(&self) -> usize {
        (self.entry.copies / u64::from(self.entry.list_count.max(1))) as usize + 1
    }
}

impl Stored for StoredLists {
    fn capabilities(&self) -> StoredCapabilities<'_> {
        StoredCapabilities::default()
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::SearchList, Knob::Probes, Knob::Prune, Knob::Mode]
    }

    fn buffers(&self) -> Buffers {
        // In lists of addresses or codes, a read is of one vector or more.
        let longest = (self.entry.longest_bytes as usize).max(self.row_bytes).next_multiple_of(BLOCK_BYTES);
        // A read covers whole blocks, wherever its pieces begin.
        let bytes = (longest + 2 * BLOCK_BYTES).max(LEAST_LIST_FRAME);
        let frames = ((LIST_BUFFER_BYTES / bytes) as u32).clamp(LEAST_FRAMES, FRAMES);
        Buffers { frames, frame_bytes: bytes, frame_bytes_with_codes: bytes }
    }

    /// The tables and links, then the centroids or, if these do not fit, their codes.
    fn needs(&self, _manifest: &Manifest, place: Place) -> Needs {
        let entry = &self.entry;
        let lists = u64::from(entry.list_count);
        let checksums = if place == Place::File { entry.checksums.bytes } else { 0 };
        // The links' file is in memory while the links are decoded.
        let links = CentroidLinks::planned_bytes(lists, entry.max_degree) + entry.links.bytes;
        let ids = entry.ids.as_ref().map_or(0, |file| file.bytes);
        // A decoded codec takes about twice the bytes of its file.
        let list_codec = entry.list_codes.as_ref().map_or(0, |codes| 2 * codes.codec.bytes);
        let exact = MemorySplit {
            codec: list_codec,
            centroids: links + entry.centroids.bytes,
            offsets: Postings::planned_bytes(lists) + entry.lists.bytes + ids + checksums,
            ..MemorySplit::default()
        };
        let coded = MemorySplit {
            codec: list_codec + entry.codes.codec_memory(),
            codes: entry.codes.file.bytes,
            centroids: links,
            ..exact
        };
        Needs {
            choices: vec![exact, coded],
            codes_by: None,
            ids: 0,
            advice: "allow at least that much, or rebuild with a smaller centroid_share",
        }
    }

    fn codes_file(&self) -> Option<&FileEntry> {
        None
    }

    fn query_bytes(&self, search_list: usize) -> u64 {
        let (lists, mean_list) = (self.entry.list_count as usize, self.mean_list());
        // Codes in lists are planes; those of centroids may be product codes.
        let codes = &self.entry.codes;
        let query = query_bytes(self.dim, Some((&codes.kind, codes.code_bytes)));
        if self.entry.list_codes.is_none() {
            return SpannScratch::planned_bytes(lists, mean_list, query, search_list);
        }
        // Only the best vectors of lists of codes are kept.
        let candidates = Candidates::planned_bytes(search_list, mean_list);
        candidates + SpannScratch::planned_bytes(lists, 0, query, search_list)
    }

    /// The probes, too: each list takes memory.
    fn planned_list(&self, params: &SearchParams) -> usize {
        params.search_list.max(params.probes.min(self.entry.list_count as usize))
    }

    fn query_distances(&self, params: &SearchParams) -> usize {
        // Full vectors, most of them adjacent, or their codes.
        let per_vector = if self.entry.list_codes.is_some() { 1 } else { CODES_A_VECTOR / 4 };
        let lists = params.probes.min(self.entry.list_count as usize);
        let scanned = lists.saturating_mul(self.mean_list()).saturating_mul(per_vector);
        scanned.saturating_add(params.wanted().saturating_mul(CODES_A_VECTOR))
    }

    /// For lists of vectors the number is that of lists, because they have no candidates.
    fn reach(&self) -> &[Reach] {
        &self.entry.calibration.reach
    }

    fn effort_of(&self, search_list: u32) -> Effort {
        let coded = self.entry.list_codes.is_some();
        let probes = if coded { effort::probes_for(search_list) } else { search_list } as usize;
        Effort { search_list: search_list as usize, probes, prune: 0.0 }
    }

    fn open(&self, loading: &Loading<'_>) -> Result<Arc<dyn Opened>, IndexError> {
        let Loading { directory, manifest, split, buffers, profile, .. } = *loading;
        let options = OpenOptions {
            exact: split.codes == 0,
            check: !loading.checked,
            frame_bytes: buffers.frame_bytes,
            reads_at_once: buffers.frames as usize / 2,
        };
        let mut lists = open(directory, manifest, &self.entry, options)?;
        lists.gap = suited_gap(profile);
        lists.submission = suited_submission(profile, lists.submission);
        Ok(Arc::new(lists))
    }

    fn verify(&self, verifying: &Verifying<'_>, report: &mut VerifyReport) -> Result<(), IndexError> {
        verify::verify(verifying, &self.entry, report)?;
        if !report.sound {
            return Ok(());
        }
        let load = |exact| {
            let options = OpenOptions { exact, check: true, frame_bytes: 0, reads_at_once: 1 };
            open(verifying.directory, verifying.manifest, &self.entry, options)
        };
        // Load everything that searches keep in memory, with both forms of the centroids.
        match load(false).and_then(|_| load(true)).map(|lists| lists.centroids.unreached()) {
            Err(damage) => report.fault(damage.to_string()),
            Ok(0) => {}
            Ok(unreached) => {
                report.unlinked = unreached;
                report.fault(format!("{unreached} centroids are unreachable from the entry point"));
            }
        }
        Ok(())
    }

    fn describe(
        &self,
        directory: &dyn Generation,
        manifest: &Manifest,
        _progress: &dyn Progress,
    ) -> Result<Description, IndexError> {
        Ok(inspect::describe(manifest, &self.entry, &open_table(directory, manifest, &self.entry)?))
    }
}

/// The options for loading an index of posting lists.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenOptions {
    /// True if centroids are compared exactly, not by their codes.
    pub(crate) exact: bool,
    /// True if every read is checked; otherwise the whole file was checked when it was loaded.
    pub(crate) check: bool,
    /// The longest read, in bytes.
    pub(crate) frame_bytes: usize,
    /// The number of reads in one submission for which there are buffers.
    pub(crate) reads_at_once: usize,
}

/// Loads the data that a search needs, except the file of postings.
pub(crate) fn open(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &SpannEntry,
    options: OpenOptions,
) -> Result<Lists, IndexError> {
    let damaged = |file: &FileEntry, what: &str, reason: String| {
        IndexError::damaged(directory.address().join(&file.name), what, reason)
    };
    let set = VectorSet::of(directory, manifest, &entry.file)?;
    let VectorSet { metric, dim, .. } = set;
    let postings = open_table(directory, manifest, entry)?;
    let links = load(directory, manifest, &entry.links)?;
    let links = CentroidLinks::from_bytes(&links, entry.list_count)
        .map_err(|error| error.at(directory.address().join(&entry.links.name), "the links"))?;
    let centroids = load_centroids(directory, manifest, entry, &set, links, options.exact)?;
    let ids = match &entry.ids {
        Some(file) => PackedIds::from_bytes(load(directory, manifest, file)?, manifest.vectors)
            .map_err(|reason| damaged(file, "the ids", reason))?,
        None => PackedIds::default(),
    };
    let codes = match &entry.list_codes {
        Some(codes) => {
            let bytes = load(directory, manifest, &codes.codec)?;
            let codec = VectorCodes::from_bytes(&bytes, dim, metric, codes.code_bytes);
            Some(codec.map_err(|reason| damaged(&codes.codec, "the codec of the lists", reason))?)
        }
        None => None,
    };
    let block_checksums = if options.check {
        checksums(&load(directory, manifest, &entry.checksums)?, entry.file.bytes)
            .map_err(|error| error.at(directory.address().join(&entry.checksums.name), "the checksums"))?
    } else {
        Vec::new()
    };
    let identity = manifest
        .identity()
        .map_err(|reason| IndexError::damaged(directory.address(), "the manifest", reason))?;
    Ok(Lists {
        postings,
        set,
        centroids,
        codes,
        ids,
        identity,
        checksums: block_checksums,
        frame_bytes: options.frame_bytes,
        submission: Submission { reads: options.reads_at_once.max(1), bytes: u64::MAX },
        gap: LEAST_GAP,
        entry: entry.clone(),
    })
}

/// Loads the centroids: their vectors if `exact`, otherwise their codes.
fn load_centroids(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &SpannEntry,
    set: &VectorSet,
    links: CentroidLinks,
    exact: bool,
) -> Result<Centroids, IndexError> {
    let damaged = |file: &FileEntry, what: &str, reason: String| {
        IndexError::damaged(directory.address().join(&file.name), what, reason)
    };
    let VectorSet { element, metric, dim, .. } = *set;
    let (centroid_type, centroid_metric, entry_point) =
        (centroid_element(element, metric), plain_metric(metric), entry.entry_point);
    if exact {
        let rows = load(directory, manifest, &entry.centroids)?;
        if first_non_finite(centroid_type, &rows).is_some() {
            return Err(damaged(&entry.centroids, "the centroids", "a centroid is not finite".into()));
        }
        Ok(Centroids::exact(centroid_type, centroid_metric, dim, rows, links, entry_point))
    } else {
        let codec = load_codec(directory, manifest, &entry.codes)?;
        if codec.metric() != centroid_metric {
            let reason = format!(
                "it is for the metric {}, and centroids are compared by {centroid_metric}",
                codec.metric()
            );
            return Err(damaged(&entry.codes.codec, "the codec", reason));
        }
        let codes = load(directory, manifest, &entry.codes.file)?;
        Ok(Centroids::coded(centroid_type, centroid_metric, codec, codes, links, entry_point))
    }
}
