//! Writes the ids of a segment: blocks, and a fence to find the block of an id.

use super::block::{BlockBuilder, Key, shared_prefix};
use super::file_writer::{FileEntry, FileWriter};
use crate::ids::IdKind;
use bathyal_index::format::identity::Identity;
use bathyal_store::{Draft, StoreError};
use serde::{Deserialize, Serialize};

/// Manifest entry of the fence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FenceEntry {
    /// Number of blocks, which precede the fence.
    pub(super) blocks: u32,
    /// Bytes of the fence.
    pub(super) bytes: u64,
    /// CRC-32C of the segment's identity followed by the fence.
    pub(super) crc32c: u32,
}

/// Writes the ids of a segment, in ascending order.
#[derive(Debug)]
pub(super) struct IdWriter {
    file: FileWriter,
    identity: Identity,
    kind: IdKind,
    block: BlockBuilder,
    blocks: u32,
    /// The last text.
    last: Vec<u8>,
    /// For numbers: the first number of every block.
    numbers: Vec<u8>,
    /// For texts: the first row of every block.
    rows: Vec<u8>,
    /// For texts: the end of every block's divider in `dividers`.
    ends: Vec<u8>,
    /// For texts: dividers, each above all ids of the block before and not above those of its own block.
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

    /// Adds the id of the next row.
    pub(super) fn push(&mut self, row: u32, id: Key<'_>) -> Result<(), StoreError> {
        if !self.block.push(row, id) {
            self.write_block()?;
            self.block.push(row, id);
        } else if row > 0 {
            self.remember(id);
            return Ok(());
        }
        // This id is the first of a block.
        match id {
            Key::Number(number) => self.numbers.extend_from_slice(&number.to_le_bytes()),
            Key::Text(text) => {
                // The shortest prefix of the id that is above all ids of the block before.
                let shared = shared_prefix(&self.last, text);
                self.dividers.extend_from_slice(&text[..(shared + 1).min(text.len())]);
                self.rows.extend_from_slice(&row.to_le_bytes());
                self.ends.extend_from_slice(&(self.dividers.len() as u32).to_le_bytes());
            }
        }
        self.remember(id);
        Ok(())
    }

    fn remember(&mut self, id: Key<'_>) {
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
