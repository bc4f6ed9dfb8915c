//! Writes the ids of a segment: blocks, and the fence that says which block an id is in.

use super::block::{BlockBuilder, Key, shared_prefix};
use super::written::{FileEntry, FileWriter};
use crate::ids::IdKind;
use bathyal_index::format::identity::Identity;
use bathyal_store::{Draft, StoreError};
use serde::{Deserialize, Serialize};

/// What a manifest says of the ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FenceEntry {
    /// Blocks of ids, before the fence.
    pub(super) blocks: u32,
    /// Bytes of the fence.
    pub(super) bytes: u64,
    /// CRC-32C of the segment's identity and of the fence.
    pub(super) crc32c: u32,
}

/// The ids of a segment as they are written, which rise.
#[derive(Debug)]
pub(super) struct IdWriter {
    file: FileWriter,
    identity: Identity,
    kind: IdKind,
    block: BlockBuilder,
    blocks: u32,
    /// Of texts the last one.
    last: Vec<u8>,
    /// Of numbers, the first one of every block.
    numbers: Vec<u8>,
    /// Of texts, the first row of every block, where what divides it from the one before ends, and these.
    rows: Vec<u8>,
    ends: Vec<u8>,
    dividers: Vec<u8>,
}

impl IdWriter {
    pub(super) fn begin(
        draft: &dyn Draft,
        name: &str,
        kind: IdKind,
        identity: Identity,
    ) -> Result<IdWriter, StoreError> {
        Ok(IdWriter {
            file: FileWriter::begin(draft, name, identity)?,
            identity,
            kind,
            block: BlockBuilder::new(kind),
            blocks: 0,
            last: Vec::new(),
            numbers: Vec::new(),
            rows: Vec::new(),
            ends: Vec::new(),
            dividers: Vec::new(),
        })
    }

    /// The id of the next row.
    pub(super) fn push(&mut self, row: u32, id: Key<'_>) -> Result<(), StoreError> {
        if !self.block.take(row, id) {
            self.write_block()?;
            self.block.take(row, id);
        } else if row > 0 {
            self.keep(id);
            return Ok(());
        }
        // It is the first one of a block.
        match id {
            Key::Number(number) => self.numbers.extend_from_slice(&number.to_le_bytes()),
            Key::Text(text) => {
                // The shortest beginning of it that is above all ids of the block before.
                let shared = shared_prefix(&self.last, text);
                self.dividers.extend_from_slice(&text[..(shared + 1).min(text.len())]);
                self.rows.extend_from_slice(&row.to_le_bytes());
                self.ends.extend_from_slice(&(self.dividers.len() as u32).to_le_bytes());
            }
        }
        self.keep(id);
        Ok(())
    }

    fn keep(&mut self, id: Key<'_>) {
        if let Key::Text(text) = id {
            self.last.clear();
            self.last.extend_from_slice(text);
        }
    }

    fn write_block(&mut self) -> Result<(), StoreError> {
        let block = self.block.finish(self.identity, u64::from(self.blocks));
        self.blocks += 1;
        self.file.append(&block)
    }

    /// Writes the last block and the fence.
    pub(super) fn finish(mut self) -> Result<(FileEntry, FenceEntry), StoreError> {
        if !self.block.is_empty() {
            self.write_block()?;
        }
        let fence = match self.kind {
            IdKind::Number => self.numbers,
            IdKind::Text => [self.rows, self.ends, self.dividers].concat(),
        };
        self.file.append(&fence)?;
        let crc32c = self.identity.checksum(&fence);
        let entry = FenceEntry { blocks: self.blocks, bytes: fence.len() as u64, crc32c };
        Ok((self.file.finish()?.0, entry))
    }
}
