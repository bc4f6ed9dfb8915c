//! The layout of the file of partitions that take inserts (docs/format/partitioned.md). A group consists of
//! two sub-indexes and the overflow between them, which they share (d-HNSW, section 3.2). It occupies
//! consecutive units. The control words of writers follow the units.

use super::super::subindex::table::SubIndexEntry;
use super::entry::GrowthEntry;
use crate::format::identity::Identity;
use bathyal_tier::Span;
use std::ops::Range;

/// Bytes of the head of a group, before its first sub-index, and of the head of an overflow, before its
/// flags. Sub-indexes and overflows begin at multiples of it.
pub(in super::super) const HEAD_BYTES: u64 = 64;
/// The most writers that an index has at a time.
pub(in super::super) const WRITERS: u32 = 64;
/// Bytes of a writer's entry: its holder number, and the epoch that it has announced.
const WRITER_BYTES: u64 = 16;
/// The most units of a group, and the most units: the limits of [`GroupWord`].
pub(in super::super) const MOST_GROUP_UNITS: u64 = (1 << 12) - 1;
pub(in super::super) const MOST_UNITS: u64 = 1 << 28;
/// The largest version of a group.
pub(in super::super) const MOST_VERSIONS: u32 = (1 << 24) - 1;

/// Reads the little-endian number of 4 bytes at an offset; 0 if it is out of range.
pub(in super::super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Reads the little-endian number of 8 bytes at an offset; 0 if it is out of range.
pub(in super::super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The parameters from which all positions in the file follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct GrowthLayout {
    pub(in super::super) partitions: u32,
    pub(in super::super) row_bytes: usize,
    /// Vectors and deletions that an overflow holds.
    pub(in super::super) slots: u32,
    pub(in super::super) unit_bytes: u64,
    pub(in super::super) units: u32,
    /// Ids of vectors are below this.
    pub(in super::super) ids: u32,
    /// The most vectors of a partition, with those in the overflow.
    pub(in super::super) most_vectors: u32,
    /// Bytes of the longest read.
    pub(in super::super) longest: u32,
}

impl GrowthLayout {
    pub(in super::super) fn new(partitions: u32, row_bytes: usize, growth: &GrowthEntry) -> GrowthLayout {
        let GrowthEntry { overflow_vectors, unit_bytes, units, ids, most_vectors, .. } = *growth;
        let (slots, longest) = (overflow_vectors, u32::MAX);
        GrowthLayout { partitions, row_bytes, slots, unit_bytes, units, ids, most_vectors, longest }
    }

    /// Returns the positions of the groups as built, from the table of sub-indexes.
    ///
    /// # Errors
    /// A description of the first group that does not follow the one before.
    pub(in super::super) fn built(&self, entries: &[SubIndexEntry]) -> Result<Vec<GroupPlace>, String> {
        let (mut first, mut places) = (0, Vec::with_capacity(entries.len().div_ceil(2)));
        for (group, pair) in (0..).zip(entries.chunks(2)) {
            let both = |field: fn(&SubIndexEntry) -> u32| [0, 1].map(|side| pair.get(side).map_or(0, field));
            let (bytes, vectors) = (both(|entry| entry.bytes), both(|entry| entry.vectors));
            let units = self.units_of(bytes);
            let word = GroupWord { version: 1, first, units: units.min(MOST_GROUP_UNITS) as u32 };
            let place = GroupPlace { group, word, bytes, vectors };
            let begins =
                |side: usize| place.span(self, side).offset + place.parts(self, side)[0].start as u64;
            let in_order = pair
                .iter()
                .enumerate()
                .all(|(side, entry)| entry.offset == begins(side) && entry.bytes > 0 && entry.vectors > 0);
            if !in_order || !word.is_within(self) || units > MOST_GROUP_UNITS {
                return Err(format!(
                    "the partitions of group {group} do not follow those of the group before"
                ));
            }
            first += word.units;
            places.push(place);
        }
        Ok(places)
    }

    pub(in super::super) fn groups(&self) -> u32 {
        self.partitions.div_ceil(2)
    }

    /// Returns the bytes of a slot: id, partition, vector.
    pub(in super::super) fn slot_bytes(&self) -> u64 {
        (8 + self.row_bytes as u64).next_multiple_of(8)
    }

    /// Returns the offset of the slots in an overflow.
    pub(in super::super) fn slots_at(&self) -> u64 {
        HEAD_BYTES + 8 * u64::from(self.slots)
    }

    pub(in super::super) fn overflow_bytes(&self) -> u64 {
        (self.slots_at() + u64::from(self.slots) * self.slot_bytes()).next_multiple_of(HEAD_BYTES)
    }

    /// Returns the offset of the control words.
    pub(in super::super) fn control_at(&self) -> u64 {
        u64::from(self.units) * self.unit_bytes
    }

    /// Returns the offset of the next id.
    pub(in super::super) fn next_id_at(&self) -> u64 {
        self.control_at()
    }

    /// Returns the offset of the epoch, which rises whenever units are taken or retired.
    pub(in super::super) fn epoch_at(&self) -> u64 {
        self.control_at() + 8
    }

    /// Returns the offset of the number of vectors.
    pub(in super::super) fn vectors_at(&self) -> u64 {
        self.control_at() + 16
    }

    /// Returns the offset of the number of the holder that has paused all writers; 0 if none has.
    pub(in super::super) fn paused_at(&self) -> u64 {
        self.control_at() + 24
    }

    /// Returns the span of the writers' entries.
    pub(in super::super) fn writers(&self) -> Span {
        Span::at(self.control_at() + HEAD_BYTES, WRITERS * WRITER_BYTES as u32)
    }

    pub(in super::super) fn writer_at(&self, writer: u32) -> u64 {
        self.writers().offset + u64::from(writer) * WRITER_BYTES
    }

    /// Returns the offset of the table's word for a group.
    pub(in super::super) fn word_at(&self, group: u32) -> u64 {
        self.writers().end() + 8 * u64::from(group)
    }

    /// Returns the offset of the word of a unit.
    pub(in super::super) fn unit_at(&self, unit: u32) -> u64 {
        self.word_at(self.groups()) + 8 * u64::from(unit)
    }

    /// Returns the offset of the entry that gives the partition of a vector, plus 1; 0 if there is none.
    pub(in super::super) fn partition_entry_at(&self, id: u32) -> u64 {
        self.unit_at(self.units) + 4 * u64::from(id)
    }

    pub(in super::super) fn file_bytes(&self) -> u64 {
        self.partition_entry_at(self.ids).next_multiple_of(8)
    }

    /// Returns the number of units of a group with sub-indexes of these lengths.
    pub(in super::super) fn units_of(&self, bytes: [u32; 2]) -> u64 {
        let place = GroupPlace {
            word: GroupWord { version: 0, first: 0, units: 0 },
            group: 0,
            bytes,
            vectors: [0; 2],
        };
        place.end(self).div_ceil(self.unit_bytes)
    }
}

/// A word of the table: the units of a group, and its version. It is changed only by compare-and-swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in super::super) struct GroupWord {
    /// 1 in a build. Each move increments it.
    pub(in super::super) version: u32,
    pub(in super::super) first: u32,
    pub(in super::super) units: u32,
}

impl GroupWord {
    pub(in super::super) fn encode(self) -> u64 {
        u64::from(self.version) << 40 | u64::from(self.units) << 28 | u64::from(self.first)
    }

    pub(in super::super) fn decode(word: u64) -> GroupWord {
        let bits = |from: u32, count: u32| (word >> from & ((1 << count) - 1)) as u32;
        GroupWord { version: bits(40, 24), first: bits(0, 28), units: bits(28, 12) }
    }

    /// Returns true if the units exist.
    pub(in super::super) fn is_within(&self, layout: &GrowthLayout) -> bool {
        let end = u64::from(self.first) + u64::from(self.units);
        self.version > 0 && self.units > 0 && end <= u64::from(layout.units)
    }
}

/// The position of a group, and the sizes of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct GroupPlace {
    pub(in super::super) group: u32,
    pub(in super::super) word: GroupWord,
    /// Bytes of both sub-indexes; 0 if a partition has no vectors.
    pub(in super::super) bytes: [u32; 2],
    /// Vectors of both sub-indexes, without those in the overflow.
    pub(in super::super) vectors: [u32; 2],
}

