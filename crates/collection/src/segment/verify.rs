//! Verifies a segment: every byte against its checksums, and its parts against each other.

use super::Segment;
use super::id_map::IdMap;
use super::manifest::ROWS_NAME;
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::location::Part;
use arrow_array::RecordBatch;
use bathyal_index::verify_in;
use bathyal_store::Object;
use bathyal_vectors::progress::{CancelOnly, Progress};

/// Bytes that are checked at once.
const CHECKED_BYTES: u64 = 4 << 20;

/// Adds an error to `faults` if it means damage. Returns other errors, which prevent the check.
fn add_fault(error: CollectionError, faults: &mut Vec<String>) -> Result<(), CollectionError> {
    if !error.is_loss() {
        return Err(error);
    }
    faults.push(error.to_string());
    Ok(())
}

impl Segment {
    /// Checks everything: checksums, the order of ids, ids and columns against each other, and each index.
    /// Returns a sentence for each fault. A missing generation is a fault.
    ///
    /// # Errors
    /// Errors that prevent the check: a store that does not answer, cancellation.
    pub(crate) fn verify(&self, progress: &dyn Progress) -> Result<Vec<String>, CollectionError> {
        let mut faults = Vec::new();
        if let Err(error) = self.verify_files(progress, &mut faults) {
            add_fault(error, &mut faults)?;
        }
        // Damaged files are reported already; their content would only repeat the fault.
        if faults.is_empty()
            && let Err(error) = self.verify_ids(progress)
        {
            add_fault(error, &mut faults)?;
        }
        for field in 0..self.schema.vectors.len() {
            if let Err(error) = self.verify_index(field, progress, &mut faults) {
                add_fault(error, &mut faults)?;
            }
        }
        Ok(faults)
    }

    /// Checks the files of ids and columns against the checksums in the manifest.
    fn verify_files(&self, progress: &dyn Progress, faults: &mut Vec<String>) -> Result<(), CollectionError> {
        let opened = self.opened()?;
        let files = opened.manifest.files();
        progress.stage("checking rows", files.iter().map(|file| file.bytes).sum());
        let mut done = 0;
        for file in files {
            let checked = super::open_file(&*opened.generation, file).and_then(|object| {
                let crc = checksum(&*object, progress, done)?;
                let reason = format!("its checksum is {crc:08x}, the manifest says {:08x}", file.crc32c);
                let damaged = || CollectionError::damaged(object.address(), "its content", reason);
                if crc == file.crc32c { Ok(()) } else { Err(damaged()) }
            });
            if let Err(error) = checked {
                add_fault(error, faults)?;
            }
            done += file.bytes;
        }
        Ok(())
    }

    /// Checks the order of ids, that the fence leads to them, and that the file of columns has the same ids.
    fn verify_ids(&self, progress: &dyn Progress) -> Result<(), CollectionError> {
        let map = self.id_map()?;
        progress.stage("checking ids", u64::from(self.rows()));
        let mut last: Option<Ids> = None;
        let all_columns: Vec<usize> = (0..self.schema.columns.len()).collect();
        self.scan(&all_columns, true, &mut |first, batch| {
            if progress.cancelled() {
                return Err(CollectionError::Cancelled);
            }
            let ids = self.verify_batch(&map, first, &batch, last.as_ref())?;
            last = Some(ids);
            progress.advance(u64::from(first) + batch.num_rows() as u64);
            Ok(())
        })?;
        let (first, end) = self.limits()?;
        let ends = last.is_none_or(|last| last.compare(last.len() - 1, &end, 0).is_eq());
        if !ends || map.ids(0..1)? != first {
            let reason = "its first and last ids differ from those in the version";
            return Err(CollectionError::damaged(
                self.place.path().join(&self.entry.name),
                "its ids",
                reason,
            ));
        }
        Ok(())
    }

    /// Checks the ids of a batch and returns them.
    fn verify_batch(
        &self,
        map: &IdMap,
        first: u32,
        batch: &RecordBatch,
        last: Option<&Ids>,
    ) -> Result<Ids, CollectionError> {
        let place = || self.place.path().join(Part::Segment(self.entry.name.clone(), None).name());
        let damaged =
            |name: &str, reason: String| CollectionError::damaged(place().join(name), "its ids", reason);
        let ids = map.ids(first..first + batch.num_rows() as u32)?;
        let column_ids = Ids::from_array(self.schema.id_kind, batch.column(0))
            .map_err(|error| damaged(ROWS_NAME, error.to_string()))?;
        if ids != column_ids {
            let at =
                (0..ids.len().min(column_ids.len())).find(|at| ids.compare(*at, &column_ids, *at).is_ne());
            let row = first as usize + at.unwrap_or(0);
            return Err(damaged(
                ROWS_NAME,
                format!("row {row} has another id than in {}", super::manifest::IDS_NAME),
            ));
        }
        map.check(first, &ids, last).map_err(|reason| damaged(super::manifest::IDS_NAME, reason))?;
        Ok(ids)
    }

    /// Checks that an index belongs to this segment, and its content.
    fn verify_index(
        &self,
        field: usize,
        progress: &dyn Progress,
        faults: &mut Vec<String>,
    ) -> Result<(), CollectionError> {
        let generation =
            self.place.store().open(&Part::Segment(self.entry.name.clone(), Some(field)).name())?;
        progress.stage("checking an index", u64::from(self.rows()));
        let report = verify_in(&*generation, &CancelOnly(progress))?;
        if report.fault_count > 0 {
            faults.extend(report.faults.iter().cloned());
            return Ok(());
        }
        self.index(field).map(|_| ())
    }
}

/// Returns the CRC-32C of an object. `before` are the bytes that count as progress already.
fn checksum(object: &dyn Object, progress: &dyn Progress, before: u64) -> Result<u32, CollectionError> {
    let (mut crc, mut bytes) = (0, Vec::new());
    for at in (0..object.len()).step_by(CHECKED_BYTES as usize) {
        if progress.cancelled() {
            return Err(CollectionError::Cancelled);
        }
        bytes.resize(CHECKED_BYTES.min(object.len() - at) as usize, 0);
        object.read_at(at, &mut bytes)?;
        crc = crc32c::crc32c_append(crc, &bytes);
        progress.advance(before + at + bytes.len() as u64);
    }
    Ok(crc)
}
