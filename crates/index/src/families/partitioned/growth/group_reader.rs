//! Reading a partition that may be changing: where it lies, in one read with its overflow, and how it is found out that what came
//! is not, or not any more, all that there is.
//!
//! Nobody is kept from changing what is read. The overflow has a tag of its group and version, so that bytes of anything else are
//! known; while it has room the group has not moved, for a group is full before it moves; and once it is full the table is asked,
//! after the group was read, whether it has. What a search sees is then what was there at a moment after it began.

use super::super::subindex::{self, SubIndex};
use super::layout::{GroupPlace, GroupWord, Layout, u64_at};
use super::overflow::{Overflow, OverflowError, PartitionChanges};
use crate::format::identity::Identity;
use bathyal_tier::Span;
use std::sync::{Arc, PoisonError, RwLock};

/// Reads of a partition in vain after which it is damaged: each means that it was changed at that very moment.
const MOST_TRIES: u32 = 100;
/// The same where nothing says that it was changed.
const MOST_UNCHANGED: u32 = 16;
/// Where the bytes of a sub-index begin in memory: at a cache line, as their vectors then do.
pub(in super::super) const ALIGNMENT: usize = 64;

/// The bytes of a sub-index.
#[derive(Debug)]
pub(in super::super) struct Aligned {
    bytes: Vec<u8>,
    lead: usize,
}

impl Aligned {
    /// A copy of `bytes`.
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
    /// Its sub-index; nothing of one without vectors.
    pub(in super::super) subindex: Arc<Aligned>,
    /// What was changed since that was written.
    pub(in super::super) changes: Arc<PartitionChanges>,
    /// The flags that this was read with.
    flags: Vec<u64>,
    /// Where it was.
    word: Option<GroupWord>,
}

impl LoadedPartition {
    /// A copy of a sub-index of an index that takes no inserts.
    pub(in super::super) fn fixed(bytes: &[u8]) -> LoadedPartition {
        let subindex = Arc::new(Aligned::copy(bytes));
        LoadedPartition { subindex, changes: Arc::default(), flags: Vec::new(), word: None }
    }
}

/// Where the groups lie, as far as this process knows.
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

/// What reading a partition takes.
#[derive(Debug)]
pub(in super::super) struct GroupReader {
    pub(in super::super) layout: Layout,
    pub(in super::super) identity: Identity,
    pub(in super::super) places: GroupPlaces,
}

/// What comes next.
#[derive(Debug)]
pub(in super::super) enum FetchStep {
    /// These bytes have to be read.
    Read(Span),
    /// Here it is.
    Done(LoadedPartition),
    /// The group lies elsewhere, and may be longer: whoever reads it begins again.
    Moved,
}

/// A partition on its way.
#[derive(Debug)]
pub(in super::super) struct PartitionFetch {
    partition: u32,
    place: GroupPlace,
    awaited: AwaitedBytes,
    tries: u32,
    unchanged: u32,
}

/// What the next bytes are.
#[derive(Debug)]
enum AwaitedBytes {
    /// The sub-index and the overflow.
    Partition,
    /// The head and the flags of the overflow, to see whether what is held is all.
    Flags(LoadedPartition),
    /// The overflow, with the sub-index that is held.
    Overflow(LoadedPartition),
    /// The word of the table; what was found, unless that cannot be used.
    Word(Result<LoadedPartition, OverflowError>),
    /// The head of the group that the word says.
    Head(GroupWord),
}

impl GroupReader {
    /// Begins to read a partition, of which `kept` is in memory, if that is where the group lies; with what has to be read first.
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

    /// The length of what is read of a partition.
    pub(in super::super) fn span(&self, partition: u32) -> Span {
        self.places.get(partition / 2).span(&self.layout, partition as usize % 2)
    }

    /// The sub-index and the changes in the bytes of a partition.
    ///
    /// # Errors
    /// [`OverflowError`].
    pub(in super::super) fn whole(
        &self,
        place: &GroupPlace,
        partition: u32,
        bytes: &[u8],
    ) -> Result<(LoadedPartition, bool), OverflowError> {
        let side = partition as usize % 2;
        let [subindex, overflow] = place.parts(&self.layout, side).map(|part| bytes.get(part));
        let (subindex, overflow) = subindex.zip(overflow).ok_or(OverflowError::Moved)?;
        let (changes, flags, full) = self.changes(place, partition, overflow)?;
        self.check(place, partition, subindex).map_err(OverflowError::Torn)?;
        let subindex = Arc::new(Aligned::copy(subindex));
        Ok((LoadedPartition { subindex, changes, flags, word: Some(place.word) }, full))
    }