impl GroupPlace {
    pub(in super::super) fn start(&self, layout: &GrowthLayout) -> u64 {
        u64::from(self.word.first) * layout.unit_bytes
    }

    pub(in super::super) fn overflow_at(&self, layout: &GrowthLayout) -> u64 {
        self.start(layout) + HEAD_BYTES + u64::from(self.bytes[0]).next_multiple_of(HEAD_BYTES)
    }

    /// Returns the offset after the last byte.
    pub(in super::super) fn end(&self, layout: &GrowthLayout) -> u64 {
        self.overflow_at(layout) + layout.overflow_bytes() + u64::from(self.bytes[1])
    }

    /// Returns the span that is read for the first (`side` 0) or second (`side` 1) partition: its sub-index,
    /// and the overflow.
    pub(in super::super) fn span(&self, layout: &GrowthLayout, side: usize) -> Span {
        let (start, overflow) = (self.start(layout) + HEAD_BYTES, self.overflow_at(layout));
        let (from, to) = match side {
            0 => (start, overflow + layout.overflow_bytes()),
            _ => (overflow, self.end(layout)),
        };
        Span::at(from, (to - from) as u32)
    }

    /// Returns the ranges of the sub-index and the overflow within that span.
    pub(in super::super) fn parts(&self, layout: &GrowthLayout, side: usize) -> [Range<usize>; 2] {
        let (bytes, overflow) = (self.bytes[side] as usize, layout.overflow_bytes() as usize);
        match side {
            0 => {
                let at = bytes.next_multiple_of(HEAD_BYTES as usize);
                [0..bytes, at..at + overflow]
            }
            _ => [overflow..overflow + bytes, 0..overflow],
        }
    }

