//! The verification of all bytes of partitions: checksums, links, ids, vectors.

use super::search::Partitions;
use super::subindex::{self, SubIndex};
use super::verify_groups;
use crate::error::IndexError;
use crate::family::{VerifyReport, Verifying};
use crate::format::walk::Marks;
use bathyal_kernels::first_non_finite;

/// Checks the file of sub-indexes, and reports faults to `report`.
pub(super) fn verify(
    verifying: &Verifying<'_>,
    partitions: &Partitions,
    report: &mut VerifyReport,
) -> Result<(), IndexError> {
    if let Some(growth) = &partitions.growth {
        return verify_groups::verify(verifying, partitions, growth, report);
    }
    let Verifying { object, progress, .. } = *verifying;
    let (entry, mut crc, mut end) = (&partitions.entry, 0, 0);
    let mut seen = Marks::new(u64::from(partitions.set.ids_end))?;
    let (mut bytes, mut copies) = (Vec::new(), 0);
    for (number, place) in (0..).zip(partitions.table.entries()) {
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        // Include the padding before the partition.
        let filled = (place.offset - end) as usize;
        bytes.resize(filled + place.bytes as usize, 0_u8);
        object.read_at(end, &mut bytes)?;
        crc = crc32c::crc32c_append(crc, &bytes);
        end = place.offset + u64::from(place.bytes);
        progress.advance(end);
        if bytes[..filled].iter().any(|byte| *byte != 0) {
            report.fault(format!("the padding before partition {number} is not zero"));
        }
        match check(partitions, number, &bytes[filled..], &mut seen, report)? {
            Ok(()) => copies += u64::from(place.vectors),
            Err(reason) => report.fault(format!("partition {number}: {reason}")),
        }
    }
    report.bytes += entry.file.bytes;
    if crc != entry.file.crc32c {
        let (name, recorded) = (&entry.file.name, entry.file.crc32c);
        report.fault(format!("{name}: its checksum is {crc:08x}, the manifest records {recorded:08x}"));
    }
    let (found, vectors) = (seen.count(), u64::from(partitions.set.vectors));
    if report.sound && (found, copies) != (vectors, entry.copies) {
        report.fault(format!(
            "the partitions contain {found} of {vectors} vectors, and {copies} of {} copies",
            entry.copies
        ));
    }
    report.vectors += vectors;
    Ok(())
}

/// Checks one sub-index. The inner error describes its fault.
fn check(
    partitions: &Partitions,
    number: u32,
    bytes: &[u8],
    seen: &mut Marks,
    report: &mut VerifyReport,
) -> Result<Result<(), String>, IndexError> {
    let set = &partitions.set;
    let check_subindex = || {
        subindex::check_bytes(bytes, partitions.identity, number)?;
        let index = SubIndex::read(bytes, set.row_bytes())?;
        let links = index.check(set.ids_end)?;
        if first_non_finite(set.element, index.rows).is_some() {
            return Err("a vector is not finite".to_string());
        }
        Ok((index, links))
    };
    let (index, links) = match check_subindex() {
        Ok(sound) => sound,
        Err(reason) => return Ok(Err(reason)),
    };
    report.links += links;
    for at in 0..index.count() as u32 {
        // A vector at a border is in several partitions.
        seen.mark(index.id(at));
    }
    let lost = index.lost()?;
    report.unlinked += lost.as_ref().map_or(0, |(vectors, _)| *vectors as u64);
    Ok(lost.map_or(Ok(()), |(_, why)| Err(why)))
}
