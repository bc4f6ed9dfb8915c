//! Opens an LSH index: the hash functions, the first keys of blocks and the codes stay in memory.

use super::options::LshOptions;
use super::runs::Fences;
use super::search::{self, Lsh, RUN_BYTES};
use super::section::LshEntry;
use super::stated::LastPromises;
use super::{inspect, verify};
use crate::build::options::FamilyOptions;
use crate::calibrate::reach::Reach;
use crate::error::IndexError;
use crate::family::StoredCapabilities;
use crate::family::capabilities::{Rebuilds, RowsAlone};
use crate::family::pages::{Pages, read_vectors};
use crate::family::rows::{PagesAlone, StoredRows};
use crate::family::{
    Buffers, Description, EachVector, Knob, Loading, MemorySplit, Needs, Opened, Place, Stored, VerifyReport,
    Verifying,
};
use crate::format::groups::GroupLayout;
use crate::format::ids::load_ids;
use crate::format::loading::{load, load_codec};
use crate::format::manifest::{FileEntry, Manifest};
use crate::format::packing::buffer_bytes;
use crate::format::tables::TableLayout;
use crate::query::codes::query_bytes;
use crate::query::set::VectorSet;
use crate::query::{CODES_A_VECTOR, Effort, FRAMES, SearchParams};
use bathyal_kernels::lsh::{Buckets, CompoundHashes};
use bathyal_store::{Generation, Object};
use bathyal_vectors::progress::Progress;
use std::sync::Arc;

/// Entries that are scored for each candidate if a search gives only candidates, and the least blocks of each
/// table: enough that the candidates limit the recall, and not the entries.
const ENTRIES_A_CANDIDATE: usize = 256;
const LEAST_PROBES: usize = 8;
/// Additional buckets of a table whose runs take as much memory as one candidate.
const BUCKETS_A_CANDIDATE: usize = 2;

/// An LSH index as its manifest describes it.
pub(super) struct StoredLsh {
    entry: LshEntry,
    pages: GroupLayout,
    tables: TableLayout,
    buckets: Buckets,
    vectors: u64,
    dim: usize,
}

impl StoredLsh {
    pub(super) fn read(manifest: &Manifest) -> Result<StoredLsh, String> {
        let entry = LshEntry::read(manifest)?;
        let (pages, tables) = (entry.vectors_layout(manifest)?, entry.table_layout(manifest)?);
        let buckets = entry.buckets(manifest)?;
        Ok(StoredLsh { entry, pages, tables, buckets, vectors: manifest.vectors, dim: manifest.dim as usize })
    }
}

impl Stored for StoredLsh {
    fn capabilities(&self) -> StoredCapabilities<'_> {
        StoredCapabilities { changes: Some(self), rows: Some(self), ..StoredCapabilities::default() }
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::SearchList, Knob::Probes, Knob::MultiProbe, Knob::Ratio, Knob::Probability]
    }

    fn buffers(&self) -> Buffers {
        let block = self.tables.block_bytes();
        let frame_bytes = self.pages.buffer_bytes().max(buffer_bytes(RUN_BYTES.max(block), block));
        // Twice as many frames as are read at once.
        Buffers { frames: FRAMES / 2, frame_bytes, frame_bytes_with_codes: frame_bytes }
    }

    fn needs(&self, _manifest: &Manifest, _place: Place) -> Needs {
        let entry = &self.entry;
        let split = MemorySplit {
            codec: entry.codes.codec_memory() + entry.functions.bytes,
            offsets: Fences::planned_bytes(&self.tables),
            codes: entry.codes.file.bytes + entry.ids.as_ref().map_or(0, |ids| ids.bytes),
            ..MemorySplit::default()
        };
        let places = self.pages.places(entry.pages(&self.pages, self.vectors) as usize);
        Needs {
            choices: vec![split],
            codes_by: None,
            ids: (places * size_of::<u32>()) as u64,
            advice: "allow at least that much, or rebuild with smaller code_bytes, larger block_bytes or \
                     fewer tables",
        }
    }

    fn codes_file(&self) -> Option<&FileEntry> {
        None
    }

    fn query_bytes(&self, search_list: usize) -> u64 {
        let codes = &self.entry.codes;
        let query = query_bytes(self.dim, Some((&codes.kind, codes.code_bytes)));
        search::planned_bytes(query, self.entry.tables, search_list)
    }

    fn planned_list(&self, params: &SearchParams) -> usize {
        let additional = params.multi_probe.saturating_mul(self.entry.tables as usize);
        params.wanted().saturating_add(additional.div_ceil(BUCKETS_A_CANDIDATE))
    }

    fn query_distances(&self, params: &SearchParams) -> usize {
        let buckets = (1 + params.multi_probe).saturating_mul(self.entry.tables as usize);
        let entries = params.probes.saturating_mul(self.tables.block_ids()).saturating_mul(buckets);
        entries.saturating_add(params.wanted().saturating_mul(CODES_A_VECTOR))
    }

    fn reach(&self) -> &[Reach] {
        &self.entry.calibration.reach
    }

    fn effort_of(&self, search_list: u32) -> Effort {
        let entries = (search_list as usize).saturating_mul(ENTRIES_A_CANDIDATE);
        let probes = entries.div_ceil(self.tables.block_ids() * self.entry.tables as usize);
        let blocks = self.tables.blocks() as usize;
        let probes = probes.max(LEAST_PROBES).min(blocks);
        Effort { search_list: search_list as usize, probes, prune: 0.0 }
    }

    fn open(&self, loading: &Loading<'_>) -> Result<Arc<dyn Opened>, IndexError> {
        let Loading { directory, manifest, profile, .. } = *loading;
        let mut lsh = load_lsh(directory, manifest, self.entry.clone())?;
        if let Some(bytes) = loading.pages {
            lsh.check_loaded(bytes)?;
        }
        lsh.pages.suit(profile, loading.frames);
        Ok(Arc::new(lsh))
    }

    fn verify(&self, verifying: &Verifying<'_>, report: &mut VerifyReport) -> Result<(), IndexError> {
        verify::verify(verifying, &self.entry, &self.pages, &self.tables, report)
    }

    fn describe(
        &self,
        _directory: &dyn Generation,
        manifest: &Manifest,
        _progress: &dyn Progress,
    ) -> Result<Description, IndexError> {
        Ok(inspect::describe(manifest, &self.entry, (&self.pages, &self.tables), &self.buckets))
    }
}

