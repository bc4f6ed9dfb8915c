//! The manifest: the one file that makes a directory an index. Written last, replaced atomically.

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
/// The format version that this program writes of vectors that are stored as they were given.
pub const FORMAT_VERSION: u32 = 2;
/// The format version of indexes whose vectors are stored as something smaller than they were given.
pub const SMALLER_VERSION: u32 = 3;
/// The format version of indexes with files that lie in parts on several disks.
pub const STRIPED_VERSION: u32 = 4;
/// The format version of indexes of the elements bf16 and b1.
pub const LATER_ELEMENTS_VERSION: u32 = 5;
/// The format version of indexes of f16 under cosine, whose vectors have any length: the latest that this program reads. Earlier ones
/// have versions 1 to 4, and vectors of length 1 but for the rounding.
pub const ANY_LENGTH_VERSION: u32 = 6;
/// The first format version of indexes that have an identity.
const FIRST_IDENTIFIED: u32 = 2;
/// A manifest is a few kilobytes; anything beyond this is not one.
const LARGEST_MANIFEST: u64 = 16 << 20;
/// Largest dimension of a vector.
pub const MAX_DIM: u32 = 1 << 16;
/// Most bytes of a code: 8 bits a dimension and two factors, and what fills up.
pub(crate) const MAX_CODE_BYTES: u32 = MAX_DIM + 64;
/// Longest file: more than the most vectors of the largest dimension take eight times. Sums of lengths never overflow.
const MOST_FILE_BYTES: u64 = 1 << 56;
/// Largest number of vectors: ids are `u32`, and the last is kept free.
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
    /// Where it lies in parts: what they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stripe: Option<StripeEntry>,
}

/// Codes, as the section of a family describes them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CodesEntry {
    /// The codes: one a vector, or a centroid, or the blocks of all groups. Named among the manifest's files.
    #[serde(skip)]
    pub file: FileEntry,
    /// The trained codec. Named among the manifest's files.
    #[serde(skip)]
    pub codec: FileEntry,
    /// The codec's kind, for people.
    pub kind: String,
    /// Bytes of a code.
    pub code_bytes: u32,
}

impl CodesEntry {
    /// Takes the files' lengths and checksums from the manifest's list.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn fill(&mut self, manifest: &Manifest, codes: &str, codec: &str) -> Result<(), String> {
        self.file = manifest.file(codes)?.clone();
        self.codec = manifest.file(codec)?.clone();
        require((1..=MAX_CODE_BYTES).contains(&self.code_bytes), "the bytes of a code are out of range")
    }
}

/// Everything that an index says about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the format.
    pub format_version: u32,
    /// What all checksums of pages, records and blocks begin with, as hexadecimal digits. Version 1 has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The program that wrote it.
    pub written_by: String,
    /// The index family.
    pub family: String,
    /// Number of vectors.
    pub vectors: u64,
    /// Dimensions of a vector.
    pub dim: u32,
    /// Element name (f32, f16, u8, i8) of the vectors as they were given, and of queries.
    pub element: String,
    /// How the vectors are stored, where not as they were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<StoredEntry>,
    /// Metric name (l2, ip, cosine).
    pub metric: String,
    /// Bytes of the vectors alone, as they were given: `vectors x dim x element size`.
    pub data_bytes: u64,
    /// Seed of the build.
    pub seed: u64,
    /// Seconds that the build took.
    pub build_seconds: f64,
    /// All other files of the index; the first is the one that searches read from a tier.
    pub files: Vec<FileEntry>,
    /// What the family has to say: its layout and parameters, its codes, its calibration.
    pub structure: Value,
}

/// The format version of an index of such vectors that are stored like this, in files that are whole or in parts.
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

