//! A writer of an index of partitions: it inserts and deletes vectors. There may be several writers on
//! several machines.
//!
//! A vector is in the index from the moment at which the flag of its slot is published. Writers need no
//! agreement. A writer that is killed between two steps blocks no other: its taken slots are passed over, and
//! its units are reclaimed.

use super::group_reader::GroupReader;
use super::layout::{GroupPlace, GroupWord, HEAD_BYTES, WRITERS, u32_at, u64_at};
use super::overflow::{OverflowChange, flag};
use super::regroup::{RegroupOutcome, SubIndexBuilder, regroup};
use super::shared_memory::{GrowthMemory, MemoryOperation, OperationKind, read, update_number};
use super::units;
use crate::error::IndexError;
use std::cell::Cell;
use std::task::Poll;

/// Slots that one chain of operations publishes.
const CHAIN: usize = 4;
/// Waits for another writer that rewrites a group, before this writer rewrites it.
pub(in super::super) const WAITS: u32 = 2000;
/// Waits for the end of a pause, or for other writers to end: about a minute.
const PAUSED_WAITS: u32 = 100_000;
/// The most attempts against other writers.
const MOST_TRIES: u32 = 1000;

/// A writer of one thread.
pub(in super::super) struct GrowthWriter<'a, M> {
    pub(in super::super) memory: &'a M,
    pub(in super::super) reader: &'a GroupReader,
    pub(in super::super) builder: &'a SubIndexBuilder,
    /// The slot of this writer in the table of writers, after it has claimed one.
    pub(in super::super) slot: Cell<Option<u32>>,
    /// True while a task rewrites a group. Only one task does so at a time, because it needs memory for the
    /// whole group.
    pub(in super::super) regrouping: Cell<bool>,
}

/// The right to rewrite a group; dropping it lets the next task do so.
struct RegroupGuard<'a>(&'a Cell<bool>);

impl Drop for RegroupGuard<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl<'a, M> GrowthWriter<'a, M> {
    pub(in super::super) fn new(
        memory: &'a M,
        reader: &'a GroupReader,
        builder: &'a SubIndexBuilder,
        slot: Option<u32>,
    ) -> GrowthWriter<'a, M> {
        GrowthWriter { memory, reader, builder, slot: Cell::new(slot), regrouping: Cell::new(false) }
    }

    /// Waits until no other task rewrites a group.
    async fn lock_regroup(&self) -> RegroupGuard<'_> {
        let take = || {
            if self.regrouping.replace(true) {
                Poll::Pending
            } else {
                Poll::Ready(RegroupGuard(&self.regrouping))
            }
        };
        std::future::poll_fn(|_| take()).await
    }
}

