//! Reads of a partition that may be changed at the same time: one read fetches the sub-index with its
//! overflow, and further reads find out whether it is complete and current.
//!
//! Readers block no writer. The overflow has a tag of its group and version, so bytes of anything else are
//! detected. While the overflow has room, the group has not moved, because a group is full before it moves.
//! If the overflow is full, the reader reads the table after the group, and thereby detects a move. A search
//! sees the state of a moment after it began.

use super::super::subindex::{self, SubIndex};
use super::layout::{GroupPlace, GroupWord, GrowthLayout, u64_at};
use super::overflow::{Overflow, OverflowError, PartitionChanges};
use crate::format::identity::Identity;
use bathyal_tier::Span;
use std::sync::{Arc, PoisonError, RwLock};

/// Attempts to read a partition before it counts as damaged. Each further attempt means that the partition
/// was changed at that moment.
const MOST_TRIES: u32 = 100;
/// Failed attempts before the partition counts as damaged, if the table shows no change of the group.
const MOST_UNCHANGED: u32 = 16;
/// The alignment of a sub-index in memory, a cache line. Its vectors are then aligned, too.
pub(in super::super) const ALIGNMENT: usize = 64;

/// An aligned copy of a sub-index.
#[derive(Debug)]
pub(in super::super) struct Aligned {
    bytes: Vec<u8>,
    lead: usize,
}

impl Aligned {
    /// Copies bytes to aligned memory.
    pub(in super::super) fn copy(from: &[u8]) -> Aligned {
        let mut bytes: Vec<u8> = Vec::with_capacity(from.len() + ALIGNMENT);
        let lead = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        bytes.resize(lead, 0);
        bytes.extend_from_slice(from);
        Aligned { bytes, lead }
    }

    pub(in super::super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.lead..]
    }
}

/// A partition in memory.
#[derive(Debug, Clone)]
pub(in super::super) struct LoadedPartition {
    /// The sub-index; empty if the partition has no vectors.
    pub(in super::super) subindex: Arc<Aligned>,
    /// The changes since the sub-index was written.
    pub(in super::super) changes: Arc<PartitionChanges>,
    /// The flags of the overflow from which the changes were read.
    flags: Vec<u64>,
    /// The position of the group when it was read.
    word: Option<GroupWord>,
}

impl LoadedPartition {
    /// Copies a sub-index of an index that takes no inserts.
    pub(in super::super) fn fixed(bytes: &[u8]) -> LoadedPartition {
        let subindex = Arc::new(Aligned::copy(bytes));
        LoadedPartition { subindex, changes: Arc::default(), flags: Vec::new(), word: None }
    }
}

/// The positions of the groups, as far as this process knows.
#[derive(Debug)]
pub(in super::super) struct GroupPlaces(RwLock<Vec<GroupPlace>>);

impl GroupPlaces {
    pub(in super::super) fn new(places: Vec<GroupPlace>) -> GroupPlaces {
        GroupPlaces(RwLock::new(places))
    }

    pub(in super::super) fn get(&self, group: u32) -> GroupPlace {
        self.0.read().unwrap_or_else(PoisonError::into_inner)[group as usize]
    }

    pub(in super::super) fn set(&self, place: GroupPlace) {
        self.0.write().unwrap_or_else(PoisonError::into_inner)[place.group as usize] = place;
    }
}

/// Reads partitions of an index that takes inserts.
#[derive(Debug)]
pub(in super::super) struct GroupReader {
    pub(in super::super) layout: GrowthLayout,
    pub(in super::super) identity: Identity,
    pub(in super::super) places: GroupPlaces,
}

/// The next step of a fetch.
#[derive(Debug)]
pub(in super::super) enum FetchStep {
    /// Read this span next.
    Read(Span),
    /// The partition is complete and current.
    Done(LoadedPartition),
    /// The group has moved, and may be longer. The caller begins a new fetch.
    Moved,
}

/// The state of a fetch of one partition.
#[derive(Debug)]
pub(in super::super) struct PartitionFetch {
    partition: u32,
    place: GroupPlace,
    awaited: AwaitedBytes,
    tries: u32,
    unchanged: u32,
}

/// The kind of the bytes that a fetch waits for.
#[derive(Debug)]
enum AwaitedBytes {
    /// The sub-index and the overflow.
    Partition,
    /// The head and the flags of the overflow, to check whether the loaded partition is current.
    Flags(LoadedPartition),
    /// The overflow, to update the changes of the loaded partition.
    Overflow(LoadedPartition),
    /// The word of the table, to check whether the group has moved; with the partition, or the reason why it
    /// cannot be used.
    Word(Result<LoadedPartition, OverflowError>),
    /// The head of the group at the position of this word.
    Head(GroupWord),
}

