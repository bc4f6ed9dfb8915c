//! The manifest: the file that makes a directory an index. It is written last, and replaced atomically.

use super::identity::Identity;
use super::json;
use super::seal;
use super::stored::{StoredBefore, StoredEntry};
use super::striped::{self, StripeEntry};
use super::version1;
use crate::error::IndexError;
use bathyal_kernels::{Element, Metric, MetricName};
use bathyal_store::local::LocalStore;
use bathyal_store::{Generation, Object, ObjectExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// Name of the manifest within an index directory.
pub const MANIFEST_NAME: &str = "manifest.json";
/// The format version of indexes whose vectors are stored in the element of the data.
pub const FORMAT_VERSION: u32 = 2;
/// The format version of indexes whose vectors are stored in a smaller form.
pub const SMALLER_VERSION: u32 = 3;
/// The format version of indexes with striped files.
pub const STRIPED_VERSION: u32 = 4;
/// The format version of indexes of the elements bf16 and b1.
pub const LATER_ELEMENTS_VERSION: u32 = 5;
/// The format version of indexes of f16 under cosine with vectors of any length: the latest version that this
/// program reads. Earlier indexes of f16 under cosine have versions 1 to 4, and vectors of length 1 except
/// for rounding.
pub const ANY_LENGTH_VERSION: u32 = 6;
/// The first format version of indexes that have an identity.
const FIRST_IDENTIFIED: u32 = 2;
/// Largest manifest that is read: a manifest usually has a few kilobytes.
const LARGEST_MANIFEST: u64 = 16 << 20;
/// Largest dimension of a vector.
pub const MAX_DIM: u32 = 1 << 16;
/// Most bytes of a code: 8 bits per dimension, two factors, and padding.
pub(crate) const MAX_CODE_BYTES: u32 = MAX_DIM + 64;
/// Longest file: more than eight times the most vectors of the largest dimension. Sums of lengths never
/// overflow.
const MOST_FILE_BYTES: u64 = 1 << 56;
/// Largest number of vectors: ids are `u32`, and the last id is reserved.
pub const MAX_VECTORS: u64 = u32::MAX as u64;

/// A file of the index: its name, length and checksum.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Name within the directory; never a path.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// CRC-32C of the whole file.
    pub crc32c: u32,
    /// The parts of a striped file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stripe: Option<StripeEntry>,
}

/// The file of the codes of an index, whatever they encode.
pub(crate) const CODES_NAME: &str = "codes.bin";
/// The file of the codec that those codes were made with.
pub(crate) const CODEC_NAME: &str = "codec.bin";

/// The manifest's entry of codes, in the section of a family.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CodesEntry {
    /// The file of the codes: one per vector, or per centroid, or the blocks of all groups. Its name is in
    /// the manifest's list of files.
    #[serde(skip)]
    pub file: FileEntry,
    /// The file of the trained codec. Its name is in the manifest's list of files.
    #[serde(skip)]
    pub codec: FileEntry,
    /// The codec's kind, for people.
    pub kind: String,
    /// Bytes of a code.
    pub code_bytes: u32,
}

impl CodesEntry {
    /// Sets the files' lengths and checksums from the manifest's list.
    ///
    /// # Errors
    /// A sentence that states what is wrong.
    pub(crate) fn fill(&mut self, manifest: &Manifest) -> Result<(), String> {
        self.file = manifest.file(CODES_NAME)?.clone();
        self.codec = manifest.file(CODEC_NAME)?.clone();
        require((1..=MAX_CODE_BYTES).contains(&self.code_bytes), "the bytes of a code are out of range")
    }
}

