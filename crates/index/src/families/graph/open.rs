//! Opens a graph: loads what stays in memory, and computes how many bytes that takes.

use super::layout::GraphLayout;
use super::page_search::pivots;
use super::search::{Graph, GraphScratch};
use super::section::GraphEntry;
use super::{inspect, on_card, verify};
use crate::calibrate::reach::Reach;
use crate::error::IndexError;
use crate::family::StoredCapabilities;
use crate::family::capabilities::{RowsAlone, StoredForCard};
use crate::family::rows::StoredRows;
use crate::family::{
    Buffers, CodesOnCard, Description, Knob, Loading, MemorySplit, Needs, Opened, Place, Stored,
    VerifyReport, Verifying,
};
use crate::format::loading::{load, load_codec};
use crate::format::manifest::{FileEntry, Manifest};
use crate::format::offsets::Offsets;
use crate::query::codes::query_bytes;
use crate::query::set::VectorSet;
use crate::query::{CODES_A_VECTOR, Effort, FRAMES, SearchParams};
use bathyal_gpu::{Card, GpuError};
use bathyal_store::Generation;
use bathyal_vectors::progress::{Progress, Silent};
use std::sync::Arc;

/// Returns the read buffers of a thread, each of `bytes` bytes.
pub(super) fn buffers(bytes: usize) -> Buffers {
    Buffers { frames: FRAMES, frame_bytes: bytes, frame_bytes_with_codes: bytes }
}

/// A graph as its manifest describes it.
pub(super) struct StoredGraph {
    entry: GraphEntry,
    vectors: u32,
    dim: usize,
    layout: GraphLayout,
}

impl StoredGraph {
    pub(super) fn read(manifest: &Manifest) -> Result<StoredGraph, String> {
        let entry = GraphEntry::read(manifest)?;
        let layout = entry.layout(manifest)?;
        Ok(StoredGraph { entry, vectors: manifest.vectors as u32, dim: manifest.dim as usize, layout })
    }
}

impl Stored for StoredGraph {
    fn capabilities(&self) -> StoredCapabilities<'_> {
        StoredCapabilities { card: Some(self), rows: Some(self), ..StoredCapabilities::default() }
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::SearchList, Knob::BeamWidth, Knob::Mode]
    }

    fn buffers(&self) -> Buffers {
        buffers(self.layout.buffer_bytes())
    }

    fn needs(&self, manifest: &Manifest, _place: Place) -> Needs {
        let entry = &self.entry;
        let offsets = entry.offsets.as_ref();
        let split = MemorySplit {
            codec: entry.codes.codec_memory(),
            offsets: offsets.map_or(0, |file| Offsets::planned_bytes(file.bytes, manifest.vectors)),
            codes: entry.codes.file.bytes,
            ..MemorySplit::default()
        };
        Needs {
            choices: vec![split],
            codes_by: None,
            ids: 0,
            advice: "allow at least that much, or rebuild with smaller code_bytes",
        }
    }

    fn codes_file(&self) -> Option<&FileEntry> {
        None
    }

    fn query_bytes(&self, search_list: usize) -> u64 {
        let codes = &self.entry.codes;
        let query = query_bytes(self.dim, Some((&codes.kind, codes.code_bytes)));
        GraphScratch::planned_bytes(self.vectors, self.entry.max_degree as usize, query, search_list)
    }

    fn planned_list(&self, params: &SearchParams) -> usize {
        params.search_list
    }

    fn query_distances(&self, params: &SearchParams) -> usize {
        let navigated = params.wanted().saturating_mul(self.entry.max_degree as usize);
        navigated.saturating_add(params.wanted().saturating_mul(CODES_A_VECTOR))
    }

    fn reach(&self) -> &[Reach] {
        &self.entry.calibration.reach
    }

    fn effort_of(&self, search_list: u32) -> Effort {
        Effort { search_list: search_list as usize, probes: 0, prune: 0.0 }
    }

    fn open(&self, loading: &Loading<'_>) -> Result<Arc<dyn Opened>, IndexError> {
        let (directory, manifest) = (loading.directory, loading.manifest);
        let Some(card) = loading.card else {
            return Ok(Arc::new(load_graph(directory, manifest, self.entry.clone())?));
        };
        let mut graph = load_without_codes(directory, manifest, self.entry.clone())?;
        graph.card = Some(on_card::load(directory, manifest, &mut graph, card, &Silent)?);
        Ok(Arc::new(graph))
    }

    fn verify(&self, verifying: &Verifying<'_>, report: &mut VerifyReport) -> Result<(), IndexError> {
        verify::verify(verifying, &self.entry, report)
    }

    fn describe(
        &self,
        directory: &dyn Generation,
        manifest: &Manifest,
        progress: &dyn Progress,
    ) -> Result<Description, IndexError> {
        inspect::describe(directory, manifest, &self.entry, progress)
    }
}

impl StoredForCard for StoredGraph {
    fn check_card(&self, _manifest: &Manifest) -> Result<(), GpuError> {
        on_card::check(&self.entry)
    }

    /// All codes go to the card, because links lead to any vector.
    fn codes_on_card(&self, _card: &dyn Card, _whole: bool) -> Option<CodesOnCard> {
        let unit = u64::from(self.entry.codes.code_bytes);
        let beside = on_card::kept_code_count(&self.layout, self.vectors) * unit;
        Some(CodesOnCard { bytes: self.entry.codes.file.bytes, unit, beside })
    }
}

impl RowsAlone for StoredGraph {
    fn rows_alone(
        &self,
        directory: &dyn Generation,
        manifest: &Manifest,
    ) -> Result<Box<dyn StoredRows>, IndexError> {
        Ok(Box::new(load_without_codes(directory, manifest, self.entry.clone())?))
    }
}

/// Loads a graph with its codes. The manifest may not have been written yet.
pub(super) fn load_graph(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: GraphEntry,
) -> Result<Graph, IndexError> {
    let codes = load(directory, manifest, &entry.codes.file)?;
    Ok(Graph { codes, ..load_without_codes(directory, manifest, entry)? })
}

/// Loads a graph without its codes.
fn load_without_codes(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: GraphEntry,
) -> Result<Graph, IndexError> {
    let wrong = |reason| IndexError::damaged(directory.address(), "the manifest", reason);
    Ok(Graph {
        set: VectorSet::of(directory, manifest, &entry.file)?,
        layout: entry.layout(manifest).map_err(wrong)?,
        offsets: load_offsets(directory, manifest, &entry)?,
        codec: load_codec(directory, manifest, &entry.codes)?,
        codes: Vec::new(),
        pivots: pivots(manifest.vectors as u32, &[]),
        absent: Vec::new(),
        card: None,
        kept_codes: Vec::new(),
        entry,
    })
}

/// Loads the offsets of a packed graph's records. They are empty for other layouts.
pub(super) fn load_offsets(
    directory: &dyn Generation,
    manifest: &Manifest,
    entry: &GraphEntry,
) -> Result<Offsets, IndexError> {
    let Some(file) = &entry.offsets else { return Ok(Offsets::default()) };
    Offsets::from_bytes(&load(directory, manifest, file)?, manifest.vectors, entry.file.bytes)
        .map_err(|unread| unread.at(directory.address().join(&file.name), "the offsets"))
}

impl Graph {
    /// Hides the vectors at `places` (rising) from searches.
    pub(super) fn hide(&mut self, places: Vec<u32>) {
        self.pivots = pivots(self.set.vectors, &places);
        self.absent = places;
    }
}
