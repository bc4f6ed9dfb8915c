//! Reads a segment without a version that names it.

use super::manifest::Manifest;
use crate::error::CollectionError;
use crate::location::{CollectionLocation, MARK, Part};
use crate::schema::{Schema, VectorField};
use crate::seal::unseal;
use crate::version::{IdEntry, SegmentEntry};
use bathyal_index::format::manifest::Manifest as IndexManifest;
use bathyal_store::GenerationExt;

/// A segment without a version that names it.
pub(crate) struct StandaloneSegment {
    /// Identity of its collection.
    pub(crate) collection: String,
    /// Schema of its rows. The families are those of its own indexes.
    pub(crate) schema: Schema,
    /// Its entry in a version, without deleted rows.
    pub(crate) entry: SegmentEntry,
}

impl StandaloneSegment {
    /// Reads the segment `name`.
    ///
    /// # Errors
    /// [`CollectionError::Damaged`], [`CollectionError::Store`], [`CollectionError::Index`].
    pub(crate) fn read(place: &CollectionLocation, name: &str) -> Result<StandaloneSegment, CollectionError> {
        let generation = place.store().open(&Part::Segment(name.into(), None).name())?;
        let damaged =
            |reason: String| CollectionError::damaged(generation.address().join(MARK), "its text", reason);
        let text = generation.read(MARK)?;
        let (manifest_crc32c, json) = unseal(&text).map_err(damaged)?;
        let manifest: Manifest = serde_json::from_slice(json).map_err(|error| damaged(error.to_string()))?;
        let mut vectors = Vec::with_capacity(manifest.vectors.len());
        for (field, entry) in manifest.vectors.iter().enumerate() {
            let index = place.store().open(&Part::Segment(name.into(), Some(field)).name())?;
            let index = IndexManifest::load(&*index)?;
            let shape = index.element().and_then(|element| Ok((element, index.metric()?)));
            let (element, metric) = shape.map_err(damaged)?;
            let field = VectorField::new(&entry.name, index.dim as usize, element, metric);
            // Small segments are flat, whatever family the schema has.
            let family = Some(index.family).filter(|family| family != "flat").unwrap_or(field.family.clone());
            vectors.push(VectorField { family, ..field });
        }
        let (columns, id_kind) = (manifest.columns.clone(), manifest.id);
        let schema = Schema { id_kind, vectors, columns };
        schema.check().map_err(|error| damaged(error.to_string()))?;
        let entry = SegmentEntry {
            name: name.into(),
            rows: manifest.rows,
            bytes: 0,
            ids: (IdEntry::Number(0), IdEntry::Number(0)),
            manifest_crc32c,
            deleted: 0,
            deleted_crc32c: 0,
            hasty: false,
        };
        let same = manifest.segment == name;
        let segment = StandaloneSegment { collection: manifest.collection, schema, entry };
        Some(segment).filter(|_| same).ok_or_else(|| damaged("it belongs to another segment".into()))
    }
}