/// The description of an index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the format.
    pub format_version: u32,
    /// The identity with which all checksums of pages, records and blocks begin, as hexadecimal digits.
    /// Indexes of version 1 have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The program that wrote the index.
    pub written_by: String,
    /// The index family.
    pub family: String,
    /// Number of vectors.
    pub vectors: u64,
    /// Dimensions of a vector.
    pub dim: u32,
    /// Element name (f32, f16, u8, i8) of the data and of queries.
    pub element: String,
    /// The stored form of the vectors, if it differs from the element of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<StoredEntry>,
    /// Metric name (l2, ip, cosine).
    pub metric: String,
    /// Bytes of the vectors of the data: `vectors x dim x element size`.
    pub data_bytes: u64,
    /// Seed of the build.
    pub seed: u64,
    /// Seconds that the build took.
    pub build_seconds: f64,
    /// The plan of an advice by which the index was built ([`BuildOptions::plan`]); `None` without one.
    ///
    /// [`BuildOptions::plan`]: crate::BuildOptions::plan
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Value>,
    /// All other files of the index; searches read the first from a tier.
    pub files: Vec<FileEntry>,
    /// The section of the family: its layout and parameters, its codes, its calibration.
    pub structure: Value,
}

/// Returns the format version of an index from the element and metric of its data, its stored form, and
/// whether it has striped files.
pub(crate) fn version_of(
    (element, metric): (Element, Metric),
    stored: &Option<StoredEntry>,
    striped: bool,
) -> u32 {
    match (element, metric) {
        (Element::F16, Metric::Cosine) => ANY_LENGTH_VERSION,
        _ => version_before(element, stored, striped),
    }
}

/// Returns the format version that such an index had before [`ANY_LENGTH_VERSION`].
fn version_before(element: Element, stored: &Option<StoredEntry>, striped: bool) -> u32 {
    match element {
        Element::Bf16 | Element::B1 => LATER_ELEMENTS_VERSION,
        Element::F32 | Element::F16 | Element::U8 | Element::I8 if striped => STRIPED_VERSION,
        _ if stored.is_some() => SMALLER_VERSION,
        _ => FORMAT_VERSION,
    }
}

pub(crate) fn require(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_string()) }
}

impl Manifest {
    /// Returns the element type of the data and of queries.
    pub fn element(&self) -> Result<Element, String> {
        self.element.parse().map_err(|_| format!("unknown element {:?}", self.element))
    }

    /// Returns the element type of the stored vectors.
    pub fn stored_element(&self) -> Result<Element, String> {
        match &self.stored {
            Some(stored) => Ok(stored.element.element()),
            None => self.element(),
        }
    }

    /// Returns the value of a stored component of 1.
    pub fn stored_scale(&self) -> f32 {
        self.stored.map_or(1.0, |stored| stored.scale)
    }

    /// Returns the rounding of the vectors, for a build that stores them again; `None` if they are stored in
    /// the element of the data.
    pub fn stored_before(&self) -> Result<Option<StoredBefore>, String> {
        let metric = self.metric()?;
        Ok(self.stored.map(|stored| stored.before(metric)))
    }

    /// Returns the bytes of a stored vector.
    pub fn stored_row_bytes(&self) -> Result<usize, String> {
        Ok(self.stored_element()?.row_bytes(self.dim as usize))
    }

    /// Returns the metric.
    pub fn metric(&self) -> Result<Metric, String> {
        let name = self.metric.parse().map_err(|_| format!("unknown metric {:?}", self.metric))?;
        let metric = match name {
            MetricName::Metric(metric) => metric,
            MetricName::Hamming => Metric::L2,
        };
        require(
            metric.name_over(self.element()?) == self.metric,
            "the metric l2 of vectors of bits is named hamming, and other vectors do not have it",
        )?;
        Ok(metric)
    }

    /// Returns the identity of the index.
    pub fn identity(&self) -> Result<Identity, String> {
        match &self.identity {
            Some(text) => text.parse(),
            None => Ok(Identity::NONE),
        }
    }

    /// Returns the section of a family.
    ///
    /// # Errors
    /// A sentence if the index is of another family, or if its section does not have the fields of that
    /// family.
    pub fn structure<S: DeserializeOwned>(&self, family: &str) -> Result<S, String> {
        if self.family != family {
            return Err(format!("the index is of the family {}, not {family}", self.family));
        }
        serde_json::from_value(self.structure.clone()).map_err(|e| format!("its structure: {e}"))
    }

