//! Opens a flat index. Its codes, if it has any, stay in memory.

use super::effort;
use super::inspect;
use super::search::{self, Coded, Flat};
use super::section::FlatEntry;
use crate::calibrate::reach::Reach;
use crate::error::IndexError;
use crate::family::StoredCapabilities;
use crate::family::capabilities::RowsAlone;
use crate::family::pages::{Pages, walk};
use crate::family::rows::{PagesAlone, StoredRows};
use crate::family::{
    Buffers, Description, Knob, Loading, MemorySplit, Needs, Opened, Place, Stored, VerifyReport, Verifying,
};
use crate::format::groups::GroupLayout;
use crate::format::loading::load;
use crate::format::manifest::{FileEntry, Manifest};
use crate::format::packing::buffer_bytes;
use crate::query::codes::VectorCodes;
use crate::query::set::VectorSet;
use crate::query::{CODES_A_VECTOR, Effort, FRAMES, SearchParams};
use bathyal_store::Generation;
use bathyal_vectors::progress::Progress;
use std::sync::Arc;

/// Bytes of one read of a scan on an addressable tier: few enough to stay in the processor's cache while
/// several queries are in flight.
const CACHED_READ_BYTES: usize = 16 << 10;
/// Approximate number of distances between neighbouring vectors in memory that take as long as one distance
/// of a vector that is fetched from far away.
const STREAMED: usize = 4;

/// A flat index as its manifest describes it.
pub(super) struct StoredFlat {
    entry: FlatEntry,
    layout: GroupLayout,
    vectors: usize,
    dim: usize,
}

impl StoredFlat {
    pub(super) fn read(manifest: &Manifest) -> Result<StoredFlat, String> {
        let entry = FlatEntry::read(manifest)?;
        let layout = entry.layout(manifest)?;
        Ok(StoredFlat { entry, layout, vectors: manifest.vectors as usize, dim: manifest.dim as usize })
    }

    /// Returns true if a search compares all vectors.
    fn scans(&self, params: &SearchParams) -> bool {
        effort::scans(&self.entry, self.vectors, params)
    }
}

impl Stored for StoredFlat {
    fn capabilities(&self) -> StoredCapabilities<'_> {
        StoredCapabilities { rows: Some(self), ..StoredCapabilities::default() }
    }

    fn knobs(&self) -> &'static [Knob] {
        if self.entry.codes.is_some() { &[Knob::SearchList] } else { &[] }
    }

    fn buffers(&self) -> Buffers {
        let frame_bytes = buffer_bytes(self.layout.group_bytes(), self.layout.page_bytes());
        // Twice as many frames as candidates are read at once.
        Buffers { frames: FRAMES / 2, frame_bytes, frame_bytes_with_codes: frame_bytes }
    }

    fn needs(&self, _manifest: &Manifest, _place: Place) -> Needs {
        let codes = self.entry.codes.as_ref();
        let split = MemorySplit {
            codec: codes.map_or(0, |codes| codes.codes.codec_memory()),
            codes: codes.map_or(0, |codes| codes.codes.file.bytes),
            ..MemorySplit::default()
        };
        let places = self.layout.places(self.entry.reads as usize);
        let advice = match codes {
            Some(_) => "allow at least that much, or rebuild with smaller code_bytes or without codes",
            None => "allow at least that much",
        };
        Needs { choices: vec![split], codes_by: None, ids: (places * size_of::<u32>()) as u64, advice }
    }

    fn codes_file(&self) -> Option<&FileEntry> {
        None
    }

    fn query_bytes(&self, search_list: usize) -> u64 {
        search::planned_bytes(self.dim, search_list)
    }

    fn planned_list(&self, params: &SearchParams) -> usize {
        if self.scans(params) { params.k } else { params.wanted() }
    }

    fn query_distances(&self, params: &SearchParams) -> usize {
        if self.scans(params) {
            return self.vectors.saturating_mul(CODES_A_VECTOR / STREAMED);
        }
        self.vectors.saturating_add(params.wanted().saturating_mul(CODES_A_VECTOR))
    }

    fn reach(&self) -> &[Reach] {
        &self.entry.calibration.reach
    }

    fn effort_of(&self, search_list: u32) -> Effort {
        Effort { search_list: search_list as usize, probes: 0, prune: 0.0 }
    }

    fn open(&self, loading: &Loading<'_>) -> Result<Arc<dyn Opened>, IndexError> {
        let Loading { directory, manifest, profile, .. } = *loading;
        let mut flat = load_flat(directory, manifest, self.entry.clone())?;
        if let Some(bytes) = loading.pages {
            let (vectors, read_vectors) = (self.vectors, self.layout.group_vectors());
            let count = |read: u32| read_vectors.min(vectors - read as usize * read_vectors);
            flat.pages.check_loaded(&flat.set, bytes, self.entry.reads as usize, count)?;
        }
        flat.pages.suit(profile, loading.frames);
        let page = self.layout.page_bytes();
        if profile.addressable {
            flat.unit_pages = (CACHED_READ_BYTES / page).clamp(1, self.layout.group_pages()) as u32;
        }
        flat.reads_ahead = search::reads_ahead(flat.unit_pages as usize * page, profile.addressable);
        Ok(Arc::new(flat))
    }

    fn verify(&self, verifying: &Verifying<'_>, report: &mut VerifyReport) -> Result<(), IndexError> {
        walk(verifying, &self.entry.file, &self.layout, self.entry.reads, |_, _| None, report)?;
        if report.sound
            && let Err(damage) = load_flat(verifying.directory, verifying.manifest, self.entry.clone())
        {
            report.fault(damage.to_string());
        }
        Ok(())
    }

    fn describe(
        &self,
        _directory: &dyn Generation,
        manifest: &Manifest,
        _progress: &dyn Progress,
    ) -> Result<Description, IndexError> {
        Ok(inspect::describe(manifest, &self.entry, &self.layout))
    }
}

impl RowsAlone for StoredFlat {
    fn rows_alone(
        &self,
        directory: &dyn Generation,
        manifest: &Manifest,
    ) -> Result<Box<dyn StoredRows>, IndexError> {
        let pages = self.entry.reads * self.layout.group_pages() as u32;
        PagesAlone::open(directory, manifest, &self.entry.file, self.layout, pages)
    }
}

/// Loads the data that searches keep in memory. By default, searches read pages from a device.
pub(super) fn load_flat(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: FlatEntry,
) -> Result<Flat, IndexError> {
    let wrong = |reason| IndexError::damaged(directory.address(), "the manifest", reason);
    let set = VectorSet::of(directory, manifest, &entry.file)?;
    let layout = entry.layout(manifest).map_err(wrong)?;
    let codes = match &entry.codes {
        Some(entry) => {
            let bytes = load(directory, manifest, &entry.codes.codec)?;
            let codes = VectorCodes::from_bytes(&bytes, set.dim, set.metric, entry.codes.code_bytes);
            let codes = codes.map_err(|reason| {
                IndexError::damaged(directory.address().join(&entry.codes.codec.name), "the codec", reason)
            })?;
            drop(bytes);
            Some(Coded { codes, bytes: load(directory, manifest, &entry.codes.file)?, entry: entry.clone() })
        }
        None => None,
    };
    let (unit_pages, reads_ahead) =
        (layout.group_pages() as u32, search::reads_ahead(layout.group_bytes(), false));
    let pages = Pages::new(layout);
    Ok(Flat { pages, set, codes, unit_pages, reads_ahead, entry, stored: manifest.stored })
}
