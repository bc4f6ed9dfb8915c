//! The verification of all bytes of posting lists: checksums, ids, addresses, vectors.

use super::section::SpannEntry;
use super::table::open_table;
use crate::error::IndexError;
use crate::family::{VerifyReport, Verifying};
use crate::format::loading::load;
use crate::format::manifest::FileEntry;
use crate::format::postings::{BLOCK_BYTES, PackedIds, PostingLayout, Postings, check_blocks, checksums};
use crate::format::walk::{Marks, read_through};
use bathyal_kernels::{Element, first_non_finite};
use bathyal_store::Object;
use bathyal_vectors::progress::Progress;

/// Rows that are checked together.
pub(super) const ROWS_AT_ONCE: u32 = 4096;

/// Checks the file of postings, and reports faults to `report`.
pub(super) fn verify(
    verifying: &Verifying<'_>,
    entry: &SpannEntry,
    report: &mut VerifyReport,
) -> Result<(), IndexError> {
    let Verifying { directory, object, manifest, progress } = *verifying;
    let sums = match load(directory, manifest, &entry.checksums) {
        Ok(bytes) => checksums(&bytes, entry.file.bytes).unwrap_or_default(),
        // The damage of that file has been reported before.
        Err(_) => Vec::new(),
    };
    let damaged_manifest = |reason: String| IndexError::damaged(object.address(), "the manifest", reason);
    let identity = manifest.identity().map_err(damaged_manifest)?;
    let file = entry.file.clone();
    let crc = read_through(object, file.bytes, BLOCK_BYTES, progress, |number, block| {
        if !sums.is_empty() && check_blocks(identity, &sums, number as usize, block).is_err() {
            report.fault(format!("block {number}: its checksum differs"));
        }
    })?;
    report.bytes += file.bytes;
    if crc != file.crc32c {
        report.fault(format!(
            "{}: its checksum is {crc:08x}, the manifest records {:08x}",
            file.name, file.crc32c
        ));
    }
    if !report.sound {
        return Ok(());
    }
    let postings = match open_table(directory, manifest, entry) {
        Ok(postings) => postings,
        Err(damage) => {
            report.fault(damage.to_string());
            return Ok(());
        }
    };
    let mut walk = ListWalk {
        element: manifest.stored_element().map_err(damaged_manifest)?,
        row_bytes: manifest.stored_row_bytes().map_err(damaged_manifest)?,
        vectors: manifest.vectors,
        postings: &postings,
        object,
        seen: Marks::new(manifest.vectors)?,
        report,
        progress,
    };
    match postings.layout() {
        PostingLayout::Coupled if entry.list_codes.is_some() => walk.check_coded_lists()?,
        PostingLayout::Coupled => walk.check_copies()?,
        PostingLayout::Decoupled | PostingLayout::Grouped => {
            walk.check_placed_rows()?;
            walk.check_members()?;
        }
    }
    let seen = walk.seen.count();
    if seen != manifest.vectors {
        report.fault(format!("{} of {} vectors are in no list", manifest.vectors - seen, manifest.vectors));
    }
    report.vectors += manifest.vectors;
    match &entry.ids {
        Some(ids) => check_ids(verifying, ids, report),
        None => Ok(()),
    }
}

/// Checks the ids by place: each vector has one place.
fn check_ids(
    verifying: &Verifying<'_>,
    file: &FileEntry,
    report: &mut VerifyReport,
) -> Result<(), IndexError> {
    let Verifying { directory, manifest, .. } = *verifying;
    let ids = match PackedIds::from_bytes(load(directory, manifest, file)?, manifest.vectors) {
        Ok(ids) => ids,
        Err(reason) => {
            report.fault(format!("{}: {reason}", file.name));
            return Ok(());
        }
    };
    let mut seen = Marks::new(manifest.vectors)?;
    if let Some(place) = (0..manifest.vectors as u32).find(|place| !seen.mark(ids.get(*place))) {
        report.fault(format!("{}: vector {} is stored twice", file.name, ids.get(place)));
    }
    Ok(())
}