impl GroupReader {
    /// Begins a fetch. If `kept` was read from the current position, only its changes are read. Returns the
    /// fetch and the first span to read.
    pub(in super::super) fn begin(
        &self,
        partition: u32,
        kept: Option<&LoadedPartition>,
    ) -> (PartitionFetch, Span) {
        let place = self.places.get(partition / 2);
        let kept = kept.filter(|loaded| loaded.word == Some(place.word));
        let awaited = kept.map_or(AwaitedBytes::Partition, |loaded| AwaitedBytes::Flags(loaded.clone()));
        let fetch = PartitionFetch { partition, place, awaited, tries: 0, unchanged: 0 };
        let span = fetch.span(&self.layout);
        (fetch, span)
    }

    /// Returns the span of a partition with its overflow.
    pub(in super::super) fn span(&self, partition: u32) -> Span {
        self.places.get(partition / 2).span(&self.layout, partition as usize % 2)
    }

    /// Decodes the bytes of a partition. Returns the loaded partition, and true if its overflow is full.
    ///
    /// # Errors
    /// [`OverflowError`].
    pub(in super::super) fn decode(
        &self,
        place: &GroupPlace,
        partition: u32,
        bytes: &[u8],
    ) -> Result<(LoadedPartition, bool), OverflowError> {
        let side = partition as usize % 2;
        let [subindex, overflow] = place.parts(&self.layout, side).map(|part| bytes.get(part));
        let (subindex, overflow) = subindex.zip(overflow).ok_or(OverflowError::Moved)?;
        let ReadChanges { changes, flags, full } = self.changes(place, partition, overflow)?;
        self.check(place, partition, subindex).map_err(OverflowError::Torn)?;
        let subindex = Arc::new(Aligned::copy(subindex));
        Ok((LoadedPartition { subindex, changes, flags, word: Some(place.word) }, full))
    }

    /// Decodes the bytes of a partition without a copy. `checked` is true if the sub-index was checked
    /// before.
    ///
    /// # Errors
    /// [`OverflowError`].
    pub(in super::super) fn in_place<'b>(
        &self,
        partition: u32,
        bytes: &'b [u8],
        checked: bool,
    ) -> Result<(&'b [u8], Arc<PartitionChanges>), OverflowError> {
        let place = self.places.get(partition / 2);
        let parts = place.parts(&self.layout, partition as usize % 2).map(|part| bytes.get(part));
        let [Some(subindex), Some(overflow)] = parts else { return Err(OverflowError::Moved) };
        if !checked {
            self.check(&place, partition, subindex).map_err(OverflowError::Torn)?;
        }
        Ok((subindex, self.changes(&place, partition, overflow)?.changes))
    }

    fn changes(
        &self,
        place: &GroupPlace,
        partition: u32,
        overflow: &[u8],
    ) -> Result<ReadChanges, OverflowError> {
        let overflow = Overflow::read(&self.layout, place, overflow)?;
        let changes = PartitionChanges::read(&overflow, self.identity, place, partition)?;
        let (flags, full) = (overflow.flags().collect(), overflow.is_full());
        Ok(ReadChanges { changes: Arc::new(changes), flags, full })
    }

    /// Checks the bytes of a sub-index; returns a description of the fault.
    pub(in super::super) fn check(
        &self,
        place: &GroupPlace,
        partition: u32,
        bytes: &[u8],
    ) -> Result<(), String> {
        let expected = place.vectors[partition as usize % 2] as usize;
        if expected == 0 && bytes.is_empty() {
            return Ok(());
        }
        subindex::check_bytes(bytes, self.identity, partition)?;
        let index = SubIndex::read(bytes, self.layout.row_bytes)?;
        if index.count() != expected {
            return Err(format!("it has {} vectors, the head of its group says {expected}", index.count()));
        }
        index.check(self.layout.ids).map(|_| ())
    }
}

/// The changes of a partition, as its overflow has them.
struct ReadChanges {
    changes: Arc<PartitionChanges>,
    /// The flags of the taken slots.
    flags: Vec<u64>,
    /// True if no slot is left: the group may then have moved.
    full: bool,
}

impl PartitionFetch {
    /// Returns the span to read now.
    fn span(&self, layout: &GrowthLayout) -> Span {
        match &self.awaited {
            AwaitedBytes::Partition => self.place.span(layout, self.partition as usize % 2),
            AwaitedBytes::Flags(_) => self.place.flags(layout),
            AwaitedBytes::Overflow(_) => self.place.overflow(layout),
            AwaitedBytes::Word(_) => Span::at(layout.word_at(self.place.group), 8),
            AwaitedBytes::Head(word) => {
                Span::at(u64::from(word.first) * layout.unit_bytes, super::layout::HEAD_BYTES as u32)
            }
        }
    }