    /// Returns the span of the overflow's head and flags.
    pub(in super::super) fn flags(&self, layout: &GrowthLayout) -> Span {
        Span::at(self.overflow_at(layout), layout.slots_at() as u32)
    }

    /// Returns the span of the whole overflow.
    pub(in super::super) fn overflow(&self, layout: &GrowthLayout) -> Span {
        Span::at(self.overflow_at(layout), layout.overflow_bytes() as u32)
    }

    /// Encodes the head of the group.
    pub(in super::super) fn head(&self, identity: Identity) -> [u8; HEAD_BYTES as usize] {
        let mut head = [0; HEAD_BYTES as usize];
        let [a, b] = self.bytes;
        let [c, d] = self.vectors;
        for (number, at) in [self.group, self.word.version, a, b, c, d].iter().zip((4..).step_by(4)) {
            head[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        let checksum = identity.checksum(&head[4..]);
        head[..4].copy_from_slice(&checksum.to_le_bytes());
        head
    }

    /// Decodes the head of the group at `word`.
    ///
    /// # Errors
    /// A description of the fault, also if the head is that of another group or version.
    pub(in super::super) fn from_head(
        layout: &GrowthLayout,
        identity: Identity,
        (group, word): (u32, GroupWord),
        head: &[u8],
    ) -> Result<GroupPlace, String> {
        let [bytes, vectors] = [[12, 16], [20, 24]].map(|places| places.map(|at| u32_at(head, at)));
        let place = GroupPlace { group, word, bytes, vectors };
        if place.head(identity) != head {
            return Err(format!("the head of version {} of group {group} is not there", word.version));
        }
        let end = place.end(layout) - place.start(layout);
        let most = u64::from(word.units) * layout.unit_bytes;
        if end > most || bytes.iter().zip(vectors).any(|(bytes, vectors)| (*bytes == 0) != (vectors == 0)) {
            return Err(format!(
                "its sub-indexes of {bytes:?} bytes do not match their vectors, or its {most} bytes"
            ));
        }
        Ok(place)
    }

    /// Returns the tag of the group's overflow. It follows the number of taken slots in the overflow's head.
    pub(in super::super) fn tag(&self) -> u64 {
        u64::from(self.word.version) << 32 | u64::from(self.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> GrowthLayout {
        GrowthLayout {
            partitions: 5,
            row_bytes: 13,
            slots: 7,
            unit_bytes: 1024,
            units: 40,
            ids: 101,
            most_vectors: 50,
            longest: 2000,
        }
    }

    #[test]
    fn parts_of_the_file_do_not_overlap() {
        let layout = layout();
        let place = GroupPlace {
            group: 2,
            word: GroupWord { version: 3, first: 4, units: 2 },
            bytes: [100, 300],
            vectors: [3, 9],
        };
        assert_eq!((layout.groups(), layout.slot_bytes(), layout.slots_at()), (3, 24, 120));
        assert_eq!(layout.overflow_bytes(), 320);
        let (first, second) = (place.span(&layout, 0), place.span(&layout, 1));
        assert_eq!((first.offset, first.len), (4096 + 64, 128 + 320));
        assert_eq!((second.offset, second.end()), (place.overflow_at(&layout), place.end(&layout)));
        assert_eq!(place.parts(&layout, 0), [0..100, 128..448]);
        assert_eq!(place.parts(&layout, 1), [320..620, 0..320]);
        assert_eq!(layout.units_of([100, 300]), 1);
        let ends =
            [layout.writers().end(), layout.word_at(3), layout.unit_at(40), layout.partition_entry_at(101)];
        assert!(layout.paused_at() + 8 <= layout.writers().offset && ends.is_sorted());
        assert!(layout.file_bytes().is_multiple_of(8));
    }

    #[test]
    fn words_and_heads_round_trip() {
        let word = GroupWord { version: MOST_VERSIONS, first: MOST_UNITS as u32 - 1, units: 77 };
        assert_eq!(GroupWord::decode(word.encode()), word);
        assert!(!word.is_within(&layout()));
        let word = GroupWord { version: 9, first: 38, units: 2 };
        assert!(word.is_within(&layout()));
        let place = GroupPlace { group: 1, word, bytes: [700, 0], vectors: [9, 0] };
        let identity = Identity::of("a test");
        let mut head = place.head(identity);
        assert_eq!(GroupPlace::from_head(&layout(), identity, (1, word), &head), Ok(place));
        let other = GroupWord { version: 8, ..word };
        assert!(GroupPlace::from_head(&layout(), identity, (1, other), &head).is_err());
        assert!(GroupPlace::from_head(&layout(), identity, (2, word), &head).is_err());
        assert!(GroupPlace::from_head(&layout(), Identity::NONE, (1, word), &head).is_err());
        for at in 0..head.len() {
            head[at] ^= 1;
            assert!(GroupPlace::from_head(&layout(), identity, (1, word), &head).is_err(), "{at}");
            head[at] ^= 1;
        }
    }
}
