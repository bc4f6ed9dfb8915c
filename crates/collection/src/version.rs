//! A version: what a collection consists of at a moment, as it is published. Beyond it there is what the logs say.

use crate::error::CollectionError;
use crate::ids::{Id, Ids};
use crate::place::{MARK, Part, Place};
use crate::schema::Schema;
use crate::seal::{seal, unseal};
use bathyal_store::{DraftExt, Generation, GenerationExt, Replace, StoreError};
use rand::RngCore;
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The latest version of the format that this program reads, and the one that it writes.
pub(crate) const FORMAT: u32 = 1;

/// What a version says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Version {
    /// The version of the format.
    pub(crate) bathyal_collection: u32,
    /// Tells collections apart: 16 random bytes in hexadecimal digits.
    pub(crate) id: String,
    /// Counts versions from 1.
    pub(crate) number: u64,
    pub(crate) schema: Schema,
    /// The last record of the logs that is in the segments.
    pub(crate) through: u64,
    /// The first record of a log that was begun before it was published, and stays for as long as it is the latest version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) log: Option<u64>,
    /// Counts the segments that were ever begun, for their names.
    pub(crate) next_segment: u64,
    /// Who writes: 16 random bytes in hexadecimal digits; none before anyone did.
    pub(crate) writer: String,
    /// Seconds since 1970 when it was published, for people.
    pub(crate) published: u64,
    /// The oldest first.
    pub(crate) segments: Vec<SegmentEntry>,
}

/// What a version says of a segment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SegmentEntry {
    /// `s-NUMBER-RANDOM`: no name is given twice.
    pub(crate) name: String,
    pub(crate) rows: u32,
    /// Bytes of all its files.
    pub(crate) bytes: u64,
    /// Its smallest and its largest id.
    pub(crate) ids: (IdEntry, IdEntry),
    /// CRC-32C of the manifest of its ids and metadata, which names these files and their checksums.
    pub(crate) manifest_crc32c: u32,
    /// Rows that are deleted; the bitmap is an object of the version.
    pub(crate) deleted: u32,
    /// CRC-32C of that object; 0 where nothing is deleted.
    pub(crate) deleted_crc32c: u32,
    /// Whether its indexes are flat because writes waited for it, though it has the rows of a segment that is not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) hasty: bool,
}

/// An id in JSON: a number or a string.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum IdEntry {
    Number(u64),
    Text(String),
}

impl SegmentEntry {
    /// The rows of it that are deleted, by the version that lies in `generation`.
    ///
    /// # Errors
    /// [`CollectionError::Damaged`], [`CollectionError::Store`].
    pub(crate) fn read_deleted(&self, generation: &dyn Generation) -> Result<RoaringBitmap, CollectionError> {
        if self.deleted == 0 {
            return Ok(RoaringBitmap::new());
        }
        let name = deleted_name(&self.name);
        let bytes = generation.read(&name)?;
        let path = generation.address().join(&name);
        let wrong = |reason: &str| CollectionError::damaged(&path, "its text", reason);
        if crc32c::crc32c(&bytes) != self.deleted_crc32c {
            return Err(wrong("its checksum is wrong"));
        }
        let rows = RoaringBitmap::deserialize_from(&bytes[..]).map_err(|error| wrong(&error.to_string()))?;
        let fits = rows.len() == u64::from(self.deleted) && rows.max() < Some(self.rows);
        Some(rows).filter(|_| fits).ok_or_else(|| wrong("it holds other rows than the version says"))
    }

    /// Its smallest and its largest id.
    pub(crate) fn range(&self) -> Ids {
        match &self.ids {
            (IdEntry::Number(smallest), IdEntry::Number(largest)) => {
                Ids::Numbers(vec![*smallest, *largest].into())
            }
            (smallest, largest) => Ids::Texts(
                vec![Id::from(smallest.clone()).to_string(), Id::from(largest.clone()).to_string()].into(),
            ),
        }
    }
}

impl From<Id> for IdEntry {
    fn from(id: Id) -> IdEntry {
        match id {
            Id::Number(number) => IdEntry::Number(number),
            Id::Text(text) => IdEntry::Text(text),
        }
    }
}

impl From<IdEntry> for Id {
    fn from(id: IdEntry) -> Id {
        match id {
            IdEntry::Number(number) => Id::Number(number),
            IdEntry::Text(text) => Id::Text(text),
        }
    }
}

/// The object with the rows of a segment that are deleted.
pub(crate) fn deleted_name(segment: &str) -> String {
    format!("{segment}.deleted")
}

/// Times that a place without a version is looked at before there is none.
const LOOKS: usize = 3;

