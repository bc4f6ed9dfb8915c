//! The section of a manifest that describes a flat index.

use crate::calibrate::list::ListPoint;
use crate::calibrate::{self, Calibration, Limits};
use crate::format::groups::GroupLayout;
use crate::format::manifest::{CodesEntry, FileEntry, MAX_VECTORS, Manifest, require};
use serde::{Deserialize, Serialize};

pub(crate) use crate::format::manifest::{CODEC_NAME, CODES_NAME};

/// The family's name.
pub(crate) const NAME: &str = "flat";
/// The vectors in the order of the data.
pub(crate) const VECTORS_NAME: &str = "vectors.bin";
/// The files that searches may read from a tier.
pub(crate) const STRIPED: &[&str] = &[VECTORS_NAME];

/// The parameters of a flat index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlatEntry {
    /// The file of pages that hold the vectors. Its name is in the manifest's list of files.
    #[serde(skip)]
    pub file: FileEntry,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Number of pages in one read of a scan.
    pub read_pages: u32,
    /// Number of reads of a scan.
    pub reads: u32,
    /// The codes that let searches stop early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codes: Option<FlatCodes>,
    /// Recall as a function of compared candidates; empty without codes.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub calibration: Calibration<ListPoint>,
}

/// The codes of all vectors, with the number that their errors depend on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlatCodes {
    /// The codes and their codec.
    #[serde(flatten)]
    pub codes: CodesEntry,
    /// Root mean square of the distances of vectors to their mean. The errors of codes grow with it.
    pub radius: f32,
}

fn is_empty(calibration: &Calibration<ListPoint>) -> bool {
    calibration.curves.is_empty()
}

impl FlatEntry {
    /// Reads and checks the section of a flat index.
    ///
    /// # Errors
    /// A sentence that states what is wrong.
    pub fn read(manifest: &Manifest) -> Result<FlatEntry, String> {
        let mut entry: FlatEntry = manifest.structure(NAME)?;
        entry.file = manifest.file(VECTORS_NAME)?.clone();
        if let Some(codes) = &mut entry.codes {
            codes.codes.fill(manifest)?;
        }
        entry.check(manifest)?;
        Ok(entry)
    }

    /// Returns all files; the file that searches read comes first.
    pub fn files(&self) -> Vec<FileEntry> {
        let codes = self.codes.iter().flat_map(|codes| [&codes.codes.file, &codes.codes.codec]);
        [&self.file].into_iter().chain(codes).cloned().collect()
    }

    /// Returns the layout of the vectors: each read of a scan is a group of pages.
    ///
    /// # Errors
    /// A sentence that states what is wrong.
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
        require(places.is_some_and(|last| last < MAX_VECTORS), "there are more places than 32-bit numbers")?;
        if let Some(FlatCodes { codes, radius }) = &self.codes {
            let bytes = vectors * u64::from(codes.code_bytes);
            require(codes.file.bytes == bytes, "the codes' length does not follow from their size")?;
            require(
                radius.is_finite() && *radius >= 0.0,
                "the radius of the codes is not a finite number of 0 or more",
            )?;
        }
        let measured = self.codes.is_some() || self.calibration.curves.is_empty();
        require(measured, "there is a calibration without codes")?;
        let series = Some(|_: &ListPoint| ());
        calibrate::check(&self.calibration, &Limits { vectors, probes: 0, series })
    }
}
