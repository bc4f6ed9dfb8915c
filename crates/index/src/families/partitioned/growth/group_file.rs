//! The file of partitions that take inserts, as a build writes it: groups in their units, spare units, and
//! the initial control words of writers.

use super::super::subindex::most_bytes;
use super::super::subindex::options::PartitionedOptions;
use super::super::subindex::table::SubIndexEntry;
use super::entry::GrowthEntry;
use super::layout::{GroupPlace, GroupWord, GrowthLayout, HEAD_BYTES, MOST_GROUP_UNITS, MOST_UNITS};
use super::units::{BUILT, FIRST_EPOCH};
use crate::error::IndexError;
use crate::format::appender::Appender;
use crate::format::identity::Identity;
use crate::format::manifest::MAX_VECTORS;
use std::ops::RangeInclusive;

/// Units of a group on average in a build. Smaller units waste less at the end of a group.
const GROUP_UNITS: u64 = 16;
const LEAST_UNIT_BYTES: u64 = 4096;
/// The fraction of all units that is added as a spare, so that a group can be rewritten elsewhere.
const SPARE_SHARE: u64 = 4;
/// Additional ids, because killed writers lose the ids that they took: a fraction of all ids, and at least
/// [`LEAST_LOST`].
const LOST_SHARE: u64 = 8;
const LEAST_LOST: u64 = 1024;
/// Bytes of one write.
const AT_ONCE: usize = 1 << 20;

/// Writes the groups of a build.
pub(in super::super) struct GroupFileWriter<'a> {
    identity: Identity,
    options: &'a PartitionedOptions,
    /// The layout, with the largest values for what is not known yet.
    layout: GrowthLayout,
    /// The first partition of a group whose second has not come: its bytes and vectors.
    half: Option<(Vec<u8>, u32)>,
    places: Vec<GroupPlace>,
    most_vectors: u32,
}

impl<'a> GroupFileWriter<'a> {
    /// Creates a writer for `partitions` partitions. Returns `None` if the index takes no inserts.
    pub(in super::super) fn new(
        options: &'a PartitionedOptions,
        identity: Identity,
        partitions: usize,
        row_bytes: usize,
    ) -> Option<GroupFileWriter<'a>> {
        let slots = options.overflow()?;
        let vector = row_bytes as u64 + 8 * u64::from(options.links);
        let unit_bytes =
            (2 * u64::from(options.partition_vectors) * vector / GROUP_UNITS).next_power_of_two();
        let layout = GrowthLayout {
            partitions: partitions as u32,
            row_bytes,
            slots,
            unit_bytes: unit_bytes.max(LEAST_UNIT_BYTES),
            units: MOST_UNITS as u32 - 1,
            ids: 0,
            most_vectors: 0,
            longest: 0,
        };
        Some(GroupFileWriter { identity, options, layout, half: None, places: Vec::new(), most_vectors: 0 })
    }

    /// Appends a sub-index, and appends its position to `table` when its group is written.
    pub(in super::super) fn push(
        &mut self,
        file: &mut Appender,
        bytes: Vec<u8>,
        vectors: u32,
        table: &mut Vec<u8>,
    ) -> Result<(), IndexError> {
        self.most_vectors = self.most_vectors.max(vectors);
        match self.half.take() {
            None => self.half = Some((bytes, vectors)),
            Some(first) => self.write_group(file, [first, (bytes, vectors)], table)?,
        }
        Ok(())
    }

    fn write_group(
        &mut self,
        file: &mut Appender,
        [first, second]: [(Vec<u8>, u32); 2],
        table: &mut Vec<u8>,
    ) -> Result<(), IndexError> {
        let (layout, lengths) = (&self.layout, [first.0.len() as u32, second.0.len() as u32]);
        let first_unit = self.places.last().map_or(0, |place| place.word.first + place.word.units);
        let units = layout.units_of(lengths);
        if units > MOST_GROUP_UNITS || u64::from(first_unit) + units >= MOST_UNITS {
            return Err(IndexError::Parameter(
                "the partitions exceed the limits of an index with inserts; raise partition_vectors, or omit \
                 growth"
                    .into(),
            ));
        }
        let word = GroupWord { version: 1, first: first_unit, units: units as u32 };
        let vectors = [first.1, second.1];
        let place = GroupPlace { group: self.places.len() as u32, word, bytes: lengths, vectors };
        let mut bytes = place.head(self.identity).to_vec();
        bytes.extend_from_slice(&first.0);
        bytes.resize((place.overflow_at(layout) - place.start(layout)) as usize, 0);
        bytes.extend([0; 8]);
        bytes.extend(place.tag().to_le_bytes());
        bytes.resize((place.overflow(layout).end() - place.start(layout)) as usize, 0);
        bytes.extend_from_slice(&second.0);
        bytes.resize((units * layout.unit_bytes) as usize, 0);
        file.append(&bytes)?;
        for side in 0..2 {
            if lengths[side] > 0 {
                let offset = place.span(layout, side).offset + place.parts(layout, side)[0].start as u64;
                SubIndexEntry { offset, bytes: lengths[side], vectors: vectors[side] }.encode(table);
            }
        }
        self.places.push(place);
        Ok(())
    }

    /// Ends the file with the spare units and the control words of writers. `partition_of` gives the
    /// partition of each vector. Returns the manifest's description, and the length of the longest read.
    pub(in super::super) fn finish(
        mut self,
        file: &mut Appender,
        table: &mut Vec<u8>,
        partition_of: &[u32],
    ) -> Result<(GrowthEntry, u32), IndexError> {
        if let Some(first) = self.half.take() {
            self.write_group(file, [first, (Vec::new(), 0)], table)?;
        }
        let built = self.places.last().map_or(0, |place| place.word.first + place.word.units);
        let most_vectors = self.options.most_grown(self.most_vectors);
        let most = most_bytes(u64::from(most_vectors), self.layout.row_bytes, self.options.links);
        let longest = most.next_multiple_of(HEAD_BYTES) + self.layout.overflow_bytes();
        let too_long = || {
            IndexError::Parameter(
                "a partition may grow to more bytes than one read can fetch; lower partition_vectors".into(),
            )
        };
        let longest =
            u32::try_from(longest).ok().filter(|longest| *longest < 1 << 31).ok_or_else(too_long)?;
        let vectors = partition_of.len() as u64;
        let GrowthCapacity { units, largest, ids } =
            GrowthCapacity::new(self.options, &self.layout, u64::from(built), most, vectors);
        if units >= MOST_UNITS || largest > MOST_GROUP_UNITS {
            return Err(IndexError::Parameter("growth exceeds the limits of an index; lower growth".into()));
        }
        let entry = GrowthEntry {
            overflow_vectors: self.layout.slots,
            unit_bytes: self.layout.unit_bytes,
            units: units as u32,
            built_units: built,
            ids,
            most_vectors,
        };
        let layout = GrowthLayout::new(self.layout.partitions, self.layout.row_bytes, &entry);
        let mut appender = BufferedAppender { file, bytes: Vec::with_capacity(AT_ONCE) };
        let spare = (units - u64::from(built)) * layout.unit_bytes;
        appender.zeros(spare)?;
        for number in [vectors, FIRST_EPOCH, vectors] {
            appender.put(&number.to_le_bytes())?;
        }
        appender.zeros(layout.word_at(0) - layout.control_at() - 24)?;
        for place in &self.places {
            appender.put(&place.word.encode().to_le_bytes())?;
        }
        for unit in 0..units {
            let word = if unit < u64::from(built) { BUILT } else { 0 };
            appender.put(&word.to_le_bytes())?;
        }
        for partition in partition_of {
            appender.put(&(partition + 1).to_le_bytes())?;
        }
        appender.zeros(layout.file_bytes() - layout.partition_entry_at(vectors as u32))?;
        appender.flush()?;
        Ok((entry, longest))
    }
}

