//! What a manifest says of a flat index.

use crate::calibrate::list::ListPoint;
use crate::calibrate::{self, Calibration, Limits};
use crate::format::groups::GroupLayout;
use crate::format::manifest::{CodesEntry, FileEntry, MAX_VECTORS, Manifest, require};
use serde::{Deserialize, Serialize};

/// The family's name.
pub(crate) const NAME: &str = "flat";
/// The vectors in the order of the data.
pub(crate) const VECTORS_NAME: &str = "vectors.bin";
/// Their codes, in the same order.
pub(crate) const CODES_NAME: &str = "codes.bin";
/// What makes and scores the codes.
pub(crate) const CODEC_NAME: &str = "codec.bin";
/// What searches may read from a tier.
pub(crate) const STRIPED: &[&str] = &[VECTORS_NAME];

/// The parameters of a flat index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlatEntry {
    /// The file of pages that hold the vectors. Named among the manifest's files.
    #[serde(skip)]
    pub file: FileEntry,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of one read of a scan.
    pub read_pages: u32,
    /// Reads of a scan.
    pub reads: u32,
    /// The codes by which searches stop early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codes: Option<FlatCodes>,
    /// Recall against candidates that are compared; nothing where there are no codes.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub calibration: Calibration<ListPoint>,
}

/// Codes of all vectors, with what is known of their errors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlatCodes {
    /// The codes and their codec.
    #[serde(flatten)]
    pub codes: CodesEntry,
    /// Root of the mean square of the distances of vectors to their mean: what errors of codes grow with.
    pub radius: f32,
}

fn is_empty(calibration: &Calibration<ListPoint>) -> bool {
    calibration.curves.is_empty()
}

impl FlatEntry {
    /// Reads and checks what the manifest of a flat index says.
    ///
    /// # Errors
    /// A sentence.
    pub fn read(manifest: &Manifest) -> Result<FlatEntry, String> {
        let mut entry: FlatEntry = manifest.structure(NAME)?;
        entry.file = manifest.file(VECTORS_NAME)?.clone();
        if let Some(codes) = &mut entry.codes {
            codes.codes.fill(manifest, CODES_NAME, CODEC_NAME)?;
        }
        entry.check(manifest)?;
        Ok(entry)
    }

    /// All files, the one that searches read first.
    pub fn files(&self) -> Vec<FileEntry> {
        let codes = self.codes.iter().flat_map(|codes| [&codes.codes.file, &codes.codes.codec]);
        [&self.file].into_iter().chain(codes).cloned().collect()
    }

    /// Where vectors lie: what one read of a scan brings is a group of pages.
    ///
    /// # Errors
    /// A sentence.
    pub fn layout(&self, manifest: &Manifest) -> Result<GroupLayout, String> {
        let layout =
            GroupLayout::new(manifest.stored_element()?, manifest.dim, self.page_bytes, self.read_pages)?;
        Ok(layout.identified(manifest.identity()?))
    }

    fn check(&self, manifest: &Manifest) -> Result<(), String> {
        manifest.check_files(&self.files())?;
        let layout = self.layout(manifest)?;
        require(layout.group_bytes() <= u32::MAX as usize / 2, "the reads of a scan are too long")?;
        let (vectors, reads) = (manifest.vectors, u64::from(self.reads));
        require(
            reads == vectors.div_ceil(layout.group_vectors() as u64),
            "the reads of a scan do not follow from the vectors",
        )?;
        require(
            self.file.bytes == layout.file_bytes(reads),
            "the vectors' length does not follow from the reads",
        )?;
        // Places are numbers of 32 bits, those of the last read included.
        let places = (reads - 1).checked_mul(layout.group_vectors() as u64);
        require(
            places.is_some_and(|last| last < MAX_VECTORS),
            "there are more places than numbers for them",
        )?;
        if let Some(FlatCodes { codes, radius }) = &self.codes {
            let bytes = vectors * u64::from(codes.code_bytes);
            require(codes.file.bytes == bytes, "the codes' length does not follow from their size")?;
            require(radius.is_finite() && *radius >= 0.0, "the radius of the codes is none")?;
        }
        let measured = self.codes.is_some() || self.calibration.curves.is_empty();
        require(measured, "there is a calibration without codes")?;
        let series = Some(|_: &ListPoint| ());
        calibrate::check(&self.calibration, &Limits { vectors, probes: 0, series })
    }
}