    /// Sets the section of the family, and the files that it names; the file that searches read comes first.
    ///
    /// # Errors
    /// [`IndexError::Internal`] if the section cannot be serialized.
    pub fn set_structure(
        &mut self,
        structure: &impl Serialize,
        files: Vec<FileEntry>,
    ) -> Result<(), IndexError> {
        let internal = |error: serde_json::Error| IndexError::Internal(error.to_string());
        // Convert by way of text, so that an f32 is written in its shortest form: 1.2, not
        // 1.2000000476837158.
        let text = serde_json::to_vec(structure).map_err(internal)?;
        self.structure = serde_json::from_slice(&text).map_err(internal)?;
        self.files = files;
        Ok(())
    }

    /// Returns a file by its name.
    ///
    /// # Errors
    /// A sentence if the manifest does not name it.
    pub fn file(&self, name: &str) -> Result<&FileEntry, String> {
        self.files.iter().find(|file| file.name == name).ok_or_else(|| format!("it names no file {name}"))
    }

    /// Checks that the manifest has the files of its family, and first the file that searches read.
    ///
    /// # Errors
    /// A sentence that names the files.
    pub fn check_files(&self, family_files: &[FileEntry]) -> Result<(), String> {
        let names =
            |files: &[FileEntry]| files.iter().map(|file| file.name.clone()).collect::<Vec<_>>().join(", ");
        let same = self.files.len() == family_files.len()
            && self.files.iter().all(|file| family_files.contains(file));
        if same && self.files.first() == family_files.first() {
            return Ok(());
        }
        let (found, wanted) = (names(&self.files), names(family_files));
        Err(format!("it names the files {found}; an index of the family {} has {wanted}", self.family))
    }

    /// Returns the file that searches read from a tier.
    pub fn paged_file(&self) -> &FileEntry {
        static NONE: FileEntry = FileEntry { name: String::new(), bytes: 0, crc32c: 0, stripe: None };
        // Every parsed manifest names at least one file.
        self.files.first().unwrap_or(&NONE)
    }

    /// Returns true if any file is striped.
    pub fn is_striped(&self) -> bool {
        self.files.iter().any(|file| file.stripe.is_some())
    }

    /// Returns the same manifest with the stripes of its files as they are in `directory`.
    pub(crate) fn laid_out(&self, directory: &(impl Generation + ?Sized)) -> Result<Manifest, IndexError> {
        let mut manifest = self.clone();
        for file in &mut manifest.files {
            file.stripe = StripeEntry::from_object(directory.get(&file.name)?.as_ref())?;
        }
        manifest.renew_version().map_err(IndexError::Internal)?;
        Ok(manifest)
    }

    /// Sets the format version that follows from the rest of the manifest.
    pub(crate) fn renew_version(&mut self) -> Result<(), String> {
        let vectors = (self.element()?, self.metric()?);
        self.format_version = version_of(vectors, &self.stored, self.is_striped());
        Ok(())
    }

    /// Returns the bytes of all files except the manifest.
    pub fn index_bytes(&self) -> u64 {
        self.files.iter().map(|f| f.bytes).sum()
    }

    /// Returns the bytes of the manifest's file: JSON, a line feed, and a line with the JSON's CRC-32C.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for a manifest that was read from an earlier version, whose number does not
    /// fit the shape that is written.
    pub fn to_bytes(&self) -> Result<Vec<u8>, IndexError> {
        if self.format_version < FORMAT_VERSION {
            return Err(IndexError::Parameter(format!(
                "a manifest of version {} cannot be written: set its version to {FORMAT_VERSION}, and its \
                 identity",
                self.format_version
            )));
        }
        let json = json::to_vec(self).map_err(|e| IndexError::Internal(e.to_string()))?;
        Ok(seal::sealed(json))
    }

    /// Reads and checks the manifest of the index in the folder `directory`.
    ///
    /// # Errors
    /// [`IndexError`] if there is no index, if it has a later version, or if it is damaged.
    pub fn read(directory: &Path) -> Result<Manifest, IndexError> {
        Manifest::load(LocalStore::open_at(directory, MANIFEST_NAME)?.as_ref())
    }

