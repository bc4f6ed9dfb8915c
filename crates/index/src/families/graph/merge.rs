//! The lists of parts that overlap, made one graph: the links of a vector are those that it has in either part.

use super::slots::{SlotWriter, Slots};
use super::work::Work;
use crate::allocate::try_with_capacity;
use crate::error::IndexError;
use crate::format::appender::{Appender, ReadBack, Written};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Bytes of lists of a piece that are read at once: there are many pieces.
const READ_BYTES: usize = 64 << 10;
/// Vectors between two looks at cancellation.
const CHECK_EVERY: usize = 16_384;

/// What was written of the lists of a piece.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Grown {
    /// The lists of all its vectors without those held out, which have none.
    pub(super) lists: Written,
    /// The lists that the vectors held out have changed, and theirs.
    pub(super) late: Written,
}

/// The file of a piece's lists.
pub(super) fn lists_name(piece: usize) -> String {
    format!("lists-{piece}.tmp")
}

/// The file of those that the vectors held out have changed.
pub(super) fn late_name(piece: usize) -> String {
    format!("late-{piece}.tmp")
}

/// Which graph is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// The one without the vectors held out.
    Early,
    /// The one of all vectors.
    Late,
}

/// Writes lists of a piece by rising ids, as they are merged.
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

    /// How far the file is written, on the device.
    pub(super) fn finish(mut self) -> Result<Written, IndexError> {
        self.file.append(&self.buffer)?;
        self.file.sync()
    }
}

/// What no list that was written exceeds.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    vectors: usize,
    links: usize,
}

/// Reads what a [`ListWriter`] wrote.
struct ListReader {
    file: ReadBack,
    bounds: Bounds,
    /// The id of the next list; none at the end.
    id: Option<u32>,
    list: Vec<u32>,
}

impl ListReader {
    /// Begins at the first list of a file.
    fn open(work: &Work<'_>, name: &str, written: Written, bounds: Bounds) -> Result<ListReader, IndexError> {
        let file = ReadBack::in_blocks(work.directory.get(name)?, written, READ_BYTES);
        let mut reader = ListReader { file, bounds, id: None, list: Vec::with_capacity(bounds.links) };
        reader.advance()?;
        Ok(reader)
    }

    /// Goes on to the next list. Its numbers are looked at, since the checksum comes at the end of all.
    fn advance(&mut self) -> Result<(), IndexError> {
        let before = self.id.take();
        if self.file.left() == 0 {
            return Ok(());
        }
        let mut word = [0; 4];
        let mut next = |file: &mut ReadBack| file.fill(&mut word).map(|()| u32::from_le_bytes(word));
        let id = next(&mut self.file)?;
        let degree = next(&mut self.file)? as usize;
        let Bounds { vectors, links } = self.bounds;
        self.list.clear();
        for _ in 0..degree.min(links) {
            self.list.push(next(&mut self.file)?);
        }
        let rises = before.is_none_or(|before| before < id) && (id as usize) < vectors;
        if !rises || degree > links || self.list.iter().any(|link| *link as usize >= vectors) {
            return Err(self.file.lost(&format!("what follows the list of vector {before:?} is no list")));
        }
        self.id = Some(id);
        Ok(())
    }
}

/// The lists of a piece, by rising ids.
struct PieceLists {
    lists: ListReader,
    late: Option<ListReader>,
}

impl PieceLists {
    /// Hands out the next list and goes on.
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

/// Merges the lists of all pieces, none of which has one longer than `longest`, into lists of up to `width` links.
pub(super) fn merge(
    work: &Work<'_>,
    pieces: &[Grown],
    (longest, width): (usize, usize),
    which: Which,
) -> Result<Slots, IndexError> {
    let count = work.data.count();
    work.progress.stage("merging", count as u64);
    let mut readers = try_with_capacity("what parts are read with", pieces.len())?;
    let bounds = Bounds { vectors: count, links: longest };
    for (number, grown) in pieces.iter().enumerate() {
        let lists = ListReader::open(work, &lists_name(number), grown.lists, bounds)?;
        let late = (which == Which::Late && grown.late.bytes > 0)
            .then(|| ListReader::open(work, &late_name(number), grown.late, bounds))
            .transpose()?;
        readers.push(PieceLists { lists, late });
    }
    let next = |number: usize, reader: &PieceLists| reader.lists.id.map(|id| Reverse((id, number)));
    let mut heap: BinaryHeap<Reverse<(u32, usize)>> =
        readers.iter().enumerate().filter_map(|(number, reader)| next(number, reader)).collect();
    let mut slots = SlotWriter::create(work, width)?;
    let (mut given, mut merged) = ([Vec::new(), Vec::new()], Vec::new());
    for id in 0..count as u32 {
        if (id as usize).is_multiple_of(CHECK_EVERY) {
            work.check_cancelled()?;
            work.progress.advance(u64::from(id));
        }
        given.iter_mut().for_each(Vec::clear);
        for list in &mut given {
            if let Some(Reverse((_, number))) = heap.peek().copied().filter(|next| next.0.0 == id) {
                heap.pop();
                readers[number].take(list)?;
                heap.extend(next(number, &readers[number]));
            }
        }
        interleave(&given, width, &mut merged);
        slots.push(&merged)?;
    }
    work.progress.advance(count as u64);
    slots.finish(work)
}

/// What either list has, each once: the first of both, the second of both, and so on, since near ones come first. At most
/// `width`.
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
    fn lists_are_joined_without_repeats() {
        let mut merged = Vec::new();
        interleave(&[vec![1, 2, 3], vec![2, 4]], 8, &mut merged);
        assert_eq!(merged, [1, 2, 4, 3]);
        interleave(&[vec![1, 2, 3], vec![2, 4]], 2, &mut merged);
        assert_eq!(merged, [1, 2]);
        interleave(&[vec![], vec![]], 2, &mut merged);
        assert!(merged.is_empty());
    }
}
