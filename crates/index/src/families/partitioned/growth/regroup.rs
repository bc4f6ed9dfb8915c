//! The rewriting of a group whose overflow is full. Inserted vectors enter the graphs, and deleted ones are
//! removed. The new group is written elsewhere, and then replaces the old one by a swap of its word in the
//! table.

use super::super::subindex::hnsw::{Hnsw, arrange};
use super::super::subindex::options::PartitionedOptions;
use super::super::subindex::{SubIndex, SubIndexParts};
use super::group_reader::GroupReader;
use super::layout::{GroupPlace, GroupWord, HEAD_BYTES, MOST_GROUP_UNITS, MOST_VERSIONS};
use super::overflow::{DEAD, Overflow, OverflowError, PartitionChanges};
use super::shared_memory::{GrowthMemory, MemoryOperation, OperationKind, read, update_number};
use super::units;
use crate::error::IndexError;
use crate::partition::space::Space;
use bathyal_kernels::{Element, Metric, squared_norm};
use bathyal_vectors::progress::Silent;

/// Bytes of one write.
const AT_ONCE: usize = 1 << 20;
/// Attempts to read an overflow before it counts as damaged.
const MOST_TRIES: u32 = 16;

/// Builds sub-indexes for a group that is rewritten.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct SubIndexBuilder {
    pub(in super::super) options: PartitionedOptions,
    pub(in super::super) dim: usize,
    /// The element of stored vectors.
    pub(in super::super) element: Element,
    pub(in super::super) metric: Metric,
}

/// The outcome of rewriting a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum RegroupOutcome {
    /// The group has moved, by this writer or another.
    Moved,
    /// There is no room for the new group.
    NoRoom,
}

impl SubIndexBuilder {
    /// Builds and encodes a sub-index over some vectors; it is empty if there are none. If `grown` is given,
    /// it is a sub-index over the first of the vectors, and is extended.
    pub(super) fn subindex(
        &self,
        reader: &GroupReader,
        partition: u32,
        (ids, rows): (&[u32], &[u8]),
        grown: Option<&SubIndex<'_>>,
    ) -> Result<Vec<u8>, IndexError> {
        let mut bytes = Vec::new();
        if ids.is_empty() {
            return Ok(bytes);
        }
        let row_bytes = reader.layout.row_bytes;
        let mut order: Vec<u32> = (0..ids.len() as u32).collect();
        let sizes = match grown {
            Some(_) => Vec::new(),
            None => arrange(&mut order, |_| false, &self.options, u64::from(partition)),
        };
        let mut space = Space::blank(ids.len(), self.dim, self.element, self.metric)?;
        let row = |number: u32| &rows[number as usize * row_bytes..][..row_bytes];
        for (to, from) in (0..).zip(&order) {
            space.row_mut(to).copy_from_slice(row(*from));
        }
        if self.metric == Metric::InnerProduct {
            let norms = (0..ids.len() as u32).map(|number| squared_norm(self.element, space.row(number)));
            let longest = norms.fold(0.0_f32, f32::max);
            space.lift(longest);
        }
        let hnsw = match grown {
            Some(grown) => Hnsw::extend(&space, grown, &self.options, &Silent)?,
            None => Hnsw::grow(&space, &sizes, 0, &self.options, &Silent)?,
        };
        let ids: Vec<u32> = order.iter().map(|from| ids[*from as usize]).collect();
        let parts = SubIndexParts { number: partition, layers: &hnsw.layers, ids: &ids };
        parts.encode(reader.identity, |number| space.row(number), &mut bytes);
        Ok(bytes)
    }
}

/// Rewrites the group at `place`, whose overflow is full.
pub(in super::super) async fn regroup<M: GrowthMemory>(
    memory: &M,
    reader: &GroupReader,
    builder: &SubIndexBuilder,
    place: GroupPlace,
) -> Result<RegroupOutcome, IndexError> {
    let layout = &reader.layout;
    let damaged =
        |reason: String| IndexError::Internal(format!("group {} cannot be rewritten: {reason}", place.group));
    if place.word.version == MOST_VERSIONS {
        return Err(damaged("it has moved the most times possible; build the index anew".into()));
    }
    let Some(bytes) = read_closed_group(memory, reader, &place).await? else {
        return Ok(RegroupOutcome::Moved);
    };
    let mut encoded = [Vec::new(), Vec::new()];
    let mut counts = [0_u32; 2];
    for side in 0..2 {
        let partition = 2 * place.group + side as u32;
        let from = place.span(layout, side).offset - place.start(layout);
        let [subindex, overflow] = place.parts(layout, side);
        let part = |range: std::ops::Range<usize>| &bytes[from as usize..][range];
        let subindex = part(subindex);
        let found = live_vectors(reader, &place, partition, subindex, part(overflow)).map_err(damaged)?;
        let LiveVectors { ids, rows, deleted } = found;
        counts[side] = ids.len() as u32;
        // If no vector is deleted, its graph can be extended.
        let extends = !deleted && !subindex.is_empty();
        let grown = if extends { SubIndex::read(subindex, layout.row_bytes).ok() } else { None };
        encoded[side] = builder.subindex(reader, partition, (&ids, &rows), grown.as_ref())?;
    }
    drop(bytes);
    let lengths = [encoded[0].len() as u32, encoded[1].len() as u32];
    let wanted = layout.units_of(lengths);
    if wanted > MOST_GROUP_UNITS {
        return Ok(RegroupOutcome::NoRoom);
    }
    let longest = |place: &GroupPlace| place.span(layout, 0).len.max(place.span(layout, 1).len);
    if longest(&GroupPlace { bytes: lengths, ..place }) > layout.longest {
        return Err(damaged(format!("its sub-indexes have {lengths:?} bytes, more than the longest read")));
    }
    let Some(taken) = units::take(memory, layout, wanted as u32).await? else {
        return Ok(RegroupOutcome::NoRoom);
    };
    let word = GroupWord { version: place.word.version + 1, first: taken.first, units: taken.units };
    let new = GroupPlace { group: place.group, word, bytes: lengths, vectors: counts };
    let mut bytes = new.head(reader.identity).to_vec();
    bytes.extend_from_slice(&encoded[0]);
    bytes.resize((new.overflow_at(layout) - new.start(layout)) as usize, 0);
    bytes.extend([0; 8]);
    bytes.extend(new.tag().to_le_bytes());
    // The contents of a slot do not matter until its flag is published.
    bytes.resize((new.flags(layout).end() - new.start(layout)) as usize, 0);
    write(memory, new.start(layout), &bytes).await?;
    write(memory, new.overflow(layout).end(), &encoded[1]).await?;
    let move_group = OperationKind::Swap { expected: place.word.encode(), new: new.word.encode() };
    let current = update_number(memory, layout.word_at(place.group), move_group).await?;
    if current == place.word.encode() {
        reader.places.set(new);
        units::retire(memory, layout, place.word).await?;
    } else {
        units::release(memory, layout, taken).await?;
    }
    Ok(RegroupOutcome::Moved)
}

