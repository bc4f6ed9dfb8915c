//! Opening an index of partitions. The meta index and the table stay in memory; the sub-index cache is empty
//! at first.

use super::inserts::{self, Growth};
use super::inspect;
use super::search::{self, Partitions, SubIndexSource};
use super::section::PartitionedEntry;
use super::sub_index_cache::{SLOT_BYTES, SubIndexCache};
use super::subindex::options::DEFAULT_PROBES;
use super::subindex::table::SubIndexTable;
use super::subindex::{self, META, SubIndex};
use super::verify;
use crate::calibrate::reach::Reach;
use crate::error::IndexError;
use crate::family::StoredCapabilities;
use crate::family::capabilities::{ChangedInPlace, SharedReads};
use crate::family::{
    Buffers, Description, Knob, Loading, MemorySplit, Needs, Opened, Paused, Place as PageTier, Stored,
    VerifyReport, Verifying,
};
use crate::format::loading::load;
use crate::format::manifest::{FileEntry, Manifest};
use crate::query::set::VectorSet;
use crate::query::{CODES_A_VECTOR, Effort, FRAMES, SearchParams};
use bathyal_store::Generation;
use bathyal_tier::BUFFER_ALIGNMENT;
use bathyal_vectors::progress::Progress;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// Memory for a thread's read buffers, and the least number of them: one is read while another is searched.
const BUFFER_BYTES: usize = 32 << 20;
const LEAST_FRAMES: u32 = 2;
/// The part of the sub-indexes that is cached if no budget is given: a tenth (d-HNSW, section 4).
const KEPT_SHARE: u64 = 10;
/// The least number of cached sub-indexes of the longest size. With fewer the threads would wait for each
/// other.
const LEAST_KEPT: u64 = 4;
/// Queries in flight on a thread, so that queries for the same partition share its read: as many as in the
/// batches of d-HNSW.
const TOGETHER: usize = 2000;

/// An index of partitions as its manifest describes it.
pub(super) struct StoredPartitions {
    entry: PartitionedEntry,
    dim: usize,
}

impl StoredPartitions {
    pub(super) fn read(manifest: &Manifest) -> Result<StoredPartitions, String> {
        Ok(StoredPartitions { entry: PartitionedEntry::read(manifest)?, dim: manifest.dim as usize })
    }

    /// Returns the least bytes of the sub-index cache.
    fn least_kept(&self) -> u64 {
        let longest = u64::from(self.entry.longest_bytes) + SLOT_BYTES;
        let all = self.entry.read_bytes.max(longest) + SLOT_BYTES * u64::from(self.entry.partitions);
        (LEAST_KEPT * longest).min(all)
    }

    /// Returns the bytes of the meta index, and of the state for inserts.
    fn meta_bytes(&self) -> u64 {
        let growth = if self.entry.growth.is_some() { Growth::planned_bytes(&self.entry) } else { 0 };
        self.entry.meta.bytes + growth
    }
}

impl Stored for StoredPartitions {
    fn capabilities(&self) -> StoredCapabilities<'_> {
        StoredCapabilities { read_cache: Some(self), in_place: Some(self), ..StoredCapabilities::default() }
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::SearchList, Knob::Probes]
    }

    fn buffers(&self) -> Buffers {
        let bytes =
            (self.entry.longest_bytes as usize).next_multiple_of(BUFFER_ALIGNMENT) + 2 * BUFFER_ALIGNMENT;
        let frames = ((BUFFER_BYTES / bytes) as u32).clamp(LEAST_FRAMES, FRAMES);
        Buffers { frames, frame_bytes: bytes, frame_bytes_with_codes: bytes }
    }

    fn needs(&self, _manifest: &Manifest, place: PageTier) -> Needs {
        let table = self.entry.table.bytes + SLOT_BYTES * u64::from(self.entry.partitions);
        let least = MemorySplit { centroids: self.meta_bytes(), offsets: table, ..MemorySplit::default() };
        let keeping = |cache| MemorySplit { cache, ..least };
        let choices = match place {
            PageTier::File => {
                let share = (self.entry.read_bytes / KEPT_SHARE).max(self.least_kept());
                vec![keeping(share), keeping(self.least_kept())]
            }
            _ => vec![least],
        };
        let advice = "allow at least that much, or rebuild with smaller partition_vectors";
        Needs { choices, codes_by: None, ids: 0, advice }
    }

    fn codes_file(&self) -> Option<&FileEntry> {
        None
    }

    fn query_bytes(&self, search_list: usize) -> u64 {
        search::planned_bytes(self.dim, search_list, DEFAULT_PROBES as usize)
    }

    fn planned_list(&self, params: &SearchParams) -> usize {
        params.wanted().max(params.probes.min(self.entry.partitions as usize))
    }

    fn query_distances(&self, params: &SearchParams) -> usize {
        let probes = params.probes.min(self.entry.partitions as usize);
        let walk = params.wanted().saturating_mul(self.entry.links as usize).saturating_add(100);
        probes.saturating_mul(walk).saturating_mul(CODES_A_VECTOR)
    }

    fn reach(&self) -> &[Reach] {
        &self.entry.calibration.reach
    }

    fn effort_of(&self, search_list: u32) -> Effort {
        Effort { search_list: search_list as usize, probes: DEFAULT_PROBES as usize, prune: 0.0 }
    }

    fn open(&self, loading: &Loading<'_>) -> Result<Arc<dyn Opened>, IndexError> {
        let Loading { directory, manifest, split, profile, shared, .. } = *loading;
        let mut partitions = open(directory, manifest, &self.entry, shared)?;
        if !profile.addressable {
            let lengths = (0..self.entry.partitions).map(|partition| partitions.span(partition).len);
            let budget = split.cache.max(self.least_kept());
            partitions.source =
                SubIndexSource::Cached(SubIndexCache::new(lengths, self.entry.longest_bytes, budget));
        }
        Ok(Arc::new(partitions))
    }

    fn verify(&self, verifying: &Verifying<'_>, report: &mut VerifyReport) -> Result<(), IndexError> {
        match open(verifying.directory, verifying.manifest, &self.entry, false) {
            Ok(partitions) => verify::verify(verifying, &partitions, report),
            Err(damage) => {
                report.fault(damage.to_string());
                Ok(())
            }
        }
    }

    fn describe(
        &self,
        directory: &dyn Generation,
        manifest: &Manifest,
        _progress: &dyn Progress,
    ) -> Result<Description, IndexError> {
        let damaged_manifest = |reason| IndexError::damaged(directory.address(), "the manifest", reason);
        let row_bytes = manifest.stored_row_bytes().map_err(damaged_manifest)?;
        let layout = self.entry.layout(row_bytes);
        let counts = layout.map(|layout| {
            let object = manifest.open_file(directory, &self.entry.file)?;
            inserts::counts(object.as_ref(), &layout)
        });
        Ok(inspect::describe(manifest, &self.entry, counts.transpose()?))
    }
}

