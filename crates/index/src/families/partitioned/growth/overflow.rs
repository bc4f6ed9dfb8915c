//! The overflow of a group: the changes of its partitions since the group was written. It has a slot for each
//! inserted and each deleted vector (d-HNSW, section 3.2).
//!
//! A writer takes a slot by adding to the overflow's first number, fills the slot, and then publishes it by
//! setting its flag, which contains a checksum of the slot. A reader that reads at the same time sees whole
//! slots or none.

use super::layout::{GroupPlace, GrowthLayout, u32_at, u64_at};
use crate::format::identity::Identity;

/// The bit of a flag whose slot can be read.
const PUBLISHED: u64 = 1 << 32;
/// The flag of a slot that can no longer be published.
pub(in super::super) const DEAD: u64 = 1 << 33;
/// The bit next to the partition of a slot that deletes its vector.
const DELETED: u32 = 1 << 31;

/// The insertion of a vector into a partition, or its deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct OverflowChange {
    pub(in super::super) partition: u32,
    pub(in super::super) id: u32,
    /// The stored vector; `None` for a deletion.
    pub(in super::super) row: Option<Vec<u8>>,
}

impl OverflowChange {
    /// Appends the bytes of the change's slot.
    pub(in super::super) fn encode(&self, layout: &GrowthLayout, out: &mut Vec<u8>) {
        let end = out.len() + layout.slot_bytes() as usize;
        out.extend(self.id.to_le_bytes());
        let mark = if self.row.is_some() { 0 } else { DELETED };
        out.extend((self.partition | mark).to_le_bytes());
        out.extend(self.row.iter().flatten());
        out.resize(end, 0);
    }
}

/// Returns the flag of a slot that holds `bytes`.
pub(in super::super) fn flag(identity: Identity, place: &GroupPlace, slot: u32, bytes: &[u8]) -> u64 {
    let mut sealed = Vec::with_capacity(12 + bytes.len());
    sealed.extend(place.tag().to_le_bytes());
    sealed.extend(slot.to_le_bytes());
    sealed.extend_from_slice(bytes);
    PUBLISHED | u64::from(identity.checksum(&sealed))
}

/// The reason why an overflow cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum OverflowError {
    /// The overflow does not belong to this version of the group: the group has moved.
    Moved,
    /// A slot differs from its flag's checksum: it was read while it was written, or is damaged.
    Torn(String),
}

/// The bytes of an overflow.
#[derive(Clone, Copy)]
pub(in super::super) struct Overflow<'a> {
    bytes: &'a [u8],
    layout: &'a GrowthLayout,
}