    /// Processes the bytes of the requested span.
    ///
    /// # Errors
    /// A description of the damage.
    pub(in super::super) fn arrived(
        &mut self,
        reader: &GroupReader,
        bytes: &[u8],
    ) -> Result<FetchStep, String> {
        self.tries += 1;
        if self.tries > MOST_TRIES {
            return Err(format!("it was read {MOST_TRIES} times and changed each time"));
        }
        let awaited = std::mem::replace(&mut self.awaited, AwaitedBytes::Partition);
        self.awaited = match awaited {
            AwaitedBytes::Partition => match reader.decode(&self.place, self.partition, bytes) {
                Ok((loaded, false)) => return Ok(FetchStep::Done(loaded)),
                Ok((loaded, true)) => AwaitedBytes::Word(Ok(loaded)),
                Err(error) => AwaitedBytes::Word(Err(error)),
            },
            AwaitedBytes::Flags(loaded) => match Overflow::read(&reader.layout, &self.place, bytes) {
                Ok(overflow) if !overflow.flags().eq(loaded.flags.iter().copied()) => {
                    AwaitedBytes::Overflow(loaded)
                }
                Ok(overflow) if overflow.is_full() => AwaitedBytes::Word(Ok(loaded)),
                Ok(_) => return Ok(FetchStep::Done(loaded)),
                Err(error) => AwaitedBytes::Word(Err(error)),
            },
            AwaitedBytes::Overflow(loaded) => match reader.changes(&self.place, self.partition, bytes) {
                Ok(ReadChanges { changes, flags, full }) => {
                    let loaded = LoadedPartition { changes, flags, ..loaded };
                    if !full {
                        return Ok(FetchStep::Done(loaded));
                    }
                    AwaitedBytes::Word(Ok(loaded))
                }
                Err(error) => AwaitedBytes::Word(Err(error)),
            },
            AwaitedBytes::Word(found) => match self.check_word(reader, found, bytes)? {
                Ok(loaded) => return Ok(FetchStep::Done(loaded)),
                Err(awaited) => awaited,
            },
            AwaitedBytes::Head(word) => {
                let group = (self.place.group, word);
                match GroupPlace::from_head(&reader.layout, reader.identity, group, bytes) {
                    Ok(place) => {
                        reader.places.set(place);
                        return Ok(FetchStep::Moved);
                    }
                    // The group has moved again, unless this persists.
                    Err(reason) => {
                        self.unchanged += 1;
                        if self.unchanged >= MOST_UNCHANGED {
                            return Err(reason);
                        }
                        AwaitedBytes::Word(Err(OverflowError::Moved))
                    }
                }
            }
        };
        Ok(FetchStep::Read(self.span(&reader.layout)))
    }

    /// Checks whether the table's word is unchanged. If so, `found` is current.
    fn check_word(
        &mut self,
        reader: &GroupReader,
        found: Result<LoadedPartition, OverflowError>,
        bytes: &[u8],
    ) -> Result<Result<LoadedPartition, AwaitedBytes>, String> {
        let word = GroupWord::decode(u64_at(bytes, 0));
        if word != self.place.word {
            if !word.is_within(&reader.layout) {
                return Err(format!(
                    "the table has an invalid position of group {}: {word:?}",
                    self.place.group
                ));
            }
            return Ok(Err(AwaitedBytes::Head(word)));
        }
        match found {
            Ok(loaded) => Ok(Ok(loaded)),
            Err(error) => {
                self.unchanged += 1;
                match error {
                    OverflowError::Torn(reason) if self.unchanged >= MOST_UNCHANGED => Err(reason),
                    OverflowError::Moved if self.unchanged >= MOST_UNCHANGED => {
                        Err("the overflow at the position in the table is not that of the group".into())
                    }
                    _ => Ok(Err(AwaitedBytes::Partition)),
                }
            }
        }
    }
}

/// Checks the bytes of a first group as a search does; ids are below 1,000.
pub(in super::super) fn check_group(
    bytes: &[u8],
    row_bytes: usize,
    slots: u32,
    identity: Identity,
) -> Result<(), String> {
    let unit_bytes = bytes.len() as u64;
    let layout = GrowthLayout {
        partitions: 2,
        row_bytes,
        slots,
        unit_bytes,
        units: 1,
        ids: 1000,
        most_vectors: 1000,
        longest: u32::MAX,
    };
    let word = GroupWord { version: 1, first: 0, units: 1 };
    let head = bytes.get(..super::layout::HEAD_BYTES as usize).ok_or("no head")?;
    let place = GroupPlace::from_head(&layout, identity, (0, word), head)?;
    let reader = GroupReader { layout, identity, places: GroupPlaces::new(vec![place]) };
    for partition in 0..2 {
        let span = place.span(&layout, partition as usize);
        let bytes = bytes.get(span.offset as usize..span.end() as usize).ok_or("no partition")?;
        reader.decode(&place, partition, bytes).map_err(|error| format!("{error:?}"))?;
    }
    Ok(())
}