impl SharedReads for StoredPartitions {
    fn together(&self) -> usize {
        TOGETHER
    }
}

impl ChangedInPlace for StoredPartitions {
    fn pause(
        &self,
        directory: &dyn Generation,
        manifest: &Manifest,
    ) -> Result<Option<Box<dyn Paused>>, IndexError> {
        if self.entry.growth.is_none() {
            return Ok(None);
        }
        let partitions = open(directory, manifest, &self.entry, true)?;
        partitions.growth.map_or(Ok(None), |growth| inserts::pause(growth, partitions.set.file))
    }
}

/// Loads what a search needs except the sub-indexes. Sub-indexes are searched in place unless the caller sets
/// another source.
pub(super) fn open(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &PartitionedEntry,
    shared: bool,
) -> Result<Partitions, IndexError> {
    let address = |file: &FileEntry| directory.address().join(&file.name);
    let damaged_manifest = |reason| IndexError::damaged(directory.address(), "the manifest", reason);
    let mut set = VectorSet::of(directory, manifest, &entry.file)?;
    let identity = manifest.identity().map_err(damaged_manifest)?;
    let table = SubIndexTable::from_bytes(&load(directory, manifest, &entry.table)?)
        .map_err(|error| error.at(address(&entry.table), "the table"))?;
    let growth = match entry.layout(set.row_bytes()) {
        Some(layout) => {
            set.ids_end = layout.ids;
            let object = manifest.open_file(directory, &entry.file)?;
            Some(Growth::open(object, (layout, identity), (entry, &set), &table, shared)?)
        }
        None => {
            let checked = table.check(entry.file.bytes);
            checked.map_err(|reason| IndexError::damaged(address(&entry.table), "the table", reason))?;
            None
        }
    };
    let meta = load(directory, manifest, &entry.meta)?;
    let check_meta = || {
        subindex::check_bytes(&meta, identity, META)?;
        let index = SubIndex::read(&meta, set.row_bytes())?;
        index.check(set.ids_end)?;
        if index.count() == table.count() {
            Ok(())
        } else {
            Err(format!("it has {} partitions, the table has {}", index.count(), table.count()))
        }
    };
    check_meta().map_err(|reason| IndexError::damaged(address(&entry.meta), "the meta index", reason))?;
    let longest = table.entries().iter().map(|entry| entry.bytes).max();
    if growth.is_none() && longest != Some(entry.longest_bytes) {
        return Err(damaged_manifest(format!(
            "the longest sub-index has {longest:?} bytes, not {}",
            entry.longest_bytes
        )));
    }
    let unseen = std::iter::repeat_with(|| AtomicBool::new(false));
    let source = SubIndexSource::InPlace(unseen.take(table.count()).collect());
    let stored = manifest.stored;
    Ok(Partitions {
        set,
        entry: entry.clone(),
        identity,
        meta,
        table,
        growth,
        source,
        stored,
        walks: Mutex::default(),
    })
}
