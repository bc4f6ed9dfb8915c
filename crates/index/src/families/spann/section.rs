//! What a manifest says of posting lists.

use super::centroids::{MOST_DEGREE, centroid_element};
use super::effort::ListPoint;
use crate::calibrate::{self, Calibration, Limits};
use crate::format::manifest::{CodesEntry, FileEntry, MAX_CODE_BYTES, Manifest, require};
use crate::format::postings::{
    BLOCK_BYTES, ENTRY_BYTES, MOST_LIST_BYTES, MOST_REPLICAS, PackedIds, PostingLayout,
};
use serde::{Deserialize, Serialize};

/// The family's name.
pub(crate) const NAME: &str = "spann";
/// The file of postings.
pub(crate) const POSTINGS_NAME: &str = "postings.bin";
/// The checksums of its blocks.
pub(crate) const CHECKSUMS_NAME: &str = "checksums.bin";
/// The table of lists.
pub(crate) const LISTS_NAME: &str = "lists.bin";
/// The ids by place.
pub(crate) const IDS_NAME: &str = "ids.bin";
/// The centroids.
pub(crate) const CENTROIDS_NAME: &str = "centroids.bin";
/// Their links.
pub(crate) const LINKS_NAME: &str = "links.bin";
/// The codes of the centroids, and their codec.
pub(crate) const CODES_NAME: &str = "codes.bin";
pub(crate) const CODEC_NAME: &str = "codec.bin";
/// What searches may read from a tier.
pub(crate) const STRIPED: &[&str] = &[POSTINGS_NAME];
/// What makes and scores the codes in lists.
pub(crate) const LIST_CODEC_NAME: &str = "list_codec.bin";

/// The parameters of an index of posting lists. Its files are named among the manifest's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpannEntry {
    /// The file of postings.
    #[serde(skip)]
    pub file: FileEntry,
    /// The checksums of its blocks.
    #[serde(skip)]
    pub checksums: FileEntry,
    /// The table of lists.
    #[serde(skip)]
    pub lists: FileEntry,
    /// The centroids of all lists.
    #[serde(skip)]
    pub centroids: FileEntry,
    /// The graph over the centroids.
    #[serde(skip)]
    pub links: FileEntry,
    /// The ids by place, of the grouped layout.
    #[serde(skip)]
    pub ids: Option<FileEntry>,
    /// How lists hold their vectors: "coupled", "decoupled" or "grouped".
    pub layout: String,
    /// The codes that stand for vectors in coupled lists; none where these hold the vectors themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_codes: Option<Box<ListCodesEntry>>,
    /// Number of lists.
    pub list_count: u32,
    /// Vectors of all lists together, as often as they are in one.
    pub copies: u64,
    /// Most lists that a vector is in.
    pub replicas: u32,
    /// Lists for each vector, as asked for.
    pub centroid_share: f32,
    /// Vectors that a list takes in, besides those that no other would.
    pub list_limit: u32,
    /// Bytes of the longest run of rows or of members of one list.
    pub longest_bytes: u32,
    /// Most links of a centroid.
    pub max_degree: u32,
    /// The centroid where searches begin.
    pub entry_point: u32,
    /// The codes of the centroids, for little memory.
    pub codes: CodesEntry,
    /// Recall against lists read and, of lists of codes, candidates.
    pub calibration: Calibration<ListPoint>,
}

impl SpannEntry {
    /// Bytes of the file that belong to a list, in the mean; of lists of codes without the vectors.
    pub fn list_bytes(&self) -> f64 {
        let lists = match &self.list_codes {
            Some(codes) => self.copies * (u64::from(codes.code_bytes) + 4),
            None => self.file.bytes,
        };
        lists as f64 / f64::from(self.list_count)
    }
}

/// The codes within posting lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListCodesEntry {
    /// What vectors are shifted by, and the trained codec.
    #[serde(skip)]
    pub codec: FileEntry,
    /// The codec's kind, for people.
    pub kind: String,
    /// Bytes of a code.
    pub code_bytes: u32,
}

impl SpannEntry {
    /// Reads and checks what the manifest of posting lists says.
    ///
    /// # Errors
    /// A sentence.
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
        entry.codes.fill(manifest, CODES_NAME, CODEC_NAME)?;
        entry.check(manifest)?;
        Ok(entry)
    }

    /// All files, the one that searches read first.
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
        require((manifest.vectors..=most).contains(&self.copies), "the lists do not hold the vectors")?;
        require(u64::from(self.entry_point) < lists, "the entry point is no centroid")?;
        require(
            (1..=MOST_LIST_BYTES).contains(&u64::from(self.longest_bytes)),
            "longest_bytes is out of range",
        )?;
        if let Some(codes) = &self.list_codes {
            require(layout == PostingLayout::Coupled, "lists of codes are not coupled")?;
            require(
                (1..=MAX_CODE_BYTES).contains(&codes.code_bytes),
                "the bytes of a list's code are out of range",
            )?;
        }
        require((1..=MOST_DEGREE).contains(&self.max_degree), "max_degree is out of range")?;
        require(self.lists.bytes == lists * ENTRY_BYTES as u64, "the table does not hold the lists")?;
        let element = centroid_element(manifest.stored_element()?, manifest.metric()?);
        let row_bytes = element.row_bytes(manifest.dim as usize) as u64;
        require(
            self.centroids.bytes == lists * row_bytes,
            "the centroids' length does not follow from the lists",
        )?;
        let blocks = self.file.bytes.div_ceil(BLOCK_BYTES as u64);
        require(self.checksums.bytes == blocks * 4, "the checksums do not cover the file")?;
        let ids = (layout == PostingLayout::Grouped).then(|| PackedIds::file_bytes(manifest.vectors));
        require(
            self.ids.as_ref().map(|ids| ids.bytes) == ids,
            "the ids' length does not follow from the vectors",
        )?;
        let codes = lists * u64::from(self.codes.code_bytes);
        require(self.codes.file.bytes == codes, "the codes' length does not follow from their size")?;
        let coded = self.list_codes.is_some();
        // Lists hold what is compared, so that those of vectors have no candidates of their own.
        let series = move |point: &ListPoint| (if coded { point.probes } else { 0 }, point.prune.to_bits());
        let same = |point: &ListPoint| coded || point.search_list == point.probes;
        require(
            self.calibration.curves.iter().all(|curve| curve.points.iter().all(same)),
            "a calibration point has candidates where lists hold vectors",
        )?;
        let limits = Limits { vectors: manifest.vectors, probes: self.list_count, series: Some(series) };
        calibrate::check(&self.calibration, &limits)
    }
}
