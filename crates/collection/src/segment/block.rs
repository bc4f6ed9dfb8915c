//! A block of the ids of a segment: consecutive ids with a checksum. docs/format/collection-segment.md
//! specifies the bytes.

use crate::ids::{IdKind, Ids, MAX_ID_BYTES};
use bathyal_index::format::identity::Identity;
use std::cmp::Ordering;

/// Bytes of a block.
pub(super) const BLOCK_BYTES: usize = 4096;
/// Bytes before the ids: checksum, number of ids, length of the common prefix, first row, and zeros.
const HEADER_BYTES: usize = 16;
/// Number of ids in a block of numbers.
pub(super) const BLOCK_NUMBERS: usize = (BLOCK_BYTES - HEADER_BYTES) / 8;

/// An id in the form in which ids are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key<'a> {
    Number(u64),
    Text(&'a [u8]),
}

/// Returns the id at position `at` of `ids`; `at` must be below their number.
pub(super) fn key(ids: &Ids, at: usize) -> Key<'_> {
    match ids {
        Ids::Numbers(numbers) => Key::Number(numbers.value(at)),
        Ids::Texts(texts) => Key::Text(texts.value(at).as_bytes()),
    }
}

/// Returns the checksum of the block or piece with this number.
pub(super) fn numbered_checksum(identity: Identity, number: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(identity.checksum(&number.to_le_bytes()), bytes)
}

