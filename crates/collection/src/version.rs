//! The version of a collection: its segments and their deleted rows at a moment, as published in the store.
//! Later changes are in the logs.

use crate::error::CollectionError;
use crate::ids::{Id, Ids};
use crate::location::{CollectionLocation, MARK, Part};
use crate::schema::Schema;
use crate::seal::{seal, unseal};
use bathyal_index::check_calibration_name;
use bathyal_store::{DraftExt, Generation, GenerationExt, Replace, StoreError};
use rand::RngCore;
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The format version that this program writes, and the latest that it reads.
pub(crate) const FORMAT: u32 = 1;

/// The content of a version, as it is stored in JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Version {
    /// The format version.
    pub(crate) bathyal_collection: u32,
    /// Identity of the collection: 16 random bytes in hexadecimal digits.
    pub(crate) id: String,
    /// Number of this version; the first is 1.
    pub(crate) number: u64,
    pub(crate) schema: Schema,
    /// Sequence number of the last log record whose change is in the segments.
    pub(crate) through: u64,
    /// Sequence number of the first record of the log that was created before this version was published. The
    /// log is kept for as long as this is the latest version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) log: Option<u64>,
    /// Number of the next segment; it becomes part of the segment's name.
    pub(crate) next_segment: u64,
    /// Identity of the writer: 16 random bytes in hexadecimal digits; empty before the first write.
    pub(crate) writer: String,
    /// Seconds since 1970 when the version was published; only for people.
    pub(crate) published: u64,
    /// The segments, oldest first.
    pub(crate) segments: Vec<SegmentEntry>,
    /// The calibrations with given queries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) calibrations: Vec<CalibrationEntry>,
}

/// Record of a calibration with given queries in a version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CalibrationEntry {
    /// `q-RANDOM`; no id is used twice. It names the generation of the queries, and the calibrations of the
    /// segments' indexes.
    pub(crate) id: String,
    /// The name that searches give.
    pub(crate) name: String,
    /// Name of the vector field.
    pub(crate) field: String,
    /// Number of queries.
    pub(crate) queries: u32,
    /// Seconds since 1970 when it was made; only for people.
    pub(crate) measured_at: u64,
    /// CRC-32C of the queries.
    pub(crate) crc32c: u32,
    /// Names of the segments whose index was measured with the queries.
    pub(crate) segments: Vec<String>,
}

/// Record of one segment in a version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SegmentEntry {
    /// `s-NUMBER-RANDOM`; no name is used twice.
    pub(crate) name: String,
    /// Rows, deleted or not.
    pub(crate) rows: u32,
    /// Bytes of all files of the segment.
    pub(crate) bytes: u64,
    /// The smallest and the largest id.
    pub(crate) ids: (IdEntry, IdEntry),
    /// CRC-32C of the manifest of the ids and metadata. That manifest names these files and their checksums.
    pub(crate) manifest_crc32c: u32,
    /// Number of deleted rows; their bitmap is an object of the version.
    pub(crate) deleted: u32,
    /// CRC-32C of the bitmap; 0 if no row is deleted.
    pub(crate) deleted_crc32c: u32,
    /// True if the indexes are flat because writes were waiting for the segment, although it has enough rows
    /// for another family.
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
    /// Reads the deleted rows of the segment from `generation`, which holds the version.
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
        Some(rows).filter(|_| fits).ok_or_else(|| wrong("its rows differ from those that the version counts"))
    }

    /// Returns the smallest and the largest id.
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

/// Returns the name of the object with the deleted rows of a segment.
pub(crate) fn deleted_name(segment: &str) -> String {
    format!("{segment}.deleted")
}

/// Times that the versions are listed before the location counts as empty.
const LIST_ATTEMPTS: usize = 3;