/// The numbers of the versions in a place, rising. A list is not made at one moment everywhere: of versions that were removed while it
/// was made none may be in it, nor those that took their place. Whichever is in it may be gone; then so are those before.
pub(crate) fn numbers(place: &Place) -> Result<Vec<u64>, CollectionError> {
    let number = |name: String| match Part::of(&name) {
        Some(Part::Version(number)) => Some(number),
        _ => None,
    };
    let mut numbers = Vec::new();
    for _ in 0..LOOKS {
        numbers.extend(place.store().list()?.into_iter().filter_map(number));
        if !numbers.is_empty() {
            break;
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

impl Version {
    /// Reads a version and what it says is deleted of each of its segments.
    ///
    /// # Errors
    /// [`CollectionError::Store`] where it is not there (any more), [`CollectionError::Damaged`],
    /// [`CollectionError::LaterVersion`].
    pub(crate) fn read(place: &Place, number: u64) -> Result<(Version, Vec<RoaringBitmap>), CollectionError> {
        let (version, generation) = Version::load(place, number)?;
        let deleted = version.segments.iter().map(|segment| segment.read_deleted(&*generation));
        let deleted = deleted.collect::<Result<_, _>>()?;
        Ok((version, deleted))
    }

    /// Reads a version, and where it is.
    ///
    /// # Errors
    /// As [`Version::read`].
    pub(crate) fn load(
        place: &Place,
        number: u64,
    ) -> Result<(Version, Arc<dyn Generation>), CollectionError> {
        let generation = place.store().open(&Part::Version(number).name())?;
        let path = generation.address().join(MARK);
        let damaged = |reason: String| CollectionError::damaged(&path, "its text", reason);
        let text = generation.read(MARK)?;
        let (_, json) = unseal(&text).map_err(damaged)?;
        #[derive(Deserialize)]
        struct Format {
            bathyal_collection: u32,
        }
        let format: Format = serde_json::from_slice(json).map_err(|error| damaged(error.to_string()))?;
        if format.bathyal_collection > FORMAT {
            let (path, found) = (place.path().to_path_buf(), format.bathyal_collection);
            return Err(CollectionError::LaterVersion { path, found, known: FORMAT });
        }
        if format.bathyal_collection == 0 {
            return Err(damaged("it says that it is of format 0, and the first is 1".into()));
        }
        let version: Version = serde_json::from_slice(json).map_err(|error| damaged(error.to_string()))?;
        version.schema.check().map_err(|error| damaged(error.to_string()))?;
        if version.number != number {
            return Err(damaged(format!("it is of version {}", version.number)));
        }
        Ok((version, generation))
    }

    /// Publishes it, if no version of this number is there yet. `deleted` are the rows of each segment that are deleted.
    ///
    /// # Errors
    /// [`CollectionError::Fenced`] if another one has published a version of this number; [`CollectionError::Store`], where it is
    /// there or not.
    pub(crate) fn publish(
        &mut self,
        place: &Place,
        deleted: &[RoaringBitmap],
    ) -> Result<(), CollectionError> {
        let name = Part::Version(self.number).name();
        let fenced = |error| match error {
            StoreError::Exists { .. } => CollectionError::Fenced { path: place.path().to_path_buf() },
            error => error.into(),
        };
        let draft = place.store().begin(&name, Replace::Never).map_err(fenced)?;
        let mut objects = Vec::new();
        for (segment, rows) in self.segments.iter_mut().zip(deleted) {
            (segment.deleted, segment.deleted_crc32c) = (rows.len() as u32, 0);
            if rows.is_empty() {
                continue;
            }
            let mut bytes = Vec::with_capacity(rows.serialized_size());
            rows.serialize_into(&mut bytes).map_err(|error| CollectionError::Internal(error.to_string()))?;
            segment.deleted_crc32c = crc32c::crc32c(&bytes);
            objects.push(deleted_name(&segment.name));
            draft.put(&deleted_name(&segment.name), &bytes)?;
        }
        draft.put(MARK, &seal(self)?)?;
        objects.push(MARK.to_string());
        let names: Vec<&str> = objects.iter().map(String::as_str).collect();
        draft.upload(&names, "", &|_, _| true)?;
        draft.publish(&names, "").map_err(fenced)
    }
}

/// So many random hexadecimal digits, for names that nobody else takes.
pub(crate) fn random_digits(digits: usize) -> String {
    let mut bytes = vec![0; digits.div_ceil(2)];
    rand::rng().fill_bytes(&mut bytes);
    let mut text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    text.truncate(digits);
    text
}

/// Seconds since 1970, for people: nothing is decided by them.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