/// The format version that such an index had before [`ANY_LENGTH_VERSION`].
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
    /// The element type of the vectors as they were given, and of queries.
    pub fn element(&self) -> Result<Element, String> {
        self.element.parse().map_err(|_| format!("unknown element {:?}", self.element))
    }

    /// The element type of the vectors as they are stored.
    pub fn stored_element(&self) -> Result<Element, String> {
        match &self.stored {
            Some(stored) => Ok(stored.element.element()),
            None => self.element(),
        }
    }

    /// What a stored component of 1 stands for.
    pub fn stored_scale(&self) -> f32 {
        self.stored.map_or(1.0, |stored| stored.scale)
    }

    /// What a build that stores the same vectors again is told of them; `None` where they are stored as they were given.
    pub fn stored_before(&self) -> Result<Option<StoredBefore>, String> {
        let metric = self.metric()?;
        Ok(self.stored.map(|stored| stored.before(metric)))
    }

    /// Bytes of a vector as it is stored.
    pub fn stored_row_bytes(&self) -> Result<usize, String> {
        Ok(self.stored_element()?.row_bytes(self.dim as usize))
    }

    /// The metric.
    pub fn metric(&self) -> Result<Metric, String> {
        let name = self.metric.parse().map_err(|_| format!("unknown metric {:?}", self.metric))?;
        let metric = match name {
            MetricName::Metric(metric) => metric,
            MetricName::Hamming => Metric::L2,
        };
        require(
            metric.name_over(self.element()?) == self.metric,
            "bits alone have the metric hamming, for l2",
        )?;
        Ok(metric)
    }

    /// What tells the index from others.
    pub fn identity(&self) -> Result<Identity, String> {
        match &self.identity {
            Some(text) => text.parse(),
            None => Ok(Identity::NONE),
        }
    }

    /// The section of a family.
    ///
    /// # Errors
    /// A sentence when the index is of another family, or when its section says something else than that family's does.
    pub fn structure<S: DeserializeOwned>(&self, family: &str) -> Result<S, String> {
        if self.family != family {
            return Err(format!("the index is of the family {}, not {family}", self.family));
        }
        serde_json::from_value(self.structure.clone()).map_err(|e| format!("its structure: {e}"))
    }

    /// Sets what a family has to say, and the files that it names, the one that searches read first.
    ///
    /// # Errors
    /// [`IndexError::Internal`] if it cannot be written.
    pub fn set_structure(
        &mut self,
        structure: &impl Serialize,
        files: Vec<FileEntry>,
    ) -> Result<(), IndexError> {
        let internal = |error: serde_json::Error| IndexError::Internal(error.to_string());
        // By way of text, so that an f32 is written as short as it is: 1.2, not 1.2000000476837158.
        let text = serde_json::to_vec(structure).map_err(internal)?;
        self.structure = serde_json::from_slice(&text).map_err(internal)?;
        self.files = files;
        Ok(())
    }

    /// One of the files, by its name.
    ///
    /// # Errors
    /// A sentence when the manifest does not name it.
    pub fn file(&self, name: &str) -> Result<&FileEntry, String> {
        self.files.iter().find(|file| file.name == name).ok_or_else(|| format!("it names no file {name}"))
    }

    /// Checks that its files are those of a family, and the first the one that searches read.
    ///
    /// # Errors
    /// A sentence that names them.
    pub fn check_files(&self, of_family: &[FileEntry]) -> Result<(), String> {
        let names =
            |files: &[FileEntry]| files.iter().map(|file| file.name.clone()).collect::<Vec<_>>().join(", ");
        let same =
            self.files.len() == of_family.len() && self.files.iter().all(|file| of_family.contains(file));
        if same && self.files.first() == of_family.first() {
            return Ok(());
        }
        let (found, wanted) = (names(&self.files), names(of_family));
        Err(format!("its files are {found}; those of this index of the family {} are {wanted}", self.family))
    }

    /// The file that searches read from a tier.
    pub fn paged_file(&self) -> &FileEntry {
        static NONE: FileEntry = FileEntry { name: String::new(), bytes: 0, crc32c: 0, stripe: None };
        // A manifest that was read names one.
        self.files.first().unwrap_or(&NONE)
    }

    /// Whether any file lies in parts on several disks.
    pub fn is_striped(&self) -> bool {
        self.files.iter().any(|file| file.stripe.is_some())
    }

    /// The same manifest of files that lie as `directory` has them: whole, or in parts.
    pub(crate) fn laid_out(&self, directory: &(impl Generation + ?Sized)) -> Result<Manifest, IndexError> {
        let mut manifest = self.clone();
        for file in &mut manifest.files {
            file.stripe = StripeEntry::of(directory.get(&file.name)?.as_ref())?;
        }
        manifest.renew_version().map_err(IndexError::Internal)?;
        Ok(manifest)
    }

    /// Takes the format version that follows from what it says.
    pub(crate) fn renew_version(&mut self) -> Result<(), String> {
        let vectors = (self.element()?, self.metric()?);
        self.format_version = version_of(vectors, &self.stored, self.is_striped());
        Ok(())
    }

    /// Bytes of all files, the manifest not counted.
    pub fn index_bytes(&self) -> u64 {
        self.files.iter().map(|f| f.bytes).sum()
    }

    /// The manifest as the bytes of its file: JSON, a line feed, and a line with the JSON's CRC-32C.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for a manifest that was read as an earlier version: its number would stand over another
    /// shape.
    pub fn to_bytes(&self) -> Result<Vec<u8>, IndexError> {
        if self.format_version < FORMAT_VERSION {
            return Err(IndexError::Parameter(format!(
                "a manifest of version {} is written as no other than {FORMAT_VERSION}: give it that version, and an identity",
                self.format_version
            )));
        }
        let json = json::to_vec(self).map_err(|e| IndexError::Internal(e.to_string()))?;
        Ok(seal::sealed(json))
    }

    /// Reads and checks the manifest of the index in the folder `directory`.
    ///
    /// # Errors
    /// [`IndexError`]: no index there, a later version, damage.
    pub fn read(directory: &Path) -> Result<Manifest, IndexError> {
        Manifest::load(LocalStore::open_at(directory, MANIFEST_NAME)?.as_ref())
    }

    /// The same of an index in any store.
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

    /// Parses what [`Manifest::to_bytes`] wrote; `directory` is only named in errors.
    pub fn parse(bytes: &[u8], directory: &Path) -> Result<Manifest, IndexError> {
        let path = directory.join(MANIFEST_NAME);
        let damaged = |reason: String| IndexError::damaged(&path, "the manifest", reason);
        let json = seal::unsealed(bytes).map_err(damaged)?;
        #[derive(Deserialize)]
        struct Version {
            format_version: u32,
        }
        let version: Version = serde_json::from_slice(json).map_err(|e| damaged(e.to_string()))?;
        if version.format_version > ANY_LENGTH_VERSION {
            return Err(IndexError::LaterVersion {
                path: directory.to_path_buf(),
                found: version.format_version,
                known: ANY_LENGTH_VERSION,
            });
        }
        let manifest: Manifest = match version.format_version {
            0 => return Err(damaged("it says that it is of version 0, and the first is 1".into())),
            1 => version1::manifest(json).map_err(damaged)?,
            _ => serde_json::from_slice(json).map_err(|e| damaged(e.to_string()))?,
        };
        manifest.check().map_err(damaged)?;
        Ok(manifest)
    }

    /// Checks what all families have in common; what a family says of itself is checked by it.
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
            "an index of version 3 says how its vectors are stored, and none before does; one of version 4 has files in parts, \
             and none before has; one of version 5 is of bf16 or b1, and none before is; one of version 6 is of f16 under cosine",
        )?;
        self.stored.map_or(Ok(()), |stored| stored.check(element, metric))?;
        require((1..=MAX_VECTORS).contains(&self.vectors), "the number of vectors is out of range")?;
        require((1..=MAX_DIM).contains(&self.dim), "the dimension is out of range")?;
        let data_bytes = self.vectors * element.row_bytes(self.dim as usize) as u64;
        require(self.data_bytes == data_bytes, "data_bytes does not follow from vectors, dim and element")?;
        require(self.build_seconds >= 0.0, "it was built in less than no time")?;
        require(!self.files.is_empty(), "it names no files")?;
        for (at, file) in self.files.iter().enumerate() {
            let plain = Path::new(&file.name).file_name().is_some_and(|n| n == file.name.as_str());
            require(plain && file.name != MANIFEST_NAME, "a file's name is a path")?;
            require(file.bytes <= MOST_FILE_BYTES, "a file is longer than any can be")?;
            file.stripe.as_ref().map_or(Ok(()), |stripe| stripe.check(file.bytes))?;
            require(self.files[..at].iter().all(|other| other.name != file.name), "a file is named twice")?;
        }
        Ok(())
    }

    /// One of the index's files, after checking that it is there with the right length.
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