/// Returns the numbers of the versions at a location, in ascending order.
///
/// Listing is not atomic in every store: it can miss versions that are removed while it runs, and also the
/// versions that replace them. Any version in the list may be gone by now; then all earlier ones are gone,
/// too.
pub(crate) fn numbers(place: &CollectionLocation) -> Result<Vec<u64>, CollectionError> {
    let number = |name: String| match Part::parse(&name) {
        Some(Part::Version(number)) => Some(number),
        _ => None,
    };
    let mut numbers = Vec::new();
    for _ in 0..LIST_ATTEMPTS {
        numbers.extend(place.store().list()?.into_iter().filter_map(number));
        if !numbers.is_empty() {
            break;
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

impl Version {
    /// Reads a version and the deleted rows of each of its segments.
    ///
    /// # Errors
    /// [`CollectionError::Store`] if the version does not exist (any more), [`CollectionError::Damaged`],
    /// [`CollectionError::LaterVersion`].
    pub(crate) fn read(
        place: &CollectionLocation,
        number: u64,
    ) -> Result<(Version, Vec<RoaringBitmap>), CollectionError> {
        let (version, generation) = Version::load(place, number)?;
        let deleted = version.segments.iter().map(|segment| segment.read_deleted(&*generation));
        let deleted = deleted.collect::<Result<_, _>>()?;
        Ok((version, deleted))
    }

    /// Reads a version. Returns it with the generation that holds it.
    ///
    /// # Errors
    /// As [`Version::read`].
    pub(crate) fn load(
        place: &CollectionLocation,
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
            return Err(damaged("its format version is 0, but the first is 1".into()));
        }
        let version: Version = serde_json::from_slice(json).map_err(|error| damaged(error.to_string()))?;
        version.schema.check().map_err(|error| damaged(error.to_string()))?;
        version.check_calibrations().map_err(damaged)?;
        if version.number != number {
            return Err(damaged(format!("its number is {}, but its name says {number}", version.number)));
        }
        Ok((version, generation))
    }

    fn check_calibrations(&self) -> Result<(), String> {
        let mut known = BTreeSet::new();
        for CalibrationEntry { id, name, field, queries, .. } in &self.calibrations {
            check_calibration_name(name)?;
            if !matches!(Part::parse(id), Some(Part::Queries(_))) || *queries == 0 {
                return Err(format!("the calibration {name:?} has {queries} queries in {id:?}"));
            }
            let has_field = self.schema.vectors.iter().any(|vectors| vectors.name == *field);
            if !has_field || !known.insert((field, name)) {
                return Err(format!(
                    "the calibration {name:?} of the field {field:?} is unknown or there twice"
                ));
            }
        }
        Ok(())
    }

    /// Returns the calibrations of a vector field.
    pub(crate) fn calibrations_of<'a>(
        &'a self,
        field: &'a str,
    ) -> impl Iterator<Item = &'a CalibrationEntry> {
        self.calibrations.iter().filter(move |calibration| calibration.field == field)
    }

    /// Records that the index of the segment `name` was measured with the calibrations `ids`.
    pub(crate) fn note_measured(&mut self, name: &str, ids: &[String]) {
        for calibration in &mut self.calibrations {
            if ids.contains(&calibration.id) && !calibration.segments.iter().any(|known| known == name) {
                calibration.segments.push(name.into());
            }
        }
    }

    /// Publishes the version, if no version of this number exists. `deleted` holds the deleted rows of each
    /// segment.
    ///
    /// # Errors
    /// [`CollectionError::Fenced`] if another writer has published a version of this number. After
    /// [`CollectionError::Store`], the version may or may not be published.
    pub(crate) fn publish(
        &mut self,
        place: &CollectionLocation,
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

/// Returns random hexadecimal digits, for names that must be unique.
pub(crate) fn random_digits(digits: usize) -> String {
    let mut bytes = vec![0; digits.div_ceil(2)];
    rand::rng().fill_bytes(&mut bytes);
    let mut text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    text.truncate(digits);
    text
}

/// Returns the seconds since 1970. They are shown to people; no decision depends on them.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
