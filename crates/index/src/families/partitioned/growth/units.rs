//! The allocation of units: a writer takes units for a group that it rewrites, and frees the old ones.
//!
//! Each unit has a word. It is 0 while the unit is free, contains the epoch of the allocation while it is
//! held (a number that no other allocation has), and the epoch of its release after it is retired. Readers
//! hold nothing: they detect whether they have read the group that they wanted. Writers need protection,
//! because their writes may arrive at any time. So each writer announces its epoch before it reads the
//! positions of groups, and a retired unit becomes free after all writers that began before its release have
//! ended. A killed writer is ignored when nothing of it can arrive any more ([`GrowthMemory::holders`]).

use super::layout::{GroupWord, GrowthLayout, WRITERS, u64_at};
use super::shared_memory::{GrowthMemory, MemoryOperation, OperationKind, read, update_number};
use crate::error::IndexError;
use std::ops::Range;

/// The bits above a word's epoch give its kind.
const KIND_BITS: u32 = 62;
const HELD: u64 = 1 << KIND_BITS;
const RETIRED: u64 = 2 << KIND_BITS;
/// Words that are changed in one request.
const AT_ONCE: usize = 32;
/// The most attempts against other writers.
const MOST_TRIES: u32 = 1000;

/// Consecutive units that a writer has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct UnitRun {
    pub(in super::super) first: u32,
    pub(in super::super) units: u32,
    epoch: u64,
}

/// The word of a unit that a group of the build occupies.
pub(in super::super) const BUILT: u64 = HELD | 1;
/// The epoch of a new index.
pub(in super::super) const FIRST_EPOCH: u64 = 2;

/// Returns true if the word marks a free unit.
pub(in super::super) fn is_free(word: u64) -> bool {
    word == 0
}

/// Increments the epoch, and returns the new one.
async fn raise_epoch<M: GrowthMemory>(memory: &M, layout: &GrowthLayout) -> Result<u64, IndexError> {
    Ok(update_number(memory, layout.epoch_at(), OperationKind::Add(1)).await? + 1)
}