impl<M: GrowthMemory> GrowthWriter<'_, M> {
    /// Announces the current epoch: this writer is active until [`GrowthWriter::end`]. If the index is
    /// paused, waits for the end of the pause.
    pub(in super::super) async fn begin(&self) -> Result<(), IndexError> {
        let (memory, layout) = (self.memory, &self.reader.layout);
        let writer = match self.slot.get() {
            Some(writer) => writer,
            None => self.claim_writer_slot().await?,
        };
        self.slot.set(Some(writer));
        for _ in 0..PAUSED_WAITS {
            let epoch = read(memory, layout.epoch_at(), 8).await?;
            let announce = OperationKind::Write(epoch);
            memory.run(vec![MemoryOperation::new(layout.writer_at(writer) + 8, announce)]).await?;
            // Read this after the announcement: a pausing process reads the active writers after it has set
            // the pause.
            let paused = u64_at(&read(memory, layout.paused_at(), 8).await?, 0);
            if paused == 0 {
                return Ok(());
            }
            self.end().await?;
            if memory.holders()?.is_some_and(|holders| !holders.contains(&paused)) {
                // The process that paused the index is gone.
                update_number(memory, layout.paused_at(), OperationKind::Swap { expected: paused, new: 0 })
                    .await?;
            } else {
                memory.pause().await;
            }
        }
        Err(IndexError::Parameter(
            "the index is being copied, and cannot be changed until the copy has ended; try again then"
                .into(),
        ))
    }

    /// Pauses all writers until [`GrowthWriter::resume`], and waits for the active ones to end. Returns false
    /// if another process has paused the index, or if writers do not end in time.
    pub(in super::super) async fn pause(&self) -> Result<bool, IndexError> {
        let (memory, layout) = (self.memory, &self.reader.layout);
        for _ in 0..PAUSED_WAITS {
            let claim = OperationKind::Swap { expected: 0, new: memory.holder() };
            let current = update_number(memory, layout.paused_at(), claim).await?;
            if current == 0 {
                break;
            }
            if current == memory.holder()
                || memory.holders()?.is_none_or(|holders| holders.contains(&current))
            {
                return Ok(false);
            }
            update_number(memory, layout.paused_at(), OperationKind::Swap { expected: current, new: 0 })
                .await?;
        }
        for _ in 0..PAUSED_WAITS {
            if units::earliest_epoch(memory, layout).await? == u64::MAX {
                return Ok(true);
            }
            memory.pause().await;
        }
        self.resume().await?;
        Ok(false)
    }

    /// Ends the pause.
    pub(in super::super) async fn resume(&self) -> Result<(), IndexError> {
        let back = OperationKind::Swap { expected: self.memory.holder(), new: 0 };
        update_number(self.memory, self.reader.layout.paused_at(), back).await.map(|_| ())
    }

    /// Announces that this writer is no longer active.
    pub(in super::super) async fn end(&self) -> Result<(), IndexError> {
        let Some(writer) = self.slot.get() else { return Ok(()) };
        let at = self.reader.layout.writer_at(writer) + 8;
        self.memory.run(vec![MemoryOperation::new(at, OperationKind::Write(vec![0; 8]))]).await.map(|_| ())
    }

    /// Claims a slot in the table of writers: a free one, or that of a process that is gone.
    async fn claim_writer_slot(&self) -> Result<u32, IndexError> {
        let (memory, layout) = (self.memory, &self.reader.layout);
        let span = layout.writers();
        for _ in 0..MOST_TRIES {
            let bytes = read(memory, span.offset, span.len as usize).await?;
            let holders = memory.holders()?;
            let free = (0..WRITERS).map(|writer| (writer, u64_at(&bytes, 16 * writer as usize))).find(
                |(_, owner)| *owner == 0 || holders.as_ref().is_some_and(|holders| !holders.contains(owner)),
            );
            let Some((writer, owner)) = free else {
                return Err(IndexError::Parameter(format!(
                    "{WRITERS} other writers have the index open, the most that are possible; try again when \
                     one of them has closed it"
                )));
            };
            let claim = OperationKind::Swap { expected: owner, new: memory.holder() };
            if update_number(memory, layout.writer_at(writer), claim).await? == owner {
                return Ok(writer);
            }
        }
        Err(IndexError::Internal("other writers were faster in every attempt".into()))
    }

    /// Returns the current position of a group.
    pub(in super::super) async fn group(&self, group: u32) -> Result<GroupPlace, IndexError> {
        let (memory, reader) = (self.memory, self.reader);
        for _ in 0..MOST_TRIES {
            let known = reader.places.get(group);
            let word = GroupWord::decode(u64_at(&read(memory, reader.layout.word_at(group), 8).await?, 0));
            if word == known.word {
                return Ok(known);
            }
            if !word.is_within(&reader.layout) {
                return Err(IndexError::Internal(format!(
                    "the table has an invalid position of group {group}: {word:?}"
                )));
            }
            let start = u64::from(word.first) * reader.layout.unit_bytes;
            let head = read(memory, start, HEAD_BYTES as usize).await?;
            let place = GroupPlace::from_head(&reader.layout, reader.identity, (group, word), &head);
            reader.places.set(place.map_err(IndexError::Internal)?);
        }
        Err(IndexError::Internal(format!("group {group} moved during every attempt to read it")))
    }

    /// Takes ids for `count` vectors, and returns the first. Returns `None` if too few are left.
    pub(in super::super) async fn ids(&self, count: u32) -> Result<Option<u32>, IndexError> {
        let (layout, count) = (&self.reader.layout, u64::from(count));
        let mut first = u64_at(&read(self.memory, layout.next_id_at(), 8).await?, 0);
        for _ in 0..MOST_TRIES {
            if first + count > u64::from(layout.ids) {
                return Ok(None);
            }
            let take = OperationKind::Swap { expected: first, new: first + count };
            let current = update_number(self.memory, layout.next_id_at(), take).await?;
            if current == first {
                return Ok(Some(first as u32));
            }
            first = current;
        }
        Err(IndexError::Internal("other writers were faster in every attempt".into()))
    }

    /// Returns the partition that a vector was inserted or built into; `None` if the id does not exist.
    pub(in super::super) async fn partition_of(&self, id: u32) -> Result<Option<u32>, IndexError> {
        let bytes = read(self.memory, self.reader.layout.partition_entry_at(id), 4).await?;
        Ok(u32_at(&bytes, 0).checked_sub(1).filter(|partition| *partition < self.reader.layout.partitions))
    }

    /// Applies changes to a group, in any order. Returns the changes for which there is no room. If another
    /// writer has to rewrite the group, this writer waits for it up to `waits` times.
    pub(in super::super) async fn change(
        &self,
        group: u32,
        mut changes: Vec<OverflowChange>,
        waits: u32,
    ) -> Result<Vec<OverflowChange>, IndexError> {
        let slots = u64::from(self.reader.layout.slots);
        while !changes.is_empty() {
            let place = self.group(group).await?;
            let (at, count) = (place.overflow_at(&self.reader.layout), changes.len() as u64);
            let first = update_number(self.memory, at, OperationKind::Add(count)).await?;
            let fit = slots.saturating_sub(first).min(count) as usize;
            let left = changes.split_off(fit);
            changes = self.publish(&place, first as u32, changes).await?;
            let all_published = fit as u64 == count && changes.is_empty();
            changes.extend(left);
            if all_published {
                break;
            }
            // The writer that exceeded the last slot rewrites the group. The others wait for it for some
            // time.
            let must_regroup = first <= slots && first + count > slots;
            if !must_regroup && self.wait_for_move(&place, waits).await? {
                continue;
            }
            let _guard = self.lock_regroup().await;
            if self.group(group).await?.word != place.word {
                // Another writer was faster.
                continue;
            }
            if regroup(self.memory, self.reader, self.builder, place).await? == RegroupOutcome::NoRoom {
                return Ok(changes);
            }
        }
        Ok(Vec::new())
    }

    /// Waits for another writer to move a group. Returns true if it has moved.
    async fn wait_for_move(&self, place: &GroupPlace, waits: u32) -> Result<bool, IndexError> {
        let at = self.reader.layout.word_at(place.group);
        for _ in 0..waits {
            if GroupWord::decode(u64_at(&read(self.memory, at, 8).await?, 0)) != place.word {
                return Ok(true);
            }
            self.memory.pause().await;
        }
        Ok(false)
    }

    /// Fills the slots from `first` on, and publishes them. Returns the changes whose slots another writer
    /// has closed.
    async fn publish(
        &self,
        place: &GroupPlace,
        first: u32,
        changes: Vec<OverflowChange>,
    ) -> Result<Vec<OverflowChange>, IndexError> {
        let (layout, identity) = (&self.reader.layout, self.reader.identity);
        let slot_bytes = layout.slot_bytes() as usize;
        let mut operations = Vec::new();
        for (chunk, slot) in changes.chunks(CHAIN).zip((first..).step_by(CHAIN)) {
            let mut bytes = Vec::with_capacity(chunk.len() * slot_bytes);
            chunk.iter().for_each(|change| change.encode(layout, &mut bytes));
            let flags: Vec<u64> = bytes
                .chunks(slot_bytes)
                .zip(slot..)
                .map(|(bytes, slot)| flag(identity, place, slot, bytes))
                .collect();
            let at = place.overflow_at(layout) + layout.slots_at() + u64::from(slot) * slot_bytes as u64;
            operations.push(MemoryOperation::linked(at, OperationKind::Write(bytes)));
            for change in chunk.iter().filter(|change| change.row.is_some()) {
                let entry = (change.partition + 1).to_le_bytes().to_vec();
                operations.push(MemoryOperation::linked(
                    layout.partition_entry_at(change.id),
                    OperationKind::Write(entry),
                ));
            }
            for (flag, slot) in flags.into_iter().zip(slot..) {
                let at = place.overflow_at(layout) + HEAD_BYTES + 8 * u64::from(slot);
                operations.push(MemoryOperation::linked(at, OperationKind::Swap { expected: 0, new: flag }));
            }
            operations.last_mut().into_iter().for_each(|last| last.linked = false);
        }
        let done = self.memory.run(operations).await?;
        let mut published = done.iter().filter_map(|operation| match operation.kind {
            OperationKind::Swap { .. } => Some(operation.old == 0),
            _ => None,
        });
        let (mut refused, mut added, mut updates) = (Vec::new(), 0_u64, Vec::new());
        for change in changes {
            match (published.next(), &change.row) {
                (Some(true), Some(_)) => added = added.wrapping_add(1),
                (Some(true), None) => {
                    added = added.wrapping_sub(1);
                    updates.push(MemoryOperation::new(
                        layout.partition_entry_at(change.id),
                        OperationKind::Write(vec![0; 4]),
                    ));
                }
                _ => refused.push(change),
            }
        }
        if added != 0 {
            updates.push(MemoryOperation::new(layout.vectors_at(), OperationKind::Add(added)));
        }
        if !updates.is_empty() {
            self.memory.run(updates).await?;
        }
        Ok(refused)
    }
}