/// A pass over all lists.
pub(super) struct ListWalk<'a> {
    element: Element,
    pub(super) row_bytes: usize,
    pub(super) vectors: u64,
    pub(super) postings: &'a Postings,
    object: &'a dyn Object,
    /// Vectors (coupled) or places (other layouts) that lists contain.
    pub(super) seen: Marks,
    pub(super) report: &'a mut VerifyReport,
    progress: &'a dyn Progress,
}

impl ListWalk<'_> {
    pub(super) fn read(
        &mut self,
        range: std::ops::Range<u64>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), IndexError> {
        if self.progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        bytes.resize((range.end - range.start) as usize, 0);
        Ok(self.object.read_at(range.start, bytes)?)
    }

    pub(super) fn check_rows(&mut self, place: &str, rows: &[u8]) {
        for (at, row) in rows.chunks_exact(self.row_bytes).enumerate() {
            if let Some(component) = first_non_finite(self.element, row) {
                self.report.fault(format!("{place}, row {at}: component {component} is not finite"));
            }
        }
    }

    /// Checks that unused bytes are zero.
    pub(super) fn check_zeros(&mut self, range: std::ops::Range<u64>) -> Result<(), IndexError> {
        let mut bytes = Vec::new();
        self.read(range.clone(), &mut bytes)?;
        if bytes.iter().any(|byte| *byte != 0) {
            self.report.fault(format!("unused bytes from {} on are not zero", range.start));
        }
        Ok(())
    }

    /// Checks coupled lists: ids exist, and occur once in a list.
    fn check_copies(&mut self) -> Result<(), IndexError> {
        let (mut bytes, mut ids) = (Vec::new(), Vec::new());
        let mut end = 0;
        for list in 0..self.postings.lists() as u32 {
            let range = self.postings.rows_range(list);
            self.check_zeros(end..range.start)?;
            end = range.end;
            self.read(range, &mut bytes)?;
            let (rows, tail) = bytes.split_at(self.postings.stored_of(list) as usize * self.row_bytes);
            self.check_rows(&format!("list {list}"), rows);
            ids.clear();
            ids.extend(tail.as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id)));
            ids.sort_unstable();
            if ids.windows(2).any(|pair| pair[0] == pair[1]) {
                self.report.fault(format!("list {list}: it contains a vector twice"));
            }
            for id in &ids {
                if u64::from(*id) >= self.vectors {
                    self.report.fault(format!(
                        "list {list}: vector {id} does not exist among {} vectors",
                        self.vectors
                    ));
                } else {
                    self.seen.mark(*id);
                }
            }
        }
        Ok(())
    }

    /// Checks the rows by place.
    fn check_placed_rows(&mut self) -> Result<(), IndexError> {
        let mut bytes = Vec::new();
        for place in (0..self.vectors as u32).step_by(ROWS_AT_ONCE as usize) {
            let count = ROWS_AT_ONCE.min((self.vectors - u64::from(place)) as u32);
            self.read(self.postings.places_range(place, count), &mut bytes)?;
            let rows = std::mem::take(&mut bytes);
            self.check_rows(&format!("the rows from place {place} on"), &rows);
            bytes = rows;
        }
        let end = self.postings.places_range(self.vectors as u32, 0).end;
        self.check_zeros(end..end.next_multiple_of(BLOCK_BYTES as u64))
    }

    /// Checks the members of lists: places exist, and do not belong to the list itself.
    fn check_members(&mut self) -> Result<(), IndexError> {
        let (mut bytes, mut members) = (Vec::new(), Vec::new());
        for list in 0..self.postings.lists() as u32 {
            self.read(self.postings.members_range(list), &mut bytes)?;
            if let Err(reason) = self.postings.members(list, &bytes, &mut members) {
                self.report.fault(format!("list {list}: {reason}"));
                continue;
            }
            let first = self.postings.first_place(list).unwrap_or(0);
            let stored = first..first + self.postings.stored_of(list);
            stored.clone().for_each(|place| {
                self.seen.mark(place);
            });
            for place in &members {
                if stored.contains(place) {
                    self.report.fault(format!("list {list}: it has the address of a vector that it stores"));
                }
                self.seen.mark(*place);
            }
        }
        Ok(())
    }
}
