//! The verification of all bytes of partitions that take inserts: the positions of groups, the contents of
//! their overflows, and the recorded partition of each vector.

use super::growth::layout::{GroupPlace, HEAD_BYTES, u32_at, u64_at};
use super::growth::overflow::{Overflow, OverflowError, PartitionChanges};
use super::growth::units::{FIRST_EPOCH, is_free};
use super::inserts::Growth;
use super::search::Partitions;
use super::subindex::SubIndex;
use crate::error::IndexError;
use crate::family::{VerifyReport, Verifying};
use crate::format::walk::Marks;
use bathyal_kernels::first_non_finite;

/// Bytes of one read.
const AT_ONCE: usize = 1 << 20;

/// Checks the file of partitions, and reports faults to `report`.
pub(super) fn verify(
    verifying: &Verifying<'_>,
    partitions: &Partitions,
    growth: &Growth,
    report: &mut VerifyReport,
) -> Result<(), IndexError> {
    let Verifying { object, progress, .. } = *verifying;
    let (entry, layout) = (&partitions.entry, &growth.reader.layout);
    let (mut crc, mut at, mut bytes) = (0, 0, vec![0; AT_ONCE]);
    while at < entry.file.bytes {
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        let chunk = &mut bytes[..(entry.file.bytes - at).min(AT_ONCE as u64) as usize];
        object.read_at(at, chunk)?;
        crc = crc32c::crc32c_append(crc, chunk);
        at += chunk.len() as u64;
        progress.advance(at);
    }
    report.bytes += entry.file.bytes;
    let mut control = vec![0; (layout.file_bytes() - layout.control_at()) as usize];
    object.read_at(layout.control_at(), &mut control)?;
    // A change of the index advances the epoch or the next id.
    let in_control = |at: u64| (at - layout.control_at()) as usize;
    let numbers = [layout.next_id_at(), layout.epoch_at()].map(|at| u64_at(&control, in_control(at)));
    let untouched = numbers == [u64::from(partitions.set.vectors), FIRST_EPOCH]
        && control[in_control(layout.writers().offset)..in_control(layout.word_at(0))]
            .iter()
            .all(|byte| *byte == 0);
    if untouched && crc != entry.file.crc32c {
        let (name, recorded) = (&entry.file.name, entry.file.crc32c);
        report.fault(format!("{name}: its checksum is {crc:08x}, the manifest records {recorded:08x}"));
    }
    let mut state = GroupVerification {
        partitions,
        growth,
        seen: Marks::new(u64::from(layout.ids))?,
        vectors: 0,
        used: vec![false; layout.units as usize],
        control: &control,
    };
    for group in 0..layout.groups() {
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        let place = growth.reader.places.get(group);
        let mut bytes = vec![0; (place.end(layout) - place.start(layout)) as usize];
        object.read_at(place.start(layout), &mut bytes)?;
        if let Err(reason) = state.check_group(&place, &bytes, report)? {
            report.fault(format!("group {group}: {reason}"));
        }
    }
    let (vectors, ids) = (state.vectors, state.seen.count());
    if report.sound && ids != vectors {
        report.fault(format!("{vectors} vectors have only {ids} ids: some vectors are in the index twice"));
    }
    let recorded = u64::from(partitions.set.vectors);
    if report.sound && untouched && vectors != recorded {
        report.fault(format!("the partitions contain {vectors} of {recorded} vectors"));
    }
    report.vectors += vectors;
    Ok(())
}

/// The state of a verification.
struct GroupVerification<'a> {
    partitions: &'a Partitions,
    growth: &'a Growth,
    seen: Marks,
    vectors: u64,
    used: Vec<bool>,
    control: &'a [u8],
}

impl GroupVerification<'_> {
    /// Checks a group. The inner error describes its fault.
    fn check_group(
        &mut self,
        place: &GroupPlace,
        bytes: &[u8],
        report: &mut VerifyReport,
    ) -> Result<Result<(), String>, IndexError> {
        let reader = &self.growth.reader;
        let layout = &reader.layout;
        if bytes[..HEAD_BYTES as usize] != place.head(reader.identity) {
            return Ok(Err("its head is that of another group or version".into()));
        }
        for unit in place.word.first..place.word.first + place.word.units {
            let word = u64_at(self.control, (layout.unit_at(unit) - layout.control_at()) as usize);
            if is_free(word) || std::mem::replace(&mut self.used[unit as usize], true) {
                return Ok(Err(format!(
                    "it occupies unit {unit}, which is free or belongs to another group"
                )));
            }
        }
        for side in 0..2 {
            let partition = 2 * place.group + side as u32;
            let from = (place.span(layout, side).offset - place.start(layout)) as usize;
            let [subindex, overflow] = place.parts(layout, side).map(|part| &bytes[from..][part]);
            let changes = Overflow::read(layout, place, overflow)
                .and_then(|overflow| PartitionChanges::read(&overflow, reader.identity, place, partition));
            let changes = match changes {
                Ok(changes) => changes,
                Err(OverflowError::Torn(reason)) => return Ok(Err(reason)),
                Err(OverflowError::Moved) => {
                    return Ok(Err("its overflow is that of another group or version".into()));
                }
            };
            if let Err(reason) = self.check_partition(partition, place, (subindex, &changes), report)? {
                return Ok(Err(format!("partition {partition}: {reason}")));
            }
        }
        Ok(Ok(()))
    }

    fn check_partition(
        &mut self,
        partition: u32,
        place: &GroupPlace,
        (subindex, changes): (&[u8], &PartitionChanges),
        report: &mut VerifyReport,
    ) -> Result<Result<(), String>, IndexError> {
        let (reader, set) = (&self.growth.reader, &self.partitions.set);
        if let Err(reason) = reader.check(place, partition, subindex) {
            return Ok(Err(reason));
        }
        let mut ids = changes.ids.clone();
        if !subindex.is_empty() {
            let index = SubIndex::read(subindex, set.row_bytes()).map_err(IndexError::Internal)?;
            if first_non_finite(set.element, index.rows).is_some() {
                return Ok(Err("a vector is not finite".into()));
            }
            report.links += index.check(set.ids_end).map_err(IndexError::Internal)?;
            if let Some((vectors, why)) = index.lost()? {
                report.unlinked += vectors as u64;
                return Ok(Err(why));
            }
            let built = (0..index.count() as u32).map(|at| index.id(at));
            ids.extend(built.filter(|id| !changes.has_deleted(*id)));
        }
        if first_non_finite(set.element, &changes.rows).is_some() {
            return Ok(Err("an inserted vector is not finite".into()));
        }
        self.vectors += ids.len() as u64;
        for id in ids {
            self.seen.mark(id);
            let at = reader.layout.partition_entry_at(id) - reader.layout.control_at();
            if u32_at(self.control, at as usize) != partition + 1 {
                return Ok(Err(format!("it contains vector {id}, whose recorded partition is another")));
            }
        }
        Ok(Ok(()))
    }
}