/// Takes `wanted` consecutive units. If there are none, returns `None`, and retires units that no group
/// occupies; these become free for writers that begin later.
pub(in super::super) async fn take<M: GrowthMemory>(
    memory: &M,
    layout: &GrowthLayout,
    wanted: u32,
) -> Result<Option<UnitRun>, IndexError> {
    let (mut reclaimed, mut seed) = (false, memory.holder());
    for _ in 0..MOST_TRIES {
        let words = unit_words(memory, layout).await?;
        let Some(first) = free_run(&words, wanted, seed) else {
            if reclaimed {
                return Ok(None);
            }
            reclaim(memory, layout, &words).await?;
            reclaimed = true;
            continue;
        };
        if let Some(group) = group_in_units(memory, layout, first..first + wanted).await? {
            return Err(IndexError::Internal(format!(
                "the table of free units is damaged: group {group} occupies a unit from {first} to {}; \
                 nothing was written there, and searches go on, but the index has to be built anew before \
                 more is inserted",
                first + wanted - 1
            )));
        }
        let taken = UnitRun { first, units: wanted, epoch: raise_epoch(memory, layout).await? };
        let swaps = (first..first + wanted).map(|unit| (unit, 0, HELD | taken.epoch)).collect();
        let changed_units = swap_words(memory, layout, swaps).await?;
        if changed_units.is_empty() {
            return Ok(Some(taken));
        }
        let back = (first..first + wanted).filter(|unit| !changed_units.contains(unit));
        swap_words(memory, layout, back.map(|unit| (unit, HELD | taken.epoch, 0)).collect()).await?;
        // Begin at another unit, so that two writers do not collide forever.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    Ok(None)
}

/// Returns a group that occupies one of the units, which are marked as free.
async fn group_in_units<M: GrowthMemory>(
    memory: &M,
    layout: &GrowthLayout,
    units: Range<u32>,
) -> Result<Option<u32>, IndexError> {
    let table = read(memory, layout.word_at(0), 8 * layout.groups() as usize).await?;
    for group in 0..layout.groups() {
        let word = GroupWord::decode(u64_at(&table, 8 * group as usize));
        let (from, to) = (word.first.max(units.start), (word.first + word.units).min(units.end));
        for unit in from..to {
            // The group may have moved there after the words were read.
            let now = read(memory, layout.unit_at(unit), 8).await?;
            let unmoved =
                GroupWord::decode(u64_at(&read(memory, layout.word_at(group), 8).await?, 0)) == word;
            if is_free(u64_at(&now, 0)) && unmoved {
                return Ok(Some(group));
            }
        }
    }
    Ok(None)
}

/// Frees units that no reader or other writer has seen.
pub(in super::super) async fn release<M: GrowthMemory>(
    memory: &M,
    layout: &GrowthLayout,
    taken: UnitRun,
) -> Result<(), IndexError> {
    let units = taken.first..taken.first + taken.units;
    swap_words(memory, layout, units.map(|unit| (unit, HELD | taken.epoch, 0)).collect()).await.map(|_| ())
}

/// Retires the units of a group that has moved since this writer began. They become free when no writer can
/// still write to them.
pub(in super::super) async fn retire<M: GrowthMemory>(
    memory: &M,
    layout: &GrowthLayout,
    word: GroupWord,
) -> Result<(), IndexError> {
    let bytes = read(memory, layout.unit_at(word.first), 8 * word.units as usize).await?;
    let retired = RETIRED | raise_epoch(memory, layout).await?;
    let held = (word.first..).zip(bytes.chunks_exact(8).map(|word| u64_at(word, 0)));
    // Another writer may have retired them already.
    let swaps = held.filter(|(_, word)| *word & HELD != 0).map(|(unit, word)| (unit, word, retired));
    swap_words(memory, layout, swaps.collect()).await.map(|_| ())
}

/// Reads the words of all units.
async fn unit_words<M: GrowthMemory>(memory: &M, layout: &GrowthLayout) -> Result<Vec<u64>, IndexError> {
    let bytes = read(memory, layout.unit_at(0), 8 * layout.units as usize).await?;
    Ok((0..layout.units as usize).map(|unit| u64_at(&bytes, 8 * unit)).collect())
}

/// Returns the first of `wanted` consecutive free units. The search begins at a unit that depends on `seed`.
fn free_run(words: &[u64], wanted: u32, seed: u64) -> Option<u32> {
    let (count, wanted) = (words.len(), wanted as usize);
    let start = (seed >> 33) as usize % count.max(1);
    let find = |from: usize, to: usize| {
        let mut free = 0;
        for (unit, word) in words.iter().enumerate().take(to).skip(from) {
            free = if is_free(*word) { free + 1 } else { 0 };
            if free == wanted {
                return Some(unit + 1 - wanted);
            }
        }
        None
    };
    find(start, count).or_else(|| find(0, count)).map(|first| first as u32)
}

/// Replaces the words of units by compare-and-swap. Returns the units whose words differed from the expected
/// ones.
async fn swap_words<M: GrowthMemory>(
    memory: &M,
    layout: &GrowthLayout,
    swaps: Vec<(u32, u64, u64)>,
) -> Result<Vec<u32>, IndexError> {
    let mut changed_units = Vec::new();
    for chunk in swaps.chunks(AT_ONCE) {
        let operation = |(unit, expected, new): &(u32, u64, u64)| {
            MemoryOperation::new(
                layout.unit_at(*unit),
                OperationKind::Swap { expected: *expected, new: *new },
            )
        };
        let done = memory.run(chunk.iter().map(operation).collect()).await?;
        let missed =
            done.iter().zip(chunk).filter(|(operation, (_, expected, _))| operation.old != *expected);
        changed_units.extend(missed.map(|(_, (unit, ..))| *unit));
    }
    Ok(changed_units)
}

/// Returns the earliest epoch that an active writer has announced, or `u64::MAX` if no writer is active.
pub(super) async fn earliest_epoch<M: GrowthMemory>(
    memory: &M,
    layout: &GrowthLayout,
) -> Result<u64, IndexError> {
    let span = layout.writers();
    let bytes = read(memory, span.offset, span.len as usize).await?;
    // Read the holders after the writers: a writer that is no longer connected cannot have begun meanwhile.
    let holders = memory.holders()?;
    let writers =
        (0..WRITERS as usize).map(|writer| (u64_at(&bytes, 16 * writer), u64_at(&bytes, 16 * writer + 8)));
    let under_way = writers.filter(|(owner, epoch)| {
        let active = holders.as_ref().is_none_or(|holders| holders.contains(owner));
        *owner != 0 && *epoch != 0 && active
    });
    Ok(under_way.map(|(_, epoch)| epoch).min().unwrap_or(u64::MAX))
}

/// Retires held units that no group occupies, and frees retired units that no writer can still write to.
/// `words` are those of the units, read before.
async fn reclaim<M: GrowthMemory>(
    memory: &M,
    layout: &GrowthLayout,
    words: &[u64],
) -> Result<(), IndexError> {
    // This order matters. A writer that took a unit before `words` were read and that is not active now has
    // either entered it into the table, which is read below, or never will.
    let earliest = earliest_epoch(memory, layout).await?;
    let groups = layout.groups() as usize;
    let table = read(memory, layout.word_at(0), 8 * groups).await?;
    let mut used = vec![false; layout.units as usize];
    for word in (0..groups).map(|group| GroupWord::decode(u64_at(&table, 8 * group))) {
        if word.is_within(layout) {
            used[word.first as usize..(word.first + word.units) as usize].fill(true);
        }
    }
    let epoch_of = |word: u64| word & (HELD - 1);
    let unused: Vec<_> = (0..)
        .zip(words)
        .filter(|(unit, word)| *word & HELD != 0 && !used[*unit as usize] && epoch_of(**word) < earliest)
        .collect();
    let free: Vec<_> = (0..)
        .zip(words)
        .filter(|(_, word)| *word & RETIRED != 0 && epoch_of(**word) <= earliest)
        .map(|(unit, word)| (unit, *word, 0))
        .collect();
    if !unused.is_empty() {
        let retired = RETIRED | raise_epoch(memory, layout).await?;
        swap_words(memory, layout, unused.into_iter().map(|(unit, word)| (unit, *word, retired)).collect())
            .await?;
    }
    swap_words(memory, layout, free).await.map(|_| ())
}
