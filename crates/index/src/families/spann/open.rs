//! Opening posting lists: what stays in memory, read and checked.

use super::centroids::{CentroidLinks, Centroids, centroid_element, centroid_metric};
use super::coded::ListCodes;
use super::search::{Lists, Submission};
use crate::error::IndexError;
use crate::format::manifest::{FileEntry, Manifest, SpannEntry};
use crate::format::postings::{PackedIds, PostingLayout, Postings, checksums};
use crate::open::family::{load, load_codec};
use crate::query::Exact;
use bathyal_kernels::first_non_finite;
use bathyal_store::Generation;
use bathyal_tier::TierProfile;

/// Bytes that a search reads in vain rather than begin another read, where a read costs least. A million SIFT descriptors in
/// grouped lists, 22 lists a query, one thread: 1,843 queries/s without gaps and 2,042 with this one in DRAM, at half of
/// the reads and 1.8 times the bytes; twice the gap gains another tenth for 1.4 times the bytes.
const LEAST_GAP: u64 = 1 << 10;
/// The same where a read costs most: two blocks of a disk.
const MOST_GAP: u64 = 8 << 10;

/// The gap that suits a device: a byte for each nanosecond of its latency, since a device that is far takes more for a
/// read than for its bytes. With emulated RDMA (2.8 us, 150 ns to post a read) the same search answers 1,229 queries/s
/// without gaps, 1,530 with 1 KiB and 1,800 to 1,950 with 2 to 4 KiB.
pub(crate) fn suited_gap(profile: &TierProfile) -> u64 {
    if profile.addressable { profile.latency_ns.clamp(LEAST_GAP, MOST_GAP) } else { MOST_GAP }
}

/// What a query asks for at once of a tier whose bytes are prefetched into a cache: with 16 queries in flight it fits the
/// second level of 1 MiB. A million SIFT descriptors, emulated CXL, 1 thread: coupled lists 9,100 queries/s with 16 reads at
/// once and 6,560 with 128; grouped ones 2,770 to 2,815 with 16 or 32, 1,880 with 4, and 2,590 with 128.
const CACHED: Submission = Submission { reads: 24, bytes: 48 << 10 };

/// What a query asks for at once of a device, given what there are buffers for.
pub(crate) fn suited_submission(profile: &TierProfile, buffers: Submission) -> Submission {
    if !profile.addressable {
        return buffers;
    }
    Submission { reads: buffers.reads.min(CACHED.reads), bytes: buffers.bytes.min(CACHED.bytes) }
}

/// What of an index of posting lists is loaded, and how it is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening {
    /// Whether centroids are compared as they are, not by their codes.
    pub(crate) exact: bool,
    /// Whether every read is checked; else the whole file was when it was loaded.
    pub(crate) check: bool,
    /// Longest read, in bytes.
    pub(crate) frame_bytes: usize,
    /// Reads of one submission that buffers are there for.
    pub(crate) reads_at_once: usize,
}

/// Loads what a search needs besides the file of postings.
pub(crate) fn open(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &SpannEntry,
    opening: Opening,
) -> Result<Lists, IndexError> {
    let wrong = |reason| IndexError::damaged(directory.address(), "the manifest", reason);
    let damaged = |file: &FileEntry, what: &str, reason: String| {
        IndexError::damaged(directory.address().join(&file.name), what, reason)
    };
    let (element, metric) = (manifest.element().map_err(wrong)?, manifest.metric().map_err(wrong)?);
    let dim = manifest.dim as usize;
    let postings = open_table(directory, manifest, entry)?;
    let links = load(directory, manifest, &entry.links)?;
    let links = CentroidLinks::from_bytes(&links, entry.list_count)
        .map_err(|reason| damaged(&entry.links, "the links", reason))?;
    let (of, by, start) = (centroid_element(element, metric), centroid_metric(metric), entry.entry_point);
    let centroids = if opening.exact {
        let rows = load(directory, manifest, &entry.centroids)?;
        if first_non_finite(of, &rows).is_some() {
            return Err(damaged(&entry.centroids, "the centroids", "one is not finite".into()));
        }
        Centroids::exact(of, by, dim, rows, links, start)
    } else {
        let codec = load_codec(directory, manifest)?;
        if codec.metric() != by {
            let reason = format!("it is for the metric {}, centroids are compared by {by}", codec.metric());
            return Err(damaged(&manifest.codes.codec, "the codec", reason));
        }
        Centroids::coded(of, by, codec, load(directory, manifest, &manifest.codes.file)?, links, start)
    };
    let ids = match &entry.ids {
        Some(file) => PackedIds::from_bytes(load(directory, manifest, file)?, manifest.vectors)
            .map_err(|reason| damaged(file, "the ids", reason))?,
        None => PackedIds::default(),
    };
    let codes = match &entry.codes {
        Some(codes) => {
            let bytes = load(directory, manifest, &codes.codec)?;
            let codec = ListCodes::from_bytes(&bytes, dim, metric, codes.code_bytes);
            Some(codec.map_err(|reason| damaged(&codes.codec, "the codec of the lists", reason))?)
        }
        None => None,
    };
    let sums = if opening.check {
        checksums(&load(directory, manifest, &entry.checksums)?, entry.file.bytes)
            .map_err(|reason| damaged(&entry.checksums, "the checksums", reason))?
    } else {
        Vec::new()
    };
    Ok(Lists {
        postings,
        vectors: manifest.vectors as u32,
        dim,
        element,
        metric,
        centroids,
        codes,
        ids,
        identity: manifest.identity().map_err(wrong)?,
        checksums: sums,
        exact: Exact::new(element, metric, dim),
        frame_bytes: opening.frame_bytes,
        submission: Submission { reads: opening.reads_at_once.max(1), bytes: u64::MAX },
        gap: LEAST_GAP,
        file: directory.address().join(&entry.file.name),
    })
}

/// Loads the table of lists and compares it with the manifest.
pub(crate) fn open_table(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &SpannEntry,
) -> Result<Postings, IndexError> {
    let table = load(directory, manifest, &entry.lists)?;
    parse_table(&table, manifest, entry).map_err(|reason| {
        IndexError::damaged(directory.address().join(&entry.lists.name), "the table of lists", reason)
    })
}

fn parse_table(table: &[u8], manifest: &Manifest, entry: &SpannEntry) -> Result<Postings, String> {
    let layout: PostingLayout = entry.layout.parse()?;
    let row_bytes = manifest.dim as usize * manifest.element()?.size();
    let postings = match &entry.codes {
        Some(codes) => {
            Postings::coded_from_bytes(row_bytes, codes.code_bytes as usize, manifest.vectors, table)?
        }
        None => Postings::from_bytes(layout, row_bytes, manifest.vectors, table)?,
    };
    let expect = |what: &str, found: u64, wanted: u64| {
        if found == wanted { Ok(()) } else { Err(format!("{what} are {found}, the manifest says {wanted}")) }
    };
    expect("the bytes of its lists", postings.file_bytes(), entry.file.bytes)?;
    expect("the entries of its lists", postings.copies(), entry.copies)?;
    expect("the bytes of its longest list", postings.longest() as u64, u64::from(entry.longest_bytes))?;
    Ok(postings)
}
