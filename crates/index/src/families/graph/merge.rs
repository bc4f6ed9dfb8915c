//! Merges the lists of overlapping parts into one graph: a vector gets the links that it has in either part.

use super::slots::{SlotWriter, Slots};
use super::work::Work;
use crate::allocate::try_with_capacity;
use crate::error::IndexError;
use crate::format::appender::{Appender, ReadBack, Written};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Bytes of a piece's lists that are read at once. The number is small because there are many pieces.
const READ_BYTES: usize = 64 << 10;
/// Vectors between two checks for cancellation.
const CHECK_EVERY: usize = 16_384;

/// The files of a piece's lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PieceFiles {
    /// The lists of all vectors before the held-out ones are inserted, which still have empty lists.
    pub(super) lists: Written,
    /// The lists that inserting the held-out vectors has changed, and those of the held-out vectors.
    pub(super) late: Written,
}

/// Returns the name of the file with all lists of a piece.
pub(super) fn lists_name(piece: usize) -> String {
    format!("lists-{piece}.tmp")
}

/// Returns the name of the file with the lists of a piece that inserting the held-out vectors has changed.
pub(super) fn late_name(piece: usize) -> String {
    format!("late-{piece}.tmp")
}

/// The vectors of the merged graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MergedVectors {
    /// All vectors except the held-out ones.
    WithoutHeldOut,
    /// All vectors.
    All,
}

/// Writes the lists of a piece, in rising order of the ids.
pub(super) struct ListWriter {
    file: Appender,
    buffer: Vec<u8>,
}

impl ListWriter {
    pub(super) fn create(work: &Work<'_>, name: &str) -> Result<ListWriter, IndexError> {
        let file = Appender::create(work.directory, name)?;
        Ok(ListWriter { file, buffer: Vec::with_capacity(READ_BYTES) })
    }