impl<'a> Overflow<'a> {
    /// Interprets `bytes` as the overflow of the group at `place`. They contain at least the head and the
    /// flags.
    ///
    /// # Errors
    /// [`OverflowError::Moved`].
    pub(in super::super) fn read(
        layout: &'a GrowthLayout,
        place: &GroupPlace,
        bytes: &'a [u8],
    ) -> Result<Overflow<'a>, OverflowError> {
        if bytes.len() < layout.slots_at() as usize || u64_at(bytes, 8) != place.tag() {
            return Err(OverflowError::Moved);
        }
        Ok(Overflow { bytes, layout })
    }

    /// Returns the number of slots that were taken, at most the number that exists.
    pub(in super::super) fn taken(&self) -> u32 {
        u64_at(self.bytes, 0).min(u64::from(self.layout.slots)) as u32
    }

    /// Returns true if no slot is left: the group may then have moved.
    pub(in super::super) fn is_full(&self) -> bool {
        self.taken() == self.layout.slots
    }

    /// Returns the flags of the taken slots; 0 if a slot is not published yet.
    pub(in super::super) fn flags(&self) -> impl Iterator<Item = u64> + 'a {
        let bytes = self.bytes;
        (0..self.taken() as usize)
            .map(move |slot| u64_at(bytes, super::layout::HEAD_BYTES as usize + 8 * slot))
    }

    /// Calls `visit` for each published change with the partition, the id, and the vector, or `None` for a
    /// deletion.
    ///
    /// # Errors
    /// [`OverflowError::Torn`].
    pub(in super::super) fn changes(
        &self,
        identity: Identity,
        place: &GroupPlace,
        mut visit: impl FnMut(u32, u32, Option<&'a [u8]>),
    ) -> Result<(), OverflowError> {
        let (slots_at, slot_bytes) = (self.layout.slots_at() as usize, self.layout.slot_bytes() as usize);
        for (slot, published) in (0..).zip(self.flags()) {
            if published & PUBLISHED == 0 {
                continue;
            }
            let start = slots_at + slot as usize * slot_bytes;
            let bytes = self.bytes.get(start..start + slot_bytes).unwrap_or_default();
            let torn =
                |reason: &str| OverflowError::Torn(format!("slot {slot} of group {}: {reason}", place.group));
            if flag(identity, place, slot, bytes) != published {
                return Err(torn("its checksum differs from that of its flag"));
            }
            let (id, partition) = (u32_at(bytes, 0), u32_at(bytes, 4));
            if partition / 2 % (DELETED / 2) != place.group || id >= self.layout.ids {
                return Err(torn("its partition or id is out of range"));
            }
            let row = (partition & DELETED == 0).then(|| &bytes[8..8 + self.layout.row_bytes]);
            visit(partition & !DELETED, id, row);
        }
        Ok(())
    }
}

/// The changes of one partition since its sub-index was written.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(in super::super) struct PartitionChanges {
    /// Inserted vectors that are not deleted.
    pub(in super::super) ids: Vec<u32>,
    /// The bytes of these vectors, row-major.
    pub(in super::super) rows: Vec<u8>,
    /// Deleted vectors of the sub-index or of the overflow, in ascending order.
    pub(in super::super) deleted: Vec<u32>,
}

impl PartitionChanges {
    /// Reads the changes of a partition.
    ///
    /// # Errors
    /// [`OverflowError::Torn`].
    pub(in super::super) fn read(
        overflow: &Overflow<'_>,
        identity: Identity,
        place: &GroupPlace,
        partition: u32,
    ) -> Result<PartitionChanges, OverflowError> {
        let mut found = PartitionChanges::default();
        overflow.changes(identity, place, |changed, id, row| match row {
            _ if changed != partition => {}
            Some(row) => {
                found.ids.push(id);
                found.rows.extend_from_slice(row);
            }
            None => found.deleted.push(id),
        })?;
        found.deleted.sort_unstable();
        found.deleted.dedup();
        found.remove_deleted();
        Ok(found)
    }

    /// Returns true if the vector was deleted.
    #[inline]
    pub(in super::super) fn has_deleted(&self, id: u32) -> bool {
        !self.deleted.is_empty() && self.deleted.binary_search(&id).is_ok()
    }

