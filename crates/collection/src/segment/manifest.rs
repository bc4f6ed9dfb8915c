//! The manifest of a segment: it describes and identifies all parts.

use super::file_writer::FileEntry;
use super::id_writer::FenceEntry;
use crate::error::CollectionError;
use crate::ids::IdKind;
use crate::location::{CollectionLocation, MARK};
use crate::schema::{Column, Schema};
use crate::seal::unseal;
use crate::version::SegmentEntry;
use bathyal_index::format::identity::Identity;
use bathyal_store::{Generation, GenerationExt, ObjectExt};
use serde::{Deserialize, Serialize};

/// The format version that this program writes, and the latest that it reads.
pub(super) const FORMAT: u32 = 1;
/// File of the ids, by which rows are found.
pub(super) const IDS_NAME: &str = "ids.bin";
/// File of the ids and the columns.
pub(super) const ROWS_NAME: &str = "rows.parquet";
/// File of the checksums of pieces of [`ROWS_NAME`].
pub(super) const SUMS_NAME: &str = "rows.sums";

/// The manifest of a segment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// The format version.
    pub(super) bathyal_segment: u32,
    /// Identity of the collection.
    pub(super) collection: String,
    /// Name of the segment.
    pub(super) segment: String,
    pub(super) rows: u32,
    pub(super) id: IdKind,
    pub(super) columns: Vec<Column>,
    pub(super) ids: FileEntry,
    pub(super) fence: FenceEntry,
    pub(super) parquet: FileEntry,
    pub(super) sums: FileEntry,
    /// The index of each vector field.
    pub(super) vectors: Vec<IndexEntry>,
}

/// Entry of the index of a field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct IndexEntry {
    /// The field's name.
    pub(super) name: String,
    pub(super) family: String,
    /// Identity of the index.
    pub(super) identity: String,
    /// Bytes of all its files.
    pub(super) bytes: u64,
}

/// Returns the identity with which the checksums of a segment begin.
pub(super) fn identity(collection: &str, segment: &str) -> Identity {
    Identity::of(&format!("segment {segment} of the collection {collection}"))
}

impl Manifest {
    /// Reads the manifest of a generation and checks it against `entry`.
    ///
    /// # Errors
    /// [`CollectionError::Damaged`], [`CollectionError::LaterVersion`], [`CollectionError::Store`].
    pub(super) fn load(
        generation: &dyn Generation,
        place: &CollectionLocation,
        schema: &Schema,
        entry: &SegmentEntry,
    ) -> Result<Manifest, CollectionError> {
        let damaged =
            |reason: String| CollectionError::damaged(generation.address().join(MARK), "its text", reason);
        let text = generation.read(MARK)?;
        let (crc, json) = unseal(&text).map_err(damaged)?;
        #[derive(Deserialize)]
        struct Format {
            bathyal_segment: u32,
        }
        let format: Format = serde_json::from_slice(json).map_err(|error| damaged(error.to_string()))?;
        if format.bathyal_segment > FORMAT {
            let (path, found) = (place.path().to_path_buf(), format.bathyal_segment);
            return Err(CollectionError::LaterVersion { path, found, known: FORMAT });
        }
        if format.bathyal_segment == 0 {
            return Err(damaged("its format version is 0, but the first is 1".into()));
        }
        if crc != entry.manifest_crc32c {
            return Err(damaged(format!(
                "its checksum is {crc:08x}, but the version expects {:08x}",
                entry.manifest_crc32c
            )));
        }
        let manifest: Manifest = serde_json::from_slice(json).map_err(|error| damaged(error.to_string()))?;
        manifest.check(schema, entry).map_err(damaged)?;
        Ok(manifest)
    }

    /// Returns a substitute for a damaged manifest, from the other files and the version. The identities of
    /// the indexes are empty.
    ///
    /// # Errors
    /// [`CollectionError::Store`].
    pub(super) fn substitute(
        generation: &dyn Generation,
        collection: &str,
        schema: &Schema,
        entry: &SegmentEntry,
    ) -> Result<Manifest, CollectionError> {
        let file = |name: &str, bytes: u64, crc32c: u32| FileEntry { name: name.into(), bytes, crc32c };
        let sums = match generation.get(SUMS_NAME).and_then(|object| object.read_all()) {
            Ok(sums) => sums,
            Err(error) if error.is_loss() => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let len = |name: &str| generation.len_of(name).unwrap_or(0);
        let index = |name: &String| IndexEntry {
            name: name.clone(),
            family: String::new(),
            identity: String::new(),
            bytes: 0,
        };
        Ok(Manifest {
            bathyal_segment: FORMAT,
            collection: collection.into(),
            segment: entry.name.clone(),
            rows: entry.rows,
            id: schema.id_kind,
            columns: schema.columns.clone(),
            ids: file(IDS_NAME, len(IDS_NAME), 0),
            fence: FenceEntry { blocks: 0, bytes: 0, crc32c: 0 },
            parquet: file(ROWS_NAME, len(ROWS_NAME), 0),
            sums: file(SUMS_NAME, sums.len() as u64, crc32c::crc32c(&sums)),
            vectors: schema.vectors.iter().map(|field| index(&field.name)).collect(),
        })
    }

    fn check(&self, schema: &Schema, entry: &SegmentEntry) -> Result<(), String> {
        if self.segment != entry.name {
            return Err(format!("it belongs to the segment {}", self.segment));
        }
        if self.rows != entry.rows || self.rows == 0 {
            return Err(format!("it has {} rows, but the version expects {}", self.rows, entry.rows));
        }
        let fields = self.vectors.iter().map(|index| &index.name);
        let same = fields.eq(schema.vectors.iter().map(|field| &field.name));
        if self.id != schema.id_kind || self.columns != schema.columns || !same {
            return Err("its rows do not fit the schema of the collection".into());
        }
        let named = [(&self.ids, IDS_NAME), (&self.parquet, ROWS_NAME), (&self.sums, SUMS_NAME)];
        if named.iter().any(|(file, name)| file.name != *name) {
            return Err("its files do not have the names of a segment's files".into());
        }
        Ok(())
    }

    /// Returns the identity with which the checksums of this segment begin.
    pub(super) fn identity(&self) -> Identity {
        identity(&self.collection, &self.segment)
    }

    /// Returns the entries of its files.
    pub(super) fn files(&self) -> [&FileEntry; 3] {
        [&self.ids, &self.parquet, &self.sums]
    }
}
