//! Reads a file of packed records in order.

use crate::error::IndexError;
use crate::format::offsets::Offsets;
use crate::format::walk::READ_BYTES;
use bathyal_store::Object;
use bathyal_vectors::progress::Progress;

/// Calls `record` with the place and the bytes of each record of a packed file, and returns the file's
/// CRC-32C.
pub(crate) fn read_records(
    object: &dyn Object,
    offsets: &Offsets,
    progress: &dyn Progress,
    mut record: impl FnMut(u32, &[u8]),
) -> Result<u32, IndexError> {
    let mut buffer = Vec::new();
    let (mut place, mut crc) = (0, 0_u32);
    let count = offsets.records() as u32;
    while place < count {
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        let first = offsets.span(place);
        // At least one record, and as many more as fit into one read.
        let fits = |place: &u32| offsets.span(*place).end() - first.offset <= READ_BYTES as u64;
        let end = (place + 1..count).take_while(fits).last().map_or(place, |last| last) + 1;
        buffer.resize((offsets.span(end - 1).end() - first.offset) as usize, 0);
        object.read_at(first.offset, &mut buffer)?;
        crc = crc32c::crc32c_append(crc, &buffer);
        for place in place..end {
            let span = offsets.span(place);
            let start = (span.offset - first.offset) as usize;
            record(place, &buffer[start..start + span.len as usize]);
        }
        place = end;
        progress.advance(first.offset + buffer.len() as u64);
    }
    Ok(crc)
}
