//! Vectors on pages in the order of the data: of families that do not place them.

use super::Work;
use super::spread::ZEROS_NAMED;
use crate::error::IndexError;
use crate::format::appender::{Appender, Written};
use crate::format::groups::GroupLayout;
use bathyal_vectors::RowReader;

/// Bytes of the data that are read at once.
const READ_AHEAD_BYTES: usize = 1 << 20;
/// Bytes of pages that are made before they are written.
const WRITE_BYTES: usize = 4 << 20;
/// Bytes of pages after which a journal is told: seconds of work that a killed build repeats at most.
const CHECKPOINT_BYTES: u64 = 256 << 20;

/// Appends the pages that follow those in `file`, which holds whole groups of them, and the zeros at their end; `checkpoint` is told
/// now and then how much is on the device.
pub(crate) fn write_pages<O>(
    work: &Work<'_, GroupLayout, O>,
    file: &mut Appender,
    mut checkpoint: impl FnMut(Written) -> Result<(), IndexError>,
) -> Result<(), IndexError> {
    let (layout, data, intake) = (&work.layout, work.data, work.intake());
    let (page_bytes, page_vectors) = (layout.page_bytes(), layout.page_vectors());
    let groups = data.count().div_ceil(layout.group_vectors());
    let mut given = RowReader::new(data.given(), READ_AHEAD_BYTES);
    let mut told = file.written().bytes;
    work.progress.stage("writing vectors", data.count() as u64);
    let at_once = (WRITE_BYTES / layout.group_bytes()).max(1) * layout.group_pages();
    let (mut buffer, mut rows) =
        (vec![0_u8; at_once * page_bytes], vec![0_u8; page_vectors * data.row_bytes()]);
    let mut ids = Vec::with_capacity(page_vectors);
    let (first, all) = ((told / page_bytes as u64) as usize, groups * layout.group_pages());
    for first in (first..all).step_by(at_once) {
        work.check_cancelled()?;
        let buffer = &mut buffer[..at_once.min(all - first) * page_bytes];
        let mut zeros = Vec::new();
        for (page, out) in (first..).zip(buffer.chunks_exact_mut(page_bytes)) {
            let from = (page * page_vectors).min(data.count());
            let places = from as u32..data.count().min(from + page_vectors) as u32;
            for (place, row) in places.clone().zip(rows.chunks_exact_mut(data.row_bytes())) {
                if !intake.take(given.row(place as usize)?, row) {
                    zeros.push(u64::from(place));
                }
            }
            ids.clear();
            match data.ids() {
                Some(held) => held.extend(places, &mut ids),
                None => ids.extend(places),
            }
            layout.encode(out, page as u32, &ids, rows.chunks_exact(data.row_bytes()).take(ids.len()));
        }
        // Before anything of them is written, so that a build that goes on finds them again.
        if !zeros.is_empty() {
            let count = zeros.len() as u64;
            zeros.truncate(ZEROS_NAMED);
            return Err(IndexError::ZeroVectors { count, rows: zeros });
        }
        file.append(buffer)?;
        if file.written().bytes - told >= CHECKPOINT_BYTES {
            checkpoint(file.sync()?)?;
            told = file.written().bytes;
        }
        work.progress.advance(((first + at_once) * page_vectors).min(data.count()) as u64);
    }
    let rest = layout.file_bytes(groups as u64) - file.written().bytes;
    file.append(&vec![0; rest as usize])
}
