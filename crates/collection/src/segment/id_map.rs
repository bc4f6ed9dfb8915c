//! Reads the ids of a segment: a fence in memory, and blocks on the tier.

use super::block::{BLOCK_BYTES, IdBlock, Key, key};
use super::fence::Fence;
use super::fetch::read_runs;
use super::manifest::Manifest;
use super::open_file;
use crate::error::CollectionError;
use crate::ids::{IdKind, Ids};
use arrow_array::builder::StringBuilder;
use bathyal_index::format::identity::Identity;
use bathyal_store::{Generation, Object};
use std::ops::Range;
use std::sync::Arc;

/// Blocks that are read together. The limit bounds memory; requests to an object store are in flight at the
/// same time.
const BLOCKS_AT_ONCE: usize = 1024;

/// The ids of a segment.
#[derive(Debug)]
pub(super) struct IdMap {
    object: Arc<dyn Object>,
    identity: Identity,
    kind: IdKind,
    rows: u32,
    fence: Fence,
    remote: bool,
}

/// Collects ids from blocks.
pub(super) enum IdCollector {
    Numbers(Vec<u64>),
    Texts(StringBuilder),
}

impl IdCollector {
    pub(super) fn new(kind: IdKind, count: usize) -> IdCollector {
        match kind {
            IdKind::Number => IdCollector::Numbers(Vec::with_capacity(count)),
            IdKind::Text => IdCollector::Texts(StringBuilder::with_capacity(count, 0)),
        }
    }