/// The capacity of an index that takes inserts.
struct GrowthCapacity {
    units: u64,
    /// Units of the largest possible group.
    largest: u64,
    ids: u32,
}

impl GrowthCapacity {
    /// Computes the capacity. The built groups take `built` units and have `vectors` vectors, and a sub-index
    /// has at most `most` bytes.
    fn new(
        options: &PartitionedOptions,
        layout: &GrowthLayout,
        built: u64,
        most: u64,
        vectors: u64,
    ) -> GrowthCapacity {
        let grown = (built as f64 * (1.0 + f64::from(options.growth))).ceil() as u64;
        let largest = layout.units_of([u32::try_from(most).unwrap_or(u32::MAX); 2]);
        let units = grown + (grown / SPARE_SHARE).max(2 * largest);
        let ids = vectors + (vectors as f64 * f64::from(options.growth)).ceil() as u64;
        let ids = (ids + (ids / LOST_SHARE).max(LEAST_LOST)).min(MAX_VECTORS) as u32;
        GrowthCapacity { units, largest, ids }
    }
}

/// Returns the bytes of the file before the sub-indexes are built. There will be `partitions` partitions over
/// `vectors` vectors, and their sub-indexes take `bytes` together.
pub(in super::super) fn grown_bytes(
    options: &PartitionedOptions,
    row_bytes: usize,
    vectors: u64,
    partitions: u64,
    bytes: RangeInclusive<u64>,
) -> RangeInclusive<u64> {
    let Some(GroupFileWriter { layout, .. }) =
        GroupFileWriter::new(options, Identity::NONE, partitions as usize, row_bytes)
    else {
        return bytes;
    };
    let groups = u64::from(layout.groups());
    let besides = groups * (2 * HEAD_BYTES + layout.overflow_bytes());
    let file_bytes = |built: u64, most_built: u32| {
        let most_vectors = options.most_grown(most_built);
        let most = most_bytes(u64::from(most_vectors), row_bytes, options.links);
        let GrowthCapacity { units, ids, .. } = GrowthCapacity::new(options, &layout, built, most, vectors);
        GrowthLayout { units: u32::try_from(units).unwrap_or(u32::MAX), ids, ..layout }.file_bytes()
    };
    // The last unit of a group is partly empty.
    let least = (bytes.start() + groups * layout.overflow_bytes()).div_ceil(layout.unit_bytes);
    let most = (bytes.end() + besides).div_ceil(layout.unit_bytes) + groups;
    file_bytes(least, 0)..=file_bytes(most, u32::try_from(options.most_vectors()).unwrap_or(u32::MAX))
}

/// Collects small pieces, and appends them to a file.
struct BufferedAppender<'a> {
    file: &'a mut Appender,
    bytes: Vec<u8>,
}

impl BufferedAppender<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), IndexError> {
        if self.bytes.len() + bytes.len() > AT_ONCE {
            self.flush()?;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn zeros(&mut self, count: u64) -> Result<(), IndexError> {
        self.flush()?;
        self.bytes.resize(AT_ONCE, 0);
        let mut left = count;
        while left > 0 {
            let len = left.min(AT_ONCE as u64);
            self.file.append(&self.bytes[..len as usize])?;
            left -= len;
        }
        self.bytes.clear();
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IndexError> {
        self.file.append(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }
}