    /// Removes the vectors that were inserted and deleted again.
    fn remove_deleted(&mut self) {
        if self.deleted.is_empty() || self.ids.is_empty() {
            return;
        }
        let row_bytes = self.rows.len() / self.ids.len();
        let mut kept = 0;
        for at in 0..self.ids.len() {
            if self.deleted.binary_search(&self.ids[at]).is_err() {
                self.ids[kept] = self.ids[at];
                self.rows.copy_within(at * row_bytes..(at + 1) * row_bytes, kept * row_bytes);
                kept += 1;
            }
        }
        self.ids.truncate(kept);
        self.rows.truncate(kept * row_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::GroupWord;
    use super::*;

    fn place() -> (GrowthLayout, GroupPlace) {
        let layout = GrowthLayout {
            partitions: 4,
            row_bytes: 3,
            slots: 6,
            unit_bytes: 1024,
            units: 8,
            ids: 50,
            most_vectors: 9,
            longest: 1 << 20,
        };
        let word = GroupWord { version: 2, first: 1, units: 1 };
        (layout, GroupPlace { group: 1, word, bytes: [0, 0], vectors: [0, 0] })
    }

    /// Returns an overflow with these changes in its slots.
    fn filled(layout: &GrowthLayout, place: &GroupPlace, changes: &[Option<OverflowChange>]) -> Vec<u8> {
        let mut bytes = vec![0; layout.overflow_bytes() as usize];
        bytes[..8].copy_from_slice(&(changes.len() as u64).to_le_bytes());
        bytes[8..16].copy_from_slice(&place.tag().to_le_bytes());
        for (slot, change) in changes.iter().enumerate() {
            let Some(change) = change else { continue };
            let mut slot_bytes = Vec::new();
            change.encode(layout, &mut slot_bytes);
            let sealed = flag(Identity::NONE, place, slot as u32, &slot_bytes);
            bytes[64 + 8 * slot..][..8].copy_from_slice(&sealed.to_le_bytes());
            bytes[layout.slots_at() as usize + slot * slot_bytes.len()..][..slot_bytes.len()]
                .copy_from_slice(&slot_bytes);
        }
        bytes
    }

    #[test]
    fn published_slots_are_read() {
        let (layout, place) = place();
        let insert =
            |partition, id, value: u8| Some(OverflowChange { partition, id, row: Some(vec![value; 3]) });
        let delete = |partition, id| Some(OverflowChange { partition, id, row: None });
        let changes =
            [insert(2, 30, 1), insert(3, 31, 2), None, delete(2, 4), insert(2, 33, 3), delete(2, 30)];
        let mut bytes = filled(&layout, &place, &changes);
        let read_changes = |bytes: &[u8], partition| {
            let overflow = Overflow::read(&layout, &place, bytes)?;
            PartitionChanges::read(&overflow, Identity::NONE, &place, partition)
        };
        let first = PartitionChanges { ids: vec![33], rows: vec![3; 3], deleted: vec![4, 30] };
        let second = PartitionChanges { ids: vec![31], rows: vec![2; 3], deleted: vec![] };
        assert_eq!((read_changes(&bytes, 2), read_changes(&bytes, 3)), (Ok(first.clone()), Ok(second)));
        assert!(first.has_deleted(4) && !first.has_deleted(33));
        // A changed byte after the number of slots is detected, or does not matter.
        for at in 8..bytes.len() {
            bytes[at] ^= 4;
            match read_changes(&bytes, 2) {
                Ok(read) => assert_eq!(read, first, "{at}"),
                Err(OverflowError::Moved) => assert!((8..16).contains(&at), "{at}"),
                Err(OverflowError::Torn(_)) => assert!(at >= 64, "{at}"),
            }
            bytes[at] ^= 4;
        }
        let moved = GroupPlace { word: GroupWord { version: 3, ..place.word }, ..place };
        assert!(Overflow::read(&layout, &moved, &bytes).is_err());
        assert!(Overflow::read(&layout, &place, &bytes[..100]).is_err());
    }

    #[test]
    fn unpublished_slots_are_skipped() {
        let (layout, place) = place();
        let mut bytes = filled(&layout, &place, &[None, None]);
        bytes[64..72].copy_from_slice(&DEAD.to_le_bytes());
        let overflow = Overflow::read(&layout, &place, &bytes).unwrap();
        assert_eq!((overflow.taken(), overflow.is_full()), (2, false));
        assert_eq!(overflow.flags().collect::<Vec<_>>(), [DEAD, 0]);
        assert_eq!(
            PartitionChanges::read(&overflow, Identity::NONE, &place, 2),
            Ok(PartitionChanges::default())
        );
        // More slots were requested than exist.
        bytes[..8].copy_from_slice(&900_u64.to_le_bytes());
        assert_eq!(Overflow::read(&layout, &place, &bytes).unwrap().taken(), 6);
    }
}