    /// Reads and checks the manifest of an index in any store.
    ///
    /// # Errors
    /// As [`Manifest::read`].
    pub fn load(directory: &(impl Generation + ?Sized)) -> Result<Manifest, IndexError> {
        let object = directory.get(MANIFEST_NAME)?;
        if object.len() > LARGEST_MANIFEST {
            let reason = format!("its {MANIFEST_NAME} has {} bytes", object.len());
            return Err(IndexError::NotAnIndex { path: directory.address().to_path_buf(), reason });
        }
        Manifest::parse(&object.read_all()?, directory.address())
    }

    /// Parses the bytes from [`Manifest::to_bytes`]; `directory` is only named in errors.
    pub fn parse(bytes: &[u8], directory: &Path) -> Result<Manifest, IndexError> {
        let path = directory.join(MANIFEST_NAME);
        let damaged = |reason: String| IndexError::damaged(&path, "the manifest", reason);
        let json = seal::unsealed(bytes).map_err(damaged)?;
        #[derive(Deserialize)]
        struct FormatVersion {
            format_version: u32,
        }
        let version: FormatVersion = serde_json::from_slice(json).map_err(|e| damaged(e.to_string()))?;
        if version.format_version > ANY_LENGTH_VERSION {
            return Err(IndexError::LaterVersion {
                path: directory.to_path_buf(),
                found: version.format_version,
                known: ANY_LENGTH_VERSION,
            });
        }
        let manifest: Manifest = match version.format_version {
            0 => return Err(damaged("its format version is 0, and the first version is 1".into())),
            1 => version1::manifest(json).map_err(damaged)?,
            _ => serde_json::from_slice(json).map_err(|e| damaged(e.to_string()))?,
        };
        manifest.check().map_err(damaged)?;
        Ok(manifest)
    }

    /// Checks the fields that all families share; each family checks its own section.
    fn check(&self) -> Result<(), String> {
        let (element, metric) = (self.element()?, self.metric()?);
        require(
            self.identity()?.is_none() == (self.format_version < FIRST_IDENTIFIED),
            "an index has an identity from version 2 on, and none before",
        )?;
        require(
            [
                version_of((element, metric), &self.stored, self.is_striped()),
                version_before(element, &self.stored, self.is_striped()),
            ]
            .contains(&self.format_version.max(FORMAT_VERSION)),
            "its format version does not fit: version 3 is for vectors in a stored form, version 4 for \
             striped files, version 5 for the elements bf16 and b1, version 6 for f16 under cosine",
        )?;
        self.stored.map_or(Ok(()), |stored| stored.check(element, metric))?;
        require((1..=MAX_VECTORS).contains(&self.vectors), "the number of vectors is out of range")?;
        require((1..=MAX_DIM).contains(&self.dim), "the dimension is out of range")?;
        let data_bytes = self.vectors * element.row_bytes(self.dim as usize) as u64;
        require(self.data_bytes == data_bytes, "data_bytes does not follow from vectors, dim and element")?;
        require(self.build_seconds >= 0.0, "build_seconds is negative")?;
        require(!self.files.is_empty(), "it names no files")?;
        for (at, file) in self.files.iter().enumerate() {
            let plain = Path::new(&file.name).file_name().is_some_and(|n| n == file.name.as_str());
            require(
                plain && file.name != MANIFEST_NAME,
                "a file has a path, or the name of the manifest, instead of a plain name",
            )?;
            require(file.bytes <= MOST_FILE_BYTES, "the length of a file is out of range")?;
            file.stripe.as_ref().map_or(Ok(()), |stripe| stripe.check(file.bytes))?;
            require(
                self.files[..at].iter().all(|other| other.name != file.name),
                "two files have the same name",
            )?;
        }
        Ok(())
    }

    /// Opens one of the index's files, after a check that it exists with the right length.
    pub(crate) fn open_file(
        &self,
        directory: &(impl Generation + ?Sized),
        file: &FileEntry,
    ) -> Result<Arc<dyn Object>, IndexError> {
        let object = directory.get(&file.name)?;
        striped::check(object.as_ref(), file)?;
        if object.len() != file.bytes {
            let reason = format!("the file has {} bytes, the manifest says {}", object.len(), file.bytes);
            return Err(IndexError::damaged(object.address(), "its length", reason));
        }
        Ok(object)
    }
}