/// Returns the length of the common prefix.
pub(super) fn shared_prefix(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// Builds a block from ids in ascending order.
#[derive(Debug)]
pub(super) struct BlockBuilder {
    kind: IdKind,
    first_row: u32,
    count: usize,
    /// Length of the common prefix of all texts.
    prefix: usize,
    /// The numbers, or the concatenated texts.
    bytes: Vec<u8>,
    /// The end of each text in `bytes`.
    ends: Vec<usize>,
}

impl BlockBuilder {
    pub(super) fn new(kind: IdKind) -> BlockBuilder {
        BlockBuilder { kind, first_row: 0, count: 0, prefix: 0, bytes: Vec::new(), ends: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds the next id, that of `row`. Returns false if there is no room for it.
    pub(super) fn push(&mut self, row: u32, id: Key<'_>) -> bool {
        match id {
            Key::Number(number) => {
                if self.count == BLOCK_NUMBERS {
                    return false;
                }
                self.bytes.extend_from_slice(&number.to_le_bytes());
            }
            Key::Text(text) => {
                let first = self.ends.first().map_or(text, |end| &self.bytes[..*end]);
                let limit = if self.count == 0 { text.len() } else { self.prefix };
                let prefix = shared_prefix(first, text).min(limit);
                let count = self.count + 1;
                let suffix_bytes = self.bytes.len() + text.len() - count * prefix;
                if HEADER_BYTES + 2 * count + prefix + suffix_bytes > BLOCK_BYTES {
                    return false;
                }
                self.prefix = prefix;
                self.bytes.extend_from_slice(text);
                self.ends.push(self.bytes.len());
            }
        }
        if self.count == 0 {
            self.first_row = row;
        }
        self.count += 1;
        true
    }

    /// Returns the block, numbered `number`, and starts a new one.
    pub(super) fn finish(&mut self, identity: Identity, number: u64) -> Vec<u8> {
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        block.extend_from_slice(&[0; 4]);
        block.extend_from_slice(&(self.count as u16).to_le_bytes());
        block.extend_from_slice(&(self.prefix as u16).to_le_bytes());
        block.extend_from_slice(&self.first_row.to_le_bytes());
        block.extend_from_slice(&[0; 4]);
        match self.kind {
            IdKind::Number => block.extend_from_slice(&self.bytes),
            IdKind::Text => {
                let text_start = HEADER_BYTES + 2 * self.count + self.prefix;
                for (at, end) in self.ends.iter().enumerate() {
                    let suffix_bytes = end - (at + 1) * self.prefix;
                    block.extend_from_slice(&((text_start + suffix_bytes) as u16).to_le_bytes());
                }
                block.extend_from_slice(&self.bytes[..self.prefix]);
                let mut start = 0;
                for end in &self.ends {
                    block.extend_from_slice(&self.bytes[start + self.prefix..*end]);
                    start = *end;
                }
            }
        }
        block.resize(BLOCK_BYTES, 0);
        let crc = numbered_checksum(identity, number, &block[4..]);
        block[..4].copy_from_slice(&crc.to_le_bytes());
        *self = BlockBuilder::new(self.kind);
        block
    }
}

/// A block with a valid checksum.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdBlock<'a> {
    bytes: &'a [u8],
    kind: IdKind,
    count: usize,
    first_row: u32,
    /// The common prefix of all texts.
    prefix: &'a [u8],
}

impl<'a> IdBlock<'a> {
    /// Checks the block numbered `number`.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(super) fn read(
        kind: IdKind,
        identity: Identity,
        number: u64,
        bytes: &'a [u8],
    ) -> Result<IdBlock<'a>, String> {
        if bytes.len() != BLOCK_BYTES {
            return Err(format!("it has {} bytes instead of {BLOCK_BYTES}", bytes.len()));
        }
        let found = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let expected = numbered_checksum(identity, number, &bytes[4..]);
        if found != expected {
            return Err(format!("its checksum is {found:08x}, its content has {expected:08x}"));
        }
        let count = usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
        let prefix_bytes = usize::from(u16::from_le_bytes([bytes[6], bytes[7]]));
        let first_row = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        let too_long = || "its content is longer than the block".to_string();
        let prefix = match kind {
            IdKind::Number if count <= BLOCK_NUMBERS && prefix_bytes == 0 => &[][..],
            IdKind::Number => return Err(too_long()),
            IdKind::Text => {
                let start = HEADER_BYTES + 2 * count;
                bytes.get(start..start + prefix_bytes).ok_or_else(too_long)?
            }
        };
        let block = IdBlock { bytes, kind, count, first_row, prefix };
        if count == 0 {
            return Err("it is empty".into());
        }
        if kind == IdKind::Text {
            let mut last = HEADER_BYTES + 2 * count + prefix_bytes;
            for at in 0..count {
                let end = block.end(at);
                if end < last
                    || end > BLOCK_BYTES
                    || !(1..=MAX_ID_BYTES).contains(&(prefix_bytes + end - last))
                {
                    return Err(format!("id {at} of it is out of bounds"));
                }
                last = end;
            }
        }
        Ok(block)
    }

    /// Returns the number of ids.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the row of the first id.
    pub(super) fn first_row(&self) -> u32 {
        self.first_row
    }

    /// Returns the end of the text at position `at`, in a block of texts.
    fn end(&self, at: usize) -> usize {
        let start = HEADER_BYTES + 2 * at;
        usize::from(u16::from_le_bytes([self.bytes[start], self.bytes[start + 1]]))
    }

    /// Returns the number at position `at`, in a block of numbers.
    pub(super) fn number(&self, at: usize) -> u64 {
        let start = HEADER_BYTES + 8 * at;
        let mut number = [0; 8];
        number.copy_from_slice(&self.bytes[start..start + 8]);
        u64::from_le_bytes(number)
    }

    /// Returns the text at position `at`, in a block of texts: the common prefix and the rest.
    pub(super) fn text(&self, at: usize) -> (&'a [u8], &'a [u8]) {
        let start = match at.checked_sub(1) {
            None => HEADER_BYTES + 2 * self.count + self.prefix.len(),
            Some(before) => self.end(before),
        };
        (self.prefix, &self.bytes[start..self.end(at)])
    }

    /// Compares the id at position `at` with `id`, which is of the same kind.
    pub(super) fn compare(&self, at: usize, id: Key<'_>) -> Ordering {
        match (self.kind, id) {
            (IdKind::Number, Key::Number(number)) => self.number(at).cmp(&number),
            (IdKind::Text, Key::Text(text)) => {
                let (prefix, rest) = self.text(at);
                let begin = &text[..prefix.len().min(text.len())];
                prefix.cmp(begin).then_with(|| rest.cmp(&text[begin.len()..]))
            }
            // Ids of different kinds are never compared.
            (IdKind::Number, Key::Text(_)) => Ordering::Less,
            (IdKind::Text, Key::Number(_)) => Ordering::Greater,
        }
    }

    /// Returns the first position whose id is not below `id`; the number of ids if all are below.
    pub(super) fn lower_bound(&self, id: Key<'_>) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.compare(middle, id).is_lt() { low = middle + 1 } else { high = middle }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(name: &str) -> Identity {
        Identity::of(name)
    }

    #[test]
    fn existing_texts_are_found_and_others_are_not() {
        let mut texts: Vec<String> = (0..900).map(|at| format!("document/{:05}", 3 * at)).collect();
        texts.sort();
        let mut builder = BlockBuilder::new(IdKind::Text);
        let taken = texts
            .iter()
            .zip(0..)
            .take_while(|(text, row)| builder.push(*row + 5, Key::Text(text.as_bytes())));
        let taken = taken.count();
        assert!(taken > BLOCK_BYTES / 8, "the common prefix is stored once: {taken}");
        let bytes = builder.finish(identity("a"), 3);
        let block = IdBlock::read(IdKind::Text, identity("a"), 3, &bytes).unwrap();
        assert_eq!((block.count(), block.first_row()), (taken, 5));
        for (at, text) in texts[..taken].iter().enumerate() {
            let (prefix, rest) = block.text(at);
            assert_eq!([prefix, rest].concat(), text.as_bytes());
            assert_eq!(block.lower_bound(Key::Text(text.as_bytes())), at);
            let after = format!("{text}!");
            assert_eq!(block.lower_bound(Key::Text(after.as_bytes())), at + 1);
        }
        for (text, expected) in [("", 0), ("a", 0), ("doc", 0), ("e", taken), ("document/9", taken)] {
            assert_eq!(block.lower_bound(Key::Text(text.as_bytes())), expected, "{text}");
        }
        for (identity, number) in [(identity("a"), 4), (identity("b"), 3)] {
            assert!(IdBlock::read(IdKind::Text, identity, number, &bytes).is_err(), "another block");
        }
    }

    #[test]
    fn the_longest_texts_fit_and_share_their_prefix() {
        let mut builder = BlockBuilder::new(IdKind::Text);
        let (a, b, c) = ("a".repeat(MAX_ID_BYTES), "b".repeat(MAX_ID_BYTES), "c".repeat(MAX_ID_BYTES));
        for (row, text) in [&a, &b, &c].into_iter().enumerate() {
            assert!(builder.push(row as u32, Key::Text(text.as_bytes())));
        }
        assert!(!builder.push(3, Key::Text("d".repeat(MAX_ID_BYTES).as_bytes())));
        let bytes = builder.finish(identity("a"), 0);
        let block = IdBlock::read(IdKind::Text, identity("a"), 0, &bytes).unwrap();
        assert_eq!(block.text(2), (&b""[..], c.as_bytes()));
        assert!(builder.is_empty(), "a new block was started");
        // The first text is a prefix of the second.
        assert!(builder.push(7, Key::Text(b"ab")) && builder.push(8, Key::Text(b"abc")));
        let bytes = builder.finish(identity("a"), 1);
        let block = IdBlock::read(IdKind::Text, identity("a"), 1, &bytes).unwrap();
        assert_eq!((block.text(0), block.text(1)), ((&b"ab"[..], &b""[..]), (&b"ab"[..], &b"c"[..])));
        assert_eq!(block.lower_bound(Key::Text(b"ab")), 0);
        assert_eq!(block.lower_bound(Key::Text(b"abb")), 1);
    }

    #[test]
    fn blocks_with_correct_checksums_are_still_checked() {
        let mut builder = BlockBuilder::new(IdKind::Text);
        assert!(builder.push(0, Key::Text(b"aa")) && builder.push(1, Key::Text(b"ab")));
        let good = builder.finish(identity("a"), 0);
        // Every value of every byte, with a correct checksum, yields an error or ids within bounds.
        for at in 4..40 {
            for value in 0..=255 {
                let mut bytes = good.clone();
                bytes[at] = value;
                let crc = numbered_checksum(identity("a"), 0, &bytes[4..]);
                bytes[..4].copy_from_slice(&crc.to_le_bytes());
                for kind in [IdKind::Text, IdKind::Number] {
                    let Ok(block) = IdBlock::read(kind, identity("a"), 0, &bytes) else { continue };
                    for row in 0..block.count() {
                        let key = if kind == IdKind::Text { Key::Text(b"aa") } else { Key::Number(7) };
                        let _ = (block.compare(row, key), block.lower_bound(key));
                    }
                }
            }
        }
    }
}
