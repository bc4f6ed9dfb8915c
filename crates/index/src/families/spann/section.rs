//! The manifest section of an index of posting lists.

use super::centroids::{MOST_DEGREE, centroid_element};
use super::effort::ListPoint;
use crate::calibrate::{self, Calibration, Limits};
use crate::format::manifest::{CodesEntry, FileEntry, MAX_CODE_BYTES, Manifest, require};
use crate::format::postings::{
    BLOCK_BYTES, ENTRY_BYTES, MOST_LIST_BYTES, MOST_REPLICAS, PackedIds, PostingLayout,
};
use serde::{Deserialize, Serialize};

pub(crate) use crate::format::manifest::{CODEC_NAME, CODES_NAME};

/// The family's name.
pub(crate) const NAME: &str = "spann";
/// The name of the file of postings.
pub(crate) const POSTINGS_NAME: &str = "postings.bin";
/// The name of the file with the checksums of the postings' blocks.
pub(crate) const CHECKSUMS_NAME: &str = "checksums.bin";
/// The name of the file of the table of lists.
pub(crate) const LISTS_NAME: &str = "lists.bin";
/// The name of the file of ids by place.
pub(crate) const IDS_NAME: &str = "ids.bin";
/// The name of the file of centroids.
pub(crate) const CENTROIDS_NAME: &str = "centroids.bin";
/// The name of the file of the centroids' links.
pub(crate) const LINKS_NAME: &str = "links.bin";
/// The files that searches may read from a tier.
pub(crate) const STRIPED: &[&str] = &[POSTINGS_NAME];
/// The name of the file with the codec of lists of codes.
pub(crate) const LIST_CODEC_NAME: &str = "list_codec.bin";

/// The parameters of an index of posting lists. The manifest lists its files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpannEntry {
    /// The file of postings.
    #[serde(skip)]
    pub file: FileEntry,
    /// The file with the checksums of the postings' blocks.
    #[serde(skip)]
    pub checksums: FileEntry,
    /// The file of the table of lists.
    #[serde(skip)]
    pub lists: FileEntry,
    /// The file of the centroids of all lists.
    #[serde(skip)]
    pub centroids: FileEntry,
    /// The file of the links of the graph over the centroids.
    #[serde(skip)]
    pub links: FileEntry,
    /// The file of ids by place, in the grouped layout.
    #[serde(skip)]
    pub ids: Option<FileEntry>,
    /// The contents of lists: "coupled", "decoupled" or "grouped".
    pub layout: String,
    /// The codes that coupled lists hold in place of vectors; `None` if lists hold vectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_codes: Option<Box<ListCodesEntry>>,
    /// The number of lists.
    pub list_count: u32,
    /// Vectors in all lists, with a vector counted once for each of its lists.
    pub copies: u64,
    /// The most lists that contain one vector.
    pub replicas: u32,
    /// The requested number of lists for each vector.
    pub centroid_share: f32,
    /// The most vectors that a list admits. Vectors of its leaf that no list admits are added to these.
    pub list_limit: u32,
    /// Bytes of the longest run of rows or of members of one list.
    pub longest_bytes: u32,
    /// The most links of a centroid.
    pub max_degree: u32,
    /// The centroid at which searches begin.
    pub entry_point: u32,
    /// The codes of the centroids, for small memory.
    pub codes: CodesEntry,
    /// The recall for numbers of lists and, for lists of codes, of candidates.
    pub calibration: Calibration<ListPoint>,
}

impl SpannEntry {
    /// Returns the mean bytes of a list in the file; of lists of codes without the vectors.
    pub fn list_bytes(&self) -> f64 {
        let lists = match &self.list_codes {
            Some(codes) => self.copies * (u64::from(codes.code_bytes) + 4),
            None => self.file.bytes,
        };
        lists as f64 / f64::from(self.list_count)
    }
}

/// The codes in posting lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListCodesEntry {
    /// The file with the mean that vectors are shifted by, and the trained codec.
    #[serde(skip)]
    pub codec: FileEntry,
    /// The codec's kind, for display.
    pub kind: String,
    /// Bytes of a code.
    pub code_bytes: u32,
}

