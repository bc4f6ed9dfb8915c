//! Verifies every byte of an LSH index: the pages of vectors, then the tables, each of which has every vector
//! once.

use super::open::load_lsh;
use super::section::LshEntry;
use crate::error::IndexError;
use crate::family::pages::PageWalk;
use crate::family::{VerifyReport, Verifying};
use crate::format::groups::GroupLayout;
use crate::format::ids::load_ids;
use crate::format::tables::TableLayout;
use crate::format::walk::{Marks, read_through};

/// Checks the pages, the tables, and the files that belong to them.
pub(super) fn verify(
    verifying: &Verifying<'_>,
    entry: &LshEntry,
    pages: &GroupLayout,
    tables: &TableLayout,
    report: &mut VerifyReport,
) -> Result<(), IndexError> {
    let Verifying { object, manifest, progress, directory } = *verifying;
    let page_count = entry.pages(pages, manifest.vectors);
    let ids_end = match load_ids(directory, manifest) {
        Ok(ids) => ids.next(),
        Err(damage) => {
            report.fault(damage.to_string());
            return Ok(());
        }
    };
    let mut walk = PageWalk::new(verifying, pages, page_count, ids_end.into())?;
    let mut blocks = BlockWalk::new(tables, manifest.vectors)?;
    let (first, page_bytes) = (tables.span(0, 0).offset, pages.page_bytes() as u64);
    let crc = read_through(object, entry.file.bytes, pages.page_bytes(), progress, |number, bytes| {
        let offset = number * page_bytes;
        // The page in which the tables begin has zeros before them.
        let page_part = first.saturating_sub(offset).min(bytes.len() as u64) as usize;
        if page_part > 0 {
            walk.page(number, &bytes[..page_part], report);
        }
        blocks.take(&bytes[page_part..], report);
    })?;
    report.bytes += entry.file.bytes;
    if crc != entry.file.crc32c {
        let name = &entry.file.name;
        report.fault(format!("{name}: checksum {crc:08x}, the manifest says {:08x}", entry.file.crc32c));
    }
    walk.end(report);
    blocks.end(report);
    if report.sound
        && let Err(damage) = load_lsh(directory, manifest, entry.clone())
    {
        report.fault(damage.to_string());
    }
    Ok(())
}

/// Checks the blocks of the tables, whose bytes arrive in pieces of any length.
struct BlockWalk<'a> {
    layout: &'a TableLayout,
    vectors: u64,
    /// The bytes of a block that has not arrived whole.
    partial: Vec<u8>,
    next: u64,
    seen: Marks,
}

impl<'a> BlockWalk<'a> {
    fn new(layout: &'a TableLayout, vectors: u64) -> Result<BlockWalk<'a>, IndexError> {
        Ok(BlockWalk { layout, vectors, partial: Vec::new(), next: 0, seen: Marks::new(vectors)? })
    }

    fn take(&mut self, mut bytes: &[u8], report: &mut VerifyReport) {
        while !bytes.is_empty() {
            let (piece, rest) =
                bytes.split_at(bytes.len().min(self.layout.block_bytes() - self.partial.len()));
            self.partial.extend_from_slice(piece);
            bytes = rest;
            if self.partial.len() == self.layout.block_bytes() {
                let block = std::mem::take(&mut self.partial);
                self.block(&block, report);
                self.partial = block;
                self.partial.clear();
            }
        }
    }

    fn block(&mut self, block: &[u8], report: &mut VerifyReport) {
        let (number, blocks) = (self.next, self.layout.blocks());
        let table = number / blocks;
        self.next += 1;
        if table >= u64::from(self.layout.tables()) {
            return self.unused(block, report);
        }
        if let Err(reason) = self.layout.check(number as u32, block) {
            report.fault(format!("block {number} of the tables: {reason}"));
        }
        for id in self.layout.ids(block) {
            let id = u32::from_le_bytes(*id);
            if u64::from(id) >= self.vectors || !self.seen.mark(id) {
                let all = self.vectors;
                report.fault(format!(
                    "table {table}: vector {id} occurs twice or is not among the {all} vectors"
                ));
            }
        }
        if self.next.is_multiple_of(blocks) {
            if self.seen.count() != self.vectors {
                report.fault(format!(
                    "table {table} holds {} vectors of {}",
                    self.seen.count(),
                    self.vectors
                ));
            }
            self.seen.clear();
        }
    }

    fn unused(&self, bytes: &[u8], report: &mut VerifyReport) {
        if bytes.iter().any(|byte| *byte != 0) {
            report.fault("unused bytes behind the last block are not zero".into());
        }
    }

    fn end(&self, report: &mut VerifyReport) {
        self.unused(&self.partial, report);
    }
}