    /// The same where it lies; `checked` before, but for the changes.
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
        let (changes, ..) = self.changes(&place, partition, overflow)?;
        Ok((subindex, changes))
    }

    fn changes(
        &self,
        place: &GroupPlace,
        partition: u32,
        overflow: &[u8],
    ) -> Result<(Arc<PartitionChanges>, Vec<u64>, bool), OverflowError> {
        let overflow = Overflow::read(&self.layout, place, overflow)?;
        let changes = PartitionChanges::read(&overflow, self.identity, place, partition)?;
        Ok((Arc::new(changes), overflow.flags().collect(), overflow.is_full()))
    }

    /// A sentence unless these are the bytes of a sub-index.
    pub(in super::super) fn check(
        &self,
        place: &GroupPlace,
        partition: u32,
        bytes: &[u8],
    ) -> Result<(), String> {
        let said = place.vectors[partition as usize % 2] as usize;
        if said == 0 && bytes.is_empty() {
            return Ok(());
        }
        subindex::check_bytes(bytes, self.identity, partition)?;
        let index = SubIndex::read(bytes, self.layout.row_bytes)?;
        if index.count() != said {
            return Err(format!("it has {} vectors, its group says {said}", index.count()));
        }
        index.check(self.layout.ids).map(|_| ())
    }
}

impl PartitionFetch {
    /// What has to be read now.
    fn span(&self, layout: &Layout) -> Span {
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

    /// Takes what was read.
    ///
    /// # Errors
    /// A sentence: it is damaged.
    pub(in super::super) fn arrived(
        &mut self,
        reader: &GroupReader,
        bytes: &[u8],
    ) -> Result<FetchStep, String> {
        self.tries += 1;
        if self.tries > MOST_TRIES {
            return Err(format!("it was read {MOST_TRIES} times and was always being changed"));
        }
        let awaited = std::mem::replace(&mut self.awaited, AwaitedBytes::Partition);
        self.awaited = match awaited {
            AwaitedBytes::Partition => match reader.whole(&self.place, self.partition, bytes) {
                Ok((loaded, false)) => return Ok(FetchStep::Done(loaded)),
                Ok((loaded, true)) => AwaitedBytes::Word(Ok(loaded)),
                Err(unread) => AwaitedBytes::Word(Err(unread)),
            },
            AwaitedBytes::Flags(loaded) => match Overflow::read(&reader.layout, &self.place, bytes) {
                Ok(overflow) if !overflow.flags().eq(loaded.flags.iter().copied()) => {
                    AwaitedBytes::Overflow(loaded)
                }
                Ok(overflow) if overflow.is_full() => AwaitedBytes::Word(Ok(loaded)),
                Ok(_) => return Ok(FetchStep::Done(loaded)),
                Err(unread) => AwaitedBytes::Word(Err(unread)),
            },
            AwaitedBytes::Overflow(loaded) => match reader.changes(&self.place, self.partition, bytes) {
                Ok((changes, flags, full)) => {
                    let loaded = LoadedPartition { changes, flags, ..loaded };
                    if !full {
                        return Ok(FetchStep::Done(loaded));
                    }
                    AwaitedBytes::Word(Ok(loaded))
                }
                Err(unread) => AwaitedBytes::Word(Err(unread)),
            },
            AwaitedBytes::Word(found) => match self.asked(reader, found, bytes)? {
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
                    // It has moved again, unless it stays like this.
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

    /// Looks whether the table still says what it said: what was `found` is then all that there is.
    fn asked(
        &mut self,
        reader: &GroupReader,
        found: Result<LoadedPartition, OverflowError>,
        bytes: &[u8],
    ) -> Result<Result<LoadedPartition, AwaitedBytes>, String> {
        let word = GroupWord::decode(u64_at(bytes, 0));
        if word != self.place.word {
            if !word.is_within(&reader.layout) {
                return Err(format!("the table says that group {} lies at {word:?}", self.place.group));
            }
            return Ok(Err(AwaitedBytes::Head(word)));
        }
        match found {
            Ok(loaded) => Ok(Ok(loaded)),
            Err(unread) => {
                self.unchanged += 1;
                match unread {
                    OverflowError::Torn(reason) if self.unchanged >= MOST_UNCHANGED => Err(reason),
                    OverflowError::Moved if self.unchanged >= MOST_UNCHANGED => {
                        Err("its overflow is none of where the table says that it lies".into())
                    }
                    _ => Ok(Err(AwaitedBytes::Partition)),
                }
            }
        }
    }
}

/// Reads the bytes of a first group as a search does, with an id below 1,000 for each vector.
pub(in super::super) fn check_group(
    bytes: &[u8],
    row_bytes: usize,
    slots: u32,
    identity: Identity,
) -> Result<(), String> {
    let unit_bytes = bytes.len() as u64;
    let layout = Layout {
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
        reader.whole(&place, partition, bytes).map_err(|unread| format!("{unread:?}"))?;
    }
    Ok(())
}