impl SpannEntry {
    /// Reads and checks the section in a manifest.
    ///
    /// # Errors
    /// A description of the first invalid field.
    pub fn read(manifest: &Manifest) -> Result<SpannEntry, String> {
        let mut entry: SpannEntry = manifest.structure(NAME)?;
        let files = [
            (&mut entry.file, POSTINGS_NAME),
            (&mut entry.checksums, CHECKSUMS_NAME),
            (&mut entry.lists, LISTS_NAME),
            (&mut entry.centroids, CENTROIDS_NAME),
            (&mut entry.links, LINKS_NAME),
        ];
        for (file, name) in files {
            *file = manifest.file(name)?.clone();
        }
        entry.ids = manifest.file(IDS_NAME).ok().cloned();
        if let Some(codes) = &mut entry.list_codes {
            codes.codec = manifest.file(LIST_CODEC_NAME)?.clone();
        }
        entry.codes.fill(manifest)?;
        entry.check(manifest)?;
        Ok(entry)
    }

    /// Returns all files; the first is the one that searches read.
    pub fn files(&self) -> Vec<FileEntry> {
        let codes = &self.codes;
        let files = [
            &self.file,
            &codes.file,
            &codes.codec,
            &self.checksums,
            &self.lists,
            &self.centroids,
            &self.links,
        ];
        let list_codec = self.list_codes.as_ref().map(|codes| &codes.codec);
        files.into_iter().chain(&self.ids).chain(list_codec).cloned().collect()
    }

    fn check(&self, manifest: &Manifest) -> Result<(), String> {
        manifest.check_files(&self.files())?;
        let layout: PostingLayout = self.layout.parse()?;
        let lists = u64::from(self.list_count);
        require((1..=manifest.vectors).contains(&lists), "the number of lists is out of range")?;
        require((1..=MOST_REPLICAS).contains(&self.replicas), "replicas is out of range")?;
        let most = manifest.vectors * u64::from(self.replicas);
        require((manifest.vectors..=most).contains(&self.copies), "copies is out of range")?;
        require(u64::from(self.entry_point) < lists, "entry_point is out of range")?;
        require(
            (1..=MOST_LIST_BYTES).contains(&u64::from(self.longest_bytes)),
            "longest_bytes is out of range",
        )?;
        if let Some(codes) = &self.list_codes {
            require(layout == PostingLayout::Coupled, "list_codes requires the layout coupled")?;
            require(
                (1..=MAX_CODE_BYTES).contains(&codes.code_bytes),
                "code_bytes of list_codes is out of range",
            )?;
        }
        require((1..=MOST_DEGREE).contains(&self.max_degree), "max_degree is out of range")?;
        require(
            self.lists.bytes == lists * ENTRY_BYTES as u64,
            "the length of the table does not match the number of lists",
        )?;
        let element = centroid_element(manifest.stored_element()?, manifest.metric()?);
        let row_bytes = element.row_bytes(manifest.dim as usize) as u64;
        require(
            self.centroids.bytes == lists * row_bytes,
            "the length of the centroids does not match the number of lists",
        )?;
        let blocks = self.file.bytes.div_ceil(BLOCK_BYTES as u64);
        require(self.checksums.bytes == blocks * 4, "the length of the checksums does not match the file")?;
        let ids = (layout == PostingLayout::Grouped).then(|| PackedIds::file_bytes(manifest.vectors));
        require(
            self.ids.as_ref().map(|ids| ids.bytes) == ids,
            "the length of the ids does not match the number of vectors",
        )?;
        let codes = lists * u64::from(self.codes.code_bytes);
        require(self.codes.file.bytes == codes, "the length of the codes does not match code_bytes")?;
        let coded = self.list_codes.is_some();
        // Lists of vectors have no candidates of their own, because all their vectors are compared.
        let series = move |point: &ListPoint| (if coded { point.probes } else { 0 }, point.prune.to_bits());
        let same = |point: &ListPoint| coded || point.search_list == point.probes;
        require(
            self.calibration.curves.iter().all(|curve| curve.points.iter().all(same)),
            "a calibration point has candidates, and lists hold vectors",
        )?;
        let limits = Limits { vectors: manifest.vectors, probes: self.list_count, series: Some(series) };
        calibrate::check(&self.calibration, &limits)
    }
}
