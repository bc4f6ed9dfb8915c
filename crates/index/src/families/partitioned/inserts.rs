//! The state of an open index of partitions that takes inserts, and its changes in place.

use super::growth::group_reader::{GroupPlaces, GroupReader};
use super::growth::layout::{GroupPlace, GroupWord, GrowthLayout, HEAD_BYTES, u64_at};
use super::growth::overflow::OverflowChange;
use super::growth::regroup::SubIndexBuilder;
use super::growth::shared_memory::TierMemory;
use super::growth::writer::{GrowthWriter, WAITS};
use super::search::Partitions;
use super::section::PartitionedEntry;
use super::subindex::SubIndex;
use super::subindex::options::PartitionedOptions;
use super::subindex::table::SubIndexTable;
use crate::error::IndexError;
use crate::family::Paused;
use crate::family::in_place::InPlace;
use crate::format::identity::Identity;
use crate::partition::space::Space;
use crate::proximity::walk::Walk;
use crate::query::set::VectorSet;
use bathyal_kernels::{Metric, squared_norm};
use bathyal_store::{Object, StoreError};
use bathyal_tier::Tier;
use bathyal_vectors::VectorFile;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of vectors that are inserted under one announcement of an epoch.
const AT_ONCE_BYTES: usize = 4 << 20;
/// Groups that one thread changes concurrently.
const GROUPS_AT_ONCE: usize = 64;
/// The least number of groups per thread.
const LEAST_GROUPS: usize = 4;
/// Rounds in which a writer tries again if there is no room, and the longest wait before a round. Retired
/// units become free after all writers that began before have ended, and only for writers that begin later.
const ROUNDS: u32 = 40;
const LONGEST_WAIT: Duration = Duration::from_millis(200);
/// Near partitions that are considered for a vector, until one has room.
const CONSIDERED: usize = 32;
/// The most rows that an error names.
const ROWS_NAMED: usize = 10;

/// The state of an index that takes inserts.
pub(super) struct Growth {
    pub(super) reader: GroupReader,
    /// True if other processes may change the index at any time.
    pub(super) shared: bool,
    builder: SubIndexBuilder,
    object: Arc<dyn Object>,
    vectors: AtomicU64,
    next_id: AtomicU64,
    /// Locked during a change.
    session: Mutex<Option<WriteSession>>,
}

/// The connection for changes, and the data that they need.
struct WriteSession {
    tier: Arc<dyn Tier>,
    /// The writer slot, and the holder number under which it was claimed.
    slot: Option<(u64, u32)>,
    /// The pivots.
    pivots: Space,
}

/// Reads the number of vectors and the next id from an object.
pub(super) fn counts(object: &dyn Object, layout: &GrowthLayout) -> Result<(u64, u64), IndexError> {
    let mut numbers = [0; 24];
    object.read_at(layout.next_id_at(), &mut numbers)?;
    let number = |at: usize| u64_at(&numbers, at).min(u64::from(layout.ids));
    Ok((number(16), number(0)))
}

impl Growth {
    /// Returns the bytes of memory for the positions of groups, and for changes.
    pub(super) fn planned_bytes(entry: &PartitionedEntry) -> u64 {
        2 * entry.meta.bytes + u64::from(entry.partitions) * size_of::<GroupPlace>() as u64 / 2
    }