    /// Adds the id at position `at` of a block.
    pub(super) fn push(&mut self, block: &IdBlock<'_>, at: usize) -> Result<(), String> {
        match self {
            IdCollector::Numbers(numbers) => numbers.push(block.number(at)),
            IdCollector::Texts(texts) => {
                let (prefix, rest) = block.text(at);
                let bytes = [prefix, rest].concat();
                texts.append_value(
                    std::str::from_utf8(&bytes).map_err(|_| format!("its id {at} is not valid UTF-8"))?,
                );
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Ids {
        match self {
            IdCollector::Numbers(numbers) => Ids::Numbers(numbers.into()),
            IdCollector::Texts(mut texts) => Ids::Texts(texts.finish()),
        }
    }
}

impl IdMap {
    /// Loads the fence.
    pub(super) fn open(
        generation: &dyn Generation,
        manifest: &Manifest,
        remote: bool,
    ) -> Result<IdMap, CollectionError> {
        let object = open_file(generation, &manifest.ids)?;
        let damaged = |reason: String| CollectionError::damaged(object.address(), "its fence", reason);
        let start = u64::from(manifest.fence.blocks) * BLOCK_BYTES as u64;
        if start.checked_add(manifest.fence.bytes) != Some(object.len()) {
            return Err(damaged(format!("it does not follow {} blocks", manifest.fence.blocks)));
        }
        let (identity, kind) = (manifest.identity(), manifest.id);
        let runs = read_runs(&*object, std::iter::once(start..object.len()), remote)?;
        let bytes = runs.first().map_or(&[][..], |run| &run.bytes);
        let fence = Fence::read(kind, identity, &manifest.fence, manifest.rows, bytes).map_err(damaged)?;
        Ok(IdMap { identity, kind, rows: manifest.rows, fence, remote, object })
    }

    /// Calls `each` for the blocks with these numbers, which are in ascending order.
    fn blocks(
        &self,
        numbers: impl Iterator<Item = u32>,
        mut each: impl FnMut(u32, &IdBlock<'_>) -> Result<(), String>,
    ) -> Result<(), CollectionError> {
        let span = |number: u32| {
            let start = u64::from(number) * BLOCK_BYTES as u64;
            start..start + BLOCK_BYTES as u64
        };
        let mut numbers = numbers.peekable();
        while numbers.peek().is_some() {
            let batch: Vec<u32> = numbers.by_ref().take(BLOCKS_AT_ONCE).collect();
            let runs = read_runs(&*self.object, batch.iter().map(|number| span(*number)), self.remote)?;
            let mut at = 0;
            for number in batch {
                let damaged = |reason: String| {
                    CollectionError::damaged(self.object.address(), format!("block {number}"), reason)
                };
                let found = loop {
                    let Some(run) = runs.get(at) else { break None };
                    match run.get(span(number)) {
                        Some(bytes) => break Some(bytes),
                        None => at += 1,
                    }
                };
                let bytes = found.ok_or_else(|| damaged("it was not read".into()))?;
                let block =
                    IdBlock::read(self.kind, self.identity, u64::from(number), &bytes).map_err(damaged)?;
                let rows = self.rows_of(number);
                if block.first_row() != rows.start || block.count() != rows.len() {
                    return Err(damaged("its rows differ from those in the fence".into()));
                }
                each(number, &block).map_err(damaged)?;
            }
        }
        Ok(())
    }

    fn rows_of(&self, block: u32) -> Range<u32> {
        self.fence.first_row(block, self.rows)..self.fence.first_row(block + 1, self.rows)
    }

    /// Returns the row of each id; `None` for an unknown id. Every block is read once.
    pub(super) fn find(&self, ids: &Ids) -> Result<Vec<Option<u32>>, CollectionError> {
        let mut found = vec![None; ids.len()];
        let order = ids.order();
        // Blocks in ascending order, each with its number of ids in `order`.
        let mut block_counts: Vec<(u32, usize)> = Vec::new();
        for at in &order {
            let block = self.fence.block_of(key(ids, *at as usize));
            match block_counts.last_mut() {
                Some(last) if last.0 == block => last.1 += 1,
                _ => block_counts.push((block, 1)),
            }
        }
        let mut counts = block_counts.iter().map(|(_, count)| *count);
        let mut remaining = order.iter();
        self.blocks(block_counts.iter().map(|(block, _)| *block), |_, block| {
            for at in remaining.by_ref().take(counts.next().unwrap_or(0)) {
                let id = key(ids, *at as usize);
                let position = block.lower_bound(id);
                if position < block.count() && block.compare(position, id).is_eq() {
                    found[*at as usize] = Some(block.first_row() + position as u32);
                }
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Returns the first row whose id is not below `id`; the number of rows if all are below.
    pub(super) fn lower_bound(&self, id: Key<'_>) -> Result<u32, CollectionError> {
        let mut row = 0;
        self.blocks(std::iter::once(self.fence.block_of(id)), |_, block| {
            row = block.first_row() + block.lower_bound(id) as u32;
            Ok(())
        })?;
        Ok(row)
    }

    /// Returns the ids of rows, in their order. All rows exist; a row may occur more than once.
    pub(super) fn ids_of(&self, rows: &[u32]) -> Result<Ids, CollectionError> {
        let mut order: Vec<u32> = (0..rows.len() as u32).collect();
        order.sort_unstable_by_key(|at| rows[*at as usize]);
        let mut blocks: Vec<u32> =
            order.iter().map(|at| self.fence.block_of_row(rows[*at as usize])).collect();
        blocks.dedup();
        let mut collector = IdCollector::new(self.kind, rows.len());
        let mut remaining = order.iter().peekable();
        self.blocks(blocks.into_iter(), |number, block| {
            let end = self.rows_of(number).end;
            while let Some(at) = remaining.next_if(|at| rows[**at as usize] < end) {
                collector.push(block, (rows[*at as usize] - block.first_row()) as usize)?;
            }
            Ok(())
        })?;
        let sorted = collector.finish();
        let mut positions = vec![0; order.len()];
        for (position, at) in (0..).zip(&order) {
            positions[*at as usize] = position;
        }
        sorted.take(&positions)
    }

    /// Returns the ids of a range of rows, all of which exist.
    pub(super) fn ids(&self, range: Range<u32>) -> Result<Ids, CollectionError> {
        let mut collector = IdCollector::new(self.kind, range.len());
        if range.is_empty() {
            return Ok(collector.finish());
        }
        let blocks = self.fence.block_of_row(range.start)..=self.fence.block_of_row(range.end - 1);
        self.blocks(blocks, |_, block| {
            let first = range.start.saturating_sub(block.first_row()) as usize;
            let end = block.count().min((range.end - block.first_row()) as usize);
            (first..end).try_for_each(|at| collector.push(block, at))
        })?;
        Ok(collector.finish())
    }

    /// Checks that the fence leads to `ids`, those from row `first` on, and that the ids are ascending and
    /// above `last`.
    ///
    /// # Errors
    /// A sentence that names a row.
    pub(super) fn check(&self, first: u32, ids: &Ids, last: Option<&Ids>) -> Result<(), String> {
        for (at, row) in (0..ids.len()).zip(first..) {
            if self.fence.block_of(key(ids, at)) != self.fence.block_of_row(row) {
                return Err(format!("the fence does not lead to the id of row {row}"));
            }
            let rises = match at.checked_sub(1) {
                Some(before) => ids.compare(before, ids, at).is_lt(),
                None => last.is_none_or(|last| last.compare(last.len() - 1, ids, 0).is_lt()),
            };
            if !rises {
                return Err(format!("the id of row {row} is not above the one before"));
            }
        }
        Ok(())
    }

    /// Returns the bytes of memory.
    pub(super) fn held_bytes(&self) -> u64 {
        self.fence.held_bytes() + size_of::<IdMap>() as u64
    }
}