    pub(super) fn push(&mut self, id: u32, list: impl Iterator<Item = u32>) -> Result<(), IndexError> {
        self.buffer.extend(id.to_le_bytes());
        let degree_at = self.buffer.len();
        self.buffer.extend([0; 4]);
        list.for_each(|link| self.buffer.extend(link.to_le_bytes()));
        let degree = (self.buffer.len() - degree_at) / 4 - 1;
        self.buffer[degree_at..degree_at + 4].copy_from_slice(&(degree as u32).to_le_bytes());
        if self.buffer.len() >= READ_BYTES {
            self.file.append(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Writes the rest and syncs the file. Returns its length and checksum.
    pub(super) fn finish(mut self) -> Result<Written, IndexError> {
        self.file.append(&self.buffer)?;
        self.file.sync()
    }
}

/// Bounds of the numbers in a file of lists.
#[derive(Debug, Clone, Copy)]
struct ListBounds {
    vectors: usize,
    /// Most links of a list.
    links: usize,
}

/// Reads a file of a [`ListWriter`].
struct ListReader {
    file: ReadBack,
    bounds: ListBounds,
    /// The id of the current list; `None` at the end.
    id: Option<u32>,
    list: Vec<u32>,
}

impl ListReader {
    /// Opens a file, and reads its first list.
    fn open(
        work: &Work<'_>,
        name: &str,
        written: Written,
        bounds: ListBounds,
    ) -> Result<ListReader, IndexError> {
        let file = ReadBack::in_blocks(work.directory.get(name)?, written, READ_BYTES);
        let mut reader = ListReader { file, bounds, id: None, list: Vec::with_capacity(bounds.links) };
        reader.advance()?;
        Ok(reader)
    }

    /// Reads the next list. Checks its numbers, because the checksum of the file can only be checked at its
    /// end.
    fn advance(&mut self) -> Result<(), IndexError> {
        let before = self.id.take();
        if self.file.left() == 0 {
            return Ok(());
        }
        let mut word = [0; 4];
        let mut next = |file: &mut ReadBack| file.fill(&mut word).map(|()| u32::from_le_bytes(word));
        let id = next(&mut self.file)?;
        let degree = next(&mut self.file)? as usize;
        let ListBounds { vectors, links } = self.bounds;
        self.list.clear();
        for _ in 0..degree.min(links) {
            self.list.push(next(&mut self.file)?);
        }
        let rises = before.is_none_or(|before| before < id) && (id as usize) < vectors;
        if !rises || degree > links || self.list.iter().any(|link| *link as usize >= vectors) {
            return Err(self.file.lost(&format!("there is no valid list after that of vector {before:?}")));
        }
        self.id = Some(id);
        Ok(())
    }
}

/// Reads the lists of a piece, in rising order of the ids.
struct PieceReader {
    lists: ListReader,
    late: Option<ListReader>,
}

impl PieceReader {
    /// Copies the current list into `list`, and reads the next one. A list in `late` replaces the one in
    /// `lists`.
    fn take(&mut self, list: &mut Vec<u32>) -> Result<(), IndexError> {
        list.clear();
        match &mut self.late {
            Some(late) if late.id == self.lists.id => {
                list.extend(&late.list);
                late.advance()?;
            }
            _ => list.extend(&self.lists.list),
        }
        self.lists.advance()
    }
}

/// Merges the lists of all pieces, of up to `longest` links, into lists of up to `width` links.
pub(super) fn merge(
    work: &Work<'_>,
    pieces: &[PieceFiles],
    (longest, width): (usize, usize),
    vectors: MergedVectors,
) -> Result<Slots, IndexError> {
    let count = work.data.count();
    work.progress.stage("merging", count as u64);
    let mut readers = try_with_capacity("the readers of parts", pieces.len())?;
    let bounds = ListBounds { vectors: count, links: longest };
    for (number, files) in pieces.iter().enumerate() {
        let lists = ListReader::open(work, &lists_name(number), files.lists, bounds)?;
        let late = (vectors == MergedVectors::All && files.late.bytes > 0)
            .then(|| ListReader::open(work, &late_name(number), files.late, bounds))
            .transpose()?;
        readers.push(PieceReader { lists, late });
    }
    let next = |number: usize, reader: &PieceReader| reader.lists.id.map(|id| Reverse((id, number)));
    let mut heap: BinaryHeap<Reverse<(u32, usize)>> =
        readers.iter().enumerate().filter_map(|(number, reader)| next(number, reader)).collect();
    let mut slots = SlotWriter::create(work, width)?;
    let (mut lists_of_id, mut merged) = ([Vec::new(), Vec::new()], Vec::new());
    for id in 0..count as u32 {
        if (id as usize).is_multiple_of(CHECK_EVERY) {
            work.check_cancelled()?;
            work.progress.advance(u64::from(id));
        }
        lists_of_id.iter_mut().for_each(Vec::clear);
        for list in &mut lists_of_id {
            if let Some(Reverse((_, number))) = heap.peek().copied().filter(|next| next.0.0 == id) {
                heap.pop();
                readers[number].take(list)?;
                heap.extend(next(number, &readers[number]));
            }
        }
        interleave(&lists_of_id, width, &mut merged);
        slots.push(&merged)?;
    }
    work.progress.advance(count as u64);
    slots.finish(work)
}

/// Merges two lists into `merged`: the first link of each, the second of each, and so on, because near links
/// come first. Drops repeats, and all links after `width`.
fn interleave(lists: &[Vec<u32>; 2], width: usize, merged: &mut Vec<u32>) {
    merged.clear();
    for at in 0..lists[0].len().max(lists[1].len()) {
        for list in lists {
            if let Some(link) = list.get(at)
                && merged.len() < width
                && !merged.contains(link)
            {
                merged.push(*link);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_merged_without_repeats() {
        let mut merged = Vec::new();
        interleave(&[vec![1, 2, 3], vec![2, 4]], 8, &mut merged);
        assert_eq!(merged, [1, 2, 4, 3]);
        interleave(&[vec![1, 2, 3], vec![2, 4]], 2, &mut merged);
        assert_eq!(merged, [1, 2]);
        interleave(&[vec![], vec![]], 2, &mut merged);
        assert!(merged.is_empty());
    }
}
