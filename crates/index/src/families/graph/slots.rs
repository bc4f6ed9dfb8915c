//! The lists of a merged graph in a file while it is built: a slot a vector, as long as the longest list.

use super::work::Work;
use crate::error::IndexError;
use crate::format::appender::{Appender, ReadBack, Written};
use bathyal_store::Object;
use std::collections::BTreeMap;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// While building: the lists by id.
const SLOTS_NAME: &str = "lists.tmp";
/// Slots between two looks at cancellation.
const CHECK_EVERY: usize = 16_384;
/// Bytes read and written at once.
const BLOCK_BYTES: usize = 1 << 20;

/// Lists as they are written, in the order of their ids.
pub(super) struct SlotWriter {
    file: Appender,
    width: usize,
    buffer: Vec<u8>,
}

impl SlotWriter {
    /// For lists of up to `width` links.
    pub(super) fn create(work: &Work<'_>, width: usize) -> Result<SlotWriter, IndexError> {
        let file = Appender::create(work.directory, SLOTS_NAME)?;
        Ok(SlotWriter { file, width, buffer: Vec::with_capacity(BLOCK_BYTES + slot_bytes(width)) })
    }

    pub(super) fn push(&mut self, list: &[u32]) -> Result<(), IndexError> {
        let end = self.buffer.len() + slot_bytes(self.width);
        self.buffer.extend((list.len() as u32).to_le_bytes());
        list.iter().for_each(|link| self.buffer.extend(link.to_le_bytes()));
        self.buffer.resize(end, 0);
        if self.buffer.len() >= BLOCK_BYTES {
            self.file.append(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    pub(super) fn finish(mut self, work: &Work<'_>) -> Result<Slots, IndexError> {
        self.file.append(&self.buffer)?;
        let written = self.file.written();
        drop(self.file);
        let file = work.directory.get(SLOTS_NAME)?;
        Ok(Slots { file, written, width: self.width, changed: BTreeMap::new() })
    }
}

/// The lists of all vectors. What changes after they are written is kept in memory.
pub(super) struct Slots {
    file: Arc<dyn Object>,
    written: Written,
    width: usize,
    changed: BTreeMap<u32, Vec<u32>>,
}

impl Slots {
    /// The longest that a list may be.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Replaces a list.
    pub(super) fn set(&mut self, id: u32, list: Vec<u32>) {
        self.changed.insert(id, list);
    }

    /// The list of one vector.
    pub(super) fn get(&self, id: u32) -> Result<Vec<u32>, IndexError> {
        if let Some(list) = self.changed.get(&id) {
            return Ok(list.clone());
        }
        let mut bytes = vec![0; slot_bytes(self.width)];
        self.file.read_at(u64::from(id) * bytes.len() as u64, &mut bytes)?;
        let mut list = Vec::new();
        self.decode(&bytes, &mut list)?;
        Ok(list)
    }

    /// Appends what a slot holds, whose numbers are looked at: the checksum comes at the end of all.
    fn decode(&self, slot: &[u8], list: &mut Vec<u32>) -> Result<(), IndexError> {
        let vectors = self.written.bytes / slot.len() as u64;
        let (words, _) = slot.as_chunks::<4>();
        let words = words.iter().map(|word| u32::from_le_bytes(*word));
        let degree = words.clone().next().unwrap_or(0) as usize;
        list.extend(words.skip(1).take(degree));
        if list.len() != degree || list.iter().any(|link| u64::from(*link) >= vectors) {
            return Err(self.reader().file.lost("a slot holds no list"));
        }
        Ok(())
    }

    /// All lists from the first to the last.
    pub(super) fn reader(&self) -> SlotReader<'_> {
        let file = ReadBack::in_blocks(self.file.clone(), self.written, BLOCK_BYTES);
        SlotReader { slots: self, file, bytes: vec![0; slot_bytes(self.width)], next: 0 }
    }

    /// A hash of all lists, by which graphs that several threads have grown differ, and the number of their links.
    pub(super) fn hash(&self, work: &Work<'_>) -> Result<(u64, u64), IndexError> {
        let (mut reader, mut hash, mut links, mut list) = (self.reader(), Xxh3::new(), 0, Vec::new());
        for id in 0..work.data.count() {
            if id % CHECK_EVERY == 0 {
                work.check_cancelled()?;
            }
            reader.next(&mut list)?;
            hash.update(&(list.len() as u32).to_le_bytes());
            list.iter().for_each(|link| hash.update(&link.to_le_bytes()));
            links += list.len() as u64;
        }
        Ok((hash.digest(), links))
    }
}

/// Reads lists in the order of their ids.
pub(super) struct SlotReader<'a> {
    slots: &'a Slots,
    file: ReadBack,
    bytes: Vec<u8>,
    next: u32,
}

impl SlotReader<'_> {
    /// The next list.
    pub(super) fn next(&mut self, list: &mut Vec<u32>) -> Result<(), IndexError> {
        self.file.fill(&mut self.bytes)?;
        list.clear();
        match self.slots.changed.get(&self.next) {
            Some(changed) => list.extend(changed),
            None => self.slots.decode(&self.bytes, list)?,
        }
        self.next += 1;
        Ok(())
    }
}

/// Bytes of a slot for lists of up to `width` links.
fn slot_bytes(width: usize) -> usize {
    4 + 4 * width
}