    /// Reads the current positions of the groups of `object`. The table has their positions as built.
    pub(super) fn open(
        object: Arc<dyn Object>,
        (layout, identity): (GrowthLayout, Identity),
        (entry, set): (&PartitionedEntry, &VectorSet),
        table: &SubIndexTable,
        shared: bool,
    ) -> Result<Growth, IndexError> {
        let damaged =
            |reason| IndexError::damaged(object.address(), "the positions of the partitions", reason);
        let mut places = layout.built(table.entries()).map_err(damaged)?;
        let mut words = vec![0; 8 * places.len()];
        object.read_at(layout.word_at(0), &mut words)?;
        for (group, place) in places.iter_mut().enumerate() {
            let word = GroupWord::decode(u64_at(&words, 8 * group));
            if word == place.word {
                continue;
            }
            if !word.is_within(&layout) {
                return Err(damaged(format!("the table has an invalid position of group {group}: {word:?}")));
            }
            let mut head = [0; HEAD_BYTES as usize];
            object.read_at(u64::from(word.first) * layout.unit_bytes, &mut head)?;
            match GroupPlace::from_head(&layout, identity, (group as u32, word), &head) {
                Ok(found) => *place = found,
                // The group is being moved at this moment: a read of it finds the new position.
                Err(_) if shared => {}
                Err(reason) => return Err(damaged(reason)),
            }
        }
        let options = PartitionedOptions {
            partition_vectors: entry.partition_vectors,
            links: entry.links,
            construction_list: entry.construction_list,
            ..PartitionedOptions::default()
        };
        let builder = SubIndexBuilder { options, dim: set.dim, element: set.element, metric: set.metric };
        let reader = GroupReader { layout, identity, places: GroupPlaces::new(places) };
        let (vectors, next_id, session) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(None));
        let growth = Growth { reader, shared, builder, object, vectors, next_id, session };
        growth.refresh_counts()?;
        Ok(growth)
    }

    /// Reads the number of vectors and the next id. Returns true if they have changed.
    fn refresh_counts(&self) -> Result<bool, IndexError> {
        let (vectors, next) = counts(self.object.as_ref(), &self.reader.layout)?;
        let before =
            (self.next_id.swap(next, Ordering::Relaxed), self.vectors.swap(vectors, Ordering::Relaxed));
        Ok(before != (next, vectors))
    }

    /// Returns the number of vectors and the next id, as they were last read.
    pub(super) fn counts(&self) -> (u64, u32) {
        (self.vectors.load(Ordering::Relaxed), self.next_id.load(Ordering::Relaxed) as u32)
    }

    /// Returns the largest number of vectors that the index may contain now, given that others may insert.
    pub(super) fn most(&self) -> u64 {
        if self.shared { u64::from(self.reader.layout.ids) } else { self.counts().0 }
    }

    fn lock_session(&self) -> MutexGuard<'_, Option<WriteSession>> {
        // A panic leaves no partial state here.
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps all writers from changing an index until it is dropped.
struct PausedChanges {
    growth: Growth,
    tier: Arc<dyn Tier>,
    file: PathBuf,
}

impl PausedChanges {
    fn with_writer<T>(
        &self,
        work: impl AsyncFnOnce(&GrowthWriter<'_, TierMemory<'_>>) -> Result<T, IndexError>,
    ) -> Result<T, IndexError> {
        let tier = self.tier.writable();
        let tier = tier.ok_or_else(|| IndexError::Internal("the tier cannot be written".into()))?;
        let memory = TierMemory::new(tier, self.file.clone())?;
        let Growth { reader, builder, .. } = &self.growth;
        let writer = GrowthWriter::new(&memory, reader, builder, None);
        memory.block_on(work(&writer))
    }
}

impl Paused for PausedChanges {}

impl Drop for PausedChanges {
    fn drop(&mut self) {
        // If this fails, other writers detect that the pausing process is gone.
        let _ = self.with_writer(async |writer| writer.resume().await);
    }
}

/// Pauses all writers of the index. Returns `None` if the object cannot be changed in place.
pub(super) fn pause(growth: Growth, file: PathBuf) -> Result<Option<Box<dyn Paused>>, IndexError> {
    let tier = match growth.object.writable_tier() {
        Err(StoreError::Unchangeable { .. }) => return Ok(None),
        tier => tier?,
    };
    let pause = PausedChanges { growth, tier, file };
    if pause.with_writer(async |writer| writer.pause().await)? {
        return Ok(Some(Box::new(pause)));
    }
    Err(IndexError::Parameter(format!(
        "{}: another process is copying or changing the index; try again later",
        pause.file.display()
    )))
}

