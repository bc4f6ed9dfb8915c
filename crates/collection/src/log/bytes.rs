//! The bytes of a log for fuzzing: checksums are made right, and what is read is compared with what is salvaged.

use super::record::{Batch, Change, LogFormat};
use super::salvage::scan;
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::rows::Rows;
use crate::schema::Schema;
use bathyal_vectors::VectorFile;
use std::path::Path;
use std::sync::Arc;

/// The collection whose log it is.
const COLLECTION: &str = "00112233445566778899aabbccddeeff";

/// Numbers of records, and how many rows or ids each has.
type Counts = Vec<(u64, usize)>;

/// See the module's description.
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
    /// Logs of a collection with this schema, whose ids are numbers.
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
            log.extend(batch.place(&format, at, sequence, at).concat());
        }
        let whole = log.clone();
        let at = log.len() as u64;
        log.extend(Batch::seal().place(&format, at, 5, at).concat());
        Ok(vec![whole, log])
    }

    /// These bytes, with checksums of all that claims to be a record where it lies.
    pub(crate) fn with_checksums(bytes: &[u8]) -> LogBytes {
        let mut bytes = bytes.to_vec();
        format().make_right(&mut bytes);
        LogBytes(Arc::new(bytes))
    }

    /// The changes, if it is read without an error.
    pub(crate) fn read(&self, schema: &Schema) -> Result<Counts, CollectionError> {
        let (format, mut counts) = (format(), Vec::new());
        let end =
            format.read(Path::new("log"), schema, format.begin(), &self.0, 0, &mut |sequence, change| {
                counts.push((sequence, count(&change)));
                Ok(())
            })?;
        assert!(end.at <= (self.0.len() as u64).max(512));
        Ok(counts)
    }

    /// The changes that are salvaged.
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
