//! The queries of a calibration, as they are stored.

use crate::error::CollectionError;
use crate::location::{CollectionLocation, MARK, Part};
use crate::schema::VectorField;
use crate::seal::seal;
use crate::version::CalibrationEntry;
use bathyal_store::{DraftExt, GenerationExt, Replace};
use bathyal_vectors::VectorFile;
use serde::Serialize;

/// Object that holds the queries: `queries x row bytes`, row-major, little-endian.
const QUERIES_NAME: &str = "queries.bin";
/// The format version of the mark.
const FORMAT: u32 = 1;

/// The mark of the generation. It describes the queries for people; a version has all that is needed to read
/// them.
#[derive(Debug, Serialize)]
struct SampleMark<'a> {
    bathyal_queries: u32,
    collection: &'a str,
    field: &'a str,
    queries: usize,
    dim: usize,
    element: String,
    crc32c: u32,
}

/// Stores queries as the generation `id` of the collection with the identity `collection`. Returns their
/// CRC-32C.
///
/// # Errors
/// [`CollectionError::Store`].
pub(crate) fn write_sample(
    place: &CollectionLocation,
    (collection, id, field): (&str, &str, &str),
    queries: &VectorFile,
) -> Result<u32, CollectionError> {
    let not_contiguous = || CollectionError::Internal("the queries are not contiguous".into());
    let bytes = queries.rows(0..queries.count()).ok_or_else(not_contiguous)?;
    let crc32c = crc32c::crc32c(bytes);
    let (dim, element) = (queries.dim(), queries.element().to_string());
    let queries = queries.count();
    let mark = SampleMark { bathyal_queries: FORMAT, collection, field, queries, dim, element, crc32c };
    let draft = place.store().begin(&Part::Queries(id.into()).name(), Replace::Never)?;
    draft.put(QUERIES_NAME, bytes)?;
    draft.put(MARK, &seal(&mark)?)?;
    let names = [QUERIES_NAME, MARK];
    draft.upload(&names, "", &|_, _| true)?;
    draft.publish(&names, "")?;
    Ok(crc32c)
}

/// Reads the queries of a calibration of `field`.
///
/// # Errors
/// [`CollectionError::Damaged`], [`CollectionError::Store`].
pub(crate) fn read_sample(
    place: &CollectionLocation,
    entry: &CalibrationEntry,
    field: &VectorField,
) -> Result<VectorFile, CollectionError> {
    let generation = place.store().open(&Part::Queries(entry.id.clone()).name())?;
    let bytes = generation.read(QUERIES_NAME)?;
    let path = generation.address().join(QUERIES_NAME);
    let damaged = |reason: &str| CollectionError::damaged(&path, "the queries", reason);
    if Some(bytes.len()) != (entry.queries as usize).checked_mul(field.row_bytes()) {
        return Err(damaged("their number is not the one that the version names"));
    }
    if crc32c::crc32c(&bytes) != entry.crc32c {
        return Err(damaged("their checksum is wrong"));
    }
    Ok(VectorFile::from_rows(field.element, field.dim, bytes)?)
}
