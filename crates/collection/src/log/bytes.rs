//! Reads the bytes of a log for fuzzing: corrects checksums, and compares reading with salvaging.

use super::record::{Batch, Change, LogFormat};
use super::salvage::scan;
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::rows::Rows;
use crate::schema::Schema;
use bathyal_vectors::VectorFile;
use std::path::Path;
use std::sync::Arc;

/// Identity of the collection.
const COLLECTION: &str = "00112233445566778899aabbccddeeff";

/// Sequence numbers of records, each with its number of rows or ids.
type Counts = Vec<(u64, usize)>;

/// Bytes of a log with correct checksums.
pub(crate) struct LogBytes(Arc<Vec<u8>>);

fn format() -> LogFormat {
    LogFormat::new(COLLECTION, 1)
}

fn count(change: &Change) -> usize {
    match change {
        Change::Put(rows) => {
            assert_eq!(rows.columns().num_rows(), rows.len());
            assert!(rows.vectors().iter().all(|vectors| vectors.count() == rows.len()));
            rows.len()
        }
        Change::Delete(ids) => ids.len(),
    }
}

impl LogBytes {
    /// Returns logs of a collection with this schema, whose ids are numbers.
    ///
    /// # Errors
    /// [`CollectionError`].
    pub(crate) fn seeds(schema: &Schema) -> Result<Vec<Vec<u8>>, CollectionError> {
        let (format, mut log) = (format(), Vec::new());
        let mut changes = Vec::new();
        for first in [1_u64, 7] {
            let ids = Ids::Numbers(vec![first, first + 1, first + 40].into());
            let mut vectors = Vec::new();
            for field in &schema.vectors {
                let bytes = vec![60 + first as u8; ids.len() * field.row_bytes()];
                vectors.push(VectorFile::from_rows(field.element, field.dim, bytes)?);
            }
            changes.push(Change::Put(Rows::new(schema, ids.clone(), vectors, None)?));
            changes.push(Change::Delete(ids));
        }
        for (change, sequence) in changes.iter().zip(1..) {
            let mut batch = Batch::new();
            batch.push(change)?;
            let at = log.len() as u64;
            log.extend(batch.encode_at(&format, at, sequence, at).concat());
        }
        let complete = log.clone();
        let at = log.len() as u64;
        log.extend(Batch::seal().encode_at(&format, at, 5, at).concat());
        Ok(vec![complete, log])
    }

    /// Corrects the checksum of everything that looks like a record at its offset.
    pub(crate) fn with_checksums(bytes: &[u8]) -> LogBytes {
        let mut bytes = bytes.to_vec();
        format().fix_checksums(&mut bytes);
        LogBytes(Arc::new(bytes))
    }

    /// Reads the log. Returns its changes.
    pub(crate) fn read(&self, schema: &Schema) -> Result<Counts, CollectionError> {
        let (format, mut counts) = (format(), Vec::new());
        let end = format.read(
            Path::new("log"),
            schema,
            format.empty_end(),
            &self.0,
            0,
            &mut |sequence, change| {
                counts.push((sequence, count(&change)));
                Ok(())
            },
        )?;
        assert!(end.at <= (self.0.len() as u64).max(512));
        Ok(counts)
    }

    /// Salvages the log. Returns the changes.
    pub(crate) fn salvage(&self, schema: &Schema) -> Counts {
        match scan(COLLECTION, schema, self.0.clone()) {
            Ok(salvaged) => {
                salvaged.changes.iter().map(|(sequence, change)| (*sequence, count(change))).collect()
            }
            Err(error) => {
                assert!(matches!(error, CollectionError::LaterVersion { .. }), "{error}");
                Vec::new()
            }
        }
    }
}