impl Rebuilds for StoredLsh {
    fn buckets(&self) -> usize {
        self.entry.tables as usize
    }

    fn rebuilding(&self) -> FamilyOptions {
        let LshEntry { tables, hashes, block_bytes, ref codes, .. } = self.entry;
        let code_kind = codes.kind.parse().ok();
        LshOptions { tables, hashes, block_bytes, code_bytes: Some(codes.code_bytes), code_kind }.into()
    }

    fn vectors(&self, object: &dyn Object, each: &mut EachVector<'_>) -> Result<(), IndexError> {
        let pages = self.entry.pages(&self.pages, self.vectors);
        read_vectors(object, &self.pages, pages, each)
    }
}

impl RowsAlone for StoredLsh {
    fn rows_alone(
        &self,
        directory: &dyn Generation,
        manifest: &Manifest,
    ) -> Result<Box<dyn StoredRows>, IndexError> {
        let pages = self.entry.pages(&self.pages, self.vectors) as u32;
        PagesAlone::open(directory, manifest, &self.entry.file, self.pages, pages)
    }
}

/// Loads the data that searches keep in memory. By default, searches read the rest from a device.
pub(super) fn load_lsh(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: LshEntry,
) -> Result<Lsh, IndexError> {
    let wrong = |reason| IndexError::damaged(directory.address(), "the manifest", reason);
    let (layout, tables) =
        (entry.vectors_layout(manifest).map_err(wrong)?, entry.table_layout(manifest).map_err(wrong)?);
    let path = |file: &FileEntry| directory.address().join(&file.name);
    let bytes = load(directory, manifest, &entry.functions)?;
    let (count, hashes) = (entry.tables as usize, entry.hashes as usize);
    let functions = CompoundHashes::from_bytes(&bytes, entry.point_dim(manifest), count, hashes)
        .map_err(|reason| IndexError::damaged(path(&entry.functions), "the hashes", reason))?;
    let functions = if entry.circle { functions } else { functions.clamped() };
    let bytes = load(directory, manifest, &entry.fences)?;
    let fences =
        Fences::from_bytes(&bytes, &tables).map_err(|unread| unread.at(path(&entry.fences), "the fences"))?;
    drop(bytes);
    let mut set = VectorSet::of(directory, manifest, &entry.file)?;
    set.ids_end = load_ids(directory, manifest)?.next();
    Ok(Lsh {
        set,
        pages: Pages::new(layout),
        tables,
        check: true,
        functions,
        fences,
        codec: load_codec(directory, manifest, &entry.codes)?,
        codes: load(directory, manifest, &entry.codes.file)?,
        buckets: entry.buckets(manifest).map_err(wrong)?,
        entry,
        promises: LastPromises::default(),
    })
}

impl Lsh {
    /// Checks pages and tables that were loaded into memory, because searches will not check them.
    fn check_loaded(&mut self, bytes: &[u8]) -> Result<(), IndexError> {
        let (vectors, page_vectors) = (self.set.vectors as usize, self.pages.layout.group_vectors());
        let pages = vectors.div_ceil(page_vectors);
        let count = |page: u32| page_vectors.min(vectors - page as usize * page_vectors);
        self.pages.check_loaded(&self.set, bytes, pages, count)?;
        for block in 0..self.tables.tables() * self.tables.blocks() as u32 {
            let span = self.tables.span(block, 1);
            let damaged = |reason| self.set.damaged(format!("block {block} of the tables"), reason);
            let block_bytes =
                bytes.get(span.offset as usize..).and_then(|rest| rest.get(..span.len as usize));
            self.tables.check(block, block_bytes.unwrap_or_default()).map_err(damaged)?;
        }
        self.check = false;
        Ok(())
    }
}