async fn write<M: GrowthMemory>(memory: &M, offset: u64, bytes: &[u8]) -> Result<(), IndexError> {
    for (at, some) in (0..).step_by(AT_ONCE).zip(bytes.chunks(AT_ONCE)) {
        memory.run(vec![MemoryOperation::new(offset + at, OperationKind::Write(some.to_vec()))]).await?;
    }
    Ok(())
}

/// Reads a group, and closes its unpublished slots, so that none is published later. Returns `None` if the
/// group has moved.
async fn read_closed_group<M: GrowthMemory>(
    memory: &M,
    reader: &GroupReader,
    place: &GroupPlace,
) -> Result<Option<Vec<u8>>, IndexError> {
    let layout = &reader.layout;
    let (start, len) = (place.start(layout), (place.end(layout) - place.start(layout)) as usize);
    let overflow_at = (place.overflow_at(layout) - start) as usize;
    let mut bytes = read(memory, start, len).await?;
    for _ in 0..MOST_TRIES {
        let overflow = place.overflow(layout);
        let found = Overflow::read(layout, place, &bytes[overflow_at..][..overflow.len as usize]);
        // The units of the group are not reused while this writer is active, so another tag means that the
        // group has moved for good.
        let Ok(found) = found else { return Ok(None) };
        let waiting: Vec<u32> =
            (0..).zip(found.flags()).filter(|(_, flag)| *flag == 0).map(|(slot, _)| slot).collect();
        let torn = matches!(found.changes(reader.identity, place, |_, _, _| ()), Err(OverflowError::Torn(_)));
        if waiting.is_empty() && !torn {
            return Ok(Some(bytes));
        }
        let kill = |slot: &u32| {
            let at = place.overflow_at(layout) + HEAD_BYTES + 8 * u64::from(*slot);
            MemoryOperation::new(at, OperationKind::Swap { expected: 0, new: DEAD })
        };
        memory.run(waiting.iter().map(kill).collect()).await?;
        let again = read(memory, overflow.offset, overflow.len as usize).await?;
        bytes[overflow_at..][..again.len()].copy_from_slice(&again);
    }
    Err(IndexError::Internal(format!("the overflow of group {} is damaged", place.group)))
}

/// The vectors of a partition that are not deleted; those of the sub-index come first.
struct LiveVectors {
    ids: Vec<u32>,
    rows: Vec<u8>,
    /// True if vectors of the sub-index are deleted.
    deleted: bool,
}

fn live_vectors(
    reader: &GroupReader,
    place: &GroupPlace,
    partition: u32,
    subindex: &[u8],
    overflow: &[u8],
) -> Result<LiveVectors, String> {
    let layout = &reader.layout;
    let reason = |error| match error {
        OverflowError::Torn(reason) => reason,
        OverflowError::Moved => "it has moved".into(),
    };
    let overflow = Overflow::read(layout, place, overflow).map_err(reason)?;
    let changes = PartitionChanges::read(&overflow, reader.identity, place, partition).map_err(reason)?;
    reader.check(place, partition, subindex)?;
    let mut found = LiveVectors { ids: Vec::new(), rows: Vec::new(), deleted: false };
    if !subindex.is_empty() {
        let index = SubIndex::read(subindex, layout.row_bytes)?;
        for at in 0..index.count() {
            let id = index.id(at as u32);
            if changes.has_deleted(id) {
                found.deleted = true;
            } else {
                found.ids.push(id);
                found.rows.extend_from_slice(&index.rows[at * layout.row_bytes..][..layout.row_bytes]);
            }
        }
    }
    found.ids.extend_from_slice(&changes.ids);
    found.rows.extend_from_slice(&changes.rows);
    Ok(found)
}