impl Partitions {
    /// Calls `work` with a writer that has announced its epoch, and with the pivots.
    fn change<T>(
        &self,
        growth: &Growth,
        work: impl FnOnce(&GrowthWriter<'_, TierMemory<'_>>, &Space) -> Result<T, IndexError>,
    ) -> Result<T, IndexError> {
        let mut session = growth.lock_session();
        if session.is_none() {
            let tier = growth.object.writable_tier().map_err(|error| self.explain_unchangeable(error))?;
            *session = Some(WriteSession { tier, slot: None, pivots: self.pivots()? });
        }
        let outcome = session
            .as_mut()
            .map_or(Err(IndexError::Internal("no connection for changes".into())), |session| {
                self.change_with(growth, session, work)
            });
        if outcome.is_err() {
            // Reconnect for the next change: operations of this connection may still arrive.
            *session = None;
        }
        outcome
    }

    fn change_with<T>(
        &self,
        growth: &Growth,
        session: &mut WriteSession,
        work: impl FnOnce(&GrowthWriter<'_, TierMemory<'_>>, &Space) -> Result<T, IndexError>,
    ) -> Result<T, IndexError> {
        let tier = session.tier.writable();
        let tier = tier.ok_or_else(|| IndexError::Internal("the tier cannot be written".into()))?;
        let memory = TierMemory::new(tier, self.set.file.clone())?;
        let holder = tier.holder();
        let slot = session.slot.filter(|(owner, _)| *owner == holder).map(|(_, slot)| slot);
        let writer = GrowthWriter::new(&memory, &growth.reader, &growth.builder, slot);
        memory.block_on(writer.begin())?;
        let outcome = work(&writer, &session.pivots)?;
        memory.block_on(writer.end())?;
        session.slot = writer.slot.get().map(|slot| (holder, slot));
        Ok(outcome)
    }

    /// Applies changes to groups. Returns the changes for which there is no room.
    fn change_groups(
        &self,
        writer: &GrowthWriter<'_, TierMemory<'_>>,
        changes: Vec<OverflowChange>,
    ) -> Result<Vec<OverflowChange>, IndexError> {
        let (memory, mut left) = (writer.memory, changes);
        for round in 0..ROUNDS {
            if left.is_empty() {
                break;
            }
            if round > 0 {
                memory.block_on(writer.end())?;
                std::thread::sleep(Duration::from_millis(1 << round.min(10)).min(LONGEST_WAIT));
                memory.block_on(writer.begin())?;
            }
            let mut groups: BTreeMap<u32, Vec<OverflowChange>> = BTreeMap::new();
            for change in left.drain(..) {
                groups.entry(change.partition / 2).or_default().push(change);
            }
            let waits = if round == 0 { WAITS } else { 0 };
            left = self.change_groups_on_threads(writer, groups.into_iter().collect(), waits)?;
        }
        Ok(left)
    }

    /// Applies changes to groups on several threads, under the announcement of `writer`.
    fn change_groups_on_threads(
        &self,
        writer: &GrowthWriter<'_, TierMemory<'_>>,
        groups: Vec<(u32, Vec<OverflowChange>)>,
        waits: u32,
    ) -> Result<Vec<OverflowChange>, IndexError> {
        let work = |writer: &GrowthWriter<'_, TierMemory<'_>>, groups: Vec<(u32, Vec<OverflowChange>)>| {
            let mut left = Vec::new();
            let tasks = groups.into_iter().map(|(group, changes)| writer.change(group, changes, waits));
            writer.memory.run_tasks(GROUPS_AT_ONCE, tasks, |refused| {
                left.extend(refused);
                Ok(())
            })?;
            Ok::<_, IndexError>(left)
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.min(groups.len() / LEAST_GROUPS);
        if threads < 2 {
            return work(writer, groups);
        }
        let GrowthWriter { reader, builder, .. } = *writer;
        let tier = writer.memory.tier();
        let mut parts: Vec<Vec<_>> = (0..threads).map(|_| Vec::new()).collect();
        groups.into_iter().enumerate().for_each(|(at, group)| parts[at % threads].push(group));
        let work = &work;
        let outcome: Vec<Result<Vec<OverflowChange>, IndexError>> = std::thread::scope(|scope| {
            let workers: Vec<_> = parts
                .into_iter()
                .map(|part| {
                    scope.spawn(move || {
                        let memory = TierMemory::new(tier, self.set.file.clone())?;
                        work(&GrowthWriter::new(&memory, reader, builder, None), part)
                    })
                })
                .collect();
            let panicked = |_| Err(IndexError::Internal("a thread that changes an index panicked".into()));
            workers.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
        });
        let left: Result<Vec<_>, _> = outcome.into_iter().collect();
        Ok(left?.concat())
    }

    /// Converts the vectors of `rows` to their stored form.
    fn stored_rows(&self, vectors: &VectorFile, rows: Range<usize>) -> Result<Vec<u8>, IndexError> {
        let row_bytes = self.set.row_bytes();
        if let Some(most) = self.set.form.largest() {
            self.check_largest(vectors, rows.clone(), most)?;
        }
        let mut stored = vec![0; rows.len() * row_bytes];
        let mut zeros = Vec::new();
        for (row, out) in rows.zip(stored.chunks_exact_mut(row_bytes)) {
            if !self.set.form.take(vectors.row(row), out) {
                zeros.push(row as u64);
            }
        }
        if zeros.is_empty() {
            return Ok(stored);
        }
        let count = zeros.len() as u64;
        zeros.truncate(ROWS_NAMED);
        Err(IndexError::ZeroVectors { count, rows: zeros })
    }

    /// Refuses the first of `rows` that has a value above `most`, the largest that the partitions can hold.
    fn check_largest(
        &self,
        vectors: &VectorFile,
        mut rows: Range<usize>,
        most: f32,
    ) -> Result<(), IndexError> {
        let larger = |row: usize| {
            let largest = vectors.block(row..row + 1).largest().map(|largest| largest.value);
            largest.filter(|value| *value > most).map(|value| (row, value))
        };
        rows.find_map(larger).map_or(Ok(()), |(row, value)| {
            Err(IndexError::Parameter(format!(
                "{}: row {row} has a value of {value:e}, and this index stores {} values up to {most:e}, the \
                 range of the vectors that it was built with; nothing was inserted. Build the index anew \
                 with all vectors, or without store_as",
                vectors.path().display(),
                self.set.element,
            )))
        })
    }

    /// Returns the nearest partition that has room for a vector.
    fn partition_for(
        &self,
        growth: &Growth,
        (index, pivots): (&SubIndex<'_>, &Space),
        row: &[u8],
        walk: &mut Walk,
    ) -> Result<u32, IndexError> {
        let layout = &growth.reader.layout;
        index.search(walk, CONSIDERED, |numbers, scores| pivots.score_row(row, numbers, scores));
        let has_room = |partition: &u32| {
            let place = growth.reader.places.get(partition / 2);
            place.vectors[*partition as usize % 2] + layout.slots <= layout.most_vectors
        };
        let found = walk.found().map(|near| near.id).find(has_room);
        found.ok_or_else(|| {
            IndexError::Parameter(format!(
                "{}: the partitions near a vector are full, with {} vectors each; build the index anew with \
                 all vectors",
                self.set.file.display(),
                layout.most_vectors - layout.slots
            ))
        })
    }

    fn explain_unchangeable(&self, error: StoreError) -> IndexError {
        match error {
            StoreError::Unchangeable { .. } => IndexError::Parameter(format!(
                "{}: partitions take inserts only in the memory of a node: copy the index there (`bathyal \
                 copy INDEX remote://HOST:PORT/NAME`) and change it under that address",
                self.set.file.display()
            )),
            other => other.into(),
        }
    }

    /// Returns the pivots in the form that a build compares vectors with.
    fn pivots(&self) -> Result<Space, IndexError> {
        let row_bytes = self.set.row_bytes();
        let index = SubIndex::read(&self.meta, row_bytes).map_err(IndexError::Internal)?;
        let mut space = Space::blank(index.count(), self.set.dim, self.set.element, self.set.metric)?;
        for (number, row) in (0..).zip(index.rows.chunks_exact(row_bytes)) {
            space.row_mut(number).copy_from_slice(row);
        }
        if self.set.metric == Metric::InnerProduct {
            let norms = index.rows.chunks_exact(row_bytes).map(|row| squared_norm(self.set.element, row));
            let longest = norms.fold(0.0_f32, f32::max);
            space.lift(longest);
        }
        Ok(space)
    }
}

impl InPlace for Partitions {
    fn insert(&self, vectors: &VectorFile) -> Result<Range<u32>, IndexError> {
        let Some(growth) = &self.growth else {
            return Err(IndexError::Internal("the index takes no inserts".into()));
        };
        let count = vectors.count();
        if count == 0 {
            let next = growth.counts().1;
            return Ok(next..next);
        }
        let no_room = |inserted: usize, first: u32| {
            IndexError::Parameter(format!(
                "{}: there is room for {inserted} of these {count} vectors{}; build the index anew with all \
                 vectors, or with more growth",
                self.set.file.display(),
                if inserted > 0 {
                    format!(", which were inserted with ids from {first} on")
                } else {
                    String::new()
                }
            ))
        };
        let index = SubIndex::read(&self.meta, self.set.row_bytes()).map_err(IndexError::Internal)?;
        // Check all vectors before the first is inserted.
        let chunk_rows = (AT_ONCE_BYTES / self.set.row_bytes()).max(1);
        for first in (0..count).step_by(chunk_rows) {
            self.stored_rows(vectors, first..count.min(first + chunk_rows))?;
        }
        let mut first_id = None;
        for first in (0..count).step_by(chunk_rows) {
            let rows = first..count.min(first + chunk_rows);
            let stored = self.stored_rows(vectors, rows.clone())?;
            let refused = self.change(growth, |writer, pivots| {
                if first_id.is_none() {
                    first_id = writer.memory.block_on(writer.ids(count as u32))?;
                }
                let Some(first_id) = first_id else { return Ok(rows.len()) };
                let mut walk = Walk::new(0, 0);
                let changes = rows.clone().zip(stored.chunks_exact(self.set.row_bytes()));
                let changes: Result<Vec<OverflowChange>, IndexError> = changes
                    .map(|(row, stored)| {
                        let partition = self.partition_for(growth, (&index, pivots), stored, &mut walk)?;
                        Ok(OverflowChange {
                            partition,
                            id: first_id + row as u32,
                            row: Some(stored.to_vec()),
                        })
                    })
                    .collect();
                self.change_groups(writer, changes?).map(|left| left.len())
            })?;
            if refused > 0 {
                growth.refresh_counts()?;
                return Err(no_room(rows.end - refused, first_id.unwrap_or(0)));
            }
        }
        growth.refresh_counts()?;
        let first = first_id.unwrap_or(0);
        Ok(first..first + count as u32)
    }

    fn delete(&self, ids: &[u32]) -> Result<u64, IndexError> {
        let Some(growth) = &self.growth else {
            return Err(IndexError::Internal("the index takes no inserts".into()));
        };
        let outcome = self.change(growth, |writer, _| {
            let mut changes = Vec::new();
            let found = ids.iter().map(|id| async { Ok((*id, writer.partition_of(*id).await?)) });
            writer.memory.run_tasks(GROUPS_AT_ONCE, found, |(id, partition)| {
                changes.extend(partition.map(|partition| OverflowChange { partition, id, row: None }));
                Ok(())
            })?;
            let present = changes.len();
            Ok((present, self.change_groups(writer, changes)?.len()))
        });
        let (present, refused) = outcome?;
        growth.refresh_counts()?;
        if refused > 0 {
            return Err(IndexError::Parameter(format!(
                "{}: {refused} of {present} vectors were not deleted, because there was no room to rewrite \
                 their partitions; build the index anew, or with more growth",
                self.set.file.display()
            )));
        }
        Ok(present as u64)
    }

    fn refresh(&self) -> Result<bool, IndexError> {
        self.growth.as_ref().map_or(Ok(false), Growth::refresh_counts)
    }

    fn counts(&self) -> (u64, u32) {
        self.growth.as_ref().map_or((0, 0), Growth::counts)
    }

    fn most(&self) -> u64 {
        self.growth.as_ref().map_or(0, Growth::most)
    }
}
